"""Following the plan: the choice for a query, when there are routes for it.

Where the plan is for accuracy, the workers' prices decide (``planner.selection.prices``). Prices
find what each kind does best, until all are full. Then a fleet can stay in a bad division of its
work: tight queries on the kind that has full batches of large variants keep these batches small, so
that large variants run where they take long, and tight queries find no time there. The plan knows
better, and so a kind that it does not use for a class is dearer while congestion lasts. Where it
saves cost, the targets of the query's class are tried in order, each on the less busy of two
workers of one kind, drawn in proportion to their rates. Where none has room, a worker without a
part in the plan answers, or an idle one while none is refused, and else the class's own are waited
for. A query that has no time for that goes wherever it is predicted to complete first, but not
between the batches that a busy worker is planned to run.

How long a queue is does not say whether a query is in time, as workers run first what is due first.
So one that has no time to wait for all that waits asks a worker before it is refused.
"""

from bisect import bisect_right
from math import inf

from planner.selection.load_balancing import compared, expected_first
from planner.selection.open_batches import OpenBatches
from planner.selection.prices import Offers, UsualFills, exhausted, overtaking, priced, quickest
from planner.selection.refusal import crowded, shed
from planner.selection.route_targets import RouteTargets, before_others
from planner.selection.routes import RouteTable
from planner.selection.select import Pick, earliest, load_or_refuse, select
from planner.selection.shedding import Shedding
from planner.types import Choice, Query, Reason, Refusal, RefusalCode, Snapshot, WorkerView
from variants.slots import tuple_of
from variants.types import Prefer, TaskName, WorkerId

# Looking a member up in its enumeration takes ten times as long as a name.
ACCURACY, LATENCY, PLANNED = Prefer.ACCURACY, Prefer.LATENCY, Reason.PLANNED
OVERLOADED = RefusalCode.OVERLOADED
WINDOW = 1.0
"""Part of its room that a target has as long as no queries are refused."""
OVERFLOW = 0.3
"""Least part of its slack that a query may wait for workers of other classes."""
CROWDED_S = 20.0
"""How long that part takes to shrink to ``OVERFLOW`` while queries are refused: about two plans.
Until then the plan may be wrong and other workers idle; after that the demand is too much."""
LASTING_MS = 10_000.0
"""Time constant over which the window is averaged to tell whether congestion lasts."""
LASTS = 0.5
"""Congestion lasts where that average is at most this."""
ELSEWHERE = 3.0
"""Times its price, while congestion lasts, that a worker costs of a kind that the plan does not
have a query's class on (docs/decisions/0007-planning.md has the sweep)."""
LEAST_WINDOW = 0.04
"""Below this the window does not shrink."""
WINDOW_LOST = 0.1
"""Part of the window that a refusal takes away."""
WINDOW_REGAINED_PER_S = 0.1
"""By this the window grows in each second without a refusal."""
SHED_WINDOW = 0.1
"""Above this window nothing is shed: quicker variants make room first."""
FULL_MS = 50.0
"""So long a worker that had no time for a query is thought to have none for others of its task
either. How long its queue is says nothing of that: what waits there may have to be done first
(docs/decisions/0042-several-gateways.md)."""
FULL_WINDOW = 0.5
"""Above this window that is heeded. Below it all are full, and each refusal that is spared is one
by which the window would have narrowed (docs/decisions/0042-several-gateways.md has the sweep)."""
OVERTAKES = 0.3
"""Part of the queries that were to come before what waits, and did, from which on others try it at
once. Where SLOs are alike there is nobody to overtake, and each try would be refused
(docs/decisions/0008-policies.md#who-may-come-before-others has what it is worth)."""
TRIED_AGAIN_MS = 500.0
"""So often one tries it where fewer did."""
TRIED = 0.05
"""What one more try counts for in that part."""
MOST_FULL = 4_096
"""So many workers and tasks are remembered before those are forgotten that are over."""
ROOM = 0.3
"""Part of what is left of its deadline that a query may wait at a worker that has room for it: as
after many refusals, 0.6 times half of it. Who finds one is not shed. He goes there, unless he would
run for longer than the worker's own queries may wait: then he goes where he is worth most
(docs/decisions/0007-planning.md#what-begins-a-spell)."""


class CongestionWindow:
    """How long queries may queue for the replicas that the plan prefers.

    It shrinks with every refusal and grows with time, as windows do in congestion control. When the
    load rises between two plans, this turns the fleet from accurate to fast within a fraction of a
    second. The gateway reports refusals to it, and decisions read it.
    """

    __slots__ = (
        "_asked_ms", "_at_ms", "_average", "_full", "_overtaken", "_since_ms", "_tried", "_trying",
        "_value", "batches", "overtaking", "shedding", "usual",
    )  # fmt: skip

    def __init__(self, *, overtaking: bool = True) -> None:
        """``overtaking``: queries that have no time to wait for all that waits at any worker are
        sent to one all the same, which may let them come before."""
        self.overtaking = overtaking
        self.batches = OpenBatches()
        """What queries that were sent wait for."""
        self.shedding = Shedding()
        self.usual = UsualFills()
        self._value = WINDOW
        self._at_ms = 0.0
        self._since_ms = 0.0
        self._average = WINDOW
        self._asked_ms = 0.0
        self._full: dict[tuple[WorkerId, TaskName], tuple[float, float]] = {}
        """Until when a worker is thought to have no time for a task, and the latency SLO of the
        query that it had none for."""
        self._overtaken = 1.0
        """Part of the queries that were to come before what waits, and did."""
        self._tried = (-inf, 0)
        """When one last was to, and its draw."""
        self._trying: dict[tuple[WorkerId, int], None] = {}
        """Those that were to, by worker and draw; the oldest first."""

    def may_overtake(self, query: Query, now_ms: float) -> bool:
        """Whether a query that has no time to wait for all that waits at any worker is to ask one
        all the same."""
        if not self.overtaking or self._overtaken >= OVERTAKES:
            return self.overtaking
        tried_ms, draw = self._tried
        return now_ms >= tried_ms + TRIED_AGAIN_MS or draw == query.draw

    def overtakes(self, worker: WorkerId, query: Query, now_ms: float) -> None:
        """A query is to come before what waits at a worker, unless ``stays_behind`` says that it
        did not. However often it is looked at, it counts once."""
        tries = (worker, query.draw)
        if tries in self._trying:
            return
        if len(self._trying) >= MOST_FULL:
            del self._trying[next(iter(self._trying))]
        self._trying[tries] = None
        self._tried = (now_ms, query.draw)
        self._overtaken += TRIED * (1.0 - self._overtaken)

    def stays_behind(self, worker: WorkerId, query: Query) -> None:
        """A worker has no time for a query; if it was to come before others there, it did not."""
        tries = (worker, query.draw)
        if tries in self._trying:
            del self._trying[tries]
            self._overtaken -= TRIED

    def had_no_time(self, worker: WorkerId, query: Query, now_ms: float) -> None:
        """A worker said that it has no time for a query."""
        self.stays_behind(worker, query)
        if len(self._full) >= MOST_FULL:
            self._full = {key: full for key, full in self._full.items() if full[0] > now_ms}
        self._full[worker, query.task] = (now_ms + FULL_MS, query.latency_ms)

    def is_full(self, worker: WorkerId, query: Query, now_ms: float) -> bool:
        """Whether a worker had no time a moment ago for a query of the same task that could wait as
        long as this one."""
        full = self._full.get((worker, query.task)) if self._full else None
        return full is not None and now_ms < full[0] and query.latency_ms <= full[1]

    def lasts(self, window: float, now_ms: float) -> bool:
        """Whether the window has been small for some time; ``window`` is what it is now."""
        since_ms = now_ms - self._asked_ms
        if since_ms > 0.0:
            self._average += (window - self._average) * (since_ms / (since_ms + LASTING_MS))
            self._asked_ms = now_ms
        return self._average <= LASTS

    def at(self, now_ms: float) -> float:
        """Part of a target's room that a query may find taken now, at most ``WINDOW``."""
        value = self._value
        if value >= WINDOW:
            return WINDOW
        since_ms = now_ms - self._at_ms
        if since_ms > 0.0:
            value += WINDOW_REGAINED_PER_S * since_ms / 1_000
        return value if value < WINDOW else WINDOW

    def overflow(self, now_ms: float) -> float:
        """Part of its slack that a query may wait for workers of other classes now, at most 1."""
        if self.at(now_ms) >= WINDOW:
            return 1.0
        return max(OVERFLOW, 1.0 - (now_ms - self._since_ms) / (1_000 * CROWDED_S))

    def refused(
        self, now_ms: float, by: WorkerId | None = None, *, twice: Query | None = None
    ) -> None:
        """A worker refused a query, or none was found.

        Args:
            by: the worker, for where there are several windows.
            twice: the query, where it was its second worker and more room would have helped it;
                others may be refused in its favour.
        """
        if twice is not None:
            self.shedding.refused(twice.priority, now_ms)
        before = self.at(now_ms)
        if before >= WINDOW:
            self._since_ms = now_ms
        left = before * (1.0 - WINDOW_LOST)
        self._value = left if left > LEAST_WINDOW else LEAST_WINDOW
        self._at_ms = now_ms


def choose(
    snapshot: Snapshot,
    routes: RouteTable,
    congestion: CongestionWindow,
    query: Query,
    now_ms: float,
) -> Choice | Refusal:
    """The variant and worker that answer a query, or why none does: by the plan, if it can.

    How long queues are says whether a query is in time. One that has not the time for all that
    waits anywhere asks a worker all the same, as what waits there may have more time than it.

    A query that finds no room on its targets, or was refused there, goes wherever it completes
    first. That spreads a peak over all workers, on the variants that take least time. But it keeps
    off workers that are busy with the batches of other classes: it would run there by itself, and
    the rows of a whole batch would go without. And once queries are refused, it may not wait long
    anywhere. Then it asks a worker of its class whether it may come before others. A class without
    routes takes what it prefers of the variants that fit, as long as no queries are refused; under
    accuracy that is so of a task of which nothing is ready. Pinned queries, and those that prefer
    something else than the plan optimised, do not follow the plan.
    """
    if query.variant is not None or not routes.used or query.prefer is not routes.prefer:
        return select(snapshot, query, now_ms)
    if routes.prefer is ACCURACY:
        offers = routes.offers(query)
        if offers is None:
            return select(snapshot, query, now_ms)
        window = congestion.at(now_ms)
        if congestion.batches.snapshot is not snapshot:
            congestion.batches.keep(snapshot, now_ms)
        transport_ms = snapshot.transport_ms
        if (
            window <= SHED_WINDOW
            and query.avoid is None
            and not query.best_effort
            and congestion.shedding.sheds(offers.least_usd, query.priority, now_ms)
        ):
            roomy = quickest(offers, query, now_ms, transport_ms, ROOM)
            if roomy is None:
                congestion.shedding.shed()
                return shed(snapshot, query, now_ms)
            room_ms = offers.rooms_ms.get(roomy.worker.id, inf)
            if roomy.candidate.table.ms[query.rows] <= room_ms:
                return roomy
        own = _worth_most(offers, congestion, query, now_ms, transport_ms, window)
        own = own or quickest(offers, query, now_ms, transport_ms)
        if own is not None:
            return own
        search = load_or_refuse if exhausted(query) else select
        found = search(snapshot, query._replace(prefer=LATENCY), now_ms)
        if not isinstance(found, Refusal) or found.code is not OVERLOADED:
            return found
        if congestion.may_overtake(query, now_ms):
            first = overtaking(offers, query, now_ms, transport_ms, congestion.is_full)
            if first is not None:
                congestion.overtakes(first.worker.id, query, now_ms)
                return first
        return found
    targets = routes.targets(query)
    window = congestion.at(now_ms)
    if not targets and window >= WINDOW:
        return select(snapshot, query, now_ms)
    transport_ms = snapshot.transport_ms
    if query.avoid is None:
        own = follow(targets, query, now_ms, transport_ms, window)
        if own is not None:
            return own
        own = follow(targets, query, now_ms, transport_ms, window, patient=True)
        if own is not None:
            return _spared(snapshot, routes, query, now_ms, own, guests=window >= WINDOW)
    found = _elsewhere(snapshot, routes, targets, congestion.overflow(now_ms), query, now_ms)
    if not isinstance(found, Refusal) or found.code is not OVERLOADED:
        return found
    if congestion.may_overtake(query, now_ms):
        first = before_others(targets, query, now_ms, transport_ms, congestion.is_full)
        if first is not None:
            congestion.overtakes(first.worker.id, query, now_ms)
            return first
    return found


def _worth_most(
    offers: Offers,
    congestion: CongestionWindow,
    query: Query,
    now_ms: float,
    transport_ms: float,
    window: float,
) -> Choice | None:
    """The choice that is worth most at the workers' prices. Where its worker had no time for such a
    query a moment ago, it is another one's, if there is one of which that is not known."""
    batches, usual = congestion.batches, congestion.usual
    elsewhere = ELSEWHERE if congestion.lasts(window, now_ms) else 1.0
    own = priced(offers, batches, usual, query, now_ms, transport_ms, window, elsewhere)
    if own is None or window <= FULL_WINDOW or query.avoid is not None:
        return own
    if not congestion.is_full(own.worker.id, query, now_ms):
        return own
    second = query._replace(avoid=own.worker.id)
    other = priced(offers, batches, usual, second, now_ms, transport_ms, window, elsewhere)
    if other is None or congestion.is_full(other.worker.id, query, now_ms):
        return own
    return other


def _elsewhere(
    snapshot: Snapshot,
    routes: RouteTable,
    targets: RouteTargets,
    patience: float,
    query: Query,
    now_ms: float,
) -> Choice | Refusal:
    """The choice for a query that found no room where it was planned; ``patience`` is the part of
    its slack that it may wait."""
    query = query._replace(prefer=LATENCY)
    if query.task not in snapshot.tasks:
        return select(snapshot, query, now_ms)
    pick = _beside(routes, targets)
    found = earliest(snapshot, query, now_ms, pick, patience)
    if found is not None:
        return found
    limited = patience < 1.0 or pick is not expected_first
    if limited and earliest(snapshot, query, now_ms, expected_first, 1.0) is not None:
        return crowded(snapshot, query, now_ms)
    other = load_or_refuse(snapshot, query, now_ms)
    if patience < 1.0 and isinstance(other, Choice) and not other.cold:
        # By best effort: nothing meets the SLO.
        wait_ms = other.worker.busy_until_ms - now_ms
        left_ms = query.received_ms + query.latency_ms - now_ms
        slack_ms = left_ms - snapshot.transport_ms - other.candidate.table.ms[query.rows]
        if wait_ms > 0.0 and wait_ms > patience * slack_ms:
            return crowded(snapshot, query, now_ms)
    return other


def _beside(routes: RouteTable, targets: RouteTargets) -> Pick:
    """Picks the worker that is free first, for queries that found no room where they were planned:
    none that is busy with planned batches, unless queries of this class have a part in them. What
    has no place in the plan may go anywhere."""
    batching = routes.batching
    if not batching or not targets:
        return expected_first

    def pick(
        workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
    ) -> WorkerView | None:
        there = tuple(
            [
                worker
                for worker in compared(workers, draw)
                if worker.id not in batching
                or worker.busy_until_ms <= now_ms
                or worker.id in routes.workers_of(targets)
            ]
        )
        return expected_first(there, draw, now_ms, avoid)

    return pick


def _spared(
    snapshot: Snapshot,
    routes: RouteTable,
    query: Query,
    now_ms: float,
    own: Choice,
    *,
    guests: bool,
) -> Choice:
    """The choice for a query whose own workers have longer queues than they have room for: one that
    the plan gives nothing to do, if it is done sooner there, or one that is idle; ``own`` where
    there is none.

    Args:
        guests: whether an idle worker takes what the plan has elsewhere. While queries are refused
            it does not: its own come soon, and variants may disturb each other.
    """
    planned = routes.planned

    def pick(
        workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
    ) -> WorkerView | None:
        there = tuple(
            [
                worker
                for worker in compared(workers, draw)
                if worker.id not in planned or (guests and worker.busy_until_ms <= now_ms)
            ]
        )
        return expected_first(there, draw, now_ms, avoid)

    other = earliest(snapshot, query._replace(prefer=LATENCY), now_ms, pick, 1.0)
    if other is None:
        return own
    idle = other.worker.busy_until_ms <= now_ms
    return other if idle or other.predicted_ms < own.predicted_ms else own


def follow(
    targets: RouteTargets,
    query: Query,
    now_ms: float,
    transport_ms: float,
    window: float = WINDOW,
    *,
    patient: bool = False,
) -> Choice | None:
    """The choice of the first target with room for a query; None when no target has room.

    A worker of a target is drawn in proportion to the rates, and another one of its kind; the one
    that is done first is taken. So each kind of device gets the part that was planned for it: the
    quicker kind would else be done first nearly always, and take what others were planned for. A
    target has room while the wait is at most a part of the worker's own room; that part is
    ``window``. Where the query is ``patient``, the quickest variants may be waited for until the
    deadline. How long the query itself runs plays no part in that.
    """
    _, rows, received_ms, budget_ms, floor, ceiling, *_ = query
    left_ms = received_ms + budget_ms - now_ms - transport_ms
    draw = query.draw
    for candidates, workers, bounds, rooms_ms, alike, last in targets:
        candidate, worker, room_ms = candidates[0], workers[0], rooms_ms[0]
        table = candidate.table
        if len(workers) > 1:
            total = bounds[-1]
            first = bisect_right(bounds, (draw & 0xFFFFFFF) / 0x10000000 * total)
            start, count, below, rate = alike[first]
            part = (draw >> 28 & 0xFFFFFFF) / 0x10000000
            second = bisect_right(bounds, below + part * rate)
            if second == first or second >= start + count:
                second = start + (first - start + 1) % count
            candidate, worker, room_ms = candidates[first], workers[first], rooms_ms[first]
            table = candidate.table
            one_ms = max(worker.busy_until_ms, now_ms) + table.ms[min(rows, table.max_batch)]
            other, other_worker = candidates[second], workers[second]
            other_table = other.table
            two_ms = (
                max(other_worker.busy_until_ms, now_ms)
                + other_table.ms[min(rows, other_table.max_batch)]
            )
            if two_ms < one_ms:
                candidate, worker, table = other, other_worker, other_table
                room_ms = rooms_ms[second]
        # A copy of ``planner.selection.eligibility`` for speed; the targets hold no canary.
        if rows > table.max_batch or worker.draining:
            continue
        if ceiling is not None and candidate.price_usd_per_1k > ceiling:
            continue
        if floor is not None and candidate.accuracy < floor:
            continue
        busy_ms = worker.busy_until_ms
        wait_ms = busy_ms - now_ms if busy_ms > now_ms else 0.0
        predicted_ms = table.ms[rows] + wait_ms
        if predicted_ms <= left_ms and (wait_ms <= room_ms * window or (patient and last)):
            predicted_ms += transport_ms
            return tuple_of(Choice, (candidate, worker, predicted_ms, False, PLANNED, True))
    return None
