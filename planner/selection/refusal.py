"""Refusals: what the obstacles of all variants amount to, and what comes closest.

What stands in the way of each variant is found by ``planner.selection.eligibility``. Where more is
asked than can be served most decisions are refusals, so these look at no more variants than they
have to, and leave the reasons to whoever reads them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from math import inf

from planner import sentences as explain
from planner.selection.eligibility import (
    Circumstances,
    Finding,
    Obstacle,
    circumstances,
    findings,
    profile_rule,
    standing,
    without_slo,
)
from planner.selection.load_balancing import COMPARED, host_for, least_busy
from planner.selection.missing_workers import no_workers, unmeasurable, unmeasured
from planner.selection.refusal_reasons import Reasons, in_words
from planner.types import Candidate, Query, Refusal, RefusalCode, Snapshot, TaskView, WorkerView
from variants.errors import Alternative
from variants.figures import apart, ms, seconds
from variants.types import VariantKey, VariantName, WorkerId

ALTERNATIVES = 3
NAMED = 3
"""Variants that the sentence of a refusal names, where it names all that there are."""
MISSES = frozenset({Obstacle.LATENCY, Obstacle.ACCURACY, Obstacle.COST})
"""Obstacles of a candidate that could run, were the SLO another one."""


def task_not_found(query: Query) -> Refusal:
    return Refusal(code=RefusalCode.TASK_NOT_FOUND, message=f"there is no task {query.task!r}")


def variant_not_found(view: TaskView, variant: VariantName) -> Refusal:
    """For a pinned variant that has no candidates: unknown, in the wrong stage or unprofiled."""
    why = view.excluded.get(variant)
    if why is None:
        known = explain.there_are(view.by_variant, variant)
        message = f"task {view.task.name!r} has no variant {variant!r}{known}"
        return Refusal(code=RefusalCode.VARIANT_NOT_FOUND, message=message)
    return Refusal(
        code=RefusalCode.VARIANT_NOT_FOUND,
        message=f"variant {variant!r} of task {view.task.name!r} does not answer: {why}",
        reasons={variant: why},
    )


def refuse(
    snapshot: Snapshot, view: TaskView, candidates: Sequence[Candidate], met: Circumstances
) -> Refusal:
    """Why none of the candidates fits; they are in the query's order of preference.

    Must be called only when indeed none fits.
    """
    query, left_ms = met.query, met.left_ms
    reasons = Reasons(candidates, met, view.excluded if query.variant is None else None)
    feasible, is_loaded, has_queue = standing(candidates, met)
    if not feasible:
        if query.best_effort:
            if (busy := _has_refused(candidates, met, reasons)) is not None:
                return busy
            if (later := _answered_later(snapshot, candidates, met, reasons)) is not None:
                return later
        return _infeasible(snapshot, view, reasons.findings, met, reasons)
    if left_ms <= 0.0:
        return Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=f"the deadline of {ms(query.latency_ms)} has passed already",
            reasons=reasons,
        )
    if has_queue or not is_loaded:
        load = _load(candidates, met, idle_only=has_queue)
        if load is not None:
            words = f"variant {load[0].variant!r} meets the SLO ({explain.asked(query)})"
            return _cold(snapshot, load, words, reasons)
    if is_loaded and not has_queue:
        left, whole = apart(left_ms, query.latency_ms)
        return Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=(
                f"only {left} ms of the deadline of {whole} ms are left, "
                "less than any variant needs"
            ),
            reasons=reasons,
        )
    return Refusal(
        code=RefusalCode.OVERLOADED,
        message=f"every variant that meets the SLO ({explain.asked(query)}) has too long a queue",
        reasons=reasons,
    )


def _has_refused(
    candidates: Sequence[Candidate], met: Circumstances, reasons: Reasons
) -> Refusal | None:
    """For a query that takes the nearest answer, whatever its SLO, and was refused by the only
    worker that could give one; None where none was asked."""
    stops_running = profile_rule(without_slo(met.query))
    if met.query.avoid is None or not any(
        candidate.ready and stops_running(candidate) is None for candidate in candidates
    ):
        return None
    return Refusal(
        code=RefusalCode.OVERLOADED,
        message="every variant that could answer has too long a queue",
        reasons=reasons,
    )


def _answered_later(
    snapshot: Snapshot, candidates: Sequence[Candidate], met: Circumstances, reasons: Reasons
) -> Refusal | None:
    """For a query that takes the nearest answer, whatever its SLO, while nothing is loaded that
    could give one: what it lacks; None where it lacks nothing that may come."""
    anyhow = met._replace(query=without_slo(met.query))
    absent = no_workers(snapshot.wanted, findings(candidates, anyhow), anyhow, reasons)
    if absent is not None:
        return absent
    nearest = sorted(candidates, key=lambda one: -one.accuracy) if met.query.accuracy else None
    load = _load(nearest or candidates, anyhow, idle_only=False)
    if load is None:
        return None
    variant = load[0].variant
    words = f"nothing that could answer is loaded; variant {variant!r} could"
    return _cold(snapshot, load, words, reasons)


def _infeasible(
    snapshot: Snapshot,
    view: TaskView,
    found: Sequence[Finding],
    met: Circumstances,
    reasons: Reasons,
) -> Refusal:
    """For a query that no variant could answer, even on an idle worker that has it loaded."""
    query = met.query
    absent = no_workers(snapshot.wanted, found, met, reasons)
    if absent is not None:
        return absent
    if (later := unmeasured(view, met, reasons)) is not None:
        return later
    broken = {f.candidate.variant for f in found if f.obstacle is Obstacle.UNLOADABLE}
    if broken:
        return _unloadable(view, query, sorted(broken), reasons)
    nearest = _alternatives(found, met)
    return Refusal(
        code=RefusalCode.SLO_INFEASIBLE,
        message=_why_infeasible(view, met, reasons, nearest),
        reasons=reasons,
        alternatives=nearest,
    )


def _why_infeasible(
    view: TaskView, met: Circumstances, reasons: Reasons, nearest: Sequence[Alternative]
) -> str:
    """The sentence of a query that no variant can answer; many clients show nothing else."""
    query = met.query
    task, asked = view.task.name, explain.asked(query)
    if failed := unmeasurable(view, met):
        kinds = " or ".join(sorted(met.kinds))
        measured = f"no variant of {task!r} that was measured on {kinds}"
        return f"{measured} meets the SLO ({asked}); {failed}"
    if query.variant is not None:
        why = reasons[query.variant]
        return f"variant {query.variant!r} of task {task!r} cannot meet the SLO ({asked}): {why}"
    if all(finding.obstacle is Obstacle.CANARY for finding in reasons.findings):
        told = [f"{variant}: {reasons[variant]}" for variant in islice(reasons, NAMED)]
        more = f"; and {left} more" if (left := len(reasons) - len(told)) > 0 else ""
        return (
            f"no variant of {task!r} is in service for queries that name none"
            f" ({'; '.join(told) or 'it has none'}{more})"
        )
    message = f"no variant of {task!r} can meet the SLO ({asked})"
    if nearest:
        message += f"; the nearest is {nearest[0].variant}: {nearest[0].reason}"
    elif too_many := [one for one in reasons.findings if one.obstacle is Obstacle.ROWS]:
        most = max(too_many, key=lambda one: one.candidate.table.max_batch).candidate.variant
        message += f"; {most} {reasons[most]}"
    return message


def _cold(
    snapshot: Snapshot, load: tuple[Candidate, WorkerView], words: str, reasons: Reasons
) -> Refusal:
    """For a query that a variant could answer once it is loaded; ``words`` say so."""
    candidate, worker = load
    takes = seconds(candidate.load_ms)
    return Refusal(
        code=RefusalCode.COLD,
        message=f"{words} once it is loaded on {worker.id}, which takes {takes}",
        reasons=reasons,
        load=load,
        retry_after_s=load_wait_ms(snapshot, candidate, worker) / 1_000,
    )


def _unloadable(
    view: TaskView, query: Query, broken: Sequence[VariantName], reasons: Reasons
) -> Refusal:
    """For a query that only variants could answer which no worker can load."""
    task, first = view.task.name, broken[0]
    message = f"variant {first!r} of task {task!r} {reasons[first]}"
    if query.variant is None:
        them = "it" if len(broken) == 1 else f"one of {len(broken)} that cannot be loaded"
        message += f"; no variant but {them} meets the SLO ({explain.asked(query)})"
    return Refusal(code=RefusalCode.ARTIFACT_INVALID, message=message, reasons=reasons)


def crowded(snapshot: Snapshot, query: Query, now_ms: float) -> Refusal:
    """For a query whose planned workers have too long a queue, and that keeps off the others."""
    message = (
        "more is asked than can be served: the workers that the plan gives to queries like "
        "this have too long a queue, and the others are kept for theirs"
    )
    return _overloaded(snapshot, query, now_ms, message)


def shed(snapshot: Snapshot, query: Query, now_ms: float) -> Refusal:
    """For a query that costs more than others, while others are refused by all that they ask."""
    message = (
        "more is asked than can be served, no worker is free soon, and queries like this take more "
        "of the workers' time than others: of those, some are refused at once, so that more are "
        "answered"
    )
    return replace(_overloaded(snapshot, query, now_ms, message), shed=True)


def _overloaded(snapshot: Snapshot, query: Query, now_ms: float, message: str) -> Refusal:
    view = snapshot.tasks[query.task]
    met = circumstances(snapshot, query, now_ms)
    reasons = Reasons(view.by_cost, met, view.excluded)
    return Refusal(code=RefusalCode.OVERLOADED, message=message, reasons=reasons)


def is_infeasible(snapshot: Snapshot, query: Query, now_ms: float) -> bool:
    """Whether no variant could meet the SLO of a query, on an idle worker that has it loaded."""
    view = snapshot.tasks[query.task]
    candidates = view.pinned_to(query.variant)
    return not standing(candidates, circumstances(snapshot, query, now_ms)).feasible


def room_at_ms(snapshot: Snapshot, query: Query, refused: Collection[WorkerId]) -> float:
    """When the first worker could take a query like this one, as far as is known.

    It is what any draw among workers may find; so it is in the past where one has room and another
    was drawn, and where more workers than ``COMPARED`` would have to be looked at.

    Args:
        query: when it came plays no part.
        refused: workers that would not take it, as they said.
    """
    view = snapshot.tasks[query.task]
    candidates = view.pinned_to(query.variant)
    obstacle = profile_rule(query, snapshot.transport_ms)
    soonest_ms, busy_ms, seen = inf, inf, None
    for candidate in candidates:
        if not candidate.ready or obstacle(candidate) is not None:
            continue
        if candidate.ready is not seen:
            seen = candidate.ready
            if len(seen) > COMPARED:
                return -inf
            busy_ms = min((w.busy_until_ms for w in seen if w.id not in refused), default=inf)
        soonest_ms = min(soonest_ms, busy_ms + candidate.table.ms[query.rows])
    return soonest_ms + snapshot.transport_ms - query.latency_ms


def is_only_choice(snapshot: Snapshot, query: Query, workers: Collection[WorkerId]) -> bool:
    """Whether nothing could be chosen for a query but one variant on these workers.

    Args:
        query: when it came plays no part.
    """
    obstacle = profile_rule(query, snapshot.transport_ms)
    candidates = snapshot.tasks[query.task].pinned_to(query.variant)
    fitting = [each for each in candidates if obstacle(each) is None]
    if len(fitting) != 1 or len(fitting[0].ready) > COMPARED:
        return False
    return {worker.id for worker in fitting[0].ready} <= set(workers)


def load_wait_ms(snapshot: Snapshot, candidate: Candidate, host: WorkerView) -> float:
    """Until a candidate is loaded on a host, by the profiles of what comes before it.

    A host loads one after the other, first what queries ask for. One of the others may be under
    way; which one is not known, so the longest counts.
    """

    def load_ms(key: VariantKey) -> float:
        view = snapshot.tasks.get(key[0])
        known = () if view is None else view.by_variant.get(key[1], ())
        return sum([one.load_ms for one in known if one.device_kind == host.device_kind])

    key = (candidate.task, candidate.variant)
    asked, others = host.loading[: host.loading_asked], host.loading[host.loading_asked :]
    if key in asked:
        asked = asked[: asked.index(key)]
    under_way_ms = max([load_ms(other) for other in others if other != key], default=0.0)
    return under_way_ms + sum(map(load_ms, asked)) + candidate.load_ms


def _load(
    candidates: Iterable[Candidate], met: Circumstances, *, idle_only: bool
) -> tuple[Candidate, WorkerView] | None:
    """What to load, and where: the first that would answer and has a host, where loading it costs
    least.

    With ``idle_only`` a host counts only if it could answer such a query in time once it has the
    variant: while replicas have queues, one more on a busy worker does not help.
    """
    query, now_ms = met.query, met.now_ms
    first_obstacle = profile_rule(query, met.transport_ms)
    soonest: dict[int, WorkerView | None] = {}
    for candidate in candidates:
        if not candidate.hosts or first_obstacle(candidate) is not None:
            continue
        key = id(candidate.hosts)
        if key not in soonest:
            soonest[key] = least_busy(candidate.hosts, query.draw, now_ms, query.avoid)
        idle = soonest[key]
        most_wait_ms = inf
        if idle_only:
            most_wait_ms = query.latency_ms - candidate.table.ms[query.rows] - met.transport_ms
        if idle is None or max(0.0, idle.busy_until_ms - now_ms) > most_wait_ms:
            continue
        host = host_for(candidate, now_ms, query.avoid, most_wait_ms, met.asked)
        if host is not None:
            return candidate, host
    return None


def _alternatives(found: Sequence[Finding], met: Circumstances) -> tuple[Alternative, ...]:
    """The variants that some worker could run and that miss the SLO least.

    Of those that miss it by as much the cheaper comes first, then the faster.
    """
    query = met.query
    stops_running = profile_rule(without_slo(query))
    distance_of = _distance(met)
    nearest: dict[VariantName, tuple[tuple[float, ...], Finding]] = {}
    for finding in found:
        candidate, obstacle, _ = finding
        if (
            obstacle in MISSES
            and stops_running(candidate) is None
            and (candidate.ready or candidate.hosts)
        ):
            rank = (
                distance_of(candidate), candidate.price_usd_per_1k, candidate.table.ms[query.rows],
            )  # fmt: skip
            known = nearest.get(candidate.variant)
            if known is None or rank < known[0]:
                nearest[candidate.variant] = (rank, finding)
    ranked = nsmallest(
        ALTERNATIVES, nearest.values(), key=lambda entry: (entry[0], entry[1][0].variant)
    )
    return tuple(
        Alternative(
            variant=finding.candidate.variant,
            accuracy=finding.candidate.accuracy,
            latency_ms=finding.candidate.table.ms[query.rows] + met.transport_ms,
            cost_usd_per_1k=finding.candidate.price_usd_per_1k,
            reason=in_words(finding, met),
            energy_j=None if (energy := finding.candidate.energy) is None else energy.joules(1),
        )
        for _, finding in ranked
    )


def _distance(met: Circumstances) -> Callable[[Candidate], float]:
    """A function that gives how far a candidate misses the SLO.

    It adds the relative excess of latency, of cost and of the error rate.
    """
    query = met.query
    rows, transport_ms = query.rows, met.transport_ms
    latency_ms = max(query.latency_ms, 1e-3)
    ceiling = inf if query.cost is None else max(query.cost, 1e-9)
    floor = -inf if query.accuracy is None else query.accuracy
    room = max(1.0 - floor, 1e-3)

    def distance(candidate: Candidate) -> float:
        run_ms = candidate.table.ms[rows] + transport_ms
        far = run_ms / latency_ms - 1.0 if run_ms > latency_ms else 0.0
        if candidate.price_usd_per_1k > ceiling:
            far += candidate.price_usd_per_1k / ceiling - 1.0
        if candidate.accuracy < floor:
            far += (floor - candidate.accuracy) / room
        return far

    return distance
