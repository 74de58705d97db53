"""Our policy where only a sample of the queries is played: it is told what else came.

The forecast sees the counts of the whole trace, tick by tick. The plan is made for the part of the
fleet that is played, from the same part of the demand: at every tick shortly before and in a slice,
otherwise every ``PLAN_EVERY_S``, and then only where the demand has moved or the last plan is not
in place yet.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from planner.approximate.rates import RateTrace
from planner.approximate.sample import Sample
from planner.forecasting.demand import SloClass, slo_class
from planner.policies.modelless import Modelless, planner_of
from planner.policies.several_gateways import SeveralGateways
from planner.selection.eligibility import counts_for_ms
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.solver.problem import Planner
from planner.types import Action, Demand, Query
from variants.types import TaskName

PLAN_EVERY_S = 60.0
"""Between slices, a plan is made so often."""
RUN_UP_TICKS = 3
"""Before a slice, every tick plans for so long, and for as long as a device takes to come."""
STILL = 0.02
"""Between slices, a tick whose demand moved by less than this since the last plan makes none."""


class SampledModelless(Modelless):
    """One per approximate simulation."""

    def __init__(
        self, brief: Brief, fleet: Fleet, planner: Planner, rates: RateTrace, sample: Sample
    ) -> None:
        super().__init__(brief, fleet, planner)
        self._rates = rates
        self._scale = sample.scale
        self._random = np.random.default_rng([brief.setting.seed, 3])
        names, self._class_of_row = rates.classes
        self._names = names
        run_up_s = brief.setting.provision_s + RUN_UP_TICKS * self.tick_s
        self._busy_from_s = [each.begin_s - run_up_s for each in sample.slices]
        self._busy_until_s = [each.end_s for each in sample.slices]
        self._start_s = sample.start_s
        self._planned_s = -inf
        self._planned_for: tuple[Demand, ...] = ()
        self._moving = True
        """Whether the last plan changed anything."""

    def tick(self, now_s: float) -> Iterable[Action]:
        if now_s > 0:
            # What was played is a part of this already.
            self._asked.clear()
            self._observe(now_s, *self._arrived(now_s))
        if not self._due(now_s):
            return ()
        self._note_use(now_s)
        version = self.plan
        actions = tuple(self._decide(now_s))
        self._planned_s, self._planned_for = now_s, self.estimator.expected
        self._moving = bool(actions) or self.plan is not version
        return actions

    def _arrived(
        self, now_s: float
    ) -> tuple[dict[tuple[TaskName, SloClass], float], dict[tuple[TaskName, SloClass], float]]:
        """What came since the last tick, by class, and the tightest latency SLO of each, in ms."""
        part = self._rates.rows(round(now_s - self.tick_s), round(now_s))
        expected = np.bincount(
            self._class_of_row[part], self._rates.requests[part], minlength=len(self._names)
        )
        counts: dict[tuple[TaskName, SloClass], float] = {}
        tightest: dict[tuple[TaskName, SloClass], float] = {}
        for index, count in enumerate(self._random.poisson(expected).tolist()):
            if count:
                task, asked_ms, floor = self._names[index]
                query = Query(task, 1, now_s * 1_000, asked_ms, floor)
                latency_ms = counts_for_ms(query, self._snapshot_for(query))
                key = (task, slo_class(latency_ms, floor, self._steps.get(task, ())))
                counts[key] = counts.get(key, 0.0) + count
                tightest[key] = min(tightest.get(key, inf), latency_ms)
        return counts, tightest

    def _demands(self, now_s: float) -> tuple[tuple[Demand, ...], ...]:
        return tuple(
            tuple(replace(each, qps=each.qps / self._scale) for each in demand)
            for demand in super()._demands(now_s)
        )

    def _due(self, now_s: float) -> bool:
        """Whether this tick makes a plan."""
        index = bisect_right(self._busy_from_s, now_s) - 1
        if now_s <= self._start_s or (index >= 0 and now_s <= self._busy_until_s[index]):
            return True
        if now_s - self._planned_s < PLAN_EVERY_S - 1e-6:
            return False
        return self._moving or moved(self._planned_for, self.estimator.expected) > STILL

    def _note_use(self, now_s: float) -> None:
        """What the plan sends queries to is in use, though they are not played."""
        for route in self.plan.routes if self.plan is not None else ():
            worker = self._fleet.workers.get(route.worker)
            replica = worker and worker.replicas.get((route.task, route.variant))
            if replica:
                replica.last_used_ms = max(replica.last_used_ms, now_s * 1_000)


class SampledByReplies(SampledModelless, SeveralGateways):
    """The same where gateways know of queues what they sent and what replies say."""


def sampled(brief: Brief, fleet: Fleet, rates: RateTrace, sample: Sample) -> SampledModelless:
    """What plays a sample under a setting, as ``planner.policies.several_gateways.make``."""
    by_replies = brief.setting.replies_tell
    policy = SampledByReplies if by_replies else SampledModelless
    return policy(brief, fleet, planner_of(brief), rates, sample)


def moved(before: Sequence[Demand], now: Sequence[Demand]) -> float:
    """The sum of the changes of all classes, as a part of the rate before."""
    rates = {(d.task, d.latency_ms, d.accuracy): d.qps for d in before}
    total = sum(rates.values())
    change = 0.0
    for each in now:
        change += abs(each.qps - rates.pop((each.task, each.latency_ms, each.accuracy), 0.0))
    change += sum(rates.values())
    return change / total if total else (inf if change else 0.0)
