"""What registration refuses: each wrong input gets one typed sentence and leaves nothing behind.

A case makes its files in a folder where the right ones lie already and returns what differs in the
request.
"""

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models as models
from tests.controlplane.test_registration import QUICK, House
from variants.errors import InvalidArtifact, InvalidInput, ModellessError

Changes = dict[str, Any]
Case = Callable[[Path], Changes]
CASES: list[Any] = []


def case(sentence: str, error: type[ModellessError] = InvalidArtifact) -> Callable[[Case], Case]:
    """Add a case; ``sentence`` is what its refusal says, from anywhere in it."""

    def add(make: Case) -> Case:
        name = make.__name__.removeprefix("_").replace("_", "-")
        CASES.append(pytest.param(make, sentence, error, id=name))
        return make

    return add


def rows(folder: Path, **changes: Any) -> Changes:
    return {"evaluation": models.write_rows(folder / "wrong.npz", **changes)}


def onnx(folder: Path, what: Any) -> Changes:
    return {"path": models.write(folder / "wrong.onnx", what)}


# -- the model's file ----------------------------------------------------------------------------


@case("none.onnx: cannot be read: No such file or directory")
def _missing_file(folder: Path) -> Changes:
    return {"path": folder / "none.onnx"}


@case("wrong.onnx: is empty")
def _empty_file(folder: Path) -> Changes:
    (folder / "wrong.onnx").touch()
    return {"path": folder / "wrong.onnx"}


@case("wrong.onnx: is not an ONNX model")
def _text(folder: Path) -> Changes:
    (folder / "wrong.onnx").write_text("This is no model at all.\n")
    return {"path": folder / "wrong.onnx"}


@case("wrong.onnx: is not an ONNX model")
def _zeros(folder: Path) -> Changes:
    (folder / "wrong.onnx").write_bytes(bytes(1000))
    return {"path": folder / "wrong.onnx"}


@case("wrong.onnx: is not an ONNX model, or only a part of one")
def _cut_off(folder: Path) -> Changes:
    data = (folder / "tiny.onnx").read_bytes()
    (folder / "wrong.onnx").write_bytes(data[: len(data) * 2 // 3])
    return {"path": folder / "wrong.onnx"}


@case("wrong.onnx: has 4.0 MiB, more than the 1 allowed")
def _too_large(folder: Path) -> Changes:
    return onnx(folder, models.model(weights={"weight": np.zeros((2**18, 4), np.float32)}))


@case("wrong.onnx: is a symbolic link")
def _link(folder: Path) -> Changes:
    (folder / "wrong.onnx").symlink_to(folder / "tiny.onnx")
    return {"path": folder / "wrong.onnx"}


@case("wrong.onnx: keeps tensor 'weight' in another file")
def _external_data(folder: Path) -> Changes:
    what = models.model()
    weight = what.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"
    (folder / "wrong.onnx").write_bytes(what.SerializeToString())
    return {"path": folder / "wrong.onnx"}


@case("wrong.onnx: the model's graph is empty")
def _no_nodes(folder: Path) -> Changes:
    graph = helper.make_graph([], "empty", [models.tensor("pixels", "batch", 4)], [])
    return onnx(folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


@case("wrong.onnx: uses opset 4; it must be between 7 and")
def _old_opset(folder: Path) -> Changes:
    return onnx(folder, models.model(opsets=[("", 4)]))


@case("wrong.onnx: uses opset 999; it must be between 7 and")
def _opset_of_the_future(folder: Path) -> Changes:
    return onnx(folder, models.model(opsets=[("", 999)]))


@case("wrong.onnx: uses the operator 'Frobnicate', which opset 20 does not have")
def _unknown_operator(folder: Path) -> Changes:
    nodes = [models.node("Frobnicate", ("pixels", "weight"), "scores")]
    return onnx(folder, models.model(nodes=nodes))


@case("wrong.onnx: uses operators of 'com.evil'")
def _custom_domain(folder: Path) -> Changes:
    nodes = [models.node("MatMul", ("pixels", "weight"), "scores", domain="com.evil")]
    return onnx(folder, models.model(nodes=nodes, opsets=[("", 20), ("com.evil", 1)]))


@case("wrong.onnx: tensor 'weight' contains NaN")
def _nan_weight(folder: Path) -> Changes:
    return onnx(folder, models.model(weights={"weight": np.full((4, 3), np.nan, np.float32)}))


@case("wrong.onnx: tensor 'weight' does not hold what it declares")
def _short_weight(folder: Path) -> Changes:
    what = models.model()
    what.graph.initializer[0].raw_data = bytes(7)
    return onnx(folder, what)


@case("wrong.onnx: is not a valid ONNX model")
def _dangling_edge(folder: Path) -> Changes:
    return onnx(folder, models.model(nodes=[models.node("Relu", ("nowhere",), "scores")]))


@case("wrong.onnx: is not a valid ONNX model")
def _shapes_that_do_not_fit(folder: Path) -> Changes:
    return onnx(folder, models.model(weights={"weight": np.ones((5, 3), np.float32)}))


@case("wrong.onnx: input 'pixels' has a fixed batch of 1")
def _fixed_batch(folder: Path) -> Changes:
    return onnx(
        folder,
        models.model(
            inputs=[models.tensor("pixels", 1, 4)], outputs=[models.tensor("scores", 1, 3)]
        ),
    )


@case("wrong.onnx: input 'pixels' leaves axis 1 open")
def _open_axis(folder: Path) -> Changes:
    return onnx(folder, models.model(inputs=[models.tensor("pixels", "batch", "width")]))


@case("wrong.onnx: input 'pixels' has type string")
def _text_input(folder: Path) -> Changes:
    what = models.model(
        nodes=[models.node("Cast", ("pixels",), "scores", to=TensorProto.FLOAT)],
        inputs=[models.tensor("pixels", "batch", 3, kind=TensorProto.STRING)],
    )
    return onnx(folder, what)


@case("wrong.onnx: its first output must be scores, float [batch, classes]")
def _scores_of_two_axes(folder: Path) -> Changes:
    what = models.model(
        nodes=[models.node("Unsqueeze", ("pixels", "axis"), "scores")],
        outputs=[models.tensor("scores", "batch", 4, 1)],
        weights={"axis": np.array([2])},
    )
    return onnx(folder, what)


# -- what the model does -------------------------------------------------------------------------


@case("the model's output is not finite on evaluation row 0")
def _nan_output(folder: Path) -> Changes:
    return onnx(folder, models.nan_maker())


@case("did not finish within 3 s and was stopped")
def _endless(folder: Path) -> Changes:
    return onnx(folder, models.endless()) | {"limits": replace(QUICK, trial_s=3.0)}


@case("wrong-v1-onnx-fp32: it needs more memory than a trial may take")
def _greedy(folder: Path) -> Changes:
    return onnx(folder, models.greedy(4_000))


# -- folders -------------------------------------------------------------------------------------


@case("cnn/2: has no .onnx or .pt2 file")
def _version_without_a_file(folder: Path) -> Changes:
    models.write(folder / "cnn" / "1" / "model.onnx")
    (folder / "cnn" / "2").mkdir()
    return {"path": folder / "cnn"}


@case("cnn/1: has 2 model files; a version is one")
def _version_with_two_files(folder: Path) -> Changes:
    models.write(folder / "cnn" / "1" / "a.onnx")
    models.write(folder / "cnn" / "1" / "b.onnx")
    return {"path": folder / "cnn"}


@case("cnn: has no folder named after a version")
def _folder_without_versions(folder: Path) -> Changes:
    models.write(folder / "cnn" / "model.onnx")
    return {"path": folder / "cnn"}


@case("cnn/0: is no version")
def _version_zero(folder: Path) -> Changes:
    models.write(folder / "cnn" / "0" / "model.onnx")
    return {"path": folder / "cnn"}


@case("2: is a symbolic link")
def _version_that_is_a_link(folder: Path) -> Changes:
    models.write(folder / "cnn" / "1" / "model.onnx")
    (folder / "cnn" / "2").symlink_to(folder / "cnn" / "1")
    return {"path": folder / "cnn"}


@case("model.onnx: input 'pixels' is float32 [batch, 5], but task 'shapes' has float32 [batch, 4]")
def _second_version_of_another_signature(folder: Path) -> Changes:
    models.write(folder / "cnn" / "1" / "model.onnx")
    wide = models.model(
        inputs=[models.tensor("pixels", "batch", 5)],
        weights={"weight": np.eye(5, 3, dtype=np.float32)},
    )
    models.write(folder / "cnn" / "2" / "model.onnx", wide)
    return {"path": folder / "cnn"}


# -- names and labels ----------------------------------------------------------------------------


@case("'No Task' cannot be a task's name", InvalidInput)
def _task_name(folder: Path) -> Changes:
    return {"task": "No Task"}


@case("'../up' cannot be a model's name", InvalidInput)
def _model_name(folder: Path) -> Changes:
    return {"model": "../up"}


@case("2 labels were given, but output 'scores' of tiny.onnx has 3 classes", InvalidInput)
def _label_count(folder: Path) -> Changes:
    return {"labels": ("a", "b")}


@case("a label is given twice", InvalidInput)
def _label_twice(folder: Path) -> Changes:
    return {"labels": ("a", "b", "a")}


@case("there is no metric 'vibes'; there are: top1", InvalidInput)
def _unknown_metric(folder: Path) -> Changes:
    return {"metric": "vibes"}


# -- rows ----------------------------------------------------------------------------------------


@case("none.npz: cannot be read")
def _missing_rows(folder: Path) -> Changes:
    return {"evaluation": folder / "none.npz"}


@case("wrong.npz: is not an .npz file, or is damaged")
def _rows_that_are_text(folder: Path) -> Changes:
    (folder / "wrong.npz").write_text("pixels,labels\n")
    return {"evaluation": folder / "wrong.npz"}


@case("wrong.npz: is not an .npz file, or is damaged")
def _rows_cut_off(folder: Path) -> Changes:
    (folder / "wrong.npz").write_bytes((folder / "rows.npz").read_bytes()[:-40])
    return {"evaluation": folder / "wrong.npz"}


@case("array 'pixels' cannot be read")
def _rows_with_a_flipped_byte(folder: Path) -> Changes:
    data = bytearray((folder / "rows.npz").read_bytes())
    data[250] ^= 0xFF
    (folder / "wrong.npz").write_bytes(data)
    return {"evaluation": folder / "wrong.npz"}


@case("wrong.npz: array 'labels' holds pickled objects, which are never loaded")
def _pickle(folder: Path) -> Changes:
    return rows(folder, labels=np.array([print] * 30, dtype=object))


@case("wrong.npz: array 'pixels' declares more data than it has")
def _declared_too_large(folder: Path) -> Changes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 4)}
    )
    with zipfile.ZipFile(folder / "wrong.npz", "w") as archive:
        archive.writestr("pixels.npy", header.getvalue() + bytes(64))
    return {"evaluation": folder / "wrong.npz"}


@case("wrong.npz: unpacks to 1024 MiB, more than the 512 allowed")
def _zip_bomb(folder: Path) -> Changes:
    with (
        zipfile.ZipFile(
            folder / "wrong.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1
        ) as archive,
        archive.open("pixels.npy", "w", force_zip64=True) as stream,
    ):
        for _ in range(64):
            stream.write(bytes(2**24))
    return {"evaluation": folder / "wrong.npz"}


@case("wrong.npz: lacks the array 'labels'; it has pixels")
def _no_labels(folder: Path) -> Changes:
    return rows(folder, labels=None)


@case("wrong.npz: lacks the array 'pixels'; it has labels, x")
def _input_of_another_name(folder: Path) -> Changes:
    return rows(folder, pixels=None, x=models.rows()["pixels"])


@case("wrong.npz: array 'pixels' has shape (30, 5), not (rows, 4)")
def _rows_too_wide(folder: Path) -> Changes:
    return rows(folder, pixels=np.zeros((30, 5), np.float32))


@case("wrong.npz: array 'pixels' has type complex128, not float32")
def _rows_of_another_type(folder: Path) -> Changes:
    return rows(folder, pixels=np.zeros((30, 4), complex))


@case("wrong.npz: array 'pixels' is not finite in row 7")
def _nan_row(folder: Path) -> Changes:
    pixels = models.rows()["pixels"].copy()
    pixels[7, 2] = np.nan
    return rows(folder, pixels=pixels)


@case("wrong.npz: array 'pixels' is not finite in row 3")
def _row_beyond_single_precision(folder: Path) -> Changes:
    pixels = models.rows()["pixels"].astype(np.float64)
    pixels[3, 0] = 1e300
    return rows(folder, pixels=pixels)


@case("wrong.npz: array 'labels' has type float64; labels are integers, from 0")
def _float_labels(folder: Path) -> Changes:
    return rows(folder, labels=models.rows()["labels"].astype(float))


@case("wrong.npz: array 'labels' has 3 in row 5; the task's labels are 0 to 2")
def _label_above_range(folder: Path) -> Changes:
    labels = models.rows()["labels"].copy()
    labels[5] = 3
    return rows(folder, labels=labels)


@case("wrong.npz: array 'labels' has -1 in row 0; the task's labels are 0 to 2")
def _label_below_range(folder: Path) -> Changes:
    labels = models.rows()["labels"].copy()
    labels[0] = -1
    return rows(folder, labels=labels)


@case("wrong.npz: array 'labels' has shape (30, 3), not (rows)")
def _labels_one_hot(folder: Path) -> Changes:
    return rows(folder, labels=np.eye(3, dtype=int)[models.rows()["labels"]])


@case("wrong.npz: its arrays differ in their number of rows: pixels 30, labels 29")
def _labels_too_few(folder: Path) -> Changes:
    return rows(folder, labels=models.rows()["labels"][:29])


@case("wrong.npz: has no rows")
def _no_rows(folder: Path) -> Changes:
    return rows(folder, pixels=np.zeros((0, 4), np.float32), labels=np.zeros(0, int))


@case("wrong.npz: has 9 rows; without a calibration file at least 10 are needed")
def _too_few_rows_to_split(folder: Path) -> Changes:
    return rows(folder, **models.rows(9))


@case("rows.npz: all its rows are evaluation rows")
def _calibration_on_evaluation_rows(folder: Path) -> Changes:
    return {"calibration": folder / "rows.npz"}


@case("narrow.npz: array 'pixels' has shape (20, 2), not (rows, 4)")
def _calibration_of_another_shape(folder: Path) -> Changes:
    np.savez(folder / "narrow.npz", pixels=np.zeros((20, 2), np.float32))
    return {"calibration": folder / "narrow.npz"}


@pytest.mark.parametrize(("make", "sentence", "error"), CASES)
def test_a_wrong_input_gets_one_sentence_and_leaves_nothing(
    tmp_path: Path, make: Case, sentence: str, error: type[ModellessError]
) -> None:
    house = House(tmp_path)
    changes = make(tmp_path)
    with pytest.raises(error) as refusal:
        house.register(**changes)
    assert sentence in refusal.value.message
    assert "\n" not in refusal.value.message
    assert type(refusal.value) is error
    house.assert_untouched()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (
            models.model(inputs=[models.tensor("x", "batch", 4)],
                         nodes=[models.node("MatMul", ("x", "weight"), "scores")]),
            "takes inputs x, but task 'shapes' has pixels",
        ),
        (
            models.model(nodes=[models.node("MatMul", ("pixels", "weight"), "logits")],
                         outputs=[models.tensor("logits", "batch", 3)]),
            "gives outputs logits, but task 'shapes' also has scores",
        ),
        (
            models.model(outputs=[models.tensor("scores", "batch", 2)],
                         weights={"weight": np.eye(4, 2, dtype=np.float32)}),
            "output 'scores' is float32 [batch, 2], but task 'shapes' has float32 [batch, 3]",
        ),
        (
            models.model(
                nodes=[
                    models.node("Cast", ("pixels",), "single", to=TensorProto.FLOAT),
                    models.node("MatMul", ("single", "weight"), "scores"),
                ],
                inputs=[models.tensor("pixels", "batch", 4, kind=TensorProto.INT64)],
            ),
            "input 'pixels' is int64 [batch, 4], but task 'shapes' has float32 [batch, 4]",
        ),
    ],
    ids=["input-name", "output-name", "output-shape", "input-type"],
)  # fmt: skip
def test_a_model_that_does_not_fit_its_task_is_refused(
    tmp_path: Path, what: Any, sentence: str
) -> None:
    house = House(tmp_path)
    house.register()
    before = house.catalog.revision(), sorted(house.store.digests())
    with pytest.raises(InvalidArtifact) as refusal:
        house.register(path=models.write(tmp_path / "other.onnx", what))
    assert sentence in refusal.value.message
    assert (house.catalog.revision(), sorted(house.store.digests())) == before


def test_the_corpus_is_made_of_tensors_that_onnx_can_read() -> None:
    """A broken builder would make every refusal look right."""
    weight = models.model().graph.initializer[0]
    assert np.array_equal(numpy_helper.to_array(weight), models.WEIGHT)
