"""Batches that are not measured, and rows that do not judge."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.building.types import QUICK_ROWS, Thoroughness
from controlplane.profiling import workbench
from controlplane.profiling.due.profiles import Cause, due_profiles
from controlplane.profiling.workbench import Workbench
from profiler.sandbox.probe import Probe
from profiler.timing.statistics import Sample
from tests import onnx_models as models
from tests.controlplane.registry.house import CPU, QUICK, House
from variants.errors import InvalidArtifact, TrialTimedOut
from variants.types import ProfileSource, Variant

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

BRIEF = replace(QUICK.trial, time_s=8)


def test_a_sampled_family_says_what_was_predicted_and_how_surely(house: House) -> None:
    limits = replace(QUICK, measure=replace(QUICK.measure, batch_sizes=(1, 2, 4, 8, 16, 32)))
    house.register(kinds=("onnx-int8", "onnx-fp16"), measure=Thoroughness.SAMPLED, limits=limits)
    snapshot = house.catalog.snapshot()
    assert len(snapshot.profiles) == len(snapshot.variants) == 3
    points = [point for profile in snapshot.profiles for point in profile.points]
    assert len(points) == 18
    measured = [point for point in points if not point.error]
    assert len(measured) == 4  # the largest batch of each, and one more than a fifth
    assert [point.batch_size for point in measured].count(32) == 3
    for profile in snapshot.profiles:
        assert profile.source is ProfileSource.PREDICTED
        assert all(0 < p.p50_ms <= p.p95_ms <= p.p99_ms for p in profile.points)
        assert (profile.memory_mib > 0, profile.load_s > 0) == (True, True)
    assert all(variant.accuracy_rows == 24 for variant in snapshot.variants)
    assert house.told[-1].done == house.told[-1].total
    told = [one.message for one in house.told]
    judged = list(dict.fromkeys(one.split()[1] for one in told if one.startswith("judging ")))
    timed = [told.index(f"timing the largest batch of {name}") for name in judged]
    assert timed == sorted(timed, reverse=True)  # processes that still run are not started anew
    assert all(f"measuring what memory {name} takes" in told for name in judged)


def test_processes_of_large_variants_do_not_wait_beside_each_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, end = Probe.__enter__, Probe.__exit__
    running: list[Probe] = []
    most = 0

    def begins(probe: Probe) -> Probe:
        nonlocal most
        running.append(probe)
        most = max(most, len(running))
        return begin(probe)

    def ends(probe: Probe, *about: object) -> None:
        running.remove(probe)
        end(probe, *about)

    monkeypatch.setattr(Probe, "__enter__", begins)
    monkeypatch.setattr(Probe, "__exit__", ends)
    monkeypatch.setattr(workbench, "HELD_SHARE", 0.0)  # any variant is large then
    for thoroughness in (Thoroughness.FULL, Thoroughness.SAMPLED):
        house.register(task=thoroughness, measure=thoroughness, kinds=("onnx-int8", "onnx-fp16"))
        assert (most, running) == (1, [])
    monkeypatch.undo()
    assert len(house.catalog.snapshot().profiles) == 6


def test_a_sampled_variant_that_cannot_be_weighed_says_so_and_has_the_memory_of_its_trials(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    weigh = Workbench.weigh

    def fails(bench: Workbench, variant: Variant, path: Path, points: Any) -> None:
        if variant.name.endswith("-int8"):
            raise InvalidArtifact(f"{variant.name}: its process was ended by the kernel")
        weigh(bench, variant, path, points)

    monkeypatch.setattr(Workbench, "weigh", fails)
    house.register(measure=Thoroughness.SAMPLED)
    snapshot = house.catalog.snapshot()
    notes = {str(variant.name): variant.note for variant in snapshot.variants}
    assert notes["tiny-v1-onnx-fp32"] == ""
    told = "memory is that of all trials together: its process was ended by the kernel"
    assert told in notes["tiny-v1-onnx-int8"]
    assert all(profile.memory_mib > 0 for profile in snapshot.profiles)


def many_rows(house: House, count: int) -> Path:
    """Rows by which the model is right: the class is where a row's highest value is."""
    classes = np.arange(count) % 3
    pixels = np.random.default_rng(0).random((count, 4)).astype(np.float32)
    pixels[np.arange(count), classes] += 1.0
    return models.write_rows(house.folder / "many.npz", pixels=pixels, labels=classes)


def test_a_quick_registration_judges_by_few_rows_and_leaves_the_rest_to_be_measured(
    house: House,
) -> None:
    limits = replace(QUICK, measure=replace(QUICK.measure, batch_sizes=(1, 2, 4, 8, 16, 32)))
    house.register(evaluation=many_rows(house, 600), quick=True, limits=limits)
    snapshot = house.catalog.snapshot()
    assert [variant.accuracy_rows for variant in snapshot.variants] == [QUICK_ROWS] * 2
    assert snapshot.variants[0].accuracy == 1.0
    points = [point for profile in snapshot.profiles for point in profile.points]
    assert len([point for point in points if not point.error]) < len(points)
    due = due_profiles(snapshot, (CPU,), hosts=lambda _variant, _kind: ())
    assert [one.cause for one in due] == [Cause.PREDICTED] * 2


def test_a_quick_registration_trains_on_no_row_that_may_judge_later(house: House) -> None:
    rows = many_rows(house, 600)
    with pytest.raises(InvalidArtifact, match="all its rows are evaluation rows"):
        house.register(evaluation=rows, training=rows, calibration=house.rows, quick=True)


@pytest.mark.parametrize(
    "thoroughness",
    [pytest.param(Thoroughness.FULL, marks=pytest.mark.campaign), Thoroughness.SAMPLED],
)
def test_a_batch_that_is_too_large_is_left_out_and_told_of(
    house: House, thoroughness: Thoroughness
) -> None:
    """Each row takes 250 MiB, of 1,000 that a trial may take; judging begins with eight rows."""
    models.write(house.model, models.greedy(125))
    house.register(kinds=(), measure=thoroughness)
    snapshot = house.catalog.snapshot()
    (variant,), (profile,) = snapshot.variants, snapshot.profiles
    largest = profile.points[-1].batch_size
    assert largest in (1, 2)
    said = f"{2 * largest} rows at once and more take more memory than there is: left out"
    assert (variant.accuracy_rows, variant.note) == (24, said)


@pytest.mark.parametrize(
    "thoroughness",
    [pytest.param(Thoroughness.FULL, marks=pytest.mark.campaign), Thoroughness.SAMPLED],
)
def test_a_batch_that_does_not_end_is_left_out_and_told_of(
    house: House, thoroughness: Thoroughness
) -> None:
    """Judging runs eight rows, then sixteen."""
    models.write(house.model, models.endless(rows=32))
    measure = replace(QUICK.measure, batch_sizes=(1, 2, 4, 8, 16, 32))
    limits = replace(QUICK, measure=measure, trial=BRIEF)
    house.register(kinds=(), measure=thoroughness, limits=limits)
    snapshot = house.catalog.snapshot()
    (variant,), (profile,) = snapshot.variants, snapshot.profiles
    assert profile.points[-1].batch_size == 16
    assert variant.note == "32 rows at once and more do not finish within 8 s: left out"


def test_a_batch_that_does_not_end_while_it_is_judged_is_left_out(house: House) -> None:
    """Judging runs eight rows, then sixteen: these ended it, and the registration."""
    models.write(house.model, models.endless(rows=16))
    measure = replace(QUICK.measure, batch_sizes=(1, 2, 4, 8, 16, 32))
    house.register(kinds=(), limits=replace(QUICK, measure=measure, trial=BRIEF))
    (variant,), (profile,) = house.catalog.snapshot().variants, house.catalog.snapshot().profiles
    assert variant.accuracy_rows == 24
    assert profile.points[-1].batch_size == 8
    assert variant.note == "16 rows at once and more do not finish within 8 s: left out"


def test_a_batch_that_ended_once_and_then_does_not_is_left_out_of_a_sample(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where others take the memory or the processor meanwhile: the whole variant was refused."""
    sample = Probe.sample

    def stuck(probe: Probe, batch_size: int, **options: Any) -> Sample:
        if batch_size >= 16 and probe.rounds(batch_size):
            raise TrialTimedOut(f"{probe.name}: did not finish")
        return sample(probe, batch_size, **options)

    monkeypatch.setattr(Probe, "sample", stuck)
    measure = replace(QUICK.measure, batch_sizes=(1, 2, 4, 8, 16, 32))
    house.register(kinds=(), measure=Thoroughness.SAMPLED, limits=replace(QUICK, measure=measure))
    (variant,), (profile,) = house.catalog.snapshot().variants, house.catalog.snapshot().profiles
    assert 1 <= profile.points[-1].batch_size < 32
    assert variant.note.endswith("at once and more do not finish within 60 s: left out")


def test_of_a_slow_model_no_batch_is_tried_beyond_the_first_that_is_too_slow(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []
    sample = Probe.sample

    def noted(probe: Probe, batch_size: int, **options: Any) -> Sample:
        timed.append(batch_size)
        return sample(probe, batch_size, **options)

    monkeypatch.setattr(Probe, "sample", noted)
    sizes = (1, 2, 4, 8, 16, 32)
    limits = replace(QUICK, measure=replace(QUICK.measure, batch_sizes=sizes, slowest_batch_s=0.0))
    for thoroughness in (Thoroughness.FULL, Thoroughness.SAMPLED):
        house.register(task=thoroughness, kinds=(), measure=thoroughness, limits=limits)
    assert set(timed) == {1, 2}
    for profile in house.catalog.snapshot().profiles:
        assert [point.batch_size for point in profile.points] == [1]


def test_what_still_runs_is_weighed_before_it_makes_room(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workbench, "is_open", lambda _, variant: variant.name.endswith("-int8"))
    house.register(kinds=("onnx-int8", "onnx-fp16"), measure=Thoroughness.SAMPLED)
    told = [one.message for one in house.told]
    assert [one.split()[3] for one in told if one.startswith("measuring what memory")] == [
        f"tiny-v1-onnx-{kind}" for kind in ("int8", "fp32", "fp16")
    ]
