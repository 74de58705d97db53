"""Shares: how much of a worker's time each task is planned to have.

Under overload a worker refuses first what is above its share.
"""

from collections.abc import Iterable, Mapping, Sequence

from planner.demand import meets
from planner.types import Candidate, Demand
from variants.types import Placement, TaskName, VariantName, WorkerId

DEADBAND = 0.1
"""Shares that move less than this stay as they are: demand never stands quite still."""
RESERVED = 0.1
"""Part of the time that all tasks divide equally, so that a task nobody asked for yet has some."""

Key = tuple[TaskName, VariantName]


def shares(
    worker: WorkerId,
    held: Mapping[Key, Candidate],
    demand: Iterable[Demand],
    before: Iterable[Placement],
    transport_ms: float,
) -> list[tuple[Key, float]]:
    """The share of each variant on a worker, in the order of ``held``; they sum to at most 1,
    rounding aside.

    A task's share follows the work that its demand brings (rate x latency of the cheapest variant
    here that meets it) and is divided equally among its variants. Without demand all tasks have
    the same. Shares of the plan before are kept while the worker holds the same variants and no
    task's share has moved by more than ``DEADBAND``.
    """
    tasks = _task_shares(held, demand, transport_ms)
    counts = _counts(held)
    old = {(p.task, p.variant): p.share for p in before if p.worker == worker}
    if old.keys() == held.keys():
        moved = dict(tasks)
        for (task, _), share in old.items():
            moved[task] -= share
        if all(abs(change) <= DEADBAND for change in moved.values()):
            return [(key, old[key]) for key in held]
    return [(key, tasks[key[0]] / counts[key[0]]) for key in held]


def planned_shares(
    held: Mapping[Key, Candidate], planned: Mapping[Key, float]
) -> list[tuple[Key, float]]:
    """The share of each variant on a worker that the plan gave work, in the order of ``held``.

    The planned parts are stretched to the whole time; as above, all tasks have some of it.
    """
    total = sum(planned.values())
    counts = _counts(held)
    floor = RESERVED / len(counts) if counts else 0.0
    scale = (1.0 - RESERVED) / total if total > 0.0 else 0.0
    return [(key, floor / counts[key[0]] + scale * planned.get(key, 0.0)) for key in held]


def task_share(placements: Sequence[Placement], worker: WorkerId, task: TaskName) -> float:
    """The planned share of a task on a worker: that of all its variants there."""
    return min(1.0, sum(p.share for p in placements if p.worker == worker and p.task == task))


def _task_shares(
    held: Mapping[Key, Candidate], demand: Iterable[Demand], transport_ms: float
) -> dict[TaskName, float]:
    work = dict.fromkeys((task for task, _ in held), 0.0)
    cheapest = sorted(held.values(), key=lambda c: (c.price_usd_per_1k, c.variant))
    for wanted in demand:
        for candidate in cheapest:
            if candidate.task == wanted.task and meets(candidate, wanted, transport_ms):
                work[wanted.task] += wanted.qps * candidate.table.ms[1]
                break
    total = sum(work.values())
    if total <= 0.0:
        return dict.fromkeys(work, 1.0 / len(work)) if work else {}
    floor = RESERVED / len(work)
    scale = (1.0 - RESERVED) / total
    return {task: floor + scale * amount for task, amount in work.items()}


def _counts(held: Mapping[Key, Candidate]) -> dict[TaskName, int]:
    counts: dict[TaskName, int] = {}
    for task, _ in held:
        counts[task] = counts.get(task, 0) + 1
    return counts
