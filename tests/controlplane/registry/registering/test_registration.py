"""Registering: what a good model leaves in catalog and store."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests import onnx_models as models
from tests.controlplane.registry.house import CPU, House
from variants.checks.edges import Edges
from variants.errors import Conflict
from variants.types import Slo, Stage, TensorSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


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


def test_while_it_judges_and_measures_it_tells_how_far_it_is(first: House) -> None:
    told = [one.message for one in first.told]
    assert "judging tiny-v1-onnx-fp32 on cpu-1: 0 of 24 rows" in told
    measuring = "measuring tiny-v1-onnx-fp32 on cpu-1: 1 thread"
    assert any(one.startswith(f"{measuring}: 3 of 3 batch sizes") for one in told)


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
