"""Load balancing: which of the workers that hold a variant answers, or which host loads it.

``route`` and ``least_busy`` take the same arguments, so that selection can use either: the workers,
random bits, the time now in ms, and a worker to avoid.
"""

from math import inf
from operator import attrgetter

from planner.eviction.churn import short_stay_s
from planner.eviction.displacement import displaced_s
from planner.eviction.query_rates import QueryRates
from planner.types import Candidate, WorkerView
from variants.types import VariantKey, WorkerId

COMPARED = 64
"""Most workers that ``least_busy`` compares, so that what it takes does not grow with the fleet."""

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
    count = len(workers)
    if count > COMPARED:
        first = draw % count
        workers = workers[first : first + COMPARED] + workers[: max(0, first + COMPARED - count)]
    others = workers if avoid is None else [worker for worker in workers if worker.id != avoid]
    if not others:
        return None
    best = min(others, key=_busy_until_ms)
    if best.busy_until_ms > now_ms:
        return best
    return next(worker for worker in others if worker.busy_until_ms <= now_ms)


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

    Args:
        most_wait_ms: hosts that are busy for longer are left out.
        asked: what queries ask for, and how urgently; without it, how long the candidate will stay
            does not count.

    Returns None when there is no host besides ``avoid``.
    """
    key = (candidate.task, candidate.variant)
    qps = urgent = 0.0
    if asked is not None and any(host.churn_per_s > 0.0 for host in candidate.hosts):
        (qps,) = asked.rates((key,), now_ms / 1_000)
        urgent = asked.urgency.share(key)
    best: WorkerView | None = None
    best_rank = (inf, 0, 0.0, 0.0)
    for host in candidate.hosts:
        wait_ms = max(0.0, host.busy_until_ms - now_ms)
        if host.id == avoid or wait_ms > most_wait_ms:
            continue
        cost_s = -1.0
        if key not in host.loading:
            cost_s = displaced_s(host.evictable, candidate.memory_mib - host.free_mib)
            cost_s += short_stay_s(qps, candidate.load_ms / 1_000, host.churn_per_s, urgent)
        if cost_s < inf:
            rank = (cost_s, len(host.loading), host.free_mib, wait_ms)
        else:
            rank = (cost_s, 0, -host.free_mib, wait_ms)
        if best is None or rank < best_rank:
            best, best_rank = host, rank
    return best
