"""Eligibility: whether a variant may answer a query, and if not, what stands in the way.

This module is the only place for that rule. Selection, refusals, routes, the plan, placement, the
tick and the simulated policies all ask it. The search loops of ``planner.selection.select`` and
``planner.selection.plan_following.follow`` repeat a part of it inline because they must be fast;
properties in ``tests/planner/selection/test_eligibility.py`` compare them with it.

The rule has four parts, from what changes least to what changes most:

0. ``forbidding``: whether an operator has forbidden the variant, on a device kind or on all.
1. ``answers``: the stage of the variant's version, and the variant that the query names.
2. ``profile_rule``: accuracy floor, cost ceiling, rows in one batch, and latency on an idle
   worker that has the variant loaded.
3. ``findings``: which workers hold the variant or can load it, how much of the deadline is left,
   and how long the queues are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from math import inf, isnan, nan, nextafter
from types import MappingProxyType
from typing import NamedTuple, Protocol

from planner.eviction.query_rates import QueryRates
from planner.forecasting.demand import SERIES_MS, slo_class
from planner.selection.load_balancing import least_busy
from planner.types import (
    Candidate,
    Demand,
    ProfileKey,
    Query,
    RefusalCode,
    Snapshot,
    TaskView,
    WorkerReport,
)
from variants.types import (
    DeviceKindName,
    ReplicaState,
    Rule,
    RuleKind,
    Stage,
    VariantKey,
    VariantName,
)


class Obstacle(IntEnum):
    """What stops a candidate, from what never changes to what the next moment may change.

    From ``FEASIBLE`` on, an idle worker that has the candidate loaded would answer.
    """

    CANARY = 0
    """Its version is a canary, or the query names another variant."""
    ACCURACY = 1
    COST = 2
    ROWS = 3
    NO_WORKER = 4
    """No worker holds it and none could load it."""
    LATENCY = 5
    UNLOADABLE = 6
    """No worker holds it, and those that could load it have failed to."""
    LATE = 7
    """Too much of the deadline had passed before the decision."""
    COLD = 8
    """It has to be loaded first."""
    AVOIDED = 9
    """No worker holds it but the one that has just refused or lost the query."""
    QUEUE = 10
    """At most the queue of its least busy worker: there is no other obstacle."""


KEPT_CLASSES = 64
"""Classes of a task for which it is remembered, from tick to tick, who meets them."""

# Looking a member up in its enumeration takes longer than the comparisons of the rule.
READY, LOADING = ReplicaState.READY, ReplicaState.LOADING
_NOTHING: frozenset[VariantKey] = frozenset()
CANARY, ACCURACY, COST, ROWS = Obstacle.CANARY, Obstacle.ACCURACY, Obstacle.COST, Obstacle.ROWS
NO_WORKER, LATENCY, UNLOADABLE = Obstacle.NO_WORKER, Obstacle.LATENCY, Obstacle.UNLOADABLE
LATE, COLD, AVOIDED, QUEUE = Obstacle.LATE, Obstacle.COLD, Obstacle.AVOIDED, Obstacle.QUEUE

FEASIBLE = LATE
"""From this obstacle on, a candidate would answer on an idle worker that has it loaded."""
MAY_BE_IN_VAIN = frozenset(
    {
        RefusalCode.TASK_NOT_FOUND,
        RefusalCode.VARIANT_NOT_FOUND,
        RefusalCode.SLO_INFEASIBLE,
        RefusalCode.NO_WORKERS,
    }
)
"""Refusals of queries that perhaps no variant could answer, whatever the plan."""


class Finding(NamedTuple):
    """A candidate with the first of its obstacles."""

    candidate: Candidate
    obstacle: Obstacle
    wait_ms: float = nan
    """With ``QUEUE``: until its least busy worker is free. Workers change; this does not."""


class Offered(Protocol):
    """What the first part of the rule looks at: a candidate, or an offer to the solver."""

    @property
    def variant(self) -> VariantName: ...
    @property
    def canary(self) -> bool: ...


class Asked(Protocol):
    """What a query, or a class of queries, asks of a variant. ``None`` stands for no limit."""

    @property
    def variant(self) -> VariantName | None: ...
    @property
    def accuracy(self) -> float | None: ...
    @property
    def cost(self) -> float | None: ...
    @property
    def rows(self) -> int: ...
    @property
    def latency_ms(self) -> float: ...


def forbidding(rules: Iterable[Rule], key: VariantKey, kind: DeviceKindName) -> Rule | None:
    """The rule by which an operator has forbidden a variant on a device kind; None: it may run."""
    for rule in rules:
        if rule.kind is RuleKind.FORBID and rule.key == key and rule.device_kind in ("", kind):
            return rule
    return None


def stage_answers(stage: Stage) -> bool:
    """Whether variants of a version in this stage may answer any query at all."""
    return stage is Stage.LIVE or stage is Stage.CANARY


def answers(offer: Offered, pinned_to: VariantName | None) -> bool:
    """Whether a variant may answer queries that name this variant, or none where it is None.

    A query that names a variant is answered by that variant only. A canary answers only queries
    that name it.
    """
    return not offer.canary if pinned_to is None else offer.variant == pinned_to


ProfileRule = Callable[[Candidate], Obstacle | None]
"""The first obstacle of a candidate on an idle worker that has it loaded, or None."""


def profile_rule(asked: Asked, transport_ms: float = 0.0) -> ProfileRule:
    """What stops each candidate on every worker, however idle, for one query or class.

    ``transport_ms`` is what the way to a worker and back takes. The rule that is returned gives
    the first obstacle of a candidate: ``CANARY``, ``ACCURACY``, ``COST``, ``ROWS`` or ``LATENCY``,
    in this order, and None where there is none.
    """
    pinned_to, rows, latency_ms = asked.variant, asked.rows, asked.latency_ms
    floor = -inf if asked.accuracy is None else asked.accuracy
    ceiling = inf if asked.cost is None else asked.cost

    def first_obstacle(candidate: Candidate) -> Obstacle | None:
        table = candidate.table
        if not answers(candidate, pinned_to):
            return CANARY
        if candidate.accuracy < floor:
            return ACCURACY
        if candidate.price_usd_per_1k > ceiling:
            return COST
        if rows > table.max_batch:
            return ROWS
        if table.ms[rows] + transport_ms > latency_ms:
            return LATENCY
        return None

    return first_obstacle


def profile_obstacle(
    candidate: Candidate, asked: Asked, transport_ms: float = 0.0
) -> Obstacle | None:
    """``profile_rule`` for one candidate."""
    return profile_rule(asked, transport_ms)(candidate)


def meets(candidate: Candidate, asked: Asked, transport_ms: float) -> bool:
    """Whether a candidate answers a query or a class, on an idle worker that has it loaded."""
    return profile_obstacle(candidate, asked, transport_ms) is None


def able(
    view: TaskView, wanted: Demand, transport_ms: float, latency_ms: float
) -> Sequence[Candidate]:
    """The candidates of a task that no obstacle keeps from a class with this latency SLO in ms, the
    cheapest first.

    Kept with the view, because ticks ask for the same classes again and again.
    """
    known = view.once("able", dict[object, Sequence[Candidate]])
    # All that the rule asks of a class.
    asked = (wanted.variant, wanted.accuracy, latency_ms, transport_ms)
    found = known.get(asked)
    if found is None:
        if len(known) >= KEPT_CLASSES:
            known.clear()
        obstacle = profile_rule(wanted.at_rate(wanted.qps, latency_ms), transport_ms)
        found = known[asked] = [c for c in view.by_cost if obstacle(c) is None]
    return found


def without_slo(query: Query) -> Query:
    """The same query with no floor, ceiling or deadline: what only has to be able to run."""
    return query._replace(accuracy=None, cost=None, latency_ms=inf)


def in_vain(query: Query, snapshot: Snapshot) -> bool:
    """Whether no variant could ever answer a query, however long it waited and whatever it paid: it
    asks for more rows than any batch has, or for more accuracy than there is, and no plan helps."""
    view = snapshot.tasks.get(query.task)
    candidates = () if view is None else view.pinned_to(query.variant)
    floor = None if query.best_effort else query.accuracy
    needs = without_slo(query)._replace(accuracy=floor)
    obstacle = profile_rule(needs, snapshot.transport_ms)
    return all(obstacle(candidate) is not None for candidate in candidates)


def counts_for_ms(query: Query, snapshot: Snapshot) -> float:
    """The latency SLO in ms for which a query counts as demand: its own, unless no variant that is
    loaded somewhere or could be keeps that, or none costs so little. Then it is less than the class
    of what can be kept.

    The class of an SLO is planned for by the tightest one in it, and where nothing keeps that, not
    at all: a client who asks for 5 ms where 6 are needed would take the workers from who asks for
    9. And classes know no price: for a client who would pay less than any variant costs workers
    would be held, and more of them started, that never answer it. Such queries stay demand, because
    another device kind or another profile may keep their time.

    A query of many rows, whose batch takes so many times longer than a row, counts as rows with so
    much less time. One that would pay a half counts as one with half of the time that is needed, as
    prices are of time.
    """
    asked_ms = query.latency_ms
    view = snapshot.tasks.get(query.task)
    if view is None:
        return asked_ms
    obstacle = profile_rule(query._replace(cost=None, latency_ms=inf))
    fitting = [each for each in view.pinned_to(query.variant) if obstacle(each) is None]
    if not fitting:
        return asked_ms
    # Under best effort it is answered whatever it costs.
    ceiling = inf if query.cost is None or query.best_effort else query.cost
    if affordable := [each for each in fitting if each.price_usd_per_1k <= ceiling]:
        able = _with_workers(affordable)
        if not able:  # nothing but the demand itself has workers of its kind started
            return asked_ms
        needed_ms = min(each.table.ms[query.rows] for each in able) + snapshot.transport_ms
        kept, fitting = asked_ms / needed_ms, _with_workers(fitting)
    else:
        kept = ceiling / min(each.price_usd_per_1k for each in fitting)
    if kept >= 1.0:
        return asked_ms
    row_ms = min(each.table.ms[1] for each in fitting) + snapshot.transport_ms
    as_row_ms = max(kept * row_ms, SERIES_MS[0])
    step_ms, _ = slo_class(row_ms, None, ())
    return as_row_ms if as_row_ms < step_ms else nextafter(step_ms, 0.0)


def _with_workers(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that some worker holds or could load."""
    return [candidate for candidate in candidates if candidate.ready or candidate.hosts]


def kept_out(worker: WorkerReport) -> frozenset[VariantKey]:
    """The variants that a worker must not be given: quarantined there, failed or damaged."""
    # Compared by identity before the property is asked: nearly all replicas are ready.
    found = [
        (r.task, r.variant)
        for r in worker.replicas
        if (state := r.state) is not READY and state is not LOADING and state.kept_out
    ]
    return frozenset(found) if found else _NOTHING


class Circumstances(NamedTuple):
    """What a query meets at one moment."""

    query: Query
    now_ms: float
    left_ms: float
    """What is left of its deadline."""
    transport_ms: float
    kinds: frozenset[DeviceKindName]
    """The device kinds of the workers that do not drain."""
    asked: QueryRates[VariantKey]
    """What queries ask for."""
    unconfirmed: frozenset[ProfileKey] = frozenset()
    """Profiles that no batch has confirmed yet."""
    lacking: Mapping[VariantName, frozenset[DeviceKindName]] = MappingProxyType({})
    """The device kinds that variants are yet to be measured on, whether workers are there or not.
    """
    unmeasurable: Mapping[ProfileKey, str] = MappingProxyType({})
    """Profiles that could not be measured, and why."""

    def unmeasured(self, variant: VariantName) -> frozenset[DeviceKindName]:
        """The kinds of workers that are there on which a variant is yet to be measured."""
        found = self.lacking.get(variant, frozenset()) & self.kinds
        return found.difference(self.failed(variant)) if self.unmeasurable else found

    def failed(self, variant: VariantName) -> Mapping[DeviceKindName, str]:
        """The kinds of workers that are there on which a variant could not be measured, and why."""
        task = self.query.task
        return {
            kind: self.unmeasurable[task, variant, kind]
            for kind in sorted(self.lacking.get(variant, frozenset()) & self.kinds)
            if (task, variant, kind) in self.unmeasurable
        }


def circumstances(snapshot: Snapshot, query: Query, now_ms: float) -> Circumstances:
    """What a query meets now. ``now_ms`` is on the clock of ``query.received_ms``."""
    view = snapshot.tasks.get(query.task) if snapshot.measures else None
    return Circumstances(
        query=query,
        now_ms=now_ms,
        left_ms=query.received_ms + query.latency_ms - now_ms,
        transport_ms=snapshot.transport_ms,
        kinds=snapshot.kinds,
        asked=snapshot.asked,
        unconfirmed=snapshot.unconfirmed,
        lacking={} if view is None else view.unmeasured,
        unmeasurable=snapshot.unmeasurable,
    )


class Standing(NamedTuple):
    """What the obstacles of all candidates amount to, for a query that none of them answers."""

    feasible: bool
    """One would answer on an idle worker that has it loaded."""
    loaded: bool
    """Such a one is loaded."""
    queued: bool
    """Such a one lacks nothing but a shorter queue, or another worker than the avoided one."""


def standing(candidates: Iterable[Candidate], met: Circumstances) -> Standing:
    """What ``findings`` amount to, without them: it ends where the first is found in a queue."""
    query, _, left_ms, transport_ms, *_ = met
    first_obstacle = profile_rule(query, transport_ms)
    rows = query.rows
    feasible = loaded = False
    for candidate in candidates:
        if first_obstacle(candidate) is not None:
            continue
        if candidate.ready:
            if candidate.table.ms[rows] + transport_ms <= left_ms:
                return Standing(True, True, True)
            feasible = loaded = True
        elif candidate.hosts:
            feasible = True
    return Standing(feasible, loaded, False)


def findings(candidates: Sequence[Candidate], met: Circumstances) -> list[Finding]:
    """The first obstacle of each candidate, in their order: its queue where it has no other."""
    query, now_ms, left_ms, transport_ms, *_ = met
    first_obstacle = profile_rule(query, transport_ms)
    rows = query.rows
    waits_ms: dict[int, float] = {}
    found: list[Finding] = []
    for candidate in candidates:
        ready = candidate.ready
        wait_ms = nan
        obstacle = first_obstacle(candidate)
        if obstacle is not None:
            if obstacle is LATENCY and not (ready or candidate.hosts or candidate.unloadable):
                obstacle = NO_WORKER
        elif not ready:
            if candidate.hosts:
                obstacle = COLD
            else:
                obstacle = UNLOADABLE if candidate.unloadable else NO_WORKER
        elif candidate.table.ms[rows] + transport_ms > left_ms:
            obstacle = LATE
        else:
            known_ms = waits_ms.get(id(ready))
            if known_ms is None:
                worker = least_busy(ready, query.draw, now_ms, query.avoid)
                known_ms = nan if worker is None else worker.busy_until_ms - now_ms
                waits_ms[id(ready)] = known_ms
            wait_ms = known_ms
            obstacle = AVOIDED if isnan(wait_ms) else QUEUE
        found.append(Finding(candidate, obstacle, wait_ms))
    return found
