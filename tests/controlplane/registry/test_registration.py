"""Registering: what a good model leaves in catalog and store."""

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper

from controlplane.building.types import (
    QUICK_ROWS,
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
    Thoroughness,
)
from controlplane.profiling import workbench
from controlplane.profiling.due.profiles import Cause, due_profiles
from controlplane.profiling.workbench import Workbench
from controlplane.registry.registration import register
from profiler.sandbox.limits import MeasureLimits, SandboxLimits
from profiler.sandbox.probe import Probe
from profiler.timing.statistics import Sample
from tests import onnx_models as models
from tests.profiler.forked import servers
from tests.variants.catalog.copies import copy_registrations
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Catalog
from variants.checks.edges import Edges
from variants.errors import Conflict, InvalidArtifact, InvalidInput, StateUnavailable, TrialTimedOut
from variants.types import (
    DeviceKind,
    DeviceKindName,
    ImageScale,
    ProfileSource,
    Registration,
    Slo,
    Stage,
    TaskName,
    TensorSpec,
    Variant,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

CPU = DeviceKind(name=DeviceKindName("cpu-1"), cores=1, memory_mib=1_000.0, usd_per_hour=0.04)
QUICK = RegistrationLimits(
    model_mib=1,
    trial=SandboxLimits(memory_mib=1_000, time_s=60),
    measure=MeasureLimits(batch_sizes=(1, 2, 4), point_s=0.004, min_runs=4),
)
BRIEF = replace(QUICK.trial, time_s=8)


class House:
    """A catalog and a store, a model and rows, and one way to register."""

    def __init__(self, folder: Path, catalog: Catalog | None = None) -> None:
        self.folder = folder
        self.catalog = catalog or MemoryCatalog()
        self.store = FileArtifactStore(folder / "store")
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.model = models.write(folder / "tiny.onnx")
        self.rows = models.write_rows(folder / "rows.npz")
        self.told: list[Progress] = []
        # Services that other tests of this run have started are not this one's.
        self.others = children()

    @classmethod
    def like(cls, other: "House", folder: Path) -> "House":
        """One with the same in its catalog and its store: registering takes seconds."""
        made = cls(folder)
        copy_registrations(other.catalog.snapshot(), made.catalog)
        shutil.copytree(other.folder / "store", folder / "store", dirs_exist_ok=True)
        return made

    def register(self, **changes: Any) -> RegistrationResult:
        limits = changes.pop("limits", QUICK)
        progress = changes.pop("progress", self.told.append)
        given: dict[str, Any] = {
            "path": self.model,
            "task": "shapes",
            "evaluation": self.rows,
            "kinds": ("onnx-int8",),
        } | changes
        return register(
            RegistrationRequest(**given),
            self.catalog,
            self.store,
            (CPU,),
            progress,
            limits=limits,
            scratch=self.scratch,
        )

    def assert_untouched(self) -> None:
        assert self.catalog.snapshot().versions == ()
        assert list(self.store.digests()) == []
        assert list(self.scratch.iterdir()) == []
        self.assert_nothing_runs()

    def assert_nothing_runs(self) -> None:
        ours = set()
        for process in children() - self.others:
            with suppress(psutil.NoSuchProcess):
                if process.parent() not in self.others:  # a database starts some by itself
                    ours.add(process)
        assert ours == set()


def children() -> set[psutil.Process]:
    here = psutil.Process().children(recursive=True)
    return {process for process in here if process.pid not in servers()}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    """With a model registered, not to be changed."""
    made = House(tmp_path_factory.mktemp("first"))
    made.register(labels=("a", "b", "c"), slo=Slo(latency_ms=50.0))
    return made


@pytest.fixture
def known(first: House, tmp_path: Path) -> House:
    """With that model in it."""
    return House.like(first, tmp_path)


def test_a_model_becomes_two_measured_variants(first: House) -> None:
    snapshot = first.catalog.snapshot()
    (task,) = snapshot.tasks
    assert task.inputs == (TensorSpec(name="pixels", dtype="float32", shape=(4,)),)
    assert task.outputs == (TensorSpec(name="scores", dtype="float32", shape=(3,)),)
    assert (task.labels, task.metric, task.slo) == (("a", "b", "c"), "top1", Slo(latency_ms=50.0))
    assert [v.name for v in snapshot.variants] == ["tiny-v1-onnx-fp32", "tiny-v1-onnx-int8"]
    fp32, int8 = snapshot.variants
    # 30 rows, of which a fifth calibrates; the model is right by construction.
    assert (fp32.accuracy, fp32.accuracy_rows) == (1.0, 24)
    assert (int8.accuracy_rows, int8.accuracy > 0.8) == (24, True)
    for profile in snapshot.profiles:
        assert [point.batch_size for point in profile.points] == [1, 2, 4]
        assert all(0 < p.p50_ms <= p.p95_ms <= p.p99_ms for p in profile.points)
        assert profile.memory_mib > 0
        assert profile.load_s > 0
        assert "onnxruntime" in profile.host
    assert snapshot.device_kinds == (CPU,)


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


def test_a_file_is_registered_with_other_edges_and_known_again(house: House) -> None:
    tensor, half = models.tensor, TensorProto.FLOAT16
    model = models.model(
        inputs=[tensor("onnx::MatMul_0", 1, 4, kind=half)],
        outputs=[tensor("12", 1, 3, kind=half)],
        nodes=[
            models.node("MatMul", ("onnx::MatMul_0", "weight"), "product"),
            models.node("Softmax", ("product",), "12"),
        ],
        weights={"weight": models.WEIGHT.astype(np.float16)},
    )
    models.write(house.model, model)
    edges = Edges(
        input_names=("pixels",), output_names=("scores",), free_batch=True, cast_float16=True
    )
    house.register(kinds=(), edges=edges)
    snapshot = house.catalog.snapshot()
    assert snapshot.tasks[0].inputs == (TensorSpec(name="pixels", dtype="float32", shape=(4,)),)
    assert snapshot.tasks[0].outputs == (TensorSpec(name="scores", dtype="float32", shape=(3,)),)
    assert snapshot.variants[0].accuracy == 1.0
    assert list(house.scratch.iterdir()) == []
    with pytest.raises(Conflict, match=r"tiny\.onnx is registered already"):
        house.register(kinds=(), edges=edges)


def test_a_classifier_as_converters_write_it_is_registered_and_known_again(house: House) -> None:
    """Scores as maps, and no opset of standard operators: CatBoost knows no other way."""
    classes = [0, 1, 2]
    linear = helper.make_node(
        "LinearClassifier", ["pixels"], ["label", "scores"], domain="ai.onnx.ml",
        coefficients=models.WEIGHT.T.ravel().tolist(), intercepts=[0.0] * 3,
        classlabels_ints=classes,
    )  # fmt: skip
    maps = models.node(
        "ZipMap", ("scores",), "maps", domain="ai.onnx.ml", classlabels_int64s=classes
    )
    of = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))
    model = models.model(
        nodes=[linear, maps],
        outputs=[
            models.tensor("label", 1, kind=TensorProto.INT64),
            helper.make_value_info("maps", helper.make_sequence_type_proto(of)),
        ],
        opsets=(("ai.onnx.ml", 2),),
    )
    del model.graph.initializer[:]
    models.write(house.model, model)
    house.register(kinds=())
    (variant,) = house.catalog.snapshot().variants
    assert variant.accuracy == 1.0
    (task,) = house.catalog.snapshot().tasks
    assert task.outputs == (TensorSpec(name="maps", dtype="float32", shape=(3,)),)
    with pytest.raises(Conflict, match=r"tiny\.onnx is registered already"):
        house.register(kinds=())


def test_of_an_archive_no_edges_can_be_changed(house: House) -> None:
    archive = house.model.rename(house.folder / "tiny.pt2")
    with pytest.raises(InvalidInput, match="only inputs and outputs of ONNX files can be changed"):
        house.register(path=archive, edges=Edges(free_batch=True))
    house.assert_untouched()


def test_while_it_judges_and_measures_it_tells_how_far_it_is(first: House) -> None:
    told = [one.message for one in first.told]
    assert "judging tiny-v1-onnx-fp32 on cpu-1: 0 of 24 rows" in told
    measuring = "measuring tiny-v1-onnx-fp32 on cpu-1: 1 thread"
    assert any(one.startswith(f"{measuring}: 3 of 3 batch sizes") for one in told)


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


def test_what_the_catalog_names_is_in_the_store_and_nothing_else_is(first: House) -> None:
    snapshot = first.catalog.snapshot()
    named = {v.artifact for v in snapshot.variants} | {v.source for v in snapshot.versions}
    assert set(first.store.digests()) == named
    assert [first.store.path(v.artifact).stat().st_size for v in snapshot.variants] == [
        v.size_bytes for v in snapshot.variants
    ]
    assert list(first.scratch.iterdir()) == []
    first.assert_nothing_runs()


def test_progress_only_grows_and_ends_complete(first: House) -> None:
    done = [one.done for one in first.told]
    assert done == sorted(done)
    assert first.told[0].done == 0
    last = first.told[-1]
    assert (last.step, last.done) == ("store", last.total)


@pytest.mark.campaign
def test_a_folder_gives_every_version_in_order(house: House) -> None:
    folder = house.folder / "cnn"
    models.write(folder / "1" / "model.onnx")
    models.write(folder / "3" / "any.onnx", models.model(weights={"weight": models.WEIGHT * 2}))
    house.register(path=folder, kinds=())
    versions = house.catalog.snapshot().versions
    assert [(v.model, v.version, v.stage) for v in versions] == [
        ("cnn", 1, Stage.LIVE),
        ("cnn", 3, Stage.CANARY),
    ]


def test_a_folder_that_grew_adds_only_what_is_new(house: House) -> None:
    folder = house.folder / "cnn"
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    models.write(folder / "2" / "model.onnx", models.model(weights={"weight": models.WEIGHT * 2}))
    result = house.register(path=folder, kinds=())
    assert [v.label for v in result.versions] == ["cnn-v2"]
    assert result.unchanged == ("cnn-v1",)


def test_a_second_file_of_a_model_is_the_next_version_and_a_canary(known: House) -> None:
    models.write(known.model, models.model(weights={"weight": models.WEIGHT * 2}))
    result = known.register(kinds=())
    assert [(v.label, v.stage) for v in result.versions] == [("tiny-v2", Stage.CANARY)]


def test_a_stage_that_was_asked_for_is_kept(house: House) -> None:
    assert house.register(stage=Stage.CANDIDATE, kinds=()).versions[0].stage is Stage.CANDIDATE


def test_a_calibration_file_leaves_all_evaluation_rows_for_measuring(house: House) -> None:
    calibration = models.write_rows(
        house.folder / "calibration.npz", pixels=models.rows(20, seed=2)["pixels"], labels=None
    )
    house.register(calibration=calibration, kinds=())
    assert {v.accuracy_rows for v in house.catalog.snapshot().variants} == {30}


def test_a_model_that_cannot_be_quantised_has_one_variant_and_a_reason(house: House) -> None:
    plain = models.model(
        nodes=[
            models.node("Slice", ("pixels", "from", "to", "axis"), "part"),
            models.node("Softmax", ("part",), "scores"),
        ],
        weights={name: np.array([value]) for name, value in (("from", 0), ("to", 3), ("axis", 1))},
    )
    result = house.register(path=models.write(house.folder / "plain.onnx", plain))
    assert [v.name for v in result.variants] == ["plain-v1-onnx-fp32"]
    (skipped,) = result.skipped
    assert skipped.name == "plain-v1-onnx-int8"
    assert skipped.reason == "the model has nothing that can be quantised"


def test_the_same_file_twice_is_a_conflict(known: House) -> None:
    before = known.catalog.revision(), sorted(known.store.digests())
    with pytest.raises(Conflict, match="as 'tiny-v1'; `modelless variants build shapes tiny 1"):
        known.register()
    assert (known.catalog.revision(), sorted(known.store.digests())) == before


def test_a_version_with_other_bytes_is_a_conflict(house: House) -> None:
    folder = house.folder / "cnn"
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    models.write(folder / "1" / "model.onnx", models.model(weights={"weight": models.WEIGHT * 2}))
    with pytest.raises(Conflict, match="'cnn-v1' of task 'shapes' exists with other bytes"):
        house.register(path=folder)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"labels": ("x", "y", "z")},
            "other labels, which stay: a, b, c; leave that option out",
        ),
        ({"slo": Slo(latency_ms=7.0)}, "other defaults"),
        ({"metric": "top5"}, "another metric, which stays: top1; leave that option out"),
        ({"image": ImageScale(std=(0.5,))}, "another mean and std of images, which stay; `modelle"),
    ],
)
def test_a_task_keeps_what_it_is(known: House, changes: dict[str, Any], what: str) -> None:
    other = models.write(known.folder / "other.onnx", models.model(opsets=[("", 19)]))
    with pytest.raises(Conflict, match=f"task 'shapes' exists with {what}"):
        known.register(path=other, **changes)


class BrokenCatalog(MemoryCatalog):
    """Takes nothing from a given registration on."""

    def __init__(self, *, takes: int, error: BaseException) -> None:
        super().__init__()
        self._takes = takes
        self._error = error

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        if not self._takes:
            raise self._error
        self._takes -= 1
        super().register(*registrations, joins=joins)


@pytest.mark.parametrize(
    "error",
    [
        StateUnavailable("the disk is full"),
        pytest.param(KeyboardInterrupt(), marks=pytest.mark.campaign),
    ],
)
def test_a_catalog_that_fails_leaves_nothing_behind(tmp_path: Path, error: BaseException) -> None:
    house = House(tmp_path, BrokenCatalog(takes=0, error=error))
    with pytest.raises(type(error)):
        house.register()
    house.assert_untouched()


class FreeingCatalog(MemoryCatalog):
    """Just before it takes a registration, what used the same bytes has gone, and they with it."""

    store: FileArtifactStore

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        for variant in (one for registration in registrations for one in registration.variants):
            self.store.delete(variant.artifact)
        super().register(*registrations, joins=joins)


def test_what_is_freed_while_it_is_registered_again_is_stored_again(tmp_path: Path) -> None:
    catalog = FreeingCatalog()
    house = House(tmp_path, catalog)
    catalog.store = house.store
    result = house.register()
    named = {result.versions[0].source, *(v.artifact for v in result.variants)}
    assert set(house.store.digests()) == named


def test_a_task_that_is_removed_meanwhile_does_not_come_back(known: House) -> None:
    """It would have a canary alone, and nothing else of what it had."""

    def remove(one: Progress) -> None:
        if one.step == "store" and known.catalog.snapshot().tasks:
            known.catalog.remove_task(TaskName("shapes"))

    other = models.write(known.folder / "b.onnx", models.model(weights={"weight": models.WEIGHT}))
    with pytest.raises(Conflict, match="task 'shapes' was removed while 'b-v1' was prepared"):
        known.register(path=other, progress=remove)
    assert known.catalog.snapshot().tasks == ()


def test_the_number_of_another_model_that_was_removed_is_refused_at_once(house: House) -> None:
    folder = house.folder / "cnn"
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    house.catalog.remove_task(TaskName("shapes"))
    house.told.clear()
    models.write(folder / "1" / "model.onnx", models.model(weights={"weight": models.WEIGHT * 2}))
    with pytest.raises(Conflict, match="'cnn-v1' of task 'shapes' was another model"):
        house.register(path=folder)
    assert house.told == []
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    assert [version.label for version in house.catalog.snapshot().versions] == ["cnn-v1"]


def test_a_failure_keeps_artifacts_that_somebody_uses(tmp_path: Path) -> None:
    house = House(tmp_path, BrokenCatalog(takes=1, error=StateUnavailable("gone")))
    house.register(kinds=())
    before = sorted(house.store.digests())
    with pytest.raises(StateUnavailable):
        house.register(task="twins", kinds=())  # the same bytes for another task
    assert sorted(house.store.digests()) == before


@pytest.mark.parametrize(
    "step",
    [
        "check",
        pytest.param("build", marks=pytest.mark.campaign),
        pytest.param("measure", marks=pytest.mark.campaign),
        "store",
    ],
)
def test_an_interrupt_at_any_step_leaves_nothing_behind(house: House, step: str) -> None:
    def interrupt(one: Progress) -> None:
        if one.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        house.register(progress=interrupt)
    house.assert_untouched()


def test_no_device_kind_no_registration(house: House) -> None:
    request = RegistrationRequest(path=house.model, task="shapes", evaluation=house.rows)
    with pytest.raises(InvalidInput, match="no CPU device kind"):
        register(request, house.catalog, house.store, ())


def test_vectors_of_another_model_do_not_mix_with_those_of_a_live_one(
    house: House, tmp_path: Path
) -> None:
    with np.load(house.rows) as given:
        rows = tmp_path / "vectors.npz"
        np.savez(rows, pixels=given["pixels"], labels=given["labels"])
    of = {"evaluation": rows, "kinds": (), "task": "near"}
    house.register(metric="nearest", **of)
    other = models.write(
        tmp_path / "other.onnx", models.model(weights={"weight": models.WEIGHT * 2})
    )
    with pytest.raises(Conflict, match="tiny-v1 of task 'near' is live, and vectors of two vers"):
        house.register(path=other, stage=Stage.LIVE, **of)
    result = house.register(path=other, **of)
    assert [(v.label, v.stage) for v in result.versions] == [("other-v1", Stage.CANARY)]
