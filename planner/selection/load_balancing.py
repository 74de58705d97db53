"""Load balancing: which of the workers that hold a variant answers, or which host loads it.

``route`` and ``least_busy`` take the same arguments, so that selection can use either: the workers,
random bits, the time now in ms, and a worker to avoid. ``FirstFree`` remembers an order of many.
``OthersQueries`` tells how busy they are expected to be by what others send.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from operator import attrgetter

from planner.eviction.churn import short_stay_s
from planner.eviction.displacement import displaced_s
from planner.eviction.query_rates import QueryRates
from planner.types import Candidate, WorkerView
from variants.types import Prefer, VariantKey, WorkerId

COMPARED = 64
"""Most workers that ``least_busy`` compares, so that what it takes does not grow with the fleet."""
SPREAD = 16
"""From one of so many workers on, those that could answer first are looked at."""
HEAPED_PER_LOOK = 8
"""The heap of ``FirstFree`` is made anew when this times the looks since then are as many as its
workers."""
FRESH_MS = 0.01
"""Times the number of workers, so long their order counts as that of now: then ordering takes some
percents of the time at most."""
ORDERED_PER_REFUSAL = 64
"""Before a query is refused workers are put in order anew when this times the looks since then are
as many as they (docs/decisions/0007-planning.md)."""

EXPECTED_EVERY_MS = 20.0
"""How often it is looked at what others are expected to have sent to each worker."""
EXPECTED_AT_ONCE = 32
"""Most workers that one query looks at for that."""

_busy_until_ms = attrgetter("busy_until_ms")


def route(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """The less busy of two workers drawn at random (Mitzenmacher 2001).

    ``draw`` gives the random bits, at least 32 of them so that no pair is favoured. A worker whose
    work was expected to be done before ``now_ms`` is idle, however long ago that was.

    Returns None when there is no worker besides ``avoid``.
    """
    if avoid is not None:
        workers = tuple(worker for worker in workers if worker.id != avoid)
    count = len(workers)
    if count == 1:
        return workers[0]
    if count == 0:
        return None
    draw, first = divmod(draw, count)
    second = (first + 1 + draw % (count - 1)) % count
    one, other = workers[first], workers[second]
    if other.busy_until_ms < one.busy_until_ms and one.busy_until_ms > now_ms:
        return other
    return one


def least_busy(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """The worker that is free first, for a second look before a query is refused.

    Of more than ``COMPARED``, so many neighbours are looked at, from one drawn at random on: if one
    in ten has room, one in a thousand draws finds none. Idle workers tie; the first of them is
    taken.

    Returns None when there is no worker besides ``avoid``.
    """
    workers = compared(workers, draw)
    others = workers if avoid is None else [worker for worker in workers if worker.id != avoid]
    if not others:
        return None
    best = min(others, key=_busy_until_ms)
    if best.busy_until_ms > now_ms:
        return best
    return next(worker for worker in others if worker.busy_until_ms <= now_ms)


def expected_first(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """As ``least_busy``, with what others are expected to have sent."""
    best: WorkerView | None = None
    best_ms = inf
    for worker in compared(workers, draw):
        if worker.id == avoid:
            continue
        until_ms = worker.busy_until_ms
        if worker.others_ms > 0.0:
            until_ms = worker.expected_until_ms(now_ms)
        if until_ms <= now_ms:
            return worker
        if until_ms < best_ms:
            best, best_ms = worker, until_ms
    return best


def compared(workers: tuple[WorkerView, ...], draw: int) -> tuple[WorkerView, ...]:
    """``COMPARED`` neighbours, from one drawn at random on; all where there are no more."""
    count = len(workers)
    if count <= COMPARED:
        return workers
    first = draw % count
    return workers[first : first + COMPARED] + workers[: max(0, first + COMPARED - count)]


def host_for(
    candidate: Candidate,
    now_ms: float,
    avoid: WorkerId | None,
    most_wait_ms: float = inf,
    asked: QueryRates[VariantKey] | None = None,
) -> WorkerView | None:
    """The host on which loading a candidate costs least.

    One that loads it already comes first: its queries wait for one load together. Otherwise it is
    the one where the absence of what leaves costs least, by what the workers say, together with the
    reload to come where much comes and goes (``short_stay_s``). Of hosts where that is the same, as
    on those with room where nothing ever left, those come first that load least at the moment: a
    worker loads one variant after the other, so the first loads of an empty fleet go to a host
    each. Of these, the one whose room is least takes it, so that what is large finds room
    elsewhere; further ties go to the one that is free first. Where no host says that it can make
    room, the roomiest is asked. Gateways that know the same choose the same host, so that they
    cause one load.

    One that holds the candidate, and is not asked for it, is none.

    Args:
        most_wait_ms: hosts that are busy for longer are left out.
        asked: what queries ask for, and how urgently; without it, how long the candidate will stay
            does not count.

    Returns None when there is no host besides ``avoid``.
    """
    key = (candidate.task, candidate.variant)
    memory_mib, load_s = candidate.memory_mib, candidate.load_ms / 1_000
    qps = urgent = 0.0
    if asked is not None and any(host.churn_per_s > 0.0 for host in candidate.hosts):
        (qps,) = asked.rates((key,), now_ms / 1_000)
        urgent = asked.urgency.share(key)
    best: WorkerView | None = None
    best_rank = (inf, 0, 0.0, 0.0)
    for host in candidate.hosts:
        wait_ms = host.busy_until_ms - now_ms
        wait_ms = wait_ms if wait_ms > 0.0 else 0.0
        if host.id == avoid or wait_ms > most_wait_ms or key in host.withheld:
            continue
        free_mib, loading = host.free_mib, host.loading
        cost_s = -1.0
        if not (loading and host.loads(key)):
            short_mib = memory_mib - free_mib
            cost_s = displaced_s(host.evictable, short_mib) if short_mib > 0.0 else 0.0
            if qps > 0.0:
                cost_s += short_stay_s(qps, load_s, host.churn_per_s, urgent)
        if best is not None and cost_s > best_rank[0]:
            continue
        if cost_s < inf:
            rank = (cost_s, len(loading), free_mib, wait_ms)
        else:
            rank = (cost_s, 0, -free_mib, wait_ms)
        if best is None or rank < best_rank:
            best, best_rank = host, rank
    return best


class OthersQueries:
    """What other gateways are expected to have sent to the workers of this one.

    A gateway knows what it has sent itself, and how long a queue was at the latest reply. Where it
    sends little, that was long ago, and others have sent since. Without counting with that, a
    gateway takes workers for idle that are not, and all gateways do at once
    (docs/decisions/0042-several-gateways.md).
    """

    __slots__ = ("_at", "_views", "due_ms")

    def __init__(self) -> None:
        self._views: Sequence[WorkerView] = ()
        self._at = 0
        self.due_ms = inf
        """When to look next; never, unless plans are for accuracy."""

    def follow(self, views: Iterable[WorkerView], prefer: Prefer) -> None:
        """These workers are there from now on.

        Args:
            prefer: what plans optimise. Where prices follow from how busy workers are, all count
                with it, always; else who finds no room by the plan does when he looks elsewhere.
        """
        self._views = tuple(views)
        self._at, self.due_ms = 0, -inf if prefer is Prefer.ACCURACY else inf

    def look(self, now_ms: float) -> None:
        """Bring what is expected of the workers up to date, of many some at a time."""
        begin, end = self._at, self._at + EXPECTED_AT_ONCE
        for view in self._views[begin:end]:
            view.busy_until_ms = view.expected_until_ms(now_ms)
        if end < len(self._views):
            self._at = end
        else:
            self._at, self.due_ms = 0, now_ms + EXPECTED_EVERY_MS


WorkerSet = tuple[int, ...]
"""Workers by identity."""


class FirstFree:
    """Which of many workers are free first.

    A heap by what each worker's ``busy_until_ms`` was when it was looked at last. Whoever got work
    since is found out when it comes to the top, and sinks: one step for a query that was sent, at
    most. Who is free sooner than was thought is seen when the heap is made anew. All tasks that the
    same workers can do share one.
    """

    __slots__ = ("_heap", "_looks", "_made_ms", "key", "workers")

    def __init__(self, workers: tuple[WorkerView, ...], key: WorkerSet) -> None:
        """``workers``: at least one."""
        self.workers = workers
        self.key = key
        self._heap: list[tuple[float, int]] = []
        self._looks, self._made_ms = 0, -inf

    def look(
        self, now_ms: float, draw: int, avoid: WorkerId | None = None
    ) -> tuple[WorkerView, WorkerView]:
        """The worker that is free first, other than ``avoid`` where there is another, and one drawn
        from those that are free early: gateways that know the same take different ones."""
        workers = self.workers
        if not self._heap or self._looks * HEAPED_PER_LOOK >= len(workers):
            self._make(now_ms)
        self._looks += 1
        first = self._first()
        heap = self._heap
        if avoid is not None and first.id == avoid and len(heap) > 1:
            avoided = heappop(heap)
            first = self._first()
            heappush(heap, avoided)
        return first, workers[heap[draw % SPREAD if len(heap) > SPREAD else 0][1]]

    def _first(self) -> WorkerView:
        """The worker that is free first; those that got work since sink."""
        workers, heap = self.workers, self._heap
        while True:
            known_ms, index = heap[0]
            busy_ms = workers[index].busy_until_ms
            if busy_ms <= known_ms:
                return workers[index]
            heapreplace(heap, (busy_ms, index))

    def renewed(self, now_ms: float) -> bool:
        """Make the heap anew, unless that was done a moment ago."""
        if not stale(len(self.workers), self._looks, now_ms - self._made_ms):
            return False
        self._make(now_ms)
        return True

    def _make(self, now_ms: float) -> None:
        self._heap = [(worker.busy_until_ms, n) for n, worker in enumerate(self.workers)]
        heapify(self._heap)
        self._looks, self._made_ms = 0, now_ms


def stale(workers: int, looks: int, since_ms: float) -> bool:
    """Whether an order is out of date before a query is refused."""
    return looks * ORDERED_PER_REFUSAL >= workers or since_ms >= FRESH_MS * workers
