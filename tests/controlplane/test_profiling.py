"""Measuring what has no profile yet on the device kinds that a machine has now."""

from pathlib import Path

from controlplane.profiling import profile_missing, unprofiled
from tests.controlplane.test_registration import CPU, QUICK, House
from variants.types import DeviceKind, DeviceKindName, Stage

HALF = DeviceKind(name=DeviceKindName("cpu-9"), cores=1, memory_mib=500.0, usd_per_hour=0.02)


def test_a_new_device_kind_gets_profiles_of_all_that_answers(tmp_path: Path) -> None:
    house = House(tmp_path)
    result = house.register()
    before = house.catalog.snapshot()
    assert unprofiled(before, (CPU,)) == 0
    assert unprofiled(before, (CPU, HALF)) == len(result.variants)

    told: list[str] = []
    measured = profile_missing(
        house.catalog, house.store, (CPU, HALF), lambda p: told.append(p.message), limits=QUICK
    )

    after = house.catalog.snapshot()
    assert measured == (len(result.variants), ())
    assert unprofiled(after, (CPU, HALF)) == 0
    new = [p for p in after.profiles if p.device_kind == HALF.name]
    assert {p.variant for p in new} == {v.name for v in result.variants}
    assert all(p.points[0].p50_ms > 0 and p.memory_mib > 0 for p in new)
    assert [p for p in after.profiles if p.device_kind == CPU.name] == list(before.profiles)
    assert told == [f"measuring {v.name} on cpu-9" for v in after.variants]


def test_what_does_not_answer_is_not_measured(tmp_path: Path) -> None:
    house = House(tmp_path)
    (version,) = house.register().versions
    house.catalog.set_stage(version.task, version.model, version.version, Stage.RETIRED)
    assert unprofiled(house.catalog.snapshot(), (HALF,)) == 0
    assert profile_missing(house.catalog, house.store, (HALF,), limits=QUICK) == (0, ())


def test_a_variant_that_cannot_be_measured_is_named_and_the_others_are(tmp_path: Path) -> None:
    house = House(tmp_path)
    result = house.register()
    broken = house.store.path(result.variants[0].artifact)
    broken.chmod(0o600)
    broken.write_bytes(b"no model")
    measured, failures = profile_missing(house.catalog, house.store, (HALF,), limits=QUICK)
    assert measured == len(result.variants) - 1
    (failure,) = failures
    assert result.variants[0].name in failure
