"""The tick: from what is observed to what is done about it.

Everything is derived from the observation, nothing is remembered: a controller that starts anew
decides what the one before it would have decided.

1. Size: how many workers of each kind there should be (``planner.sizing``), if that is ours to say.
2. Divide: who serves which part of the demand (``planner.division``), if the demand, the workers or
   the catalog have changed since the plan was made.
3. Place: what each worker holds (``planner.placement``).
4. The difference to what is there, as actions (``planner.diff``).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from planner.diff import MemoryMib, diff, free
from planner.division import NOTHING, SERVED, Division, divide, drifted, shares_of
from planner.greedy import greedy
from planner.placement import place
from planner.problem import Planner
from planner.sizing import size
from planner.snapshot import build_snapshot
from planner.types import (
    Action,
    Decision,
    Demand,
    Observation,
    Scale,
    Snapshot,
    WorkerReport,
    WorkerView,
)
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    ReplicaState,
    Route,
    TaskName,
    VariantName,
    WorkerId,
)

Key = tuple[TaskName, VariantName]


WORTH_MOVING = 1.1
"""Where not all can be served, a plan has to serve so many times as much to replace another."""

_HEADROOM = {True: "", False: ", without headroom for chance"}


def tick(observation: Observation, planner: Planner = greedy) -> Decision:
    """One turn of the control loop: scale, divide, place, and say what has to change.

    The same observation gives the same decision, as long as the planner keeps to that. Actions
    come in the order to apply: scaling, unloads, loads.
    """
    snapshot = build_snapshot(
        observation.catalog,
        ((_view(report), _ready(report)) for report in observation.workers),
        transport_ms=observation.transport_ms,
    )
    expected = observation.demand if observation.expected is None else observation.expected
    workers, why = _workers(observation, snapshot, expected, planner)
    division, shares, again = _division(observation, snapshot, expected, planner)
    before = observation.plan.placements if observation.plan else ()
    placements = place(snapshot, observation.workers, observation.demand, before, shares)
    plan = Plan(
        version=0,
        epoch=0,
        placements=placements,
        workers=workers,
        explanation=_explanation(snapshot, observation, placements, division, again),
        routes=division.routes,
    )
    changed = (
        observation.plan is None
        or observation.plan.placements != placements
        or observation.plan.routes != plan.routes
        or dict(observation.plan.workers) != workers
    )
    return Decision(
        plan=plan,
        changed=changed,
        actions=(
            *_scaling(workers, observation.running, why),
            *diff(placements, observation.workers, memory_of(snapshot)),
        ),
    )


def memory_of(snapshot: Snapshot) -> MemoryMib:
    """What each variant takes on each device kind it has a profile on."""
    return {
        (candidate.device_kind, candidate.task, candidate.variant): candidate.memory_mib
        for view in snapshot.tasks.values()
        for candidate in view.by_cost
    }


def _workers(
    observation: Observation, snapshot: Snapshot, expected: Sequence[Demand], planner: Planner
) -> tuple[dict[DeviceKindName, int], str]:
    inventory = observation.inventory
    if not observation.elastic:
        return {kind: n for kind, n in sorted(inventory.items()) if n > 0}, "the inventory"
    if observation.plan is None and not expected:
        return dict(inventory), "nothing is known of the demand yet"
    usable: dict[DeviceKindName, int] = {}
    for report in observation.workers:
        if not report.draining:
            usable[report.device_kind] = usable.get(report.device_kind, 0) + 1
    counts, why = size(
        snapshot,
        {kind.name: kind for kind in observation.catalog.device_kinds},
        inventory,
        observation.running,
        usable,
        expected,
        expected if observation.envelope is None else observation.envelope,
        planner,
        settled=observation.settled,
    )
    if not any(counts.values()):
        # Somebody has to answer the next query, whenever it comes.
        prices = {kind.name: kind.usd_per_hour for kind in observation.catalog.device_kinds}
        there = [kind for kind, most in inventory.items() if most > 0 and kind in prices]
        there.sort(key=lambda kind: (not observation.running.get(kind, 0), prices[kind], kind))
        counts = dict.fromkeys(there[:1], 1)
        why = "one stays for whoever comes next"
    return {kind: n for kind, n in sorted(counts.items()) if n > 0}, why


def _division(
    observation: Observation, snapshot: Snapshot, expected: Sequence[Demand], planner: Planner
) -> tuple[Division, dict[WorkerId, dict[Key, float]], bool]:
    """Who serves what, and the time it takes: as the plan says, or anew if it no longer fits.

    True when it is anew.
    """
    workers = sorted((w for w in observation.workers if not w.draining), key=lambda w: w.id)
    known = sorted((d for d in expected if _answerable(snapshot, workers, d)), key=_order)
    if not workers or not known:
        return NOTHING, {}, False
    routes = observation.plan.routes if observation.plan else ()
    shares = shares_of(routes, snapshot)
    fits = shares is not None and shares.keys() == {w.id for w in workers}
    if shares is not None and fits and not drifted(routes, known, _work_ms(snapshot)):
        return Division(routes=routes), shares, False
    prices = {kind.name: kind.usd_per_hour for kind in observation.catalog.device_kinds}
    made = divide(snapshot, workers, known, prices, planner, observation.objective)
    if shares is not None and fits:
        asked, served = sum(d.qps for d in known), _served(made.routes, known)
        if served < SERVED * asked and served < WORTH_MOVING * _served(routes, known):
            # Too much for what is there, and who is left out differs with every tick.
            return Division(routes=routes), shares, False
    return made, shares_of(made.routes, snapshot) or {}, True


def _served(routes: Iterable[Route], demand: Iterable[Demand]) -> float:
    """What routes serve of a demand, in rows per second."""
    planned: dict[tuple[TaskName, float, float | None], float] = {}
    for route in routes:
        key = (route.task, route.latency_ms, route.accuracy)
        planned[key] = planned.get(key, 0.0) + route.qps
    return sum(min(d.qps, planned.get((d.task, d.latency_ms, d.accuracy), 0.0)) for d in demand)


def _answerable(snapshot: Snapshot, workers: Iterable[WorkerReport], wanted: Demand) -> bool:
    """Whether an idle worker of some kind here could answer a class in time.

    What nobody can answer has no routes, and must not look like demand that came since.
    """
    if wanted.qps <= 0.0 or wanted.task not in snapshot.tasks:
        return False
    room_mib: dict[DeviceKindName, float] = {}
    for worker in workers:
        known_mib = room_mib.get(worker.device_kind, worker.memory_mib)
        room_mib[worker.device_kind] = min(known_mib, worker.memory_mib)
    floor = -inf if wanted.accuracy is None else wanted.accuracy
    left_ms = (wanted.slo_ms or wanted.latency_ms) - snapshot.transport_ms
    return any(
        candidate.accuracy >= floor
        and candidate.table.ms[1] <= left_ms
        and candidate.memory_mib <= room_mib.get(candidate.device_kind, -inf)
        and not candidate.canary
        for candidate in snapshot.tasks[wanted.task].by_cost
    )


def _order(demand: Demand) -> tuple[TaskName, float, float]:
    return (demand.task, demand.latency_ms, -inf if demand.accuracy is None else demand.accuracy)


def _work_ms(snapshot: Snapshot) -> dict[TaskName, float]:
    """What a query of each task takes at least."""
    return {
        name: min((c.table.ms[1] for c in view.by_cost), default=1.0)
        for name, view in snapshot.tasks.items()
    }


def _view(report: WorkerReport) -> WorkerView:
    return WorkerView(
        id=report.id,
        device_kind=report.device_kind,
        free_mib=free(report),
        draining=report.draining,
    )


def _ready(report: WorkerReport) -> frozenset[tuple[TaskName, VariantName]]:
    return frozenset(
        (replica.task, replica.variant)
        for replica in report.replicas
        if replica.state is ReplicaState.READY
    )


def _scaling(
    wanted: Mapping[DeviceKindName, int], running: Mapping[DeviceKindName, int], why: str
) -> Iterable[Action]:
    for kind in sorted({*wanted, *running}):
        want, have = wanted.get(kind, 0), running.get(kind, 0)
        if want != have:
            yield Scale(device_kind=kind, count=want, why=f"{want} instead of {have}: {why}")


def _explanation(
    snapshot: Snapshot,
    observation: Observation,
    placements: Sequence[Placement],
    division: Division,
    again: bool,
) -> tuple[str, ...]:
    """A sentence for each worker: what it holds and what does not fit."""
    sentences = []
    if again and division.asked_qps > 0:
        sentences.append(
            f"The demand of {division.asked_qps:.0f} rows per second was divided anew: "
            f"{100 * division.served_qps / division.asked_qps:.1f} % of it can be served, at a "
            f"mean accuracy of {division.accuracy:.4f}{_HEADROOM[division.tail > 0]}."
        )
    memory_mib = memory_of(snapshot)
    by_kind: dict[DeviceKindName, dict[Key, float]] = {}
    for (kind, task, variant), mib in memory_mib.items():
        by_kind.setdefault(kind, {})[task, variant] = mib
    held: dict[WorkerId, list[Key]] = {}
    for placement in placements:
        held.setdefault(placement.worker, []).append((placement.task, placement.variant))
    for report in sorted(observation.workers, key=lambda r: r.id):
        if report.draining:
            sentences.append(f"{report.id} drains and gets nothing.")
            continue
        placed = held.get(report.id, [])
        sizes = by_kind.get(report.device_kind, {})
        used_mib = sum(sizes[key] for key in placed)
        tasks = sorted({task for task, _ in placed})
        quarantined = sorted(
            replica.variant
            for replica in report.replicas
            if replica.state is ReplicaState.QUARANTINED
        )
        left_out = len(sizes) - len(placed) - len(quarantined)
        text = (
            f"{report.id} ({report.device_kind}) holds {len(placed)} of {len(sizes)} variants "
            f"of {', '.join(tasks) or 'no task'} in {used_mib:.0f} of {report.memory_mib:.0f} MiB"
        )
        if quarantined:
            text += f"; quarantined: {', '.join(quarantined)}"
        if left_out > 0:
            text += f"; no room for {left_out}: what demand and recent use ask for came first"
        sentences.append(f"{text}.")
    return tuple(sentences)
