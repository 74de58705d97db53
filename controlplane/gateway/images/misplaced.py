"""Headers that say of a picture what is needed, and stand with a query that says it in its body.

Whoever sends them believes that they count. They do not, so the query is refused: it would be
answered by another SLO than its client thinks.
"""

from collections.abc import Iterable

from controlplane.gateway.images.asked import BESIDE, PREFER, SLO, shown
from variants.errors import InvalidInput

_V1 = {name: f"slo.{key}" for name, key in {**SLO, PREFER: "prefer"}.items()} | BESIDE
_V2 = {
    "slo-latency-ms": "the parameter latency_slo_ms",
    "slo-accuracy": "the parameter min_accuracy",
    "slo-cost": "the parameter max_cost_usd_per_1k",
    PREFER: "the parameter prefer",
    "x-modelless-variant": "the version",
    "x-modelless-model-version": "the parameter model_version",
    "x-modelless-priority": "the parameter priority",
    "x-modelless-best-effort": "the parameter best_effort",
}
MISPLACED = frozenset(_V1)
"""Names in lower case."""
MISPLACED_BYTES = frozenset(name.encode() for name in MISPLACED)


def misplaced(names: Iterable[str], *, v2: bool = False, what: str = "header") -> InvalidInput:
    """The error of a query with these headers, at least one of which is misplaced.

    Args:
        v2: it is one of the Open Inference Protocol.
        what: how its protocol calls a header.
    """
    name = next(name for name in names if name in MISPLACED)
    said = f"here {_V2[name]} says it" if v2 else f"in JSON {_V1[name]} says it"
    return InvalidInput(f"{what} {shown(name)} counts for a picture alone; {said}")
