"""Profiles that no batch has confirmed, or that are yet to be measured: what a refusal says."""

from dataclasses import replace

from planner.selection.eligibility import circumstances, findings
from planner.selection.refusal_reasons import in_words
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, ProfileKey, Refusal, RefusalCode, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    kind,
    profile,
    query,
    variant,
    worker,
)
from variants.types import DeviceKindName, Stage, VariantName

REGISTERED = catalog(
    [variant("quick", 0.90), variant("slow", 0.99)], [profile("quick", 20.0), profile("slow", 50.0)]
)
QUICK = (DIGITS, VariantName("quick"), DeviceKindName("cpu-1"))
SLOW = (DIGITS, VariantName("slow"), DeviceKindName("cpu-1"))
CHECKED = ", by a profile that is being checked: no batch has confirmed it yet"


def seen(before: Snapshot | None = None, *unconfirmed: ProfileKey) -> Snapshot:
    ready = frozenset((key("quick"), key("slow")))
    return build_snapshot(
        REGISTERED, [(worker(), ready)], transport_ms=0.0, before=before,
        unconfirmed=frozenset(unconfirmed),
    )  # fmt: skip


def reasons(view: Snapshot) -> dict[str, str]:
    found = select(view, query(10.0), NOW_MS)
    assert isinstance(found, Refusal)
    assert found.code is RefusalCode.SLO_INFEASIBLE
    return dict(found.reasons)


def test_a_reason_says_that_the_profile_behind_it_is_being_checked() -> None:
    quick = "p95 24 ms > 10 ms"
    assert reasons(seen(None, SLOW)) == {"quick": quick, "slow": f"p95 60 ms > 10 ms{CHECKED}"}


def test_where_the_way_is_the_cause_the_profile_is_not_blamed() -> None:
    view = replace(seen(None, SLOW), transport_ms=0.5)
    asked = query(60.2, variant="slow")
    refused = select(view, asked, NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.reasons["slow"] == (
        "p95 60.5 ms > 60.2 ms, as the way to the worker and back takes 0.5 ms"
    )


def test_once_a_batch_has_run_it_says_so_no_more() -> None:
    assert reasons(seen(seen(None, SLOW)))["slow"] == "p95 60 ms > 10 ms"


def test_other_reasons_do_not_depend_on_the_profile() -> None:
    found = select(seen(None, SLOW), query(1_000.0, accuracy=0.999), NOW_MS)
    assert isinstance(found, Refusal)
    assert found.reasons["slow"] == "accuracy 99.00 % < 99.90 %"


def on_a_new_kind(*, measures: bool = True) -> Snapshot:
    """A worker of a kind on which only the slow one was measured; the others elsewhere."""
    known = catalog(
        [variant("quick", 0.90), variant("slow", 0.99), variant("fresh", 0.95)],
        [
            profile("quick", 2.0, kind="cpu-2"),
            profile("slow", 50.0),
            profile("fresh", 2.0, kind="cpu-2"),
        ],
        kinds=[kind(), kind("cpu-2")],
        stages={"fresh": Stage.CANARY},
    )
    return build_snapshot(known, [(worker(), [key("slow")])], transport_ms=0.0, measures=measures)


def test_what_may_meet_the_slo_once_it_is_measured_makes_no_query_infeasible() -> None:
    refused = select(on_a_new_kind(), query(10.0), NOW_MS)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.retry_after_s, refused.load) == (RefusalCode.COLD, 5.0, None)
    assert refused.message == (
        "no variant of 'digits' that was measured on cpu-1 meets the SLO (10 ms); quick may, and"
        " is yet to be measured there"
    )
    assert refused.reasons["quick"] == (
        "is yet to be measured on cpu-1, and there is no worker of kind cpu-2"
    )
    assert refused.reasons["slow"] == "p95 60 ms > 10 ms"
    pinned = select(on_a_new_kind(), query(10.0, variant="fresh"), NOW_MS)
    assert isinstance(pinned, Refusal)
    assert pinned.code is RefusalCode.COLD
    assert dict(pinned.reasons)["fresh"].startswith("is yet to be measured on cpu-1")


def test_what_could_not_be_measured_is_not_waited_for() -> None:
    """Such queries were told for ever to come again in five seconds."""
    why = "it crashed its trial process (SIGSEGV)"
    seen = replace(on_a_new_kind(), unmeasurable={QUICK: why})
    refused = select(seen, query(10.0), NOW_MS)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.retry_after_s) == (RefusalCode.SLO_INFEASIBLE, None)
    assert refused.message == (
        "no variant of 'digits' that was measured on cpu-1 meets the SLO (10 ms); quick may, and"
        f" could not be measured on cpu-1 ({why}); `modelless profile digits quick` tries again"
    )
    assert refused.reasons["quick"] == (
        f"could not be measured on cpu-1 ({why}), and there is no worker of kind cpu-2"
    )
    assert isinstance(select(seen, query(100.0), NOW_MS), Choice)
    pinned = select(seen, query(10.0, variant="fresh"), NOW_MS)
    assert isinstance(pinned, Refusal)
    assert pinned.code is RefusalCode.COLD
    infeasible = select(seen, query(1.0), NOW_MS)
    assert isinstance(infeasible, Refusal)
    assert "could not be measured" not in infeasible.message


def test_what_nothing_measured_anywhere_meets_is_infeasible_all_the_same() -> None:
    for asked in (query(1.0), query(10.0, accuracy=0.95), query(10.0, variant="slow")):
        refused = select(on_a_new_kind(), asked, NOW_MS)
        assert isinstance(refused, Refusal)
        assert refused.code is RefusalCode.SLO_INFEASIBLE
    answered = select(on_a_new_kind(), query(100.0), NOW_MS)
    assert isinstance(answered, Choice)
    refused = select(on_a_new_kind(measures=False), query(10.0), NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.SLO_INFEASIBLE


def test_a_live_variant_is_not_called_a_canary_because_another_one_is_named() -> None:
    met = circumstances(seen(), query(10.0, variant="slow"), NOW_MS)
    found = findings(seen().tasks[DIGITS].by_cost, met)
    words = {one.candidate.variant: in_words(one, met) for one in found}
    assert words == {"quick": "the query names another variant", "slow": "p95 60 ms > 10 ms"}
