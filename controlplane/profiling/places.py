"""Where a profile is measured: beside the workers of its kind, on a node that does little. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.profiling.profiles import Cause
from variants.types import DeviceKindName

CALM = 0.5
"""A node whose workers compute for less than this part of the time is calm."""
PATIENCE_S = 300.0
"""How long a profile that is there, but not true, waits for a calm node."""


@dataclass(slots=True, kw_only=True)
class NodeLoad:
    """What a node's workers do."""

    busy_ratio: float = 0.0
    """Of the busiest of them."""
    kinds: set[DeviceKindName] = field(default_factory=set)


def calmest(kind: DeviceKindName, nodes: Mapping[str, NodeLoad], ids: Iterable[str]) -> str | None:
    """The calmest of these nodes that has workers of a kind."""
    free = [(nodes[id_].busy_ratio, id_) for id_ in ids if kind in nodes[id_].kinds]
    return min(free)[1] if free else None


def goes_now(cause: Cause, busy_ratio: float, waited_s: float) -> bool:
    """Whether it is measured on a node that is so busy, or waits for a calm one."""
    impatient = cause is not Cause.DISTURBED and waited_s > PATIENCE_S
    return cause is Cause.MISSING or busy_ratio < CALM or impatient
