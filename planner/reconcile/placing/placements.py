"""Placements of what workers are to hold: those of the plan before, where that is the same."""

from collections.abc import Iterable, Mapping, Sequence

from planner.reconcile.task_shares import planned_shares
from planner.reconcile.worker_memory import PlannedWork, WorkerMemory
from variants.slots import puts_of
from variants.types import Placement, VariantKey, WorkerId

PlacedBefore = Mapping[WorkerId, Mapping[VariantKey, Placement]]
"""What a plan before places on each worker."""
NOTHING: Mapping[VariantKey, Placement] = {}
_PUTS = puts_of(Placement, "worker", "task", "variant", "share")


def as_before(
    memories: Sequence[WorkerMemory], old: PlacedBefore, before: Sequence[Placement]
) -> tuple[Placement, ...] | None:
    """The placements ``before``, by worker ``old``, if each worker is to hold what it held by them
    and for the same work; None otherwise.

    It is the same object where each worker has just that. Only workers on which something is to
    change have their placements in order, because their loads come in that order.
    """
    moving: set[WorkerId] = set()
    count = 0
    for memory in memories:
        held, there = memory.held.keys(), old.get(memory.report.id, NOTHING)
        if held != there.keys():
            return None
        if held != memory.replicas.keys():
            moving.add(memory.report.id)
        count += len(there)
    if count != len(before):
        return None
    if not moving:
        return tuple(before)
    found: list[Placement] = []
    for memory in memories:
        there = old.get(memory.report.id, NOTHING)
        if memory.report.id in moving:
            memory.put_in_order()
            found += [there[key] for key in memory.held]
        else:
            found += there.values()
    return tuple(found)


def placements_of(
    memories: Iterable[WorkerMemory],
    old: PlacedBefore,
    planned: Mapping[WorkerId, Mapping[VariantKey, PlannedWork]],
    *,
    settled: bool,
) -> Iterable[Placement]:
    """What workers are to hold, with its share; what is as it was before is the same object,
    because that is most of it and objects take long to make.

    Where the old ones were placed for the same work, ``planned_shares`` would find the shares that
    they have.
    """
    found: list[Placement] = []
    put_worker, put_task, put_variant, put_share = _PUTS
    for memory in memories:
        memory.put_in_order()
        id_ = memory.report.id
        there = old.get(id_, NOTHING) if id_ in planned else NOTHING
        if settled and there and there.keys() == memory.held.keys():
            found += [there[key] for key in memory.held]
            continue
        parts = {key: part.share for key, part in planned.get(id_, {}).items()}
        stay = there if len(there) == len(memory.held) else {}
        known = {key: each.share for key, each in stay.items()}
        for key, share in planned_shares(memory.held, parts, known):
            if share == known.get(key):
                found.append(stay[key])
            else:
                placed = object.__new__(Placement)
                put_worker(placed, id_)
                put_task(placed, key[0])
                put_variant(placed, key[1])
                put_share(placed, share)
                found.append(placed)
    return found
