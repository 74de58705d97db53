"""Loki (Ahmad et al., HPDC'24): hardware scaling while it is enough, then accuracy scaling.

* *Resource manager* (section 4): the program of ``loki_plan``, every ten seconds, on a moving
  average of the demand.
* *Load balancer* (section 5, MostAccurateFirst): every second the demand is dealt out to the
  servers, the most accurate first, each up to its capacity. What a server has left over after that
  makes it a backup.
* *Early dropping with opportunistic rerouting*: a query that would be late where it is sent goes to
  the backup that is in time, the most accurate of them; it is dropped only when none is.

All tasks here are pipelines of one stage, so that a stage's budget is the whole SLO and what a
cascade multiplies is 1.

Where the paper is silent, and what was assumed:

* The average rises faster than it falls, as in Proteus; the program plans for ``HEADROOM`` times
  it, and is also solved at once when the demand exceeds what was planned for.
* On a fleet that is there throughout, servers that hardware scaling does not need take further
  copies of what is planned, those with the most load first: an idle server would save nothing.
* A server that is not needed is released after a minute, the least that is billed.
* Loads, and queries while they go on, as in ``proteus``: it is by the same authors and shares its
  code here.
"""

from collections.abc import Iterable
from math import inf

from planner.batching.protocol import Queue
from planner.policies.earliest import EarliestQueue
from planner.policies.offers import chosen, is_in_time, permits, usable_batch
from planner.policies.published.loki_plan import LokiPlan, allocate
from planner.policies.published.proteus import FADED_QPS, Proteus, Share, SloClass
from planner.policies.published.proteus_plan import Family, Setup, setups
from planner.simulation.fleet import LEAST_BILLED_MS, Fleet, Replica
from planner.simulation.policy import Brief
from planner.types import Action, Choice, Query, Refusal, Scale
from variants.types import DeviceKindName, TaskName

PERIOD_S = 10.0
"""Of the resource manager."""
HEADROOM = 1.2
"""Times the demand that is planned for; 1.0 and 1.5 were tried
(docs/decisions/0019-other-policies.md)."""


def make(brief: Brief, fleet: Fleet) -> "Loki":
    return Loki(brief, fleet)


class Loki(Proteus):
    """Plans servers, deals out the demand and reroutes what would be late."""

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        super().__init__(brief, fleet)
        self._loki: LokiPlan | None = None
        self._needless_s: dict[DeviceKindName, float] = {}
        """Since when fewer servers of a kind are needed than there are."""

    def queue(self) -> Queue:
        return EarliestQueue(self._batch, waits=False)

    # -- queries ----------------------------------------------------------------------------------

    def _routed(self, found: SloClass, query: Query, now_ms: float) -> Choice | Refusal:
        if found.stale:
            self._find_routes(found)
        first = found.next(query)
        if first is not None and is_in_time(first, query, now_ms):
            return chosen(first, query, now_ms)
        best: Replica | None = None
        rank = (-inf, -inf)
        for replica in (*(share.replica for share in found.shares), *found.others):
            if replica.worker.id == query.avoid or not permits(query, replica.candidate):
                continue
            if is_in_time(replica, query, now_ms):
                own = (replica.candidate.accuracy, -replica.worker.view.busy_until_ms)
                if own > rank:
                    best, rank = replica, own
        if best is not None:
            return chosen(best, query, now_ms)
        if self._setting.instant:
            return self._instantly(query)
        return self._waiting(query, now_ms)

    def _find_routes(self, found: SloClass) -> None:
        """MostAccurateFirst: deal the class's part of the demand out to the servers."""
        found.stale = False
        found.shares, found.others = [], []
        whole = sum(c.qps for c in self._by_key.values() if c.task == found.task)
        part = found.qps / whole if whole else 1.0
        left_qps = found.qps
        servers = [
            replica
            for candidate in self._candidates.get(found.task, ())
            if candidate.accuracy >= found.floor and candidate.table.ms[1] <= found.tightest_ms
            for replica in self._held.ready((candidate.task, candidate.variant))
            if replica.candidate is candidate
        ]
        for replica in sorted(servers, key=lambda r: -r.candidate.accuracy):
            flow = min(max(left_qps, 0.0), part * peak_qps(replica, found.tightest_ms))
            left_qps -= flow
            if flow > 0.0:
                found.shares.append(Share(replica, flow))
            else:
                found.others.append(replica)

    # -- the plan ---------------------------------------------------------------------------------

    def tick(self, now_s: float) -> Iterable[Action]:
        actions = super().tick(now_s)
        return [action for action in actions if not isinstance(action, Scale)] + [
            *self._scaling(now_s)
        ]

    def _is_due(self, now_s: float) -> bool:
        planned = sum(self._planned.values())
        demand = sum(found.qps for found in self._by_key.values())
        return now_s >= self._planned_s + PERIOD_S - 1e-6 or demand > HEADROOM * planned

    def _solve(self, now_s: float) -> None:
        self._planned = {k: c.qps for k, c in self._by_key.items() if c.qps > FADED_QPS}
        self._planned_s = now_s
        families = [
            Family(task, self._by_key[task, ms, floor].tightest_ms, floor, HEADROOM * qps)
            for (task, ms, floor), qps in self._planned.items()
        ]
        options: list[Setup] = []
        for task in dict.fromkeys(family.task for family in families):
            latencies_ms = [f.latency_ms for f in families if f.task == task]
            options += setups(self._candidates.get(task, ()), latencies_ms)
        self._loki = allocate(families, options, self._setting.kinds, self._held_now())

    def _wanted(self) -> dict[Setup, int] | None:
        """Devices by setup; on a fleet that is there throughout, all of them."""
        if self._loki is None:
            return None
        wanted = dict(self._loki.counts)
        if self._setting.fleet_is_elastic:
            return wanted
        load: dict[TaskName, float] = {}
        for (task, _, _), qps in self._planned.items():
            load[task] = load.get(task, 0.0) + qps
        for kind in self._setting.kinds:
            there = [setup for setup in wanted if setup.kind == kind.name]
            for _ in range(kind.count - sum(wanted[setup] for setup in there)):
                if there:
                    wanted[max(there, key=lambda s: load[s.task] / _capacity(wanted, s.task))] += 1
        return wanted

    def _scaling(self, now_s: float) -> Iterable[Action]:
        """Order what the plan needs at once; release what it has not needed for a minute."""
        if not self._setting.fleet_is_elastic or self._loki is None:
            return
        for kind in self._setting.kinds:
            need = sum(n for setup, n in self._loki.counts.items() if setup.kind == kind.name)
            have = self._fleet.count(kind.name)
            if need >= have:
                self._needless_s.pop(kind.name, None)
                if need > have:
                    yield Scale(device_kind=kind.name, count=need)
                continue
            since_s = self._needless_s.setdefault(kind.name, now_s)
            if now_s - since_s >= LEAST_BILLED_MS / 1_000:
                del self._needless_s[kind.name]
                yield Scale(device_kind=kind.name, count=need)


def peak_qps(replica: Replica, latency_ms: float) -> float:
    """What a server serves in batches of half an SLO."""
    table = replica.candidate.table
    batch = usable_batch(table, latency_ms)
    return batch * 1_000 / table.ms[batch] if batch else 0.0


def _capacity(wanted: dict[Setup, int], task: TaskName) -> float:
    return max(sum(n * setup.peak_qps for setup, n in wanted.items() if setup.task == task), 1e-9)
