"""The rule of eligibility: its parts, and that selection and refusals keep to it."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.reconcile.problem_builder import build_problem
from planner.reconcile.tick import tick
from planner.selection.eligibility import (
    FEASIBLE,
    Finding,
    Obstacle,
    able,
    circumstances,
    findings,
    kept_out,
    meets,
    profile_obstacle,
    stage_answers,
    standing,
    without_slo,
)
from planner.selection.open_batches import OpenBatches
from planner.selection.plan_following import follow
from planner.selection.prices import UsualFills, exhausted, priced, quickest
from planner.selection.refusal import is_only_choice
from planner.selection.refusal_reasons import Reasons
from planner.selection.routes import resolve
from planner.selection.select import load_or_refuse, select
from planner.solver.problem import AvailableKind as SolverKind
from planner.types import Candidate, Choice, Demand, Query, Refusal, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    demand,
    key,
    observation,
    profile,
    query,
    replica,
    report,
    snapshot,
    variant,
    worker,
)
from tests.planner.selection.strategies import EPSILON, NAMES, queries, snapshots
from variants.types import DeviceKindName, Prefer, ReplicaState, Route, Stage, VariantName, WorkerId


def candidate(*, canary: bool = False) -> Candidate:
    """Accuracy 0.9, 0.001 USD per 1,000, 12 ms for a row, at most 8 rows; on one idle worker."""
    known = catalog(
        [variant("small")],
        [profile("small")],
        stages={"small": Stage.CANARY if canary else Stage.LIVE},
    )
    [found] = snapshot(known, (worker(), [key("small")])).tasks[DIGITS].by_cost
    return found


@pytest.mark.parametrize(
    ("asked", "obstacle"),
    [
        (query(), None),
        (query(variant="small"), None),
        (query(variant="other"), Obstacle.CANARY),
        (query(accuracy=0.9), None),
        (query(accuracy=0.91), Obstacle.ACCURACY),
        (query(cost=0.001), None),
        (query(cost=0.0009), Obstacle.COST),
        (query(rows=8), None),
        (query(1_000, rows=9), Obstacle.ROWS),
        (query(12), None),
        (query(11), Obstacle.LATENCY),
        (query(11, accuracy=0.91, cost=0.0009, rows=9), Obstacle.ACCURACY),
    ],
)
def test_what_a_profile_says(asked: Query, obstacle: Obstacle | None) -> None:
    assert profile_obstacle(candidate(), asked) is obstacle


def test_transport_counts_as_latency() -> None:
    assert meets(candidate(), query(14), transport_ms=2.0)
    assert not meets(candidate(), query(13), transport_ms=2.0)


def test_a_canary_answers_only_queries_that_name_it() -> None:
    assert profile_obstacle(candidate(canary=True), query()) is Obstacle.CANARY
    assert profile_obstacle(candidate(canary=True), query(variant="small")) is None


def test_a_class_of_demand_is_judged_as_a_query_of_one_row() -> None:
    assert meets(candidate(), demand(1, 12.0, 0.9), 0.0)
    assert not meets(candidate(), demand(1, 11.0, 0.9), 0.0)
    assert not meets(candidate(), demand(1, 12.0, 0.91), 0.0)
    assert not meets(candidate(canary=True), demand(1, 12.0), 0.0)
    assert meets(candidate(canary=True), demand(1, 12.0, variant="small"), 0.0)


@given(snapshots(), st.sampled_from((None, 0.5, 0.9)), st.floats(1.0, 100.0), st.floats(0.0, 5.0))
def test_those_that_meet_a_class_are_kept_with_the_task(
    view: Snapshot, floor: float | None, latency_ms: float, transport_ms: float
) -> None:
    for of_task in view.tasks.values():
        wanted = demand(10.0, task=of_task.task.name, accuracy=floor)
        asked = replace(wanted, latency_ms=latency_ms)
        found = able(of_task, wanted, transport_ms, latency_ms)

        assert list(found) == [c for c in of_task.by_cost if meets(c, asked, transport_ms)]
        assert able(of_task, replace(wanted, qps=1.0), transport_ms, latency_ms) is found


def test_a_class_at_another_rate_is_otherwise_the_same() -> None:
    one = Demand(
        task=DIGITS,
        latency_ms=100.0,
        accuracy=0.9,
        qps=10.0,
        slo_ms=80.0,
        variant=VariantName(NAMES[0]),
    )

    assert one.at_rate(2.0) == replace(one, qps=2.0)
    assert one.at_rate(2.0, 50.0) == replace(one, qps=2.0, latency_ms=50.0)


def test_without_an_slo_it_only_has_to_run() -> None:
    impossible = query(1, rows=8, accuracy=0.99, cost=0.0)
    assert meets(candidate(), without_slo(impossible), 0.0)
    assert not meets(candidate(), without_slo(impossible._replace(rows=9)), 0.0)


def test_stages_that_answer() -> None:
    assert [stage for stage in Stage if stage_answers(stage)] == [Stage.CANARY, Stage.LIVE]


def test_what_a_worker_must_not_be_given() -> None:
    states = (ReplicaState.READY, ReplicaState.QUARANTINED, ReplicaState.FAILED)
    found = report("w1", *(replica(state.value, state=state) for state in states))
    assert kept_out(found) == {key("quarantined"), key("failed")}


@given(snapshots(), queries)
def test_what_prevents_answering_is_what_the_rule_says(view: Snapshot, asked: Query) -> None:
    """A choice that meets the SLO has no obstacle but a queue, or loading for a cold one."""
    answer = select(view, asked, NOW_MS)
    if isinstance(answer, Choice) and answer.meets_slo:
        [found] = findings([answer.candidate], circumstances(view, asked, NOW_MS))
        assert found.obstacle >= FEASIBLE
        if not answer.cold:
            assert found.obstacle is Obstacle.QUEUE


@given(snapshots(), queries)
def test_what_findings_amount_to_is_known_without_them(view: Snapshot, asked: Query) -> None:
    assume(DIGITS in view.tasks)
    met = circumstances(view, asked, NOW_MS)
    candidates = view.tasks[DIGITS].by_cost
    feasible = [f for f in findings(candidates, met) if f.obstacle >= FEASIBLE]
    assert standing(candidates, met) == (
        bool(feasible),
        any(f.candidate.ready for f in feasible),
        any(f.obstacle > Obstacle.COLD for f in feasible),
    )


@given(snapshots(), st.lists(queries, min_size=5, max_size=10))
def test_what_the_second_look_does_not_find_no_search_finds(
    view: Snapshot, questions: list[Query]
) -> None:
    for question in questions:
        asked = question._replace(
            variant=None, accuracy=None, cost=None, rows=1, prefer=Prefer.ACCURACY
        )
        assert exhausted(asked)
        offers = resolve(everywhere(view, asked), view, Prefer.ACCURACY).offers(asked)
        if offers is None or quickest(offers, asked, NOW_MS, view.transport_ms) is not None:
            continue
        asked = asked._replace(prefer=Prefer.LATENCY)
        assert load_or_refuse(view, asked, NOW_MS) == select(view, asked, NOW_MS)


def fits_now(finding: Finding, asked: Query) -> bool:
    """Whether the rule and a wait, nothing else, let a ready candidate answer at this moment."""
    left_ms = asked.received_ms + asked.latency_ms - NOW_MS
    run_ms = finding.candidate.table.ms[asked.rows] if finding.obstacle >= FEASIBLE else 0.0
    return finding.obstacle is Obstacle.QUEUE and max(0.0, finding.wait_ms) + run_ms <= left_ms


@given(snapshots(), st.lists(queries, min_size=5, max_size=10))
@settings(max_examples=60)
def test_the_search_loops_keep_to_the_rule(view: Snapshot, questions: list[Query]) -> None:
    """They choose a ready variant exactly where the rule finds one that is done in time."""
    assume(DIGITS in view.tasks)
    for question in questions:
        asked = question._replace(best_effort=False)
        candidates = view.tasks[DIGITS].by_cost
        answer = select(view, asked, NOW_MS)
        found = findings(candidates, circumstances(view, asked, NOW_MS))
        fitting = {id(f.candidate) for f in found if fits_now(f, asked)}
        if isinstance(answer, Choice) and not answer.cold:
            assert id(answer.candidate) in fitting
        else:
            assert not fitting


def everywhere(view: Snapshot, asked: Query) -> list[Route]:
    """Routes for a query to every variant on every worker."""
    return [
        Route(
            task=DIGITS, latency_ms=asked.latency_ms, accuracy=asked.accuracy,
            variant=VariantName(name), worker=id_, batch_size=1, qps=1.0,
        )
        for name in NAMES for id_ in view.workers
    ]  # fmt: skip


@given(snapshots(), st.lists(queries, min_size=5, max_size=10))
@settings(max_examples=40)
def test_following_the_plan_keeps_to_the_rule(view: Snapshot, questions: list[Query]) -> None:
    """Whatever the plan names, a query goes only to a ready variant without an obstacle."""
    for asked in questions:
        targets = resolve(everywhere(view, asked), view, Prefer.COST).targets(asked)
        answer = follow(targets, asked, NOW_MS, view.transport_ms)
        if answer is not None:
            unpinned = asked._replace(variant=None, avoid=None)  # following leaves these aside
            [found] = findings([answer.candidate], circumstances(view, unpinned, NOW_MS))
            assert fits_now(found, unpinned)


@given(snapshots(), st.lists(queries, min_size=5, max_size=10))
@settings(max_examples=40)
def test_choosing_by_prices_keeps_to_the_rule(view: Snapshot, questions: list[Query]) -> None:
    """A query goes only to a ready variant without an obstacle, on a worker that is not avoided."""
    for asked in questions:
        offers = resolve(everywhere(view, asked), view, Prefer.ACCURACY).offers(asked)
        unpinned = asked._replace(variant=None, best_effort=False)
        answer = None
        if offers is not None:
            answer = priced(offers, OpenBatches(), UsualFills(), asked, NOW_MS, view.transport_ms)
        if answer is not None:
            [found] = findings([answer.candidate], circumstances(view, unpinned, NOW_MS))
            assert fits_now(found, unpinned)
            assert answer.worker.id != asked.avoid
            assert answer.worker in answer.candidate.ready


moments = st.sampled_from((0.0, 5.0, 40.0, 3_000.0))


@given(
    snapshots(),
    st.lists(queries, min_size=5, max_size=10),
    moments,
    moments,
    st.sampled_from((None, "w0", "w1")),
)
@settings(max_examples=40)
def test_a_variant_that_was_chosen_is_never_named_infeasible(
    view: Snapshot, questions: list[Query], later_ms: float, busy_ms: float, avoid: str | None
) -> None:
    """Not at any later moment, however long the queues, and whatever has to be avoided."""
    for asked in questions:
        answer = select(view, asked, NOW_MS)
        if not isinstance(answer, Choice) or not answer.meets_slo:
            continue
        then = asked._replace(avoid=None if avoid is None else WorkerId(avoid))
        for each in view.workers.values():
            each.busy_until_ms += busy_ms
        after = select(view, then, NOW_MS + later_ms)
        if isinstance(after, Refusal):
            [found] = findings([answer.candidate], circumstances(view, then, NOW_MS + later_ms))
            assert found.obstacle >= FEASIBLE
            assert after.reasons[answer.candidate.variant] not in infeasible_reasons(view, then)
        for each in view.workers.values():
            each.busy_until_ms -= busy_ms


def infeasible_reasons(view: Snapshot, asked: Query) -> set[str]:
    """Sentences about candidates that no idle worker could answer with."""
    met = circumstances(view, asked, NOW_MS)
    found = findings(view.tasks[asked.task].by_cost, met)
    return set(Reasons([f.candidate for f in found if f.obstacle < FEASIBLE], met).values())


@given(snapshots(), queries, moments, st.sampled_from(Prefer))
@settings(max_examples=60)
def test_a_variant_that_is_called_infeasible_is_never_chosen(
    view: Snapshot, asked: Query, later_ms: float, prefer: Prefer
) -> None:
    """Not on an idle fleet either, nor by another preference, nor when only it is asked."""
    assume(asked.task in view.tasks)
    met = circumstances(view, asked, NOW_MS)
    found = findings(view.tasks[asked.task].by_cost, met)
    infeasible = {
        (f.candidate.variant, f.candidate.device_kind) for f in found if f.obstacle < FEASIBLE
    }
    for each in view.workers.values():
        each.busy_until_ms = NOW_MS
    # A query that names a canary, or another variant than before, is another question.
    others = {f.candidate.variant for f in found if f.obstacle is Obstacle.CANARY}
    for pin in {asked.variant, *view.tasks[asked.task].by_variant} - others:
        again = asked._replace(best_effort=False, prefer=prefer, avoid=None, variant=pin)
        answer = select(view, again, again.received_ms + later_ms)
        if isinstance(answer, Choice):
            chosen = answer.candidate
            assert (chosen.variant, chosen.device_kind) not in infeasible
            assert answer.predicted_ms <= asked.latency_ms + EPSILON


def test_a_canary_is_routed_only_for_queries_that_name_it() -> None:
    """It is the cheaper one, so that only the rule keeps it from the other queries."""
    known = catalog(
        [variant("old"), variant("new")],
        [profile("old", 10.0), profile("new", 5.0)],
        stages={"new": Stage.CANARY},
    )
    asked = [demand(1), demand(1, variant="new")]
    plan = tick(observation(known, report("w1"), demand=asked)).plan
    assert {(r.variant, r.pinned) for r in plan.routes} == {("old", False), ("new", True)}
    view = snapshot(known, (worker(), [key("old"), key("new")]))
    targets = resolve(plan.routes, view, Prefer.COST).targets(query())
    assert {c.variant for target in targets for c in target.candidates} == {"old"}


def test_a_canary_is_offered_to_the_solver_only_for_classes_that_name_it() -> None:
    known = catalog(
        [variant("old"), variant("new")],
        [profile("old"), profile("new")],
        stages={"new": Stage.CANARY},
    )
    cpu = SolverKind(name=DeviceKindName("cpu-1"), count=1, memory_mib=1_000.0, usd_per_hour=0.36)

    def offered(*classes: Demand) -> set[str]:
        built = build_problem(snapshot(known), [cpu], classes)
        return {offer.variant for offer in built.problem.offers}

    assert offered(demand(1)) == {"old"}
    assert offered(demand(1), demand(1, variant="new")) == {"old", "new"}


def test_what_could_be_chosen_alone_is_known() -> None:
    both = (worker("w1"), {key("a")}), (worker("w2"), {key("a")})
    one = snapshot(catalog([variant("a")], [profile("a")]), *both)
    assert is_only_choice(one, query(), (WorkerId("w1"), WorkerId("w2")))
    assert not is_only_choice(one, query(), (WorkerId("w1"),))
    two = snapshot(catalog([variant("a"), variant("b", 0.5)], [profile("a"), profile("b")]), *both)
    workers = (WorkerId("w1"), WorkerId("w2"))
    assert not is_only_choice(two, query(), workers)  # the other could be loaded
    assert is_only_choice(two, query(variant="a"), workers)
    assert is_only_choice(two, query(accuracy=0.8), workers)
