"""Explanations: how a query would be answered now, and what becomes of each variant on the way.

``explained`` puts into words what selection has decided. The decision itself is that of a query
that comes now, by the same functions; nothing is sent to a worker.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from math import isnan

from controlplane.gateway.explaining.accuracy_doubt import accuracy_doubt
from controlplane.gateway.explaining.plan_words import (
    PlannedAnswers,
    canary_words,
    plan_words,
    planned_answers,
)
from controlplane.views.explanation_schemas import (
    AlternativeSchema,
    AnswerSchema,
    ExplanationSchema,
    Outcome,
    RefusalSchema,
    Standing,
    VerdictSchema,
)
from planner.reconcile.kept.worth import LEAST_SAVED
from planner.selection.eligibility import (
    Circumstances,
    Finding,
    Obstacle,
    circumstances,
    findings,
)
from planner.selection.refusal_reasons import in_words
from planner.selection.routes import RouteTable
from planner.sentences import CHOSEN
from planner.types import (
    Candidate,
    Choice,
    PlacedReason,
    Query,
    Reason,
    Refusal,
    Snapshot,
    TaskView,
)
from profiler.evaluation.accuracy import interval_of
from variants.figures import accuracies, apart, usd
from variants.metrics.metric import parse_metric
from variants.types import Canary, Prefer


def explained(
    snapshot: Snapshot,
    routes: RouteTable,
    query: Query,
    found: Choice | Refusal,
    now_ms: float,
    *,
    metric: str = "",
    canary: Canary | None = None,
) -> ExplanationSchema:
    """What was decided for a query, and why not otherwise.

    Args:
        routes: where the plan wants queries to go.
        found: what selection gives for the query now.
        metric: of the task; empty where the task is not known.
        canary: a new version that gets a share of such queries.
    """
    view = snapshot.tasks.get(query.task)
    planned = planned_answers(routes, query)
    verdicts = []
    if view is not None:
        verdicts = list(_verdicts(snapshot, view, query, found, now_ms, planned))
    if not (metric and parse_metric(metric).counts_rows):
        for row in verdicts:
            row.accuracy_low = row.accuracy_high = None
    return ExplanationSchema(
        task=query.task,
        latency_ms=query.latency_ms,
        accuracy=query.accuracy,
        cost=query.cost,
        prefer=query.prefer,
        best_effort=query.best_effort,
        pinned=query.variant,
        model_version=query.version,
        rows=query.rows,
        outcome=Outcome.ANSWERED if isinstance(found, Choice) else Outcome.REFUSED,
        answer=_answer(found, query, now_ms) if isinstance(found, Choice) else None,
        refusal=_refusal(found) if isinstance(found, Refusal) else None,
        plan=plan_words(snapshot, routes, query, found, planned) + canary_words(canary),
        doubt=accuracy_doubt(verdicts, query),
        cores="",
        too_long_for=_too_long_for(verdicts, query),
        variants=verdicts,
    )


def _too_long_for(verdicts: Iterable[VerdictSchema], query: Query) -> list[str]:
    """The variants that do not hold the texts of a query, by what was said of their versions."""
    said = {why for _, why in query.unread}
    return sorted({row.variant for row in verdicts if row.why in said})


def _answer(found: Choice, query: Query, now_ms: float) -> AnswerSchema:
    candidate, reason = found.candidate, found.reason
    return AnswerSchema(
        variant=candidate.variant,
        model_version=candidate.model_version,
        worker=found.worker.id,
        device_kind=candidate.device_kind,
        reason=Reason(reason),
        why=CHOSEN[Reason(reason)],
        zone=f"{reason.place}: {reason.why}" if isinstance(reason, PlacedReason) else "",
        wait_ms=max(0.0, found.worker.busy_until_ms - now_ms),
        run_ms=candidate.table.ms[min(query.rows, candidate.table.max_batch)],
        predicted_ms=found.predicted_ms,
        accuracy=candidate.accuracy,
        price_usd_per_1k=candidate.price_usd_per_1k,
        loaded=not found.cold,
        slo_met=found.meets_slo,
    )


def _refusal(found: Refusal) -> RefusalSchema:
    return RefusalSchema(
        code=found.code,
        error=found.message,
        retry_after_s=found.retry_after_s,
        alternatives=[AlternativeSchema.model_validate(one) for one in found.alternatives],
    )


def _verdicts(
    snapshot: Snapshot,
    view: TaskView,
    query: Query,
    found: Choice | Refusal,
    now_ms: float,
    planned: PlannedAnswers,
) -> Iterator[VerdictSchema]:
    """What becomes of each variant: the chosen one, those that fit, those that do not."""
    met = circumstances(snapshot, query, now_ms)
    chosen = found.candidate if isinstance(found, Choice) else None
    saves_little = _saves_little(view, planned.qps)
    rank = {Standing.CHOSEN: 0, Standing.FITS: 1, Standing.STOPPED: 2}
    rows = []
    for finding in findings(_in_order(view, query.prefer), met):
        one = finding.candidate
        if chosen is not None and one is chosen:
            assert isinstance(found, Choice)
            verdict, why = Standing.CHOSEN, CHOSEN[Reason(found.reason)]
        elif _fits(finding, query, met.left_ms - met.transport_ms):
            verdict = Standing.FITS
            why = "fits"
            if chosen is not None:
                why = _beside(finding, chosen, found, met, planned.variants, saves_little)
        else:
            verdict, why = Standing.STOPPED, in_words(finding, met)
        rows.append(_row(one, query, verdict, why))
    rows = _of_kinds(rows, {*snapshot.kinds, *snapshot.wanted.kinds()})
    yield from sorted(rows, key=lambda row: rank[row.verdict])
    for name, why in sorted(view.excluded.items()):
        yield VerdictSchema(
            variant=name,
            accuracy_low=None,
            run_ms=None,
            loaded_on=0,
            verdict=Standing.STOPPED,
            why=why,
        )


def _of_kinds(rows: list[VerdictSchema], there: Collection[str]) -> list[VerdictSchema]:
    """Without what was measured of a variant on kinds of which no worker is there or wanted, as
    before a machine was divided anew, where it was measured on another one that is."""
    known = {row.variant for row in rows if row.device_kind in there}
    return [row for row in rows if row.device_kind in there or row.variant not in known]


def _in_order(view: TaskView, prefer: Prefer) -> tuple[Candidate, ...]:
    orders = {
        Prefer.ACCURACY: view.by_accuracy,
        Prefer.LATENCY: view.by_latency,
        Prefer.ENERGY: view.by_energy,
    }
    return orders.get(prefer, view.by_cost)


def _fits(finding: Finding, query: Query, left_ms: float) -> bool:
    if finding.obstacle is not Obstacle.QUEUE or isnan(finding.wait_ms):
        return False
    run_ms = finding.candidate.table.ms[query.rows]
    return max(finding.wait_ms, 0.0) + run_ms <= left_ms


def _beside(
    finding: Finding,
    chosen: Candidate,
    found: Choice | Refusal,
    met: Circumstances,
    planned: Collection[str],
    saves_little: Callable[[float], bool],
) -> str:
    """Why a variant that fits was not chosen."""
    assert isinstance(found, Choice)
    one, query = finding.candidate, met.query
    if Reason(found.reason) is Reason.PLANNED:
        return _beside_the_planned(one, chosen, query, planned, saves_little)
    if one.variant == chosen.variant:
        return "fits, on another kind of device"
    if Reason(found.reason) is Reason.EARLIEST_COMPLETION:
        return _done_later(finding, found, met)
    if query.prefer is Prefer.ACCURACY and one.accuracy < chosen.accuracy:
        ours, best = accuracies(one.accuracy, chosen.accuracy)
        return f"fits; accuracy {ours} < {best}"
    if query.prefer is Prefer.COST and one.price_usd_per_1k > chosen.price_usd_per_1k:
        prices = (1_000 * one.price_usd_per_1k, 1_000 * chosen.price_usd_per_1k)
        ours, best = apart(*prices, 3, usd)
        return f"fits; a row alone costs {ours} > {best} USD per million"
    return "fits; the other was preferred"


def _beside_the_planned(
    one: Candidate,
    chosen: Candidate,
    query: Query,
    planned: Collection[str],
    saves_little: Callable[[float], bool],
) -> str:
    """Why a variant that fits was not chosen where the plan chose."""
    if one.variant in planned:
        return "fits; the plan sends it others of these queries"
    if query.prefer is not Prefer.COST or one.price_usd_per_1k == chosen.price_usd_per_1k:
        return "fits; the plan sends such queries elsewhere"
    prices = (1_000 * one.price_usd_per_1k, 1_000 * chosen.price_usd_per_1k)
    ours, planned_usd = apart(*prices, 3, usd)
    if one.price_usd_per_1k > chosen.price_usd_per_1k:
        return f"fits; a row alone costs {ours} > {planned_usd} USD per million"
    little = saves_little(chosen.price_usd_per_1k - one.price_usd_per_1k)
    why = ", too little for another plan" if little else "; plans count whole batches"
    return f"fits; a row alone costs {ours} < {planned_usd} USD per million{why}"


def _saves_little(view: TaskView, qps: float) -> Callable[[float], bool]:
    """Whether a lower price of such queries, by so many USD per 1,000 rows, saves so little at the
    planned rate that routes stay as they are (``planner.reconcile.kept.worth``)."""
    cheapest = min((one.usd_per_hour for one in view.by_cost), default=0.0)
    return lambda usd_per_1k: 3.6 * qps * usd_per_1k <= LEAST_SAVED * cheapest


def _done_later(finding: Finding, found: Choice, met: Circumstances) -> str:
    """Beside the one that is done first."""
    run_ms = finding.candidate.table.ms[met.query.rows]
    done_ms = max(finding.wait_ms, 0.0) + run_ms + met.transport_ms
    if done_ms <= found.predicted_ms:
        return "fits; done no later on another worker than was drawn"
    ours, best = apart(done_ms, found.predicted_ms)
    return f"fits; done in {ours} ms > {best} ms"


def _row(one: Candidate, query: Query, verdict: Standing, why: str) -> VerdictSchema:
    fits_a_batch = query.rows <= one.table.max_batch
    low, high = interval_of(one.accuracy, one.accuracy_rows) if one.accuracy_rows else (None, None)
    return VerdictSchema(
        variant=one.variant,
        device_kind=one.device_kind,
        accuracy=one.accuracy,
        accuracy_low=low,
        accuracy_high=high,
        run_ms=one.table.ms[query.rows] if fits_a_batch else None,
        price_usd_per_1k=one.price_usd_per_1k,
        loaded_on=len(one.ready),
        verdict=verdict,
        why=why,
    )
