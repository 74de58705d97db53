"""Our own policy: the functions that production calls, called in the same way."""

from collections.abc import Iterable
from dataclasses import replace

from planner.batching import Schedule
from planner.demand import SloClass, demands, slo_class, smoothed
from planner.policies.policy import Brief
from planner.queue import Queue
from planner.selection import select
from planner.simulation.fleet import Fleet
from planner.snapshot import build_snapshot
from planner.tick import tick
from planner.types import Action, Choice, Demand, Observation, Query, Refusal, Snapshot
from variants.types import Plan, ReplicaState, TaskName


def make(brief: Brief, fleet: Fleet) -> "Modelless":
    return Modelless(brief, fleet)


class Modelless:
    """Selection, admission and the tick, as gateways, workers and the control loop use them."""

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        self.tick_s = brief.setting.tick_s
        self._setting = brief.setting
        self._fleet = fleet
        self._snapshot: Snapshot | None = None
        self._plan: Plan | None = None
        self._counts: dict[tuple[TaskName, SloClass], float] = {}
        self._classes: dict[tuple[TaskName, float, float | None], tuple[TaskName, SloClass]] = {}
        self._demand: tuple[Demand, ...] = ()
        self._steps = {
            name: view.accuracies
            for name, view in build_snapshot(brief.setting.catalog, ()).tasks.items()
        }

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
        return select(self._now(), query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return select(self._now(), query, now_ms)

    def _now(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = build_snapshot(
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
            )
        return self._snapshot

    def tick(self, now_s: float) -> Iterable[Action]:
        counts, self._counts = self._counts, {}
        if now_s > 0:
            self._demand = smoothed(self._demand, demands([counts], self.tick_s), 0.5)
        there = {kind.name: self._fleet.count(kind.name) for kind in self._setting.kinds}
        decision = tick(
            Observation(
                catalog=self._setting.catalog,
                workers=self._fleet.reports(now_s * 1_000),
                demand=self._demand,
                inventory={kind.name: kind.count for kind in self._setting.kinds},
                running=there,
                plan=self._plan,
                now_s=now_s,
                seed=self._setting.seed,
            )
        )
        if decision.changed:
            self._plan = replace(decision.plan, version=1, epoch=1)
        return decision.actions
