"""What is measured before a machine serves, and what meanwhile."""

from pathlib import Path

import pytest

from controlplane.profiling import first_profiles
from controlplane.profiling.due.profiles import Cause, DueProfile
from controlplane.profiling.first_profiles import FIRST_S, measure_firsts, start_work
from controlplane.settings import load_settings
from tests.variants.catalog_builders import CPU, kind, profile, registration, version
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKind, Stage

GPU = kind("h100", gpu="h100")


def due(catalog: MemoryCatalog, on: DeviceKind, cause: Cause = Cause.MISSING) -> list[DueProfile]:
    return [
        DueProfile(variant=variant, kind=on, cause=cause, reason=f"is {cause}")
        for variant in catalog.snapshot().variants
    ]


@pytest.fixture
def catalog() -> MemoryCatalog:
    """Two tasks without a profile, one of them with two models."""
    made = MemoryCatalog()
    for of, model in (("digits", "one"), ("digits", "two"), ("words", "three")):
        staged = version(model, of=of, stage=Stage.LIVE)
        made.register(registration(model, of=of, version=staged, profiles=()))
    return made


def test_a_machine_measures_meanwhile_but_on_gpus_and_where_layouts_depend_on_it(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    whole = load_settings(state_dir=tmp_path, cores=1)
    split = load_settings(state_dir=tmp_path, slices="1xcpu-2|2xcpu-1")
    both = [*due(catalog, kind()), *due(catalog, GPU)]

    work = start_work([*both, *due(catalog, kind("cpu-2"), Cause.PREDICTED)], whole)
    assert (list(work.before), list(work.meanwhile)) == (both[3:], both[:3])
    work = start_work(both, split)
    assert (list(work.before), list(work.meanwhile)) == (both, [])


def test_the_control_loop_is_asked_for_what_it_does_not_find(
    catalog: MemoryCatalog, tmp_path: Path
) -> None:
    stale = due(catalog, kind(), Cause.STALE)[:1]
    work = start_work([*stale, *due(catalog, kind())[1:]], load_settings(state_dir=tmp_path))

    catalog.request_profiling(work.requests("noon"))
    [asked] = catalog.profiling_requests()
    assert (asked.variant, asked.device_kind) == (stale[0].variant.name, CPU)
    assert (asked.reason, asked.at) == ("is stale", "noon")


class Bench:
    """Stands for measuring: what fails, and how long it takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *fails: str, takes_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.turns: list[list[str]] = []

        def measure(turn, catalog, store, progress, *, ends):  # type: ignore[no-untyped-def]
            self.turns.append([])
            failures: tuple[str, ...] = ()
            for one in turn:
                if ends():
                    break
                self.now_s += takes_s
                self.turns[-1].append(one.variant.model)
                if one.variant.model in fails:
                    failures += (one.variant.name,)
                else:
                    measured = profile(one.variant.name, one.variant.task)
                    catalog.put_profiles((measured,), (one.kind,))
            return len(self.turns[-1]) - len(failures), failures

        monkeypatch.setattr(first_profiles, "measure_due", measure)

    def run(self, catalog: MemoryCatalog, tmp_path: Path) -> tuple[int, tuple[str, ...]]:
        return measure_firsts(
            due(catalog, kind()), {CPU}, catalog, FileArtifactStore(tmp_path / "a"),
            clock_s=lambda: self.now_s,
        )  # fmt: skip


def test_each_task_gets_one_variant(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(monkeypatch)
    assert bench.run(catalog, tmp_path) == (2, ())
    assert bench.turns == [["one", "three"]]


def test_what_fails_is_followed_by_the_next_of_its_task(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(monkeypatch, "one", "three")
    failed = ("one-v1-onnx-fp32", "three-v1-onnx-fp32")
    assert bench.run(catalog, tmp_path) == (1, failed)
    assert bench.turns == [["one", "three"], ["two"]]


def test_it_ends_when_the_time_is_over(
    catalog: MemoryCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(monkeypatch, takes_s=FIRST_S)
    assert bench.run(catalog, tmp_path) == (1, ())
    assert bench.turns == [["one"]]
