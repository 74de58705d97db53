"""Refusals: what the obstacles of all variants amount to, and what comes closest.

Not on the hot path: everything here is looked at anew, one candidate after the other. What stands
in the way of each is ``planner.obstacles``'.
"""

from collections.abc import Callable, Sequence
from heapq import nsmallest
from math import inf

from planner import explain
from planner.obstacles import (
    Circumstances,
    Finding,
    Obstacle,
    Reasons,
    circumstances,
    findings,
    in_words,
)
from planner.routing import roomiest
from planner.types import (
    Candidate,
    Query,
    Refusal,
    RefusalCode,
    Snapshot,
    TaskView,
    WorkerView,
)
from variants.errors import Alternative
from variants.types import VariantName

ALTERNATIVES = 3
MISSES = frozenset({Obstacle.LATENCY, Obstacle.ACCURACY, Obstacle.COST})
"""Obstacles of a candidate that could run, were the SLO another one."""
STARTING_RETRY_S = 1.0
"""When to ask again while no worker has started."""


def task_not_found(query: Query) -> Refusal:
    return Refusal(code=RefusalCode.TASK_NOT_FOUND, message=f"There is no task {query.task!r}.")


def variant_not_found(view: TaskView, variant: VariantName) -> Refusal:
    """For a pinned variant that has no candidates: unknown, in the wrong stage or unprofiled."""
    why = view.excluded.get(variant)
    if why is None:
        message = f"Task {view.task.name!r} has no variant {variant!r}."
        return Refusal(code=RefusalCode.VARIANT_NOT_FOUND, message=message)
    return Refusal(
        code=RefusalCode.VARIANT_NOT_FOUND,
        message=f"Variant {variant!r} of task {view.task.name!r} does not answer: {why}.",
        reasons={variant: why},
    )


def refuse(
    snapshot: Snapshot,
    view: TaskView,
    candidates: Sequence[Candidate],
    query: Query,
    now_ms: float,
) -> Refusal:
    """Why none of the candidates fits; they come in the query's order of preference.

    Must be called only when indeed none fits.
    """
    met = circumstances(snapshot, query, now_ms)
    left_ms = met.left_ms
    found = findings(candidates, met)
    reasons = Reasons(found, met, view.excluded if query.variant is None else None)
    wanted = explain.asked(query)
    if not met.kinds:
        return Refusal(
            code=RefusalCode.COLD,
            message="No worker has started yet.",
            reasons=reasons,
            retry_after_s=STARTING_RETRY_S,
        )
    feasible = [finding for finding in found if finding.obstacle >= Obstacle.LATE]
    if not feasible:
        return Refusal(
            code=RefusalCode.SLO_INFEASIBLE,
            message=f"No variant of {view.task.name!r} can meet the SLO ({wanted}).",
            reasons=reasons,
            alternatives=_alternatives(found, met),
        )
    if left_ms <= 0.0:
        return Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=f"The deadline of {explain.ms(query.latency_ms)} has passed already.",
            reasons=reasons,
        )
    has_queue = any(finding.obstacle > Obstacle.COLD for finding in feasible)
    is_loaded = any(finding.candidate.ready for finding in feasible)
    if has_queue or not is_loaded:
        load = _load(feasible, met, idle_only=has_queue)
        if load is not None:
            candidate, worker = load
            return Refusal(
                code=RefusalCode.COLD,
                message=(
                    f"Variant {candidate.variant!r} meets the SLO ({wanted}) once it is loaded on "
                    f"{worker.id}, which takes {candidate.load_ms / 1_000:.1f} s."
                ),
                reasons=reasons,
                load=load,
                retry_after_s=candidate.load_ms / 1_000,
            )
    if is_loaded and not has_queue:
        return Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=(
                f"Only {explain.ms(left_ms)} of the deadline of {explain.ms(query.latency_ms)} "
                "are left, less than any variant needs."
            ),
            reasons=reasons,
        )
    return Refusal(
        code=RefusalCode.OVERLOADED,
        message=f"Every variant that meets the SLO ({wanted}) has too long a queue.",
        reasons=reasons,
    )


def crowded(snapshot: Snapshot, query: Query, now_ms: float) -> Refusal:
    """For a query that its own part of the fleet has no room for, while all of it is crowded."""
    view = snapshot.tasks[query.task]
    met = circumstances(snapshot, query, now_ms)
    return Refusal(
        code=RefusalCode.OVERLOADED,
        message=(
            "More is asked than can be served: the workers that the plan gives to queries like "
            "this have too long a queue, and the others are kept for theirs."
        ),
        reasons=Reasons(findings(view.by_cost, met), met, view.excluded),
    )


def _load(
    feasible: Sequence[Finding], met: Circumstances, *, idle_only: bool
) -> tuple[Candidate, WorkerView] | None:
    """What to load, and where: the first that has a host.

    With ``idle_only`` a host counts only if it could answer such a query in time once it has the
    variant: while replicas have queues, one more on a busy worker helps nobody.
    """
    query, now_ms = met.query, met.now_ms
    hosts: dict[int, WorkerView | None] = {}
    for candidate, _, _ in feasible:
        key = id(candidate.hosts)
        if key not in hosts:
            hosts[key] = roomiest(candidate.hosts, 0, now_ms, query.avoid)
        host = hosts[key]
        if host is None:
            continue
        wait_ms = max(0.0, host.busy_until_ms - now_ms)
        run_ms = candidate.table.ms[query.rows] + met.transport_ms
        if not idle_only or wait_ms + run_ms <= query.latency_ms:
            return candidate, host
    return None


def _alternatives(found: Sequence[Finding], met: Circumstances) -> tuple[Alternative, ...]:
    """The variants that some worker could run and that miss the SLO least."""
    query = met.query
    rows = query.rows
    distance_of = _distance(met)
    nearest: dict[VariantName, tuple[float, Finding]] = {}
    for finding in found:
        candidate, obstacle, _ = finding
        if (
            obstacle in MISSES
            and rows <= candidate.table.max_batch
            and (candidate.ready or candidate.hosts)
        ):
            distance = distance_of(candidate)
            known = nearest.get(candidate.variant)
            if known is None or distance < known[0]:
                nearest[candidate.variant] = (distance, finding)
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
        )
        for _, finding in ranked
    )


def _distance(met: Circumstances) -> Callable[[Candidate], float]:
    """How far a candidate is off: the relative excess of latency, of cost and of the error rate."""
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
