"""Profiles that say how it was, and no more how it is."""

from dataclasses import replace

from controlplane.profiling.due.staleness import changed_on, host_of
from controlplane.views.catalog.variants import variant_rows
from tests.controlplane.builders import CPU, DIGITS, profile, variant
from variants.types import CatalogSnapshot, DeviceKindName, Profile, ProfileSource

CNN = variant("cnn", accuracy=0.99)
MEASURED = replace(
    profile(CNN, p50_ms=1, p95_ms=2), source=ProfileSource.MEASURED, host=host_of(CNN)
)


def older(now: Profile) -> Profile:
    """As it would be from before a library was updated."""
    parts = ["onnxruntime 1.0.0" if "onnxruntime" in p else p for p in now.host.split("; ")]
    return replace(now, host="; ".join(parts))


def stale(found: Profile, *, here: str = CPU.name) -> str | None:
    catalog = CatalogSnapshot(revision=1, tasks=(DIGITS,), variants=(CNN,), profiles=(found,))
    (row,) = variant_rows(catalog, DIGITS.name, changed_on({DeviceKindName(here)}))
    return row.devices[0].stale


def test_a_profile_of_this_machine_as_it_is_is_not_stale() -> None:
    assert stale(MEASURED) is None


def test_what_was_updated_since_is_said() -> None:
    said = stale(older(MEASURED))
    assert said is not None
    assert said.startswith("onnxruntime 1.0.0 -> 1.")


def test_of_other_device_kinds_nothing_is_known_here() -> None:
    assert stale(older(MEASURED), here="cpu-64") is None


def test_what_was_never_measured_cannot_be_stale() -> None:
    assert stale(replace(older(MEASURED), source=ProfileSource.EXACT)) is None
