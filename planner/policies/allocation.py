"""Dividing a fleet among tasks once and for all, in proportion to their work.

Each task has one variant and a mean rate. All tasks get the same headroom: the largest factor on
all rates at which the fleet still has the time, found by bisection. For a factor, tasks take whole
devices first and then a part of one that others share, the largest task first, within memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.solver.problem import AvailableKind
from variants.types import DeviceKindName, TaskName

STEPS = 40
"""Of the bisection: the headroom is found to one part in a trillion."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A task with what its variant takes on each device kind that can hold it in time."""

    task: TaskName
    qps: float
    unit_ms: Mapping[DeviceKindName, float]
    """Device time per query."""
    memory_mib: Mapping[DeviceKindName, float]


@dataclass(slots=True, kw_only=True)
class Slot:
    """A device to be: its kind and the part of its time that each task on it may count on."""

    kind: DeviceKindName
    left_mib: float
    left: float = 1.0
    shares: dict[TaskName, float] = field(default_factory=dict)

    def take(self, need: Need, share: float) -> None:
        if need.task not in self.shares:
            self.left_mib -= need.memory_mib[self.kind]
        self.shares[need.task] = self.shares.get(need.task, 0.0) + share
        self.left = max(0.0, self.left - share)

    def holds(self, need: Need) -> bool:
        """Whether there is memory for a task."""
        if self.kind not in need.unit_ms:
            return False
        return need.task in self.shares or need.memory_mib[self.kind] <= self.left_mib


def divide(needs: Sequence[Need], kinds: Sequence[AvailableKind]) -> tuple[Slot, ...]:
    """The fleet, divided: every task with one replica at least where memory allows.

    Devices that no task needs are left out.
    """
    needs = [need for need in needs if need.unit_ms]
    if not needs:
        return ()
    slots = _filled(needs, kinds, 0.0)
    able = {task for slot in slots for task in slot.shares}
    needs = [need for need in needs if need.task in able]
    low, high = 0.0, _limit(needs, kinds)
    for _ in range(STEPS):
        middle = (low + high) / 2
        found = _filled(needs, kinds, middle)
        if _is_complete(needs, found, middle):
            slots, low = found, middle
        else:
            high = middle
    _give_away(needs, slots)
    return tuple(slot for slot in slots if slot.shares)


def headroom(needs: Sequence[Need], slots: Sequence[Slot]) -> float:
    """The least factor on a task's rate that its shares could serve."""
    return min((_capacity_qps(need, slots) / need.qps for need in needs if need.qps), default=0.0)


def _capacity_qps(need: Need, slots: Sequence[Slot]) -> float:
    return sum(
        slot.shares.get(need.task, 0.0) * 1_000 / need.unit_ms[slot.kind]
        for slot in slots
        if slot.kind in need.unit_ms
    )


def _is_complete(needs: Sequence[Need], slots: Sequence[Slot], factor: float) -> bool:
    placed = {task for slot in slots for task in slot.shares}
    return all(
        need.task in placed
        and _capacity_qps(need, slots) >= factor * need.qps * (1 - _ROUNDING) - _ROUNDING
        for need in needs
    )


def _limit(needs: Sequence[Need], kinds: Sequence[AvailableKind]) -> float:
    """A factor that no division reaches: each task with the whole fleet for itself."""
    highest = 0.0
    for need in needs:
        alone = sum(
            kind.count * 1_000 / need.unit_ms[kind.name]
            for kind in kinds
            if kind.name in need.unit_ms
        )
        highest = max(highest, alone / max(need.qps, _ROUNDING))
    return highest


def _filled(needs: Sequence[Need], kinds: Sequence[AvailableKind], factor: float) -> list[Slot]:
    """Devices with what they get when every task needs ``factor`` times its rate."""
    slots = [
        Slot(kind=kind.name, left_mib=kind.memory_mib) for kind in kinds for _ in range(kind.count)
    ]
    average_ms = {
        kind.name: _mean([n.unit_ms[kind.name] for n in needs if kind.name in n.unit_ms])
        for kind in kinds
    }
    for need in sorted(needs, key=lambda n: (len(n.unit_ms), -_work(n), n.task)):
        # The kind on which it is better than the others are comes first.
        order = sorted(need.unit_ms, key=lambda k: (need.unit_ms[k] / average_ms[k], k))
        _place(need, slots, order, factor * need.qps)
    return slots


def _place(need: Need, slots: list[Slot], order: Sequence[DeviceKindName], qps: float) -> None:
    """Give a task whole devices, then parts, until a rate is served; one replica at least."""
    rank = {kind: index for index, kind in enumerate(order)}
    left_qps, placed = qps, False
    for kind in order:
        for slot in slots:
            if slot.kind != kind or slot.shares or not slot.holds(need):
                continue
            share = left_qps * need.unit_ms[kind] / 1_000
            if share < 1.0 - _ROUNDING:
                break
            slot.take(need, 1.0)
            placed = True
            left_qps -= 1_000 / need.unit_ms[kind]
    while left_qps > _ROUNDING * qps or not placed:
        open_ = [s for s in slots if s.holds(need) and (s.left > _ROUNDING or not qps)]
        if not open_:
            return
        # The fullest device that still has room for all of it, else the emptiest.
        enough = [s for s in open_ if s.left >= left_qps * need.unit_ms[s.kind] / 1_000]
        if enough:
            slot = min(enough, key=lambda s: (rank[s.kind], s.left, s.left_mib))
        else:
            slot = max(open_, key=lambda s: (-rank[s.kind], s.left))
        share = min(slot.left, left_qps * need.unit_ms[slot.kind] / 1_000)
        slot.take(need, share)
        placed = True
        left_qps -= share * 1_000 / need.unit_ms[slot.kind]


def _give_away(needs: Sequence[Need], slots: Sequence[Slot]) -> None:
    """Give devices that are left to the task with the most to do on each."""
    for slot in slots:
        if not slot.shares:
            able = [need for need in needs if slot.holds(need)]
            if able:
                slot.take(max(able, key=lambda n: n.qps / max(_capacity_qps(n, slots), 1e-9)), 1)


def _work(need: Need) -> float:
    return need.qps * min(need.unit_ms.values())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 1.0
