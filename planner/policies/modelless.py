"""Our own policy: the functions that production calls, called in the same way."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import cast

from planner.batching.protocol import LiveQueue
from planner.batching.registry import make_queue
from planner.energy import HourlyCarbon
from planner.forecasting.demand import SloClass, demands, slo_class, smoothed, usual_classes
from planner.forecasting.estimator_of import DEMAND_WEIGHT, estimator_of
from planner.forecasting.forecast import STEP_S
from planner.forecasting.peaks import DeclaredDemand, most
from planner.headroom.dispersion import Dispersion
from planner.policies.layout_watch import LayoutWatch
from planner.policies.live_latency import LiveLatency
from planner.reconcile.tick import tick
from planner.selection.eligibility import MAY_BE_IN_VAIN, answers, counts_for_ms, in_vain
from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import EMPTY, RouteTable, resolve
from planner.selection.snapshot import build_snapshot
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.simulation.policy import Brief
from planner.simulation.results import LayoutChange
from planner.solver.problem import Planner, Problem, Solution
from planner.solver.solve import solve
from planner.types import (
    Action,
    Choice,
    Decision,
    Demand,
    Objective,
    Observation,
    Query,
    Refusal,
    ReplicaKey,
    ReplicaTarget,
    Snapshot,
    WorkerView,
)
from planner.worker_starts import lead_s, loading_s
from variants.types import Plan, TaskName, WorkerId

PLAN_LIMIT_S = 5.0
"""A guard: plans take some tens of ms, and where it cuts in they are not repeatable."""

REPORTED_MS = 1_000.0
"""Workers say so often what their batches take."""


def planner_of(brief: Brief) -> Planner:
    """How plans are made: as in the control loop, with a guard instead of its time limit."""

    def planner(problem: Problem, objective: Objective) -> Solution:
        return solve(
            problem, objective, clock=brief.clock_s, time_limit_s=PLAN_LIMIT_S, exact=False
        )

    return planner


class Modelless:
    """Selection, admission and the tick, as gateways, workers and the control loop use them."""

    weighs_loads = True
    """A load that a query asks for has to be worth what leaves for it, as on workers."""

    def __init__(self, brief: Brief, fleet: Fleet, planner: Planner) -> None:
        setting = brief.setting
        self.tick_s = setting.tick_s
        self._setting = setting
        self._fleet = fleet
        self._planner = planner
        self._planning = setting.planning
        self._snapshot: Snapshot | None = None
        self._before: Snapshot | None = None
        """The latest snapshot; it may be out of date."""
        self._routes: RouteTable = EMPTY
        self._congestion = CongestionWindow()
        self.plan: Plan | None = None
        self._decision: Decision | None = None
        """The latest one."""
        self._targets: Mapping[ReplicaKey, ReplicaTarget] = {}
        self._asked: defaultdict[tuple[TaskName, float, float | None], int] = defaultdict(int)
        """How many queries have asked for what, since the last tick; what no variant has the time
        for counts apart, and what none could ever answer not at all, as in gateways."""
        horizon_s = setting.tick_s + setting.provision_s
        step_s = max(STEP_S, setting.tick_s)
        self.estimator = estimator_of(self._planning, step_s=step_s, horizon_s=horizon_s)
        self.estimator.know(setting.catalog)
        self._dispersion = Dispersion()
        self._of_second: defaultdict[TaskName, int] = defaultdict(int)
        """Queries of each task in the second that has begun, ``_second``."""
        self._second = 0
        self._came_to = 0, 0
        """Queries in time and lost, until the last tick."""
        self._demand: tuple[Demand, ...] = ()
        self._declared = DeclaredDemand()
        start_s = setting.provision_s if setting.fleet_is_elastic else 0.0
        self._lead_s = lead_s(start_s, loading_s(setting.catalog), setting.tick_s)
        self._usual = usual_classes(setting.catalog)
        self._live = LiveLatency(fleet, setting.live_correction, setting.planning.late_share)
        self._heard_ms = 0.0
        """When workers were heard last."""
        self._corrected = False
        """Since the last tick live latency has contradicted what was known."""
        self._layouts = LayoutWatch(setting.split)
        self._hourly = HourlyCarbon()
        self._catalog = self._hourly.at(setting.catalog, 0.0)
        self._steps = steps_of(fleet)
        self._kinds = frozenset(kind.name for kind in setting.kinds if kind.count)
        """Of which there may be devices."""

    @property
    def layout_changes(self) -> Sequence[LayoutChange]:
        """How the machine was split anew, where it may be."""
        return self._layouts.changes

    def queue(self) -> LiveQueue:
        return make_queue(self._planning.batching)

    def changed(self) -> None:
        """What is known of workers, plan or latencies has changed: the next query finds it out."""
        self._snapshot = None

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        found = self._choose(query, now_ms)
        latency_ms = query.latency_ms
        if isinstance(found, Refusal) and found.code in MAY_BE_IN_VAIN:
            snapshot = self._snapshot_for(query)
            if in_vain(query, snapshot):
                return found
            latency_ms = counts_for_ms(query, snapshot, self._kinds)
        self._asked[query.task, latency_ms, query.accuracy] += 1
        if now_ms >= 1_000.0 * (self._second + 1):
            self._end_seconds(now_ms)
        self._of_second[query.task] += 1
        return found

    def _end_seconds(self, now_ms: float) -> None:
        """Take in how many queries came in each second that has ended, as the control loop does."""
        passed = int(now_ms / 1_000.0) - self._second
        if passed > 0:
            self._dispersion.count(self._of_second, 1.0)
            self._dispersion.count({}, passed - 1.0)
            self._of_second.clear()
            self._second += passed

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return self._choose(query, now_ms)

    def refused(self, query: Query, worker: WorkerId, now_ms: float) -> None:
        self._congestion.had_no_time(worker, query, now_ms)
        self._congestion.refused(now_ms, twice=query if query.avoid is not None else None)
        self._live.refused(query, worker, now_ms)

    def _choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        """Production's choice; the query is sent at once."""
        if now_ms - self._heard_ms >= REPORTED_MS:
            self._hear(now_ms)
        snapshot = self._snapshot_for(query)
        found = choose(snapshot, self._routes, self._congestion, query, now_ms)
        if isinstance(found, Choice) and not found.cold:
            longest_ms = self._routes.longest_ms(found.worker.id, query.latency_ms)
            self._congestion.batches.sent(
                found.candidate, found.worker, query.rows, now_ms, longest_ms
            )
        return found

    def _snapshot_for(self, query: Query) -> Snapshot:
        """What can be chosen for a query now."""
        return self._snapshot or self._refresh()

    def _hear(self, now_ms: float) -> None:
        """Take in what workers say of their batches, once a second, as gateways do."""
        self._heard_ms = now_ms
        if self._live.look(now_ms / 1_000):
            self._corrected = True
            self.changed()

    def ran(
        self, replica: Replica, rows: int, run_ms: float, now_ms: float, queries: int, late: int
    ) -> None:
        self._live.ran(replica, rows, run_ms, now_ms, queries, late)

    def _refresh(self) -> Snapshot:
        views = [worker.view for worker in self._fleet.workers.values()]
        snapshot = self._snapshot = self._before = self._snapshot_of(views, self._before)
        self._routes = self._resolved(snapshot, self._routes)
        return snapshot

    def _snapshot_of(self, views: Sequence[WorkerView], before: Snapshot | None) -> Snapshot:
        """What is chosen from; ``views`` are what is known of the fleet's workers, in its order."""
        workers = self._fleet.workers.values()
        return build_snapshot(
            self._live.corrections.corrected(self._catalog),
            [(view, worker.ready) for view, worker in zip(views, workers, strict=True)],
            transport_ms=0.0,
            before=before,
            asked=self._fleet.asked,
        )

    def _resolved(self, snapshot: Snapshot, before: RouteTable) -> RouteTable:
        """The routes of the plan, if there is one."""
        if self.plan is None:
            return before
        return resolve(self.plan.routes, snapshot, self._planning.prefer, before)

    def came_to(self, in_time: int, lost: int) -> None:
        self.estimator.came_to(in_time - self._came_to[0], lost - self._came_to[1])
        self._came_to = in_time, lost

    def tick(self, now_s: float) -> Iterable[Action]:
        counts, tightest = self._counted()
        if now_s > 0:
            self._observe(now_s, counts, tightest)
        return self._decide(now_s)

    def _counted(
        self,
    ) -> tuple[dict[tuple[TaskName, SloClass], float], dict[tuple[TaskName, SloClass], float]]:
        """What came since the last tick, by class, and the tightest latency SLO of each, in ms."""
        counts: dict[tuple[TaskName, SloClass], float] = {}
        tightest: dict[tuple[TaskName, SloClass], float] = {}
        asked, self._asked = self._asked, defaultdict(int)
        for (task, latency_ms, floor), count in asked.items():
            key = (task, slo_class(latency_ms, floor, self._steps.get(task, ())))
            counts[key] = counts.get(key, 0.0) + count
            tightest[key] = min(tightest.get(key, inf), latency_ms)
        return counts, tightest

    def _observe(
        self,
        now_s: float,
        counts: Mapping[tuple[TaskName, SloClass], float],
        tightest: Mapping[tuple[TaskName, SloClass], float],
    ) -> None:
        """Take in what arrived since the last tick."""
        self.estimator.observe(now_s, counts, tightest, self.tick_s)
        weight = 1.0 - (1.0 - DEMAND_WEIGHT) ** self.tick_s
        self._demand = smoothed(self._demand, demands([counts], self.tick_s), weight)

    def _demands(self, now_s: float) -> tuple[tuple[Demand, ...], ...]:
        """The demand now, what is expected, and what devices are to be there for."""
        expected, envelope = self.estimator.expected, self.estimator.envelope
        raised = self._declared.raised(
            expected, self._setting.peaks, now_s, self._lead_s, self._usual
        )
        if not self._declared.due:
            return self._demand, expected, envelope
        return self._demand, raised, most(envelope, raised)

    def _decide(self, now_s: float) -> Iterable[Action]:
        """Production's tick on what there is."""
        setting, planning = self._setting, self._planning
        self._end_seconds(now_s * 1_000.0)
        demand, expected, envelope = self._demands(now_s)
        self._hear(now_s * 1_000)
        moved = self._hourly.moved(now_s)
        corrected, self._corrected = self._corrected or moved, False
        if moved:
            self._catalog = self._hourly.at(setting.catalog, now_s)
            self.changed()
        running = {kind.name: self._fleet.count(kind.name) for kind in setting.kinds}
        observation = Observation(
            catalog=self._live.corrections.alone(self._catalog),
            measured=None if setting.split is None else self._catalog,
            interference=self._live.corrections.interference,
            workers=self._fleet.reports(now_s * 1_000),
            demand=demand,
            inventory={kind.name: kind.count for kind in setting.kinds},
            running=running,
            plan=self.plan,
            now_s=now_s,
            seed=setting.seed,
            objective=planning.objective,
            eviction=planning.eviction,
            expected=expected,
            envelope=envelope,
            room=self.estimator.room,
            dispersion=self._dispersion.of_tasks(),
            watched=self.estimator.watched,
            steady=self.estimator.steady,
            elastic=planning.elastic,
            transport_ms=0.0,
            corrected=corrected,
            swaps_s=setting.tick_s if setting.loads_in_turn else inf,
        )
        observation = self._layouts.observed(observation, running, planning.linger_s)
        decision = tick(observation, self._planner, self._decision, explained=False)
        self._decision = decision
        self._targets = decision.targets
        if decision.changed:
            self._layouts.planned(decision.plan, now_s)
            self.plan = replace(decision.plan, version=1, epoch=1)
            self.changed()
        self._tell_targets()
        return decision.actions

    def _tell_targets(self) -> None:
        """Tell the queues what the plan gives to the replicas that they hold."""
        worker: Worker | None = None
        for (id_, task, variant), target in self._targets.items():
            if worker is None or worker.id != id_:
                worker = self._fleet.workers.get(id_)
                if worker is None:
                    continue
                # It is the same for all that the plan places on a worker.
                cast(LiveQueue, worker.queue).set_longest_batch(target.longest_batch_ms or None)
            replica = worker.replicas.get((task, variant))
            if replica is not None:
                # As ``_tell``, for speed: most have the share that they had.
                replica.planned_qps = target.qps
                if replica.queue.task_share.share != target.share:
                    self._tell(replica, target)

    def begun(self, replica: Replica) -> None:
        """What the plan has loaded is told at once what it brings, as in the product."""
        task, variant = replica.key
        target = self._targets.get((replica.worker.id, task, variant))
        if target is not None:
            self._tell(replica, target)

    def _tell(self, replica: Replica, target: ReplicaTarget) -> None:
        replica.planned_qps = target.qps
        if replica.queue.task_share.share != target.share:
            queue = cast(LiveQueue, replica.worker.queue)
            queue.replan(replica.queue, self._live.table(replica), target.share)


def steps_of(fleet: Fleet) -> dict[TaskName, tuple[float, ...]]:
    """The accuracies of each task's variants, the steps of its SLO classes, as
    ``TaskView.accuracies``."""
    found: dict[TaskName, set[float]] = {}
    for offers in fleet.offers.values():
        for candidate in offers.values():
            if answers(candidate, None):
                found.setdefault(candidate.task, set()).add(candidate.accuracy)
    return {task: tuple(sorted(accuracies)) for task, accuracies in found.items()}
