"""What is to be measured, why, and measuring it."""

import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.profiling.due.profiles import Cause, due_profiles
from controlplane.profiling.remeasuring import measure_due
from tests.controlplane.registry.house import CPU, QUICK, House
from tests.variants.catalog_builders import kind, profile, registration, variant
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    Profile,
    ProfileSource,
    ProfilingRequest,
    Stage,
    Variant,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

HALF = DeviceKind(name=DeviceKindName("cpu-9"), cores=1, memory_mib=500.0, usd_per_hour=0.02)
HOST = "Xeon; 2 cores; Linux 6.1; onnxruntime 1.31"


def catalog(one: Profile | None, *, of: Variant | None = None) -> CatalogSnapshot:
    made = MemoryCatalog()
    profiles = () if one is None else (replace(one, host=one.host or HOST),)
    variants = (of or variant(),)
    made.register(registration(variants=variants, profiles=profiles))
    return made.snapshot()


def causes(
    snapshot: CatalogSnapshot, requests: Iterable[ProfilingRequest] = ()
) -> list[tuple[Cause, str]]:
    found = due_profiles(snapshot, (kind(),), requests, hosts=lambda *_: (HOST,))
    return [(one.cause, one.reason) for one in found]


def test_a_true_profile_is_left_alone() -> None:
    assert causes(catalog(profile())) == []
    assert causes(catalog(replace(profile(), source=ProfileSource.EXACT, host="elsewhere"))) == []


def test_each_cause_says_what_is_wrong() -> None:
    older = replace(profile(), host=HOST.replace("1.31", "1.30"))
    guessed = replace(profile(), source=ProfileSource.PREDICTED)
    asked = ProfilingRequest(
        task=variant().task, variant=variant().name, device_kind=kind().name, reason="is slow"
    )
    assert causes(catalog(None)) == [(Cause.MISSING, "was never measured here")]
    assert causes(catalog(profile()), [asked]) == [(Cause.REQUESTED, "is slow")]
    assert causes(catalog(older)) == [(Cause.STALE, "onnxruntime 1.30 -> 1.31")]
    assert causes(catalog(guessed)) == [(Cause.PREDICTED, "its latency was predicted")]


@pytest.mark.parametrize(
    ("options", "gpu", "runs"),
    [
        ({}, None, True),
        ({"threads": "1"}, None, True),
        ({"threads": "2"}, None, False),
        ({"provider": "cuda"}, None, False),
        ({"provider": "cuda"}, "h200", True),
        ({}, "h200", False),
    ],
)
def test_a_variant_is_measured_only_where_it_has_business(
    options: dict[str, str], gpu: str | None, runs: bool
) -> None:
    snapshot = catalog(None, of=variant(options=options))
    device = kind(cores=2, gpu=gpu)
    assert bool(due_profiles(snapshot, (device,), hosts=lambda *_: (HOST,))) is runs


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("first"))
    made.register()
    return made


@pytest.fixture
def house(first: House, tmp_path: Path) -> House:
    """One model as two variants, measured on one kind."""
    return House.like(first, tmp_path)


def test_a_new_device_kind_gets_profiles_of_all_that_answers(house: House) -> None:
    before = house.catalog.snapshot()
    assert due_profiles(before, (CPU,)) == []
    found = due_profiles(before, (CPU, HALF))
    assert [one.variant.name for one in found] == [v.name for v in before.variants]

    told: list[str] = []
    measured = measure_due(
        found, house.catalog, house.store, lambda p: told.append(p.message), limits=QUICK
    )

    after = house.catalog.snapshot()
    assert measured == (len(before.variants), ())
    assert due_profiles(after, (CPU, HALF)) == []
    new = [p for p in after.profiles if p.device_kind == HALF.name]
    assert {p.variant for p in new} == {v.name for v in before.variants}
    assert all(p.points[0].p50_ms > 0 and p.memory_mib > 0 for p in new)
    assert {p.measured_on for p in new} == {socket.gethostname()}
    assert [p for p in after.profiles if p.device_kind == CPU.name] == list(before.profiles)
    begun = [one for one in told if "batch sizes" not in one]
    assert begun == [*(f"measuring {v.name} on cpu-9" for v in after.variants), "measured"]
    assert any("cpu-9: 3 of 3 batch sizes" in one for one in told)


def test_what_does_not_answer_is_not_measured(house: House) -> None:
    (version,) = house.catalog.snapshot().versions
    house.catalog.set_stage([version.task], version.model, version.version, Stage.RETIRED)
    assert due_profiles(house.catalog.snapshot(), (HALF,)) == []


def test_a_variant_that_cannot_be_measured_is_named_and_the_others_are(house: House) -> None:
    variants = house.catalog.snapshot().variants
    broken = house.store.path(variants[0].artifact)
    broken.chmod(0o600)
    broken.write_bytes(b"no model")
    found = due_profiles(house.catalog.snapshot(), (HALF,))
    measured, failures = measure_due(found, house.catalog, house.store, limits=QUICK)
    assert measured == len(variants) - 1
    (failure,) = failures
    assert failure.startswith(f"{variants[0].name}: its artifact")
    assert "is damaged" in failure
