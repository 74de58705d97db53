"""Our own policy: the functions that production calls, called in the same way."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from planner.batching import Schedule
from planner.demand import SloClass, slo_class
from planner.division import paces
from planner.expectation import Expectation
from planner.following import Patience, choose
from planner.policies.policy import Brief
from planner.problem import Planner, Problem, Solution
from planner.queue import Queue
from planner.routes import EMPTY, RouteTable, resolve
from planner.shares import task_share
from planner.simulation.fleet import Fleet
from planner.snapshot import build_snapshot
from planner.solve import solve
from planner.tick import tick
from planner.types import (
    Action,
    Choice,
    Objective,
    Observation,
    Query,
    Refusal,
    Snapshot,
)
from variants.types import Plan, Prefer, ReplicaState, TaskName

PLAN_LIMIT_S = 5.0
"""A guard: plans take some tens of ms, and where it cuts in they are not repeatable."""


def make(brief: Brief, fleet: Fleet) -> "Modelless":
    def planner(problem: Problem, objective: Objective) -> Solution:
        return solve(
            problem, objective, clock=brief.clock_s, time_limit_s=PLAN_LIMIT_S, exact=False
        )

    return Modelless(brief, fleet, planner)


class Modelless:
    """Selection, admission and the tick, as gateways, workers and the control loop use them."""

    def __init__(self, brief: Brief, fleet: Fleet, planner: Planner) -> None:
        setting = brief.setting
        self.tick_s = setting.tick_s
        self._setting = setting
        self._fleet = fleet
        self._planner = planner
        self._objective = setting.objective
        self._snapshot: Snapshot | None = None
        self._before: Snapshot | None = None
        """The latest one, that holds no more."""
        self._routes: RouteTable = EMPTY
        self._patience = Patience()
        self._plan: Plan | None = None
        self._counts: dict[tuple[TaskName, SloClass], float] = {}
        self._tightest: dict[tuple[TaskName, SloClass], float] = {}
        self._classes: dict[tuple[TaskName, float, float | None], tuple[TaskName, SloClass]] = {}
        horizon_s = setting.tick_s + setting.provision_s
        self._expectation = Expectation(
            setting.objective, step_s=setting.tick_s, horizon_s=horizon_s
        )
        views = build_snapshot(setting.catalog, ()).tasks
        self._steps = {name: view.accuracies for name, view in views.items()}

    def queue(self) -> Queue:
        return Schedule()

    def changed(self) -> None:
        self._snapshot = None

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        asked = (query.task, query.latency_ms, query.accuracy)
        counted = self._classes.get(asked)
        if counted is None:
            slo = slo_class(query.latency_ms, query.accuracy, self._steps.get(query.task, ()))
            counted = self._classes[asked] = (query.task, slo)
        self._counts[counted] = self._counts.get(counted, 0.0) + 1.0
        if query.latency_ms < self._tightest.get(counted, inf):
            self._tightest[counted] = query.latency_ms
        snapshot = self._snapshot or self._refresh()
        return choose(snapshot, self._routes, self._patience, query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        self._patience.refused(now_ms)
        snapshot = self._snapshot or self._refresh()
        return choose(snapshot, self._routes, self._patience, query, now_ms)

    def _refresh(self) -> Snapshot:
        snapshot = self._snapshot = build_snapshot(
            self._setting.catalog,
            (
                (
                    worker.view,
                    frozenset(
                        key
                        for key, replica in worker.replicas.items()
                        if replica.state is ReplicaState.READY
                    ),
                )
                for worker in self._fleet.workers.values()
            ),
            transport_ms=0.0,
            before=self._before,
        )
        self._before = snapshot
        if self._plan is not None:
            accurate = self._objective is Objective.ACCURACY
            prefer = Prefer.ACCURACY if accurate else Prefer.COST
            self._routes = resolve(self._plan.routes, snapshot, prefer, self._routes)
        return snapshot

    def tick(self, now_s: float) -> Iterable[Action]:
        counts, self._counts = self._counts, {}
        tightest, self._tightest = self._tightest, {}
        expectation = self._expectation
        if now_s > 0:
            expectation.observe(now_s, counts, tightest, self.tick_s)
        setting = self._setting
        decision = tick(
            Observation(
                catalog=setting.catalog,
                workers=self._fleet.reports(now_s * 1_000),
                demand=expectation.expected,
                inventory={kind.name: kind.count for kind in setting.kinds},
                running={kind.name: self._fleet.count(kind.name) for kind in setting.kinds},
                plan=self._plan,
                now_s=now_s,
                seed=setting.seed,
                objective=self._objective,
                expected=expectation.expected,
                envelope=expectation.envelope,
                settled=expectation.settled,
                elastic=self._objective is Objective.COST,
                transport_ms=0.0,
            ),
            self._planner,
        )
        if decision.changed:
            self._plan = replace(decision.plan, version=1, epoch=1)
            self._snapshot = None
            self._share_anew(self._plan)
        return decision.actions

    def _share_anew(self, plan: Plan) -> None:
        """Tell the queues what the plan gives each task."""
        longest = paces(plan.routes, self._refresh())
        for worker in self._fleet.workers.values():
            assert isinstance(worker.queue, Schedule)
            worker.queue.pace(longest.get(worker.id))
            placed = [p for p in plan.placements if p.worker == worker.id]
            for key, replica in worker.replicas.items():
                share = task_share(placed, worker.id, key[0])
                worker.queue.replan(replica.lane, replica.candidate.table, share)
