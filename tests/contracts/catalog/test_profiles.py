"""Profiles, requests to measure, and variants that come later, in every catalog."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.catalog.known import DIGITS, in_threads
from tests.variants.catalog_builders import kind, points, profile, registration, variant
from variants.catalog.protocol import Catalog
from variants.errors import Conflict, InvalidInput, NotFound
from variants.types import (
    DeviceKindName,
    LatencyPoint,
    ProfileSource,
    ProfilingRequest,
    Variant,
    VariantName,
)


def test_a_device_kind_may_be_replaced_without_a_profile(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    dearer = kind(usd_per_hour=9.0)

    catalog.put_profiles((), (dearer,))
    catalog.put_profiles((), ())

    after = catalog.snapshot()
    assert after.device_kinds == (dearer,)
    assert (after.revision, after.profiles) == (before.revision + 1, before.profiles)


def test_a_profile_may_be_of_a_device_kind_that_is_known_already(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(number=2, device_kinds=()))
    assert len(catalog.snapshot().profiles) == 2


def test_profiles_are_added_and_replaced(catalog: Catalog) -> None:
    catalog.register(registration(device_kinds=(kind(), kind("cpu-2"))))
    replaced = profile(points=points((1, 2.0)), source=ProfileSource.PREDICTED)
    added = profile(kind="cpu-2", working_mib=6.5)
    catalog.put_profiles((profile(memory_mib=99.0), added, replaced))
    assert catalog.snapshot().profiles == (replaced, added)
    assert catalog.revision() == 2


def test_profiles_bring_a_new_device_kind_along(catalog: Catalog) -> None:
    catalog.register(registration())
    known = catalog.snapshot()
    (variant_known, *_) = known.variants
    new = kind(name="cpu-7")
    added = replace(known.profiles[0], device_kind=new.name, variant=variant_known.name)
    catalog.put_profiles((added,), (new,))
    assert new in catalog.snapshot().device_kinds
    assert added in catalog.snapshot().profiles


def request(name: str = "mlp-v1-onnx-fp32", cpu: str = "cpu-1", reason: str = "slow") -> Any:
    return ProfilingRequest(
        task=DIGITS, variant=VariantName(name), device_kind=DeviceKindName(cpu), reason=reason
    )


def test_a_profiling_request_stands_until_the_profile_comes(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.revision()
    catalog.request_profiling((request(reason="slow"), request(cpu="cpu-9")))
    catalog.request_profiling((request(reason="slower"),))
    assert catalog.profiling_requests() == (request(), request(cpu="cpu-9"))
    assert catalog.revision() == before
    catalog.put_profiles((profile(),))
    assert catalog.profiling_requests() == (request(cpu="cpu-9"),)


def test_a_profiling_request_made_anew_replaces_one_that_stands(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.request_profiling((request(reason="slow"), request(cpu="cpu-9")))
    catalog.request_profiling((request(reason="slower"),), anew=True)
    assert catalog.profiling_requests() == (request(reason="slower"), request(cpu="cpu-9"))


@pytest.mark.parametrize(("anew", "stands"), [(False, "slow"), (True, "slower")])
def test_of_two_profiling_requests_at_once_the_first_stands_and_anew_the_last(
    catalog: Catalog, anew: bool, stands: str
) -> None:
    catalog.register(registration())
    catalog.request_profiling((request(reason="slow"), request(reason="slower")), anew=anew)
    assert catalog.profiling_requests() == (request(reason=stands),)


def test_profiling_of_an_unknown_variant_cannot_be_requested(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="no variant 'nobody'"):
        catalog.request_profiling((request(), request("nobody")))
    assert catalog.profiling_requests() == ()


def test_many_may_request_the_same_profiling_at_once(catalog: Catalog) -> None:
    catalog.register(registration())
    in_threads(8, lambda _: catalog.request_profiling((request(),)))
    assert catalog.profiling_requests() == (request(),)


def test_variants_join_a_version_later(catalog: Catalog) -> None:
    catalog.register(registration())
    late = variant(name="mlp-v1-onnx-int8", agreement=0.99, note="one node in fp32")
    measured = profile("mlp-v1-onnx-int8", kind="cpu-4")
    before = catalog.snapshot()
    catalog.add_variants((late,), (measured,), (kind("cpu-4"),))
    after = catalog.snapshot()
    assert after.revision == before.revision + 1
    assert [v for v in after.variants if v not in before.variants] == [late]
    assert set(after.profiles) - set(before.profiles) == {measured}


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (variant(name="mlp-v1-onnx-fp32"), Conflict),
        (variant(number=7, name="late"), NotFound),
        (variant(name="late", accuracy=2.0), InvalidInput),
        (variant(name="late", agreement=-0.1), InvalidInput),
    ],
    ids=["taken", "no version", "accuracy", "agreement"],
)
def test_a_variant_that_cannot_join_changes_nothing(
    catalog: Catalog, late: Variant, error: type[Exception]
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(error):
        catalog.add_variants((late, replace(late, name=VariantName("fine"))), ())
    assert catalog.snapshot() == before


def test_what_answers_are_worth_by_other_rows_is_written_and_nothing_else(
    catalog: Catalog,
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    (known,) = before.variants
    other = replace(
        known, accuracy=0.5, accuracy_rows=7, agreement=0.25, note="R2 is -1", size_bytes=1,
        options={"threads": "3"}, answered=(3, 4), found=((2, 3), (4, 4)),
    )  # fmt: skip
    catalog.put_judged((other,))
    after = catalog.snapshot()
    assert after == replace(
        before,
        revision=before.revision + 1,
        variants=(
            replace(
                known,
                accuracy=0.5,
                accuracy_rows=7,
                agreement=0.25,
                note="R2 is -1",
                answered=(3, 4),
                found=((2, 3), (4, 4)),
            ),
        ),
    )
    catalog.put_judged(())
    assert catalog.revision() == after.revision


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": "other"}, NotFound),
        ({"artifact": "f" * 64}, NotFound),
        ({"accuracy": 1.5}, InvalidInput),
        ({"accuracy": math.nan}, InvalidInput),
        ({"agreement": -0.1}, InvalidInput),
        ({"accuracy_rows": -1}, InvalidInput),
    ],
    ids=["unknown", "built anew", "accuracy", "no number", "agreement", "rows"],
)
def test_of_what_cannot_be_judged_so_nothing_is_written(
    catalog: Catalog, change: dict[str, Any], error: type[Exception]
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    (known,) = before.variants
    with pytest.raises(error):
        catalog.put_judged((replace(known, accuracy=0.1), replace(known, **change)))
    assert catalog.snapshot() == before


def test_what_a_cost_model_predicted_is_kept_as_that(catalog: Catalog) -> None:
    guessed = LatencyPoint(batch_size=1, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, error=0.1)
    predicted = replace(
        profile(), points=(guessed,), source=ProfileSource.PREDICTED, cold_load_s=2.0, energy_j=0.1
    )
    catalog.register(registration())
    catalog.put_profiles((predicted,))
    assert catalog.snapshot().profiles == (predicted,)
    with pytest.raises(InvalidInput, match="predicted points"):
        catalog.put_profiles((replace(predicted, source=ProfileSource.MEASURED),))


def test_what_was_measured_of_energy_is_kept_and_blanks_stay_blank(catalog: Catalog) -> None:
    points = (
        LatencyPoint(batch_size=1, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0, energy_j=0.5),
        LatencyPoint(batch_size=2, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0),
    )
    day = tuple(float(hour) for hour in range(24))
    green = kind(idle_w=12.5, carbon_g_per_kwh=day)
    catalog.register(registration())
    catalog.put_profiles((profile(points=points),), (green,))
    found = catalog.snapshot()
    assert found.profiles == (profile(points=points),)
    assert found.device_kinds[0] == green
    dearer = replace(green, usd_per_hour=9.0)
    catalog.put_profiles((profile(),), (replace(dearer, idle_w=None),))
    assert catalog.snapshot().device_kinds[0] == dearer  # what was known of its draw stays
    with pytest.raises(InvalidInput, match="2 numbers, not 1 or 24"):
        catalog.put_profiles((profile(),), (replace(green, carbon_g_per_kwh=(1.0, 2.0)),))
    with pytest.raises(InvalidInput, match="idle draw"):
        catalog.put_profiles((profile(),), (replace(green, idle_w=-1.0),))


def test_no_profiles_change_nothing(catalog: Catalog) -> None:
    catalog.put_profiles(())
    assert catalog.revision() == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (profile("nobody"), NotFound),
        (profile(of="letters"), NotFound),
        (profile(kind="cpu-9"), NotFound),
        (profile(points=()), InvalidInput),
    ],
    ids=["variant", "task", "device kind", "no points"],
)
def test_a_wrong_profile_keeps_the_right_ones_out(
    catalog: Catalog, wrong: Any, error: type[Exception]
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(error):
        catalog.put_profiles((profile(memory_mib=99.0), wrong))
    assert catalog.snapshot() == before
