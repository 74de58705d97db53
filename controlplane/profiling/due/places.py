"""Where a profile is measured, and when: beside workers of its kind, on a node that does little.

Pure. What is measured takes only time that nobody else wants, but on a busy node it still costs
queries: two threads of one core share it, and caches are shared.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.profiles import Cause
from variants.types import DeviceKindName
from workers.types import WorkerStatus

CALM = 0.25
"""A node whose workers compute for less than this part of the time is calm: there measuring costs
queries nothing (``python -m tests.bench.profiling.beside``)."""
PATIENCE_S = 300.0
"""How long a profile waits for a calm node that queries can be answered without."""
PAUSE = 4.0
"""So many times as long as something was measured on a busy node nothing is measured there: queries
are slowed for a fifth of the time at most."""


@dataclass(slots=True, kw_only=True)
class NodeLoad:
    """What a node's workers do."""

    busy_ratio: float = 0.0
    """Of the busiest of them."""
    kinds: set[DeviceKindName] = field(default_factory=set)


def node_loads(
    placed: Mapping[str, str],
    workers: Mapping[str, WorkerStatus],
    everywhere: Collection[DeviceKindName] = (),
) -> dict[str, NodeLoad]:
    """What the workers of each node do, by its id.

    Args:
        placed: the node of each worker.
        workers: what they say of themselves; one that has said nothing yet counts for nothing.
        everywhere: kinds that are measured on any node with a worker.
    """
    found: dict[str, NodeLoad] = {}
    for worker, node in placed.items():
        status = workers.get(worker)
        if status is not None:
            there = found.setdefault(node, NodeLoad())
            there.kinds |= {DeviceKindName(status.device_kind), *everywhere}
            there.busy_ratio = max(there.busy_ratio, status.busy_ratio)
    return found


def calmest(kind: DeviceKindName, nodes: Mapping[str, NodeLoad], ids: Iterable[str]) -> str | None:
    """The calmest of these nodes that has workers of a kind."""
    free = [(nodes[id_].busy_ratio, id_) for id_ in ids if kind in nodes[id_].kinds]
    return min(free)[1] if free else None


def goes_now(order: MeasuringOrder, busy_ratio: float, waited_s: float) -> bool:
    """Whether it is measured on a node that is so busy, or waits for a calm one."""
    impatient = order.due.cause is not Cause.DISTURBED and waited_s > PATIENCE_S
    return order.hurried or busy_ratio < CALM or impatient


class Pauses:
    """Nodes that were busy while something was measured on them, and until when they are left alone
    by what does not hurry."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def measured(self, node: str, busy_ratio: float, took_s: float, now_s: float) -> None:
        """Something was measured on a node, or failed, that was so busy when it began."""
        self._until_s = {one: until_s for one, until_s in self._until_s.items() if until_s > now_s}
        if busy_ratio >= CALM:
            self._until_s[node] = now_s + PAUSE * took_s

    def pauses(self, node: str, now_s: float) -> bool:
        return now_s < self._until_s.get(node, now_s)
