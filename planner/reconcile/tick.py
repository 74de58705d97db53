"""The tick: from what is observed to what is done about it.

Everything is derived from the observation and nothing is remembered, so that a controller that
takes over decides what the one before it would have decided.

1. Size: how many workers of each kind there should be (``planner.reconcile.sizing``), if the plan
   decides that.
2. Assign: which worker serves which part of the demand (``planner.reconcile.division``), if the
   demand, the workers or the catalog have changed since the plan was made.
3. Place: what each worker holds (``planner.reconcile.placement``).
4. The difference to what is there, as actions (``planner.reconcile.diff``), and what each replica
   is to be told (``planner.reconcile.replica_targets``).

All of it looks at one snapshot, which is built once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import NamedTuple

from planner.reconcile.by_layout.layout_change import until_changed
from planner.reconcile.by_layout.layout_choice import split
from planner.reconcile.by_zone.zoned_sizing import NeededNear, needed_near
from planner.reconcile.diff import FILLS_S, MemoryMib, Pace, diff
from planner.reconcile.division import divided, looked_lately, of_zones
from planner.reconcile.explanation import (
    ToldOfWorkers,
    explanation,
    told_of_size,
    told_of_workers,
)
from planner.reconcile.kept.routes import unserved
from planner.reconcile.placement import place
from planner.reconcile.placing.copies import with_new
from planner.reconcile.placing.placements import PlacedBefore
from planner.reconcile.replica_targets import (
    RoutedWork,
    planned_rates,
    replica_targets,
    routed_work,
    rows_per_query,
)
from planner.reconcile.sizing import (
    FleetPlanner,
    going_kinds,
    size,
    staying,
    until_replaced,
    without,
)
from planner.reconcile.task_shares import by_worker
from planner.reconcile.unchanged import unchanged
from planner.residency.frozen_plan import frozen_plan, restoring
from planner.residency.pinned_fleet import pinned_least, pinning_layouts
from planner.residency.pinned_room import PinnedRoom
from planner.residency.pins import Arrangement, arrange
from planner.selection.eligibility import forbidding
from planner.selection.snapshot import build_snapshot, same_catalog
from planner.solver.greedy import greedy
from planner.solver.problem import Planner
from planner.types import (
    Action,
    Decision,
    Demand,
    Objective,
    Observation,
    ReplicaKey,
    ReplicaTarget,
    Scale,
    Snapshot,
    WorkerReport,
    WorkerView,
)
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    Rule,
    VariantKey,
)


class _Basis(NamedTuple):
    """What a decision was made from, for the next tick."""

    observation: Observation
    snapshot: Snapshot
    load: float | None = None
    """The even load that the plan was made for."""
    vain_s: float = -inf
    """When another division was last looked for in vain (``planner.reconcile.division``)."""
    put_off: bool = False
    """Whether looking for another one was put off since then."""
    memory_mib: MemoryMib | None = None
    """What each variant takes: the same as long as the catalog is."""
    routed: RoutedWork | None = None
    """What the plan's routes bring to each worker."""
    pinned: frozenset[ReplicaKey] = frozenset()
    """The replicas that operators have stay where they are."""
    told: ToldOfWorkers | None = None
    """What was said of each worker."""
    placed: PlacedBefore | None = None
    """The plan's placements by worker, where they are those of the plan before."""
    fleets: FleetPlanner | None = None
    """What found how many workers there are to be."""

    def due(self, now: Observation) -> bool:
        """Whether a search that was put off is due."""
        return self.put_off and not looked_lately(now, self.vain_s)


def tick(
    observation: Observation,
    planner: Planner = greedy,
    before: Decision | None = None,
    *,
    explained: bool = True,
) -> Decision:
    """One turn of the control loop: size, assign, place, and say what has to change.

    The same observation gives the same decision, as long as the planner keeps to that. Actions
    come in the order to apply: scaling, unloads, loads.

    ``before`` is an earlier decision: it is returned where nothing that counts has changed since,
    and otherwise what did not change is taken from it; the result is the same. But a division that
    was looked for in vain is not looked for again at once (``planner.reconcile.division.VAIN_S``).

    Where nobody reads what each worker is to hold, it need not be ``explained``.
    """
    basis = before.basis if before is not None and isinstance(before.basis, _Basis) else None
    stays = basis is not None and unchanged(basis.observation, observation)
    if before is not None and basis and stays and not basis.due(observation):
        return before
    snapshot = _snapshot(observation, None if basis is None else basis.snapshot)
    if observation.frozen is not None and observation.plan is not None:
        return _as_frozen(observation, snapshot, observation.plan, observation.frozen)
    expected = observation.demand if observation.expected is None else observation.expected
    near = NeededNear()
    if observation.elastic and not observation.layouts:
        envelope = expected if observation.envelope is None else observation.envelope
        near = needed_near(snapshot, observation, envelope, planner)
    fleets_before = None if basis is None else basis.fleets
    workers, why, fleets = _workers(observation, snapshot, expected, planner, near, fleets_before)
    seen, going = observation, going_kinds(workers, observation)
    held = until_replaced(workers, going, observation)
    going -= held
    if going and any(not w.draining and w.device_kind not in going for w in observation.workers):
        observation = without(observation, going)
        snapshot = _snapshot(observation, snapshot)
    likely_load = None if basis is None else basis.load
    before_now = observation.plan.placements if observation.plan else ()
    is_latest = before is not None and before.plan.placements is before_now
    placed_before = basis.placed if basis is not None and is_latest else None
    if placed_before is None:
        placed_before = by_worker(before_now)
    pins = arrange(observation.catalog, observation.workers, before_now)
    assignment, shares, again, vain_s, put_off = divided(
        observation, snapshot, expected, planner, likely_load,
        PinnedRoom(pins.held, snapshot) if pins.held else None,
        -inf if basis is None else _vain_s(basis, seen), basis is not None and basis.put_off,
        None if basis is None else basis.routed,
    )  # fmt: skip
    load = assignment.load if again else likely_load
    rows = rows_per_query(observation.workers)
    routed = routed_work(
        None if basis is None else basis.routed, assignment.routes, shares, snapshot, rows
    )
    by_routes = observation.objective is not Objective.ACCURACY
    placements = place(
        snapshot,
        observation.workers,
        with_new(expected, observation.demand) if by_routes else observation.demand,
        before_now,
        routed.work,
        placed=placed_before,
        unserved=unserved(routed.classes.qps, expected),
        rows=rows,
        rule=observation.eviction,
        settled=is_latest and basis is not None and basis.routed is routed,
        busy=load,
        by_routes=by_routes,
        # On a fixed fleet under cost the cheapest variant is nearly always the quickest too:
        # another one would take memory from what queries ask for.
        fallback=observation.elastic or observation.objective is Objective.ACCURACY,
        pinned=pins.held,
    )
    memory_mib, pinned = _memory_mib(basis, snapshot), _replicas(pins)
    # In which order queries used them last is no reason for another plan.
    placed = before_now if _same(before_now, placements) else placements
    told = ToldOfWorkers()
    if explained:
        of_before = None if basis is None else basis.told
        told = told_of_workers(memory_mib, observation.workers, placed, of_before)
    plan = Plan(
        version=0,
        epoch=0,
        placements=placed,
        workers=workers,
        explanation=(
            *((why,) if observation.layouts else ()),
            *near.sentences,
            *(() if observation.layouts else told_of_size(seen, why)),
            *explanation(
                observation,
                assignment,
                again,
                pins.lacks,
                told.sentences,
            ),
        ),
        routes=assignment.routes,
    )
    if seen.layouts:
        counts = until_changed(workers, plan, seen, snapshot)
    else:
        counts = {
            **staying(workers, going, placements, observation),
            **{kind: seen.running[kind] for kind in held},
        }
    moves: tuple[Action, ...] = ()
    if not placements or placements is not before_now:  # otherwise all of it is in place
        moves = diff(
            placements, observation.workers, memory_mib, pinned, _pace(observation, snapshot)
        )
    return Decision(
        plan=plan,
        changed=_differs(plan, observation.plan),
        actions=(*_scaling(counts, seen.running, why), *moves),
        targets=_targets(basis, before, plan, snapshot, routed, observation.interference, pinned),
        basis=_Basis(
            seen,
            snapshot,
            load,
            vain_s,
            put_off,
            memory_mib,
            routed,
            pinned,
            told,
            placed_before if placed is before_now else None,
            fleets,
        ),
    )


def _targets(
    basis: _Basis | None,
    before: Decision | None,
    plan: Plan,
    snapshot: Snapshot,
    routed: RoutedWork,
    interference: Mapping[DeviceKindName, float],
    pinned: frozenset[ReplicaKey],
) -> Mapping[ReplicaKey, ReplicaTarget]:
    """What each replica is told: those of the decision before where the plan is the same."""
    if (
        basis is not None
        and before is not None
        and before.plan.placements is plan.placements
        and basis.routed is routed
        and basis.pinned == pinned
        and basis.observation.interference == interference
        and basis.snapshot.transport_ms == snapshot.transport_ms
    ):
        return before.targets
    return replica_targets(plan, snapshot, routed.rates, interference, pinned)


def _vain_s(basis: _Basis, now: Observation) -> float:
    """When another division was last looked for in vain, if that still says something."""
    before = basis.observation
    same = before.catalog.state == now.catalog.state and [
        (w.id, w.draining) for w in before.workers
    ] == [(w.id, w.draining) for w in now.workers]
    return basis.vain_s if same else -inf


def _as_frozen(observation: Observation, snapshot: Snapshot, before: Plan, rule: Rule) -> Decision:
    """What is done while an operator has the plan stay as it is: it is restored.

    Workers that an operator asks for are started and stopped all the same.
    """
    memory_mib, workers = memory_of(snapshot), observation.workers
    plan, pins = frozen_plan(observation, before, rule, memory_mib)
    pinned = _replicas(pins)
    here = {worker.id for worker in workers}
    followed = [route for route in plan.routes if route.worker in here]
    rates = planned_rates(followed, snapshot, rows_per_query(workers))
    scaled: tuple[Action, ...] = ()
    if not observation.elastic:
        counts = {kind: n for kind, n in sorted(observation.inventory.items()) if n > 0}
        plan = replace(plan, workers=counts)
        scaled = tuple(_scaling(counts, observation.running, observation.sized_by))
    actions = diff(plan.placements, workers, memory_mib, pinned, _pace(observation, snapshot))
    return Decision(
        plan=plan,
        changed=_differs(plan, before),
        actions=(*scaled, *restoring(actions, workers, memory_mib)),
        targets=replica_targets(
            replace(plan, routes=tuple(followed)), snapshot, rates, observation.interference, pinned
        ),
        basis=_Basis(observation, snapshot),
    )


def _replicas(pins: Arrangement) -> frozenset[ReplicaKey]:
    """What is pinned, as replicas."""
    return frozenset((worker, *key) for worker, keys in pins.held.items() for key in keys)


_placed = attrgetter("worker", "task", "variant", "share")


def _same(one: Sequence[Placement], other: Sequence[Placement]) -> bool:
    """Whether the same is placed, in whatever order."""
    if len(one) != len(other) or one == other:
        return len(one) == len(other)
    # What stays is the same object, which mostly is all: only the rest is compared.
    were, are = set(map(id, one)), set(map(id, other))
    left = {_placed(each) for each in one if id(each) not in are}
    # Where it is not, mostly nearly all shares are others: the first that differs ends it.
    come = map(_placed, [each for each in other if id(each) not in were])
    return all(map(left.__contains__, come))


def _differs(plan: Plan, before: Plan | None) -> bool:
    return (
        before is None
        or before.placements != plan.placements
        or before.routes != plan.routes
        or dict(before.workers) != plan.workers
        or of_zones(before) != of_zones(plan)
    )


def _snapshot(observation: Observation, before: Snapshot | None) -> Snapshot:
    known = {} if before is None else before.workers
    # The same object where it would be equal: then candidates are taken over as they are.
    kept = [
        old
        if (old := known.get(each.id)) is not None
        and old.device_kind == each.device_kind
        and old.draining is each.draining
        else _view(each)
        for each in observation.workers
    ]
    return build_snapshot(
        observation.catalog,
        # What is ready where is in the reports: candidates that do not name it are those of the
        # tick before.
        [(view, ()) for view in kept],
        transport_ms=observation.transport_ms,
        before=before,
    )


def _pace(observation: Observation, snapshot: Snapshot) -> Pace | None:
    """How quickly workers may swap variants; None where they may at once."""
    if observation.swaps_s == inf:
        return None
    rules = observation.catalog.rules

    def load_s(key: VariantKey, kind: DeviceKindName) -> float:
        task, variant = key
        view = snapshot.tasks.get(task)
        candidate = None if view is None else view.of(variant, kind)
        return 0.0 if candidate is None else candidate.load_ms / 1_000

    return Pace(
        swaps_s=observation.swaps_s,
        fills_s=max(observation.swaps_s, FILLS_S),
        load_s=load_s,
        forbidden=lambda key, kind: forbidding(rules, key, kind) is not None,
    )


def _memory_mib(basis: _Basis | None, snapshot: Snapshot) -> MemoryMib:
    """What each variant takes; as it was found before where the catalog is the same."""
    known = None if basis is None else basis.memory_mib
    if known is not None and basis is not None and same_catalog(basis.snapshot, snapshot):
        return known
    return memory_of(snapshot)


def memory_of(snapshot: Snapshot) -> MemoryMib:
    """What each variant takes on each device kind it has a profile on."""
    return {
        (candidate.device_kind, candidate.task, candidate.variant): candidate.memory_mib
        for view in snapshot.tasks.values()
        for candidate in view.by_cost
    }


def _workers(
    observation: Observation,
    snapshot: Snapshot,
    expected: Sequence[Demand],
    planner: Planner,
    near: NeededNear,
    before: FleetPlanner | None,
) -> tuple[dict[DeviceKindName, int], str, FleetPlanner | None]:
    """Worker counts by kind, with the reason, and what was found for the next tick."""
    inventory = observation.inventory
    if not observation.elastic:
        counts = {kind: n for kind, n in sorted(inventory.items()) if n > 0}
        return counts, observation.sized_by, None
    if observation.layouts:
        return *split(snapshot, pinning_layouts(observation), expected, planner), None
    absent = observation.absent
    if observation.plan is None and not expected:
        here = {kind: n for kind, n in inventory.items() if kind not in absent}
        known = here if any(here.values()) else dict(inventory)
        return known, "nothing is known of the demand yet", None
    usable: dict[DeviceKindName, int] = {}
    for report in observation.workers:
        if not report.draining:
            usable[report.device_kind] = usable.get(report.device_kind, 0) + 1
    least = {
        kind: max(observation.least.get(kind, 0), near.least.get(kind, 0)) for kind in inventory
    }
    counts, why, found = size(
        snapshot,
        {kind.name: kind for kind in observation.catalog.device_kinds},
        inventory,
        # What waits for a machine was not there yet: nothing is kept because it was ordered.
        {kind: 0 if kind in absent else n for kind, n in observation.running.items()},
        usable,
        expected if observation.envelope is None else observation.envelope,
        planner,
        watched=observation.watched,
        steady=observation.steady,
        objective=observation.objective,
        least=pinned_least(observation.catalog, inventory, least),
        interference=observation.interference,
        room=observation.room.part,
        dispersion=observation.dispersion,
        before=before,
    )
    if not any(counts.values()):
        # One worker stays to answer the next query, whenever it comes.
        prices = {kind.name: kind.usd_per_hour for kind in observation.catalog.device_kinds}
        there = [kind for kind, most in inventory.items() if most > 0 and kind in prices]
        running = observation.running
        there.sort(key=lambda k: (k in absent, not running.get(k, 0), prices[k], k))
        counts = dict.fromkeys(there[:1], 1)
        why = "one stays for the next query"
    return {kind: n for kind, n in sorted(counts.items()) if n > 0}, why, found


def _view(report: WorkerReport) -> WorkerView:
    """What the snapshot of a tick has of a worker: nothing that changes with what it holds, so that
    it is the same from one tick to the next."""
    return WorkerView(id=report.id, device_kind=report.device_kind, draining=report.draining)


def _scaling(
    wanted: Mapping[DeviceKindName, int], running: Mapping[DeviceKindName, int], why: str
) -> Iterable[Action]:
    for kind in sorted({*wanted, *running}):
        want, have = wanted.get(kind, 0), running.get(kind, 0)
        if want != have:
            yield Scale(device_kind=kind, count=want, why=f"{want} instead of {have}: {why}")
