"""The policy around an autoscaler: a deployment for each task, queries to its idlest replica.

What no documentation speaks of is as for the static policies (``planner.policies.static``), with
what helps: batches up to the largest within half of the SLO, earliest deadline first, early drop,
and the replica that is done first. A deployment begins with what the trace's own mean rate needs,
as somebody would deploy it who knows that rate.
"""

from collections.abc import Iterable, Mapping
from math import ceil

from planner.batching.protocol import Queue
from planner.latency_table import LatencyTable
from planner.policies.autoscalers.best_variants import best_variants
from planner.policies.autoscalers.deployments import Cluster, Deployment, order_of
from planner.policies.autoscalers.dynamo import SlaPlanner
from planner.policies.autoscalers.kubernetes import Utilisation
from planner.policies.autoscalers.ray_serve import OngoingRequests
from planner.policies.autoscalers.scaling_rule import Deployed, RuleOf
from planner.policies.earliest import EarliestQueue
from planner.policies.offers import (
    INFEASIBLE,
    NOWHERE,
    UNKNOWN,
    Held,
    answering,
    chosen,
    cold,
    least_backlog,
    permits,
    roomiest,
    usable_batch,
)
from planner.policies.static import Pick, unit_ms
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.types import Action, Choice, Demand, Query, Refusal
from variants.types import DeviceKindName, TaskName

UTILISATION = 0.8
"""Of the devices that a deployment begins with, at the mean rate."""


class Scaled:
    """One variant per task, and as many replicas as a rule says."""

    tick_s = 1.0

    def __init__(self, brief: Brief, fleet: Fleet, rule: RuleOf) -> None:
        setting = self._setting = brief.setting
        self._fleet = fleet
        self._held = Held(fleet)
        candidates = answering(fleet, setting.kinds)
        self._tasks = frozenset(candidates)
        demand: dict[TaskName, list[Demand]] = {}
        for wanted in brief.average():
            demand.setdefault(wanted.task, []).append(wanted)
        self._picks = best_variants(candidates, demand, setting.kinds, setting.objective)
        prices = {kind.name: kind.usd_per_hour for kind in setting.kinds}
        self._deployments = {
            task: _deployment(task, made, self._picks, prices if setting.fleet_is_elastic else None,
                              rule)
            for task, made in self._picks.items()
        }  # fmt: skip
        self._cluster = Cluster(fleet, setting.kinds, tuple(self._deployments.values()))

    def queue(self) -> Queue:
        return EarliestQueue(self._batch, waits=False)

    def _batch(self, task: str, table: LatencyTable) -> int:
        return usable_batch(table, self._picks[TaskName(task)].latency_ms)

    def changed(self) -> None:
        self._held.stale = True

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        each = self._deployments.get(query.task)
        if each is None:
            return INFEASIBLE if query.task in self._tasks else UNKNOWN
        each.arrived += 1
        return self._sent(each, query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        each = self._deployments.get(query.task)
        return None if each is None else self._sent(each, query, now_ms)

    def _sent(self, each: Deployment, query: Query, now_ms: float) -> Choice | Refusal:
        made = each.pick
        if query.accuracy is not None and made.accuracy < query.accuracy:
            return INFEASIBLE
        for replicas in (self._held.ready(each.key), self._held.loading(each.key)):
            able = (r for r in replicas if permits(query, r.candidate))
            best = least_backlog(able, query)
            if best is not None:
                if best.candidate.table.ms[1] > query.latency_ms:
                    return INFEASIBLE
                return chosen(best, query, now_ms)
        return self._instantly(each, query) if self._setting.instant else NOWHERE

    def _instantly(self, each: Deployment, query: Query) -> Choice | Refusal:
        able = {kind: c for kind, c in each.pick.offers.items() if permits(query, c)}
        host = roomiest(self._fleet, able)
        if host is None:
            return INFEASIBLE
        self._held.stale = True
        return cold(*host)

    def tick(self, now_s: float) -> Iterable[Action]:
        """Ask the rules whose time has come, and bring the fleet to what they say."""
        self._held.stale = True
        for each in self._deployments.values():
            each.ask(self._fleet, now_s)
        return self._cluster.settle(now_s, elastic=self._setting.fleet_is_elastic)


def _deployment(
    task: TaskName,
    made: Pick,
    others: Mapping[TaskName, Pick],
    usd_per_hour: Mapping[DeviceKindName, float] | None,
    rule: RuleOf,
) -> Deployment:
    order = order_of(made, others.values(), usd_per_hour)
    candidate = made.offers[order[0]]
    deployed = Deployed(
        candidate=candidate,
        latency_ms=made.latency_ms,
        batch=max(1, usable_batch(candidate.table, made.latency_ms)),
    )
    each = Deployment(task, made, rule(deployed), order)
    busy = made.met_qps * unit_ms(candidate, made.latency_ms) / 1_000
    each.target = max(1, ceil(busy / UTILISATION))
    return each


def ray_autoscaling(brief: Brief, fleet: Fleet) -> Scaled:
    return Scaled(brief, fleet, lambda deployed: OngoingRequests(deployed.batch))


def hpa(brief: Brief, fleet: Fleet) -> Scaled:
    return Scaled(brief, fleet, lambda _: Utilisation())


def dynamo(brief: Brief, fleet: Fleet) -> Scaled:
    return Scaled(brief, fleet, SlaPlanner)
