"""Task shares: which part of a worker's time each task is planned to have.

Under overload a worker first refuses queries of tasks that are above their share.
"""

from collections.abc import Iterable, Mapping
from math import inf

from planner.selection.eligibility import profile_rule
from planner.types import Candidate, Demand
from variants.types import Placement, TaskName, VariantKey, WorkerId

DEADBAND = 0.1
"""Shares that would change by less than this stay as they are, because demand always varies."""
RESERVED = 0.1
"""Part of the time that all tasks share equally, so that a task without queries has some."""


def shares(
    worker: WorkerId,
    held: Mapping[VariantKey, Candidate],
    demand: Iterable[Demand],
    before: Iterable[Placement],
    transport_ms: float,
) -> list[tuple[VariantKey, float]]:
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


def by_worker(placements: Iterable[Placement]) -> dict[WorkerId, dict[VariantKey, Placement]]:
    """Placements by worker and variant."""
    found: dict[WorkerId, dict[VariantKey, Placement]] = {}
    last: WorkerId | None = None
    on: dict[VariantKey, Placement] = {}
    for each in placements:
        if each.worker is not last:  # plans list them worker by worker
            last = each.worker
            on = found.setdefault(last, {})
        on[each.task, each.variant] = each
    return found


def planned_shares(
    held: Mapping[VariantKey, Candidate],
    planned: Mapping[VariantKey, float],
    before: Mapping[VariantKey, float],
) -> list[tuple[VariantKey, float]]:
    """The share of each variant on a worker that the plan gave work, in the order of ``held``.

    The planned parts are stretched to the whole time; as above, all tasks have some of it, and
    shares of the plan before are kept, unless another variant has work now.
    """
    total = sum(planned.values())
    counts = _counts(held)
    floor = RESERVED / len(counts) if counts else 0.0
    scale = (1.0 - RESERVED) / total if total > 0.0 else 0.0
    # Where nothing is planned, as of most.
    least = {task: min(1.0, floor / count) for task, count in counts.items()}
    # Rounding must not bring a variant that has all of it above 1: no catalog takes such a plan.
    made = {
        key: min(1.0, floor / counts[key[0]] + scale * planned[key])
        if key in planned
        else least[key[0]]
        for key in held
    }
    if len(before) != len(made):
        return list(made.items())
    for key, share in made.items():
        was = before.get(key, inf)
        works, worked = key in planned, was > floor / counts[key[0]]
        if works is not worked or not -DEADBAND <= share - was <= DEADBAND:
            return list(made.items())
    return [(key, before[key]) for key in held]


def _task_shares(
    held: Mapping[VariantKey, Candidate], demand: Iterable[Demand], transport_ms: float
) -> dict[TaskName, float]:
    work = dict.fromkeys((task for task, _ in held), 0.0)
    cheapest = sorted(held.values(), key=lambda c: (c.price_usd_per_1k, c.variant))
    for wanted in demand:
        obstacle = profile_rule(wanted, transport_ms)
        for candidate in cheapest:
            if candidate.task == wanted.task and obstacle(candidate) is None:
                work[wanted.task] += wanted.qps * candidate.table.ms[1]
                break
    total = sum(work.values())
    if total <= 0.0:
        return dict.fromkeys(work, 1.0 / len(work)) if work else {}
    floor = RESERVED / len(work)
    scale = (1.0 - RESERVED) / total
    # As in ``planned_shares``: rounding must not bring a task that has all of it above 1.
    return {task: min(1.0, floor + scale * amount) for task, amount in work.items()}


def _counts(held: Mapping[VariantKey, Candidate]) -> dict[TaskName, int]:
    counts: dict[TaskName, int] = {}
    for task, _ in held:
        counts[task] = counts.get(task, 0) + 1
    return counts
