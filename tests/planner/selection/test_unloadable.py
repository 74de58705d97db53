"""Variants that workers cannot load: which ones answer instead, and the refusal when none can."""

from planner.reconcile.tick import tick
from planner.selection.select import select
from planner.selection.snapshot import Unloadable, build_snapshot
from planner.types import Choice, Query, Refusal, RefusalCode, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    demand,
    key,
    kind,
    observation,
    profile,
    query,
    replica,
    report,
    variant,
    worker,
)
from variants.types import ReplicaState, VariantKey, WorkerId

REGISTERED = catalog(
    [variant("small", 0.90), variant("large", 0.99)],
    [profile("small", 5.0), profile("large", 10.0)],
)
WHY = "its artifact 3fa4b2c19d0e is damaged"
W1, W2 = WorkerId("w1"), WorkerId("w2")


def seen(unloadable: Unloadable, **ready: frozenset[VariantKey]) -> Snapshot:
    """Two workers, and what each holds."""
    workers = [(worker(name), ready.get(name, frozenset())) for name in (W1, W2)]
    return build_snapshot(REGISTERED, workers, transport_ms=0.0, unloadable=unloadable)


def refused(view: Snapshot, asked: Query) -> Refusal:
    found = select(view, asked, NOW_MS)
    assert isinstance(found, Refusal)
    return found


def chosen(view: Snapshot, asked: Query) -> Choice:
    found = select(view, asked, NOW_MS)
    assert isinstance(found, Choice), found
    return found


BROKEN_EVERYWHERE = {W1: {key("large"): WHY}, W2: {key("large"): WHY}}


def test_a_pinned_query_is_told_what_cannot_be_loaded_and_why() -> None:
    found = refused(seen(BROKEN_EVERYWHERE), query(10_000, variant="large"))
    assert found.code is RefusalCode.ARTIFACT_INVALID
    assert found.message == f"variant 'large' of task 'digits' cannot be loaded: {WHY}"
    assert dict(found.reasons) == {"large": f"cannot be loaded: {WHY}"}
    assert found.load is None


def test_another_variant_answers_queries_that_name_none() -> None:
    small = frozenset({key("small")})
    assert chosen(seen(BROKEN_EVERYWHERE, w1=small), query(100)).candidate.variant == "small"
    cold = chosen(seen({W1: {key("small"): WHY}, W2: {key("small"): WHY}}), query(10_000))
    assert (cold.candidate.variant, cold.cold) == ("large", True)


def test_a_floor_that_only_it_meets_names_it() -> None:
    small = frozenset({key("small")})
    found = refused(seen(BROKEN_EVERYWHERE, w1=small, w2=small), query(10_000, accuracy=0.95))
    assert found.code is RefusalCode.ARTIFACT_INVALID
    assert WHY in found.message
    assert dict(found.reasons) == {
        "large": f"cannot be loaded: {WHY}",
        "small": "accuracy 90.00 % < 95.00 %",
    }


def test_what_it_would_not_meet_anyway_is_infeasible() -> None:
    found = refused(seen(BROKEN_EVERYWHERE), query(7, accuracy=0.95))
    assert found.code is RefusalCode.SLO_INFEASIBLE
    assert found.reasons["large"] == "p95 12 ms > 7 ms"


def test_a_worker_that_can_load_it_does() -> None:
    found = chosen(seen({W1: {key("large"): WHY}}), query(10_000, variant="large"))
    assert (found.worker.id, found.cold) == (W2, True)


def test_a_worker_that_holds_it_answers() -> None:
    large = frozenset({key("large")})
    found = chosen(seen(BROKEN_EVERYWHERE, w1=large), query(100, accuracy=0.95))
    assert (found.candidate.variant, found.worker.id, found.cold) == ("large", W1, False)


def test_the_plan_does_without_it() -> None:
    for state, words in ((ReplicaState.DAMAGED, "damaged"), (ReplicaState.FAILED, "cannot be")):
        ill = report("w1", replica("large", state=state, memory_mib=0))
        decision = tick(observation(REGISTERED, ill))
        assert [p.variant for p in decision.plan.placements] == ["small"]
        assert f"; {words}" in decision.plan.explanation[0]
        assert [a.variant for a in decision.actions if hasattr(a, "variant")] == ["small"]


def test_a_plan_whose_routes_lead_to_it_is_made_anew() -> None:
    two = [report("w1", memory_mib=1_000)]
    asked = [demand(1, accuracy=0.8, latency_ms=1_000)]
    three = catalog(
        [variant("small", 0.90), variant("large", 0.99)],
        [profile("small", 5.0), profile("large", 10.0)],
        kinds=[kind()],
    )
    before = tick(observation(three, *two, demand=asked)).plan
    [first] = {route.variant for route in before.routes}
    ill = report("w1", replica(first, state=ReplicaState.DAMAGED, memory_mib=0), memory_mib=1_000)
    after = tick(observation(three, ill, demand=asked, plan=before)).plan
    assert {route.variant for route in after.routes} == {"small", "large"} - {first}
    assert DIGITS in {route.task for route in after.routes}
