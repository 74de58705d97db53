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

from planner.diff import MemoryMib, diff, free
from planner.division import NOTHING, Division, divide, drifted, shares_of
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
    TaskName,
    VariantName,
    WorkerId,
)

Key = tuple[TaskName, VariantName]


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
    return {kind: n for kind, n in sorted(counts.items()) if n > 0}, why


def _division(
    observation: Observation, snapshot: Snapshot, expected: Sequence[Demand], planner: Planner
) -> tuple[Division, dict[WorkerId, dict[Key, float]], bool]:
    """Who serves what, and the time it takes: as the plan says, or anew if it no longer fits.

    True when it is anew.
    """
    workers = [w for w in observation.workers if not w.draining]
    known = [d for d in expected if d.task in snapshot.tasks and d.qps > 0.0]
    if not workers or not known:
        return NOTHING, {}, False
    routes = observation.plan.routes if observation.plan else ()
    shares = shares_of(routes, snapshot)
    fits = shares is not None and shares.keys() == {w.id for w in workers}
    if shares is not None and fits and not drifted(routes, known, _work_ms(snapshot)):
        return Division(routes=routes), shares, False
    prices = {kind.name: kind.usd_per_hour for kind in observation.catalog.device_kinds}
    made = divide(snapshot, workers, known, prices, planner, observation.objective)
    return made, shares_of(made.routes, snapshot) or {}, True


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
