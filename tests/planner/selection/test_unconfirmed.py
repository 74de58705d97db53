"""Profiles that no batch has confirmed: what a refusal says of them."""

from dataclasses import replace

from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import ProfileKey, Refusal, RefusalCode, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    profile,
    query,
    variant,
    worker,
)
from variants.types import DeviceKindName, VariantName

REGISTERED = catalog(
    [variant("quick", 0.90), variant("slow", 0.99)], [profile("quick", 20.0), profile("slow", 50.0)]
)
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
