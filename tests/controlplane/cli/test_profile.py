"""``modelless profile``: what it measures, what it keeps, and what it says."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.building.types import RegistrationLimits
from controlplane.cli.starting import why_measured
from controlplane.profiling.due import profiles as profiling
from controlplane.profiling.due.profiles import NEVER, Cause, DueProfile
from controlplane.profiling.remeasuring import measure_due
from controlplane.settings import load_settings
from profiler.sandbox.limits import MeasureLimits
from tests.controlplane.cli.shell import Shell
from tests.controlplane.registry.house import CPU, House
from tests.planner.builders import kind, variant
from tests.variants.catalog.copies import copy_registrations
from variants.catalog.sql import open_catalog
from variants.types import CatalogSnapshot, DeviceKind, DeviceKindName

pytestmark = pytest.mark.slow

OTHER = DeviceKind(name=DeviceKindName("cpu-7"), cores=1, memory_mib=100.0, usd_per_hour=1.0)
THIRD = replace(OTHER, name=DeviceKindName("cpu-9"))
QUICK = MeasureLimits(batch_sizes=(1, 2, 4), point_s=0.004, min_runs=4)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("first"))
    made.register(kinds=())
    return made


@pytest.fixture
def house(first: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """A variant in the catalog of the state directory, measured on another device kind."""
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("MODELLESS_CORES", "2")
    settings = load_settings()
    made = House(tmp_path, open_catalog(settings.catalog_url))
    made.store = type(made.store)(settings.artifacts_dir)
    copy_registrations(first.catalog.snapshot(), made.catalog)
    shutil.copytree(first.folder / "store", settings.artifacts_dir, dirs_exist_ok=True)
    return made


def known(house: House) -> CatalogSnapshot:
    return house.catalog.snapshot()


def test_a_dry_run_says_what_and_why_and_measures_nothing(shell: Shell, house: House) -> None:
    before = known(house)
    ended = shell("profile", "--dry-run", "-o", "json")
    body = ended.json()
    assert ended.code == 0
    assert body["measured"] == 0
    assert body["profiles"] == [
        {
            "task": "shapes",
            "variant": "tiny-v1-onnx-fp32",
            "device_kind": "cpu-2",
            "cause": "missing",
            "reason": "was never measured here",
        }
    ]
    assert known(house) == before


def test_what_was_missing_is_measured_once(shell: Shell, house: House) -> None:
    ended = shell("profile", "--progress", "none")
    assert (ended.code, ended.err) == (0, "")
    assert "measured 1 in" in ended.out
    kinds = {(p.variant, p.device_kind) for p in known(house).profiles}
    assert ("tiny-v1-onnx-fp32", "cpu-2") in kinds
    again = shell("profile", "--progress", "none")
    assert "there is nothing to measure" in again.out


def test_on_a_cluster_the_control_loop_is_asked(
    shell: Shell, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELLESS_RAY_ADDRESS", "auto")
    before = known(house)
    assert shell("profile", "--dry-run", "-o", "json").json()["ordered"] == 0
    assert house.catalog.profiling_requests() == ()

    told = shell("profile")
    [first] = house.catalog.profiling_requests()
    again = shell("profile", "shapes", "tiny-v1-onnx-fp32", "-o", "json").json()

    assert "asked for 1: the control loop has them measured where workers run" in told.out
    assert (again["measured"], again["ordered"]) == (0, 1)
    assert known(house) == before
    [asked] = house.catalog.profiling_requests()
    assert (asked.variant, asked.device_kind) == ("tiny-v1-onnx-fp32", "cpu-2")
    assert asked.reason == f"was asked for at {asked.at}"
    assert asked.at > first.at
    measured = replace(known(house).profiles[0], device_kind=asked.device_kind)
    house.catalog.put_profiles((measured,), (replace(OTHER, name=asked.device_kind),))
    nothing = shell("profile").out
    assert nothing.startswith("Nothing is missing or asked for; whether profiles are true")


def test_one_variant_is_measured_whatever_its_profile_says(shell: Shell, house: House) -> None:
    shell("profile", "--progress", "none")
    before = {(p.variant, p.device_kind): p for p in known(house).profiles}
    body = shell(
        "profile", "shapes", "tiny-v1-onnx-fp32", "-o", "json", "--progress", "none"
    ).json()
    assert [(row["variant"], row["cause"]) for row in body["profiles"]] == [
        ("tiny-v1-onnx-fp32", "asked")
    ]
    after = {(p.variant, p.device_kind): p for p in known(house).profiles}
    changed = [key for key in after if after[key].points != before[key].points]
    assert changed == [("tiny-v1-onnx-fp32", "cpu-2")]


def test_what_was_measured_before_an_interrupt_is_kept(house: House) -> None:
    found = profiling.due_profiles(known(house), (OTHER, THIRD))

    def interrupt(progress: object) -> None:
        if getattr(progress, "done", 0) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_due(
            found, house.catalog, house.store, interrupt,
            limits=RegistrationLimits(measure=QUICK),
        )  # fmt: skip
    kept = [p.device_kind for p in known(house).profiles]
    assert kept == [CPU.name, OTHER.name]
    house.assert_nothing_runs()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothing"], 1, "there is no task 'nothing'"),
        (["shapes", "nothing"], 1, "task 'shapes' has no variant 'nothing'"),
        (["shapes", "--plot", "p.txt"], 2, "must end in .html, .png or .svg"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    shell: Shell, house: House, arguments: list[str], code: int, text: str
) -> None:
    ended = shell("profile", *arguments)
    assert (ended.code, ended.out) == (code, "")
    (line,) = ended.err.splitlines()
    assert text in line


def test_a_start_says_why_it_measures_what() -> None:
    def due(name: str, reason: str = NEVER, on: str = "cpu-1") -> DueProfile:
        return DueProfile(variant=variant(name), kind=kind(on), cause=Cause.MISSING, reason=reason)

    slow = "runs 2.1 times as long as its profile says, for 60 s"
    assert why_measured([due("a", slow), due("b"), due("c"), due("d", on="cpu-2")]) == [
        f"measuring a on cpu-1 again: {slow}",
        "measuring 2 variants on cpu-1: never measured here",
        "measuring d on cpu-2: never measured here",
    ]
    many = why_measured([due(f"v{i}", f"runs {i} times as long") for i in range(2, 9)])
    assert (len(many), many[-1]) == (6, "and 2 more, each for its own reason")
