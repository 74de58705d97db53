"""Selection: which variant on which worker answers a query.

A candidate fits when ``planner.selection.eligibility`` finds no obstacle and it is predicted to
complete within what is left of the deadline:
``wait of the worker + p95 of the batch (margin included) + transport``. Of those that fit, the
first in the order of the query's preference is chosen. Four passes, each only when the one before
found nothing:

1. ready variants, each on the less busy of two workers drawn at random;
2. ready variants, each on its least busy worker, so that no query is refused by an unlucky draw;
3. variants that can be loaded and still answer in time;
4. under best effort, the ready variant that misses the SLO least.

The first pass is the hot path: it allocates nothing but the ``Choice``, and skips whole branches
and leaves of the frontier at once. The other passes may take longer.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from planner.selection.eligibility import (
    Circumstances,
    circumstances,
    profile_rule,
    without_slo,
)
from planner.selection.load_balancing import host_for, least_busy, route
from planner.selection.refusal import refuse, task_not_found, variant_not_found
from planner.types import (
    Candidate,
    Choice,
    FrontierBranch,
    FrontierLeaf,
    Query,
    Reason,
    Refusal,
    Snapshot,
    TaskView,
    WorkerView,
)
from variants.slots import tuple_of
from variants.types import Prefer, WorkerId

Workers = tuple[WorkerView, ...]
Pick = Callable[[Workers, int, float, WorkerId | None], WorkerView | None]

# Looking a member up in its enumeration takes ten times as long as a name.
ACCURACY, COST = Prefer.ACCURACY, Prefer.COST
ENERGY, LATENCY = Prefer.ENERGY, Prefer.LATENCY
CHEAPEST, LEAST_ENERGY = Reason.CHEAPEST_THAT_FITS, Reason.LEAST_ENERGY_THAT_FITS
_NO_BOUND = (0.0,) * 64
"""Latency bounds that exclude nothing, for up to ``2**64`` rows."""


def select(snapshot: Snapshot, query: Query, now_ms: float) -> Choice | Refusal:
    """The variant and worker that answer a query, or why none does.

    ``now_ms`` is on the clock of ``query.received_ms`` and of the workers' ``busy_until_ms``.
    Canaries answer only when they are pinned.
    """
    view = snapshot.tasks.get(query.task)
    if view is None:
        return task_not_found(query)
    prefer = query.prefer
    candidates = view.by_accuracy if prefer is ACCURACY else view.by_cost
    if prefer is ENERGY:
        candidates = view.by_energy
    if query.variant is not None:
        candidates = view.by_variant.get(query.variant, ())
        if not candidates:
            return variant_not_found(view, query.variant)
        leaf = FrontierLeaf(inf, _NO_BOUND, 0.0, None, candidates)
        frontier: Sequence[FrontierBranch] = (FrontierBranch(inf, _NO_BOUND, 0.0, None, (leaf,)),)
        reason = Reason.PINNED
    elif prefer is COST:
        frontier, reason = view.cost_frontier, CHEAPEST
    elif prefer is ACCURACY:
        frontier, reason = view.accuracy_frontier, Reason.MOST_ACCURATE_THAT_FITS
    elif prefer is ENERGY:
        frontier, reason = view.energy_frontier, LEAST_ENERGY
        if frontier is view.cost_frontier:  # nothing was measured
            reason = Reason.ENERGY_NOT_MEASURED
    else:
        frontier, reason = view.latency_frontier, Reason.EARLIEST_COMPLETION

    search = _earliest if prefer is LATENCY else _first
    transport_ms = snapshot.transport_ms
    left_ms = query.received_ms + query.latency_ms - now_ms - transport_ms
    if left_ms > 0.0:
        choice = search(frontier, reason, route, query, now_ms, left_ms, transport_ms) or search(
            frontier, reason, _once(least_busy), query, now_ms, left_ms, transport_ms
        )
        if choice is not None:
            if reason is LEAST_ENERGY and choice.candidate.energy is None:
                return choice._replace(reason=Reason.ENERGY_NOT_MEASURED)
            return choice
    return _load_or_refuse(snapshot, view, candidates, query, now_ms)


def earliest(
    snapshot: Snapshot, query: Query, now_ms: float, pick: Pick, patience: float
) -> Choice | None:
    """Of what is ready for a query that names no variant, what completes first, with what others
    are expected to have sent to the workers; None where nothing completes in time.

    Args:
        pick: the worker to ask of those that hold a variant.
        patience: part of its slack beside its own run for which the query waits at most.
    """
    view = snapshot.tasks.get(query.task)
    transport_ms = snapshot.transport_ms
    left_ms = query.received_ms + query.latency_ms - now_ms - transport_ms
    if view is None or left_ms <= 0.0:
        return None
    frontier, reason = view.latency_frontier, Reason.EARLIEST_COMPLETION
    return _earliest(
        frontier, reason, pick, query, now_ms, left_ms, transport_ms, patience, expects=True
    )


def suited(snapshot: Snapshot, query: Query) -> Candidate | None:
    """What would answer a query that names no variant, were no queues in its way: the first in the
    order of its preference of those that fit and that some worker holds or could load. Where there
    is none, of those that fit, and then of those that could run at all; None without any."""
    view, prefer = snapshot.tasks.get(query.task), query.prefer
    if view is None:
        return None
    ordered = view.by_accuracy if prefer is ACCURACY else view.by_cost
    if prefer is ENERGY:
        ordered = view.by_energy
    elif prefer is LATENCY:
        rows = query.rows
        ordered = tuple(
            sorted(ordered, key=lambda one: one.table.ms[min(rows, one.table.max_batch)])
        )
    obstacle = profile_rule(query, snapshot.transport_ms)
    fitting = [one for one in ordered if obstacle(one) is None]
    there = (one for one in fitting if one.ready or one.hosts)
    obstacle = profile_rule(without_slo(query), snapshot.transport_ms)
    able = (one for one in ordered if obstacle(one) is None)
    return next(there, None) or next(iter(fitting), None) or next(able, None)


def load_or_refuse(snapshot: Snapshot, query: Query, now_ms: float) -> Choice | Refusal:
    """As ``select`` for a query that names no variant and prefers latency, where it is known that
    nothing ready completes in time."""
    view = snapshot.tasks[query.task]
    return _load_or_refuse(snapshot, view, view.by_cost, query, now_ms)


def _load_or_refuse(
    snapshot: Snapshot,
    view: TaskView,
    candidates: Sequence[Candidate],
    query: Query,
    now_ms: float,
) -> Choice | Refusal:
    met = circumstances(snapshot, query, now_ms)
    choice = _cold(candidates, met) if met.left_ms - met.transport_ms > 0.0 else None
    if choice is None and query.best_effort:
        choice = _nearest(candidates, met)
    return choice or refuse(snapshot, view, candidates, met)


def _first(
    frontier: Sequence[FrontierBranch],
    reason: Reason,
    pick: Pick,
    query: Query,
    now_ms: float,
    left_ms: float,
    transport_ms: float,
) -> Choice | None:
    """The first candidate of a frontier that fits. ``left_ms`` has transport taken off."""
    _, rows, _, _, floor, ceiling, _, _, _, draw, avoid, _, _, _, _ = query
    if floor is None:
        floor = -inf
    if ceiling is None:
        ceiling = inf
    doubling = rows.bit_length() - 1
    if not frontier or doubling >= len(frontier[0].latency_ms):
        return None
    # Neighbours often are on the same workers: then their wait is known before they are looked at.
    ready: Workers | None = None
    worker: WorkerView | None = None
    run_left_ms = left_ms
    for most, soonest_ms, least, common, leaves in frontier:
        if (
            most < floor
            or least > ceiling
            or soonest_ms[doubling] > (run_left_ms if common is ready else left_ms)
        ):
            continue
        for accuracy, latency_ms, price, shared, candidates in leaves:
            if (
                accuracy < floor
                or price > ceiling
                or latency_ms[doubling] > (run_left_ms if shared is ready else left_ms)
            ):
                continue
            for candidate in candidates:
                if candidate.accuracy < floor or candidate.price_usd_per_1k > ceiling:
                    continue
                table = candidate.table
                if rows > table.max_batch:
                    continue
                batch_ms = table.ms[rows]
                if batch_ms > left_ms:
                    continue
                if candidate.ready is not ready:
                    ready = candidate.ready
                    worker = pick(ready, draw, now_ms, avoid)
                    if worker is None:
                        run_left_ms = -inf
                        continue
                    wait_ms = worker.busy_until_ms - now_ms
                    run_left_ms = left_ms - wait_ms if wait_ms > 0.0 else left_ms
                if batch_ms <= run_left_ms and worker is not None:
                    predicted_ms = left_ms - run_left_ms + batch_ms + transport_ms
                    return tuple_of(Choice, (candidate, worker, predicted_ms, False, reason, True))
    return None


def _earliest(
    frontier: Sequence[FrontierBranch],
    reason: Reason,
    pick: Pick,
    query: Query,
    now_ms: float,
    left_ms: float,
    transport_ms: float,
    patience: float = 1.0,
    expects: bool = False,
) -> Choice | None:
    """The candidate that fits and completes first; with less than all ``patience``, of those for
    which no more than that part of the slack beside their run is waited. Where it ``expects``,
    what others are expected to have sent to the workers counts.

    Ties go to the lower price, then the lower latency of one row, then the first by name.

    Branches ascend by latency of one row, which bounds every completion from below.
    """
    _, rows, _, _, floor, ceiling, _, _, _, draw, avoid, _, _, _, _ = query
    if floor is None:
        floor = -inf
    if ceiling is None:
        ceiling = inf
    doubling = rows.bit_length() - 1
    if not frontier or doubling >= len(frontier[0].latency_ms):
        return None
    picked: dict[int, tuple[WorkerView | None, float]] = {}
    ready: Workers | None = None
    worker: WorkerView | None = None
    wait_ms = 0.0
    best: Candidate | None = None
    best_worker: WorkerView | None = None
    best_ms = left_ms
    for most, soonest_ms, least, common, leaves in frontier:
        if (
            soonest_ms[doubling] + (wait_ms if common is ready else 0.0) > best_ms
            or most < floor
            or least > ceiling
        ):
            continue
        for accuracy, latency_ms, price, shared, candidates in leaves:
            known_ms = wait_ms if shared is ready else 0.0
            if latency_ms[doubling] + known_ms > best_ms:
                if common is ready and latency_ms[0] + known_ms > best_ms:
                    break  # the rest of the branch waits as long, and none of it runs faster
                continue
            if accuracy < floor or price > ceiling:
                continue
            for candidate in candidates:
                if candidate.accuracy < floor or candidate.price_usd_per_1k > ceiling:
                    continue
                table = candidate.table
                if rows > table.max_batch:
                    continue
                batch_ms = table.ms[rows]
                if batch_ms > best_ms:
                    continue
                if candidate.ready is not ready:
                    ready = candidate.ready
                    known = picked.get(id(ready))
                    if known is None:
                        worker = pick(ready, draw, now_ms, avoid)
                        if worker is None:
                            wait_ms = inf
                        elif expects and worker.others_ms > 0.0:
                            wait_ms = max(0.0, worker.expected_until_ms(now_ms) - now_ms)
                        else:
                            wait_ms = max(0.0, worker.busy_until_ms - now_ms)
                        picked[id(ready)] = worker, wait_ms
                    else:
                        worker, wait_ms = known
                done_ms = wait_ms + batch_ms
                if wait_ms > patience * (left_ms - batch_ms):
                    continue
                if done_ms < best_ms or (
                    done_ms == best_ms and (best is None or _tie(candidate) < _tie(best))
                ):
                    best, best_worker, best_ms = candidate, worker, done_ms
    if best is None or best_worker is None:
        return None
    return Choice(best, best_worker, best_ms + transport_ms, False, reason, True)


def _tie(candidate: Candidate) -> tuple[float, float, str]:
    return candidate.price_usd_per_1k, candidate.table.ms[1], candidate.variant


def _once(pick: Pick) -> Pick:
    """A pick that remembers its answer for each set of workers, for one query at one moment."""
    known: dict[int, WorkerView | None] = {}

    def remembered(
        workers: Workers, draw: int, now_ms: float, avoid: WorkerId | None
    ) -> WorkerView | None:
        key = id(workers)
        if key not in known:
            known[key] = pick(workers, draw, now_ms, avoid)
        return known[key]

    return remembered


def _cold(candidates: Iterable[Candidate], met: Circumstances) -> Choice | None:
    """The first candidate that can be loaded and still answer in time, on the host it costs least.

    A host may have to unload something first. That is decided there, and the host refuses at once
    when nothing may go. Under ``prefer: latency`` the earliest completion is taken.
    """
    query, now_ms, left_ms, transport_ms, *_ = met
    left_ms -= transport_ms
    first_obstacle = profile_rule(query, transport_ms)
    soonest = _once(least_busy)
    best: Choice | None = None
    for candidate in candidates:
        if not candidate.hosts or candidate.load_ms > left_ms:
            continue
        if first_obstacle(candidate) is not None:
            continue
        cold_ms = candidate.load_ms + candidate.table.ms[query.rows]
        if cold_ms > left_ms or (best is not None and cold_ms + transport_ms >= best.predicted_ms):
            continue
        idle = soonest(candidate.hosts, query.draw, now_ms, query.avoid)
        if idle is None or cold_ms + idle.busy_until_ms - now_ms > left_ms:
            continue
        host = host_for(candidate, now_ms, query.avoid, left_ms - cold_ms, met.asked)
        if host is None:
            continue
        cold_ms += max(0.0, host.busy_until_ms - now_ms)
        choice = Choice(
            candidate, host, cold_ms + transport_ms, True, Reason.LOADED_ON_DEMAND, True
        )
        if query.prefer is not LATENCY:
            return choice
        if best is None or choice.predicted_ms < best.predicted_ms:
            best = choice
    return best


def _nearest(candidates: Iterable[Candidate], met: Circumstances) -> Choice | None:
    """The ready candidate that misses the SLO least, for best effort.

    First those that keep accuracy and cost, the earliest completion before others; then those that
    keep the deadline, the most accurate first; then any, the earliest completion first.
    """
    query, now_ms, left_ms, transport_ms, *_ = met
    left_ms -= transport_ms
    stops_running = profile_rule(without_slo(query))
    breaks_limits = profile_rule(query._replace(latency_ms=inf))
    pick = _once(least_busy)
    nearest: tuple[Candidate, WorkerView, float] | None = None
    nearest_rank = (inf, inf, inf)
    for candidate in candidates:
        if stops_running(candidate) is not None:
            continue
        worker = pick(candidate.ready, query.draw, now_ms, query.avoid)
        if worker is None:
            continue
        done_ms = max(0.0, worker.busy_until_ms - now_ms) + candidate.table.ms[query.rows]
        price = candidate.price_usd_per_1k
        if breaks_limits(candidate) is None:
            rank = (0.0, done_ms, price)
        elif done_ms <= left_ms:
            rank = (1.0, -candidate.accuracy, price)
        else:
            rank = (2.0, done_ms, price)
        if rank < nearest_rank:
            nearest, nearest_rank = (candidate, worker, done_ms), rank
    if nearest is None:
        return None
    candidate, worker, done_ms = nearest
    return Choice(candidate, worker, done_ms + transport_ms, False, Reason.BEST_EFFORT, False)
