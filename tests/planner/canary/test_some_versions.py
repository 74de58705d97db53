"""The part of a snapshot that may answer a query which names a version."""

from planner.canary.some_versions import for_version, version_not_found
from planner.selection.select import select
from planner.types import Choice, Refusal, RefusalCode, Snapshot
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
from variants.types import Stage, TaskName, VariantName

LIVE, OTHER, CANARY = "mlp", "cnn", "new"


def known() -> Snapshot:
    """Two live versions and a canary; ``cnn`` is the most accurate and the slowest."""
    return snapshot(
        catalog(
            [variant(LIVE, 0.9), variant(OTHER, 0.95), variant(CANARY, 0.9)],
            [profile(LIVE, 10.0), profile(OTHER, 30.0), profile(CANARY, 10.0)],
            stages={CANARY: Stage.CANARY},
        ),
        (worker("w1"), [key(LIVE), key(OTHER), key(CANARY)]),
    )


def test_only_the_named_version_answers() -> None:
    for name in (LIVE, OTHER, CANARY):
        found = select(for_version(known(), DIGITS, f"{name}-v1"), query(100.0), NOW_MS)
        assert isinstance(found, Choice)
        assert found.candidate.variant == name


def test_the_others_are_left_out_with_the_reason() -> None:
    refused = select(for_version(known(), DIGITS, f"{OTHER}-v1"), query(20.0), NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.SLO_INFEASIBLE
    assert refused.reasons[LIVE] == refused.reasons[CANARY] == f"the query names {OTHER}-v1"
    assert OTHER in refused.reasons


def test_other_tasks_and_the_snapshot_itself_stay_as_they_are() -> None:
    before = known()
    part = for_version(before, DIGITS, f"{OTHER}-v1")
    assert {one.variant for one in before.tasks[DIGITS].by_cost} == {LIVE, OTHER, CANARY}
    assert before.tasks[DIGITS].by_variant[VariantName(CANARY)][0].canary
    assert part.workers is before.workers
    assert for_version(before, TaskName("nothing"), "a-v1") is before


def test_a_version_that_is_not_there_is_told_with_those_that_are() -> None:
    assert version_not_found(known(), DIGITS, f"{LIVE}-v1") is None
    assert version_not_found(known(), TaskName("nothing"), "a-v1") is None
    refused = version_not_found(known(), DIGITS, f"{LIVE}-v2")
    assert refused is not None
    assert refused.code is RefusalCode.VARIANT_NOT_FOUND
    what = f"task 'digits' has no model version '{LIVE}-v2' that answers"
    assert refused.message == f"{what}; there are: {LIVE}-v1 and 2 more"
