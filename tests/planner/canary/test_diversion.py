"""A query is diverted only where the canary meets its SLO, and as selection would choose."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from planner.canary.diversion import INFEASIBLE, NOT_READY, OVERLOADED, divert
from planner.canary.some_versions import of_version
from planner.selection.eligibility import meets
from planner.selection.select import select
from planner.types import Choice, Reason, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    profile,
    query,
    snapshot,
    variant,
    worker,
)
from variants.types import Prefer, Stage

LIVE, CANARY = "mlp", "cnn"


def known(
    *, canary_ms: float = 10.0, accuracy: float = 0.9, busy_ms: float = 0.0, loaded: bool = True
) -> Snapshot:
    """A live variant on one worker, and beside it the canary ``cnn-v1`` on another."""
    found = snapshot(
        catalog(
            [variant(LIVE, 0.9), variant(CANARY, accuracy)],
            [profile(LIVE, 10.0), profile(CANARY, canary_ms)],
            stages={CANARY: Stage.CANARY},
        ),
        (worker("w1"), [key(LIVE)]),
        (worker("w2", busy_ms=busy_ms, free_mib=500.0), [key(CANARY)] if loaded else []),
    )
    made = of_version(found, DIGITS, f"{CANARY}-v1")
    assert made is not None
    return made


def test_the_canary_answers_with_its_own_variant() -> None:
    found = divert(known(), query(100.0), NOW_MS)
    assert isinstance(found, Choice)
    assert (found.candidate.variant, found.worker.id, found.reason) == (
        CANARY, "w2", Reason.CANARY,
    )  # fmt: skip


def test_what_it_cannot_do_in_time_is_answered_as_always() -> None:
    assert divert(known(canary_ms=80.0), query(50.0), NOW_MS) == INFEASIBLE
    assert divert(known(accuracy=0.8), query(50.0, accuracy=0.85), NOW_MS) == INFEASIBLE
    assert divert(known(busy_ms=95.0), query(100.0), NOW_MS) == OVERLOADED
    assert divert(known(loaded=False), query(100.0), NOW_MS) == NOT_READY


def test_nothing_is_loaded_for_it_and_no_best_effort_made() -> None:
    assert divert(known(loaded=False), query(10_000.0), NOW_MS) == NOT_READY
    assert divert(known(canary_ms=80.0), query(50.0, best_effort=True), NOW_MS) == INFEASIBLE


def test_a_version_without_a_variant_that_may_answer_has_no_snapshot() -> None:
    nothing = snapshot(catalog([variant(LIVE)], [profile(LIVE)]), (worker(), [key(LIVE)]))
    assert of_version(nothing, DIGITS, "other-v1") is None


numbers = st.sampled_from([5.0, 10.0, 20.0, 40.0, 80.0])


@given(
    st.lists(st.tuples(numbers, st.sampled_from([0.8, 0.9, 0.95])), min_size=1, max_size=4),
    st.sampled_from([0.0, 15.0, 60.0]),
    st.sampled_from([10.0, 30.0, 100.0]),
    st.sampled_from([None, 0.85, 0.93]),
    st.sampled_from(Prefer),
)
def test_what_is_diverted_meets_its_slo_and_is_what_selection_takes(
    own: Sequence[tuple[float, float]],
    busy_ms: float,
    latency_ms: float,
    accuracy: float | None,
    prefer: Prefer,
) -> None:
    """So it breaks no SLO that a live version could have met; and of a version that were live and
    alone, the same variant would answer."""
    names = [f"c{number}" for number in range(len(own))]
    made = snapshot(
        catalog(
            [variant(name, right) for name, (_, right) in zip(names, own, strict=True)],
            [profile(name, took) for name, (took, _) in zip(names, own, strict=True)],
            stages=dict.fromkeys(names, Stage.CANARY),
        ),
        (worker("w2", busy_ms=busy_ms), [key(name) for name in names]),
    )
    asked = query(latency_ms, accuracy=accuracy, prefer=prefer)
    for name in names:
        alone = of_version(made, DIGITS, f"{name}-v1")
        assert alone is not None
        found = divert(alone, asked, NOW_MS)
        taken = select(alone, asked, NOW_MS)
        if isinstance(found, str):
            assert not isinstance(taken, Choice) or taken.cold or not taken.meets_slo
            continue
        assert isinstance(taken, Choice)
        assert (found.candidate, found.worker) == (taken.candidate, taken.worker)
        assert meets(found.candidate, asked, 0.0)
        assert found.predicted_ms <= latency_ms
