"""What a query needs, as parameters of the Open Inference Protocol.

The protocol knows no SLO, and lets every server name parameters of its own. These are ours, which
clients send and gateways read.
"""

from typing import Any

from variants.types import Prefer

LATENCY = "latency_slo_ms"
ACCURACY = "min_accuracy"
COST = "max_cost_usd_per_1k"
PREFER = "prefer"
BEST_EFFORT = "best_effort"
MODEL_VERSION = "model_version"
PRIORITY = "priority"


def slo_parameters(
    *,
    latency_ms: float | None = None,
    accuracy: float | None = None,
    cost: float | None = None,
    prefer: Prefer | str | None = None,
    best_effort: bool = False,
    model_version: str | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """The parameters that ask for this, as values of JSON.

    What is None is left to the task's default, and is no parameter.

    Args:
        latency_ms: the deadline, in ms.
        accuracy: the floor, from 0 to 1.
        cost: the ceiling, in USD per 1,000 rows.
    """
    given = {
        LATENCY: latency_ms,
        ACCURACY: accuracy,
        COST: cost,
        PREFER: None if prefer is None else str(prefer),
        BEST_EFFORT: best_effort or None,
        MODEL_VERSION: model_version,
        PRIORITY: priority,
    }
    return {name: need for name, need in given.items() if need is not None}
