"""Placement: which variants each worker should hold, within its memory.

While memory is free, everything stays loaded. When it is short, a worker holds, in this order:

0. what operators have pinned to it (``planner.residency.pins``);
1. what was loaded for queries a moment ago, because no demand counts these queries yet;
2. what the demand was assigned to (``planner.reconcile.demand_assignment``), and what is there and
   asked for beside it, whichever costs more by its absence (``planner.eviction.rules``): the rule
   by which workers evict. Under a published rule what is there and asked for comes first;
3. coverage: for each class of the demand, the most wanted first, the cheapest variant that meets
   it, on one worker, and then on every other worker as well;
4. what queries have asked for, the last used first;
5. for each task that has no variant yet, one that meets its default SLO;
6. where routes are followed, for each task the variant that takes least, so that a worker can give
   way in accuracy before it refuses;
7. whatever else is there.

What is then left of the memory is filled with the plan before, then by popularity of the task and
accuracy per MiB. So nothing is unloaded for a variant that no query has asked for. Where queries
had something loaded within the last minute, only what pays before its next query comes is loaded
for a plan, and what its next query would load is mostly left to that query
(``planner.eviction.churn.pays_ahead``).

Without an assignment, the plan before, filled up in the same way, stays unless a new one is better,
because a move costs a load and gains nothing by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from planner.reconcile.demand_and_offers import DemandAndOffers, first_held
from planner.reconcile.placing.beside import Beside
from planner.reconcile.placing.copies import SPARE, copy
from planner.reconcile.placing.orders import as_it_came, by_worth
from planner.reconcile.placing.placements import PlacedBefore, as_before, placements_of
from planner.reconcile.task_shares import by_worker, shares
from planner.reconcile.worker_memory import Holdings, Hosts, PlannedWork, There, WorkerMemory
from planner.residency.pins import Held
from planner.selection.eligibility import answers
from planner.types import Candidate, Demand, Snapshot, WorkerReport
from variants.types import (
    DeviceKindName,
    Placement,
    TaskName,
    VariantKey,
    WorkerId,
)

WORTH_MOVING = 0.9
"""Demand that is met equally well has to become cheaper by this factor to justify moves."""
ELSEWHERE = 0.05
"""Part of the demand that looks elsewhere, where routes are followed and no worker has time to
spare: for it variants stay beside the plan (docs/decisions/0007-planning.md)."""


NOTHING_PLACED: PlacedBefore = {}

Offers = Mapping[VariantKey, Candidate]
Work = Mapping[VariantKey, PlannedWork]


def place(
    snapshot: Snapshot,
    workers: Iterable[WorkerReport],
    demand: Sequence[Demand],
    before: Sequence[Placement] = (),
    planned: Mapping[WorkerId, Mapping[VariantKey, PlannedWork]] | None = None,
    *,
    placed: PlacedBefore | None = None,
    unserved: Sequence[Demand] = (),
    rows: Mapping[TaskName, float] | None = None,
    fallback: bool = False,
    rule: str = "modelless",
    busy: float | None = None,
    settled: bool = False,
    by_routes: bool = False,
    pinned: Held | None = None,
) -> tuple[Placement, ...]:
    """Placements with their shares, ordered by worker; on each, the most valuable first, or where
    it has what it is to hold by the plan before, as there.

    The memory of the placements on a worker never exceeds it. Nothing is placed on a worker that
    drains, on a device kind without a profile, or where the variant is quarantined or cannot be
    loaded. Where every worker has what it is to hold by the plan before, and nothing else, that is
    ``before`` itself, the same object.

    Args:
        placed: the placements ``before`` by worker, where somebody knows them.
        planned: what each worker is to hold for its part of the demand.
        unserved: the demand that no worker was planned to hold anything for.
        rows: how many a query of each task has; 1 where it is missing.
        fallback: whether routes are followed, so that a quicker variant is of use beside them.
        rule: what leaves a memory that is short; a name in ``planner.eviction.registry.RULES``.
        busy: the part of the workers' time that the plan gives to the demand; None where it is all.
        settled: whether ``before`` was placed for the same that is ``planned`` now.
        by_routes: whether queries go where routes lead, and not by prices; ``demand`` is what is
            expected then, as copies count by it.
        pinned: what operators have each worker hold, whatever else there is; it fits there.
    """
    memories = [
        WorkerMemory.of(report)
        for report in sorted(workers, key=lambda r: r.id)
        if not report.draining
    ]
    given = DemandAndOffers.of(snapshot, demand, rows or {})
    if planned:
        old = by_worker(before) if placed is None else placed
        _begin(memories, given, pinned)
        _around(given, memories, old, planned, unserved, fallback, rule, busy, by_routes)
        stays = as_before(memories, old, before) if settled else None
        if stays is not None:
            return stays
        return tuple(placements_of(memories, old, planned, settled=settled))
    kept = _emptied(memories, given, pinned)
    _take_asked(given, kept)
    _keep(given, kept, by_worker(before))
    _fill(given, kept)
    fresh = _emptied(memories, given, pinned)
    _fill(given, fresh)
    chosen = fresh if _is_better(_merit(given, fresh), _merit(given, kept)) else kept
    return tuple(
        Placement(worker=memory.report.id, task=key[0], variant=key[1], share=share)
        for memory in chosen
        for key, share in shares(
            memory.report.id, memory.held, given.demand, before, snapshot.transport_ms
        )
    )


def _emptied(
    memories: Iterable[WorkerMemory], given: DemandAndOffers, pinned: Held | None
) -> list[WorkerMemory]:
    """The workers as they are at the beginning of another placement."""
    empty = [memory.emptied(set()) for memory in memories]
    _begin(empty, given, pinned)
    return empty


def _begin(memories: Sequence[WorkerMemory], given: DemandAndOffers, pinned: Held | None) -> None:
    """Begin a placement on workers that are to hold nothing yet: with what is pinned to them."""
    together: dict[DeviceKindName, set[VariantKey]] = {}
    anywhere = There(memories)
    for memory in memories:
        memory.anywhere = anywhere
        memory.together = together.setdefault(memory.report.device_kind, set())
        for key in pinned.get(memory.report.id, ()) if pinned else ():
            memory.take(key, given.offers[memory.report.device_kind][key])


def _around(
    given: DemandAndOffers,
    memories: Sequence[WorkerMemory],
    before: PlacedBefore,
    planned: Mapping[WorkerId, Mapping[VariantKey, PlannedWork]],
    unserved: Sequence[Demand],
    fallback: bool,
    rule: str,
    busy: float | None,
    by_routes: bool,
) -> None:
    """Hold what was planned, what else is asked for, and what else the memory has room for."""
    served = {task for work in planned.values() for task, _ in work}
    there = There(memories)
    coming: dict[tuple[DeviceKindName, VariantKey], float] = {}
    for memory in memories:
        for key, part in planned.get(memory.report.id, {}).items():
            if not memory.is_there(key):
                where = (memory.report.device_kind, key)
                coming[where] = coming.get(where, 0.0) + part.qps

    full = busy is None or busy >= SPARE
    published = rule != "modelless"
    beside = Beside(given, served, coming)
    beside.may_come(unserved, 1.0)
    if full and by_routes:
        beside.may_come(given.demand, ELSEWHERE)

    def by_rule(memory: WorkerMemory, of_kind: Offers, work: Work) -> Iterable[VariantKey]:
        if full:
            work = {key: _needed(part) for key, part in work.items()}
        order = as_it_came if published else by_worth
        return order(of_kind, memory, work, beside.qps, there.has)

    for memory in memories:
        kind = memory.report.device_kind
        offers = given.offers.get(kind, {})
        work = planned.get(memory.report.id, {})
        memory.take_each(memory.fresh(), offers)
        in_order = partial(by_rule, memory, offers, work)
        if published or not memory.take_all_of_worth(offers, work, beside.some(kind), in_order):
            memory.take_each(in_order(), offers)
    _fill(given, memories, before, planned, fallback=fallback, busy=busy, by_routes=by_routes)


def _needed(part: PlannedWork) -> PlannedWork:
    """What is planned where no worker has time to spare: as much of a worker's time as it is given
    would be missing without it, and others would be refused for the queries that go elsewhere."""
    share = part.share if part.share < 1.0 else 1.0
    return part if part.urgent >= share else part._replace(urgent=share)


def _keep(given: DemandAndOffers, memories: Sequence[WorkerMemory], before: PlacedBefore) -> None:
    """Take over what is still possible of an earlier plan."""
    for memory, offers, least_mib in given.roomy(memories):
        memory.take_each(before.get(memory.report.id, ()), offers, least_mib)


def _take_asked(given: DemandAndOffers, memories: Iterable[WorkerMemory]) -> None:
    """Keep what is there and was asked for recently."""
    for memory, offers, least_mib in given.roomy(memories):
        memory.take_each(memory.recent(), offers, least_mib)


def _fill(
    given: DemandAndOffers,
    memories: Sequence[WorkerMemory],
    before: PlacedBefore = NOTHING_PLACED,
    planned: Mapping[WorkerId, Mapping[VariantKey, PlannedWork]] | None = None,
    *,
    fallback: bool = False,
    busy: float | None = None,
    by_routes: bool = False,
) -> None:
    """Fill what is left of the memories: with what is wanted, then what is there, then the rest.

    Where variants were loaded for queries lately, what no query asks for would soon be unloaded
    again: nothing is loaded there but what pays.

    Args:
        fallback: whether a quicker variant is to be held beside what was planned, and copies pay
            where memory is contested.
        by_routes: as in ``place``: copies of what a class needs are spread over classes.
    """
    planned = planned or {}
    held = _held(memories)
    short = []
    for memory in memories:
        offers = given.offers.get(memory.report.device_kind, {})
        if memory.is_short_for(offers, given.total_mib(memory.report.device_kind)):
            short.append(memory)
        else:
            memory.take_each(offers, offers)
    calm = [memory for memory in short if not memory.contested]
    there = There(calm)
    hosts = Hosts(short)
    for wanted in given.demand:
        _cover(wanted, given, hosts, held, there)
    copy(given, short if fallback else calm, memories, busy, spread=by_routes)
    _take_asked(given, short)
    hosts = Hosts(calm)
    for wanted in given.defaults:
        _cover(wanted, given, hosts, held, there)
    for memory, offers, least_mib in given.roomy(short):
        kind = memory.report.device_kind
        tasks = {task for task, _ in planned.get(memory.report.id, {})} if fallback else set()
        for task in sorted(tasks):
            for key, candidate in given.quickest(task, kind):
                if memory.contested and not memory.is_there(key):
                    continue
                if memory.take(key, candidate):
                    break
        rest = given.ranked(kind, [key for key in memory.there if key not in memory.held])
        memory.take_each(rest, offers, least_mib)
    _fill_up(given, calm, before)


def _fill_up(
    given: DemandAndOffers, memories: Sequence[WorkerMemory], before: PlacedBefore
) -> None:
    """Fill memory that nothing asks for: with the plan before, then with whatever fits."""
    _keep(given, memories, before)
    for memory, offers, least_mib in given.roomy(memories):
        for key, candidate in offers.items():
            if memory.left_mib < least_mib:
                break
            memory.take(key, candidate)


def _held(memories: Sequence[WorkerMemory]) -> Holdings:
    """What the workers of a placement are to hold; it grows with them."""
    return {memory.report.device_kind: memory.together for memory in memories}


def _cover(
    wanted: Demand,
    given: DemandAndOffers,
    short: Hosts,
    held: Holdings,
    there: There,
) -> None:
    """Place one variant that meets a class, unless one is placed already.

    A task gets its smallest variant if none meets its default SLO. For a class that no
    query has asked for, one that is ``there`` comes before a cheaper one that is not.
    """
    suitable = given.suitable(wanted)
    if not suitable and wanted.qps == 0.0:
        answering = [c for c in given.views[wanted.task].by_cost if answers(c, None)]
        suitable = sorted(answering, key=lambda c: (c.memory_mib, c.variant))
    if first_held(suitable, held) is not None:
        return
    if wanted.qps == 0.0:
        suitable = sorted(suitable, key=lambda c: not there.has(c.device_kind, (c.task, c.variant)))
    for candidate in suitable:
        key = (candidate.task, candidate.variant)
        hosts = short.with_room(candidate)
        hosts.sort(
            key=lambda memory: (key not in memory.replicas, -memory.left_mib, memory.report.id)
        )
        late = candidate.load_ms + candidate.table.ms[1] > wanted.tightest_ms
        for memory in hosts:
            loads = memory.is_there(key) or memory.pays_ahead(
                candidate, given.queries_qps(wanted), float(late)
            )
            if loads and memory.take(key, candidate):
                return


class _Merit(NamedTuple):
    """How good a plan is; the fields count in this order."""

    answered_qps: float
    tasks: int
    """Tasks with at least one variant for their default SLO."""
    usd_per_1k: float
    """Mean price of what is answered, each class by its cheapest variant."""
    recent: int
    """Recently used replicas that stay."""
    placements: int


def _merit(given: DemandAndOffers, memories: Sequence[WorkerMemory]) -> _Merit:
    held = _held(memories)
    answered_qps = 0.0
    spent = 0.0
    for wanted in given.demand:
        found = first_held(given.suitable(wanted), held)
        if found is not None:
            answered_qps += wanted.qps
            spent += wanted.qps * found.price_usd_per_1k
    return _Merit(
        answered_qps=answered_qps,
        tasks=sum(first_held(given.suitable(d), held) is not None for d in given.defaults),
        usd_per_1k=spent / answered_qps if answered_qps else 0.0,
        recent=sum(key in memory.held for memory in memories for key in memory.recent()),
        placements=sum(len(memory.held) for memory in memories),
    )


def _is_better(new: _Merit, old: _Merit) -> bool:
    if (new.answered_qps, new.tasks) != (old.answered_qps, old.tasks):
        return (new.answered_qps, new.tasks) > (old.answered_qps, old.tasks)
    if new.usd_per_1k < old.usd_per_1k * WORTH_MOVING:
        return True
    if old.usd_per_1k < new.usd_per_1k * WORTH_MOVING:
        return False
    return (new.recent, new.placements) > (old.recent, old.placements)
