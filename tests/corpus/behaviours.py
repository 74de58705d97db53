"""ONNX files that look right and are refused for what they do when they are built or run."""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from tests import onnx_models as models
from tests.corpus.case import Step, bad
from tests.corpus.graphs import written

node, tensor = models.node, models.tensor
TOO_MUCH = r"net-v1-onnx-fp32: it needs more memory than a trial may take$"


@bad(
    Step.MEASURE,
    r"net-v1-onnx-fp32: its trial did not finish within 6 s and was stopped$",
    trial_s=6.0,
)
def endless_loop(folder: Path) -> Path:
    return models.write(folder / "net.onnx", models.endless())


@bad(Step.MEASURE, TOO_MUCH)
def memory_of_a_run(folder: Path) -> Path:
    return models.write(folder / "net.onnx", models.greedy(8_000))


@bad(Step.MEASURE, TOO_MUCH)
def constants_that_fold_into_gigabytes(folder: Path) -> Path:
    """16 GiB out of a few bytes, as soon as constants are folded."""
    nodes = [
        node("ConstantOfShape", ("shape",), "huge"),
        node("ReduceMax", ("huge",), "most", keepdims=0),
        node("MatMul", ("pixels", "weight"), "product"),
        node("Add", ("product", "most"), "scores"),
    ]
    weights = {"weight": models.WEIGHT, "shape": np.array([2**16, 2**16])}
    return written(folder, models.model(nodes=nodes, weights=weights))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: .*ConstantOfShape")
def constant_of_an_overflowing_shape(folder: Path) -> Path:
    nodes = [
        node("ConstantOfShape", ("shape",), "huge"),
        node("ReduceMax", ("huge",), "most", keepdims=0),
        node("MatMul", ("pixels", "weight"), "product"),
        node("Add", ("product", "most"), "scores"),
    ]
    weights = {"weight": models.WEIGHT, "shape": np.array([2**40, 2**40])}
    return written(folder, models.model(nodes=nodes, weights=weights))


@bad(Step.MEASURE, TOO_MUCH)
def tiles_of_tiles(folder: Path) -> Path:
    """Each step multiplies by 1,024."""
    nodes = [node("Tile", (f"t{i}", "times"), f"t{i + 1}") for i in range(4)]
    nodes += [
        node("ReduceMax", ("t4",), "most", keepdims=0),
        node("MatMul", ("pixels", "weight"), "product"),
        node("Add", ("product", "most"), "scores"),
    ]
    weights = {"weight": models.WEIGHT, "t0": np.ones(1, np.float32), "times": np.array([1024])}
    return written(folder, models.model(nodes=nodes, weights=weights))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: .*not finite on evaluation row 0$")
def nothing_divided_by_nothing(folder: Path) -> Path:
    return models.write(folder / "net.onnx", models.nan_maker())


@bad(Step.MEASURE, r"net-v1-onnx-fp32: .*not finite on evaluation row 0$")
def infinite_weight(folder: Path) -> Path:
    weight = models.WEIGHT.copy()
    weight[0, 0] = np.inf
    nodes = [node("MatMul", ("pixels", "weight"), "scores")]
    return written(folder, models.model(nodes=nodes, weights={"weight": weight}))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: .*Integer division by zero$")
def whole_number_divided_by_zero(folder: Path) -> Path:
    nodes = [
        node("Cast", ("pixels",), "whole", to=TensorProto.INT32),
        node("Div", ("seven", "whole"), "quotient"),
        node("Cast", ("quotient",), "back", to=TensorProto.FLOAT),
        node("MatMul", ("back", "weight"), "scores"),
    ]
    weights = {"weight": models.WEIGHT, "seven": np.array([[7]], np.int32)}
    return written(folder, models.model(nodes=nodes, weights=weights))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: the model answers 8 rows with an output of shape \(4, 3\)$")
def rows_left_out(folder: Path) -> Path:
    """The first half of them, and one of one: declared as any number."""
    nodes = [
        node("MatMul", ("pixels", "weight"), "product"),
        node("Shape", ("product",), "rows", start=0, end=1),
        node("Add", ("rows", "one"), "more"),
        node("Div", ("more", "two"), "half"),
        node("Slice", ("product", "zero", "half"), "scores"),
    ]
    numbers = {name: np.array([i]) for i, name in enumerate(("zero", "one", "two"))}
    return written(folder, models.model(nodes=nodes, weights={"weight": models.WEIGHT} | numbers))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: .* gives .*\[2, 3\] for one row, the task has .* a row$")
def rows_repeated(folder: Path) -> Path:
    nodes = [
        node("MatMul", ("pixels", "weight"), "product"),
        node("Concat", ("product", "product"), "scores", axis=0),
    ]
    return written(folder, models.model(nodes=nodes))


@bad(
    Step.MEASURE,
    r"net-v1-onnx-fp32: the model's answer to a row depends on the other rows in a batch",
)
def rows_that_see_each_other(folder: Path) -> Path:
    """As many rows as asked, but each one's answer depends on who shares its batch."""
    nodes = [
        node("MatMul", ("pixels", "weight"), "product"),
        node("Softmax", ("product",), "scores", axis=0),
    ]
    return written(folder, models.model(nodes=nodes))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: .*out of data bounds")
def index_out_of_range(folder: Path) -> Path:
    nodes = [
        node("Cast", ("pixels",), "index", to=TensorProto.INT64),
        node("Add", ("index", "far"), "away"),
        node("Gather", ("table", "away"), "found", axis=0),
        node("MatMul", ("found", "weight"), "scores"),
    ]
    weights = {
        "weight": models.WEIGHT,
        "table": np.ones(10, np.float32),
        "far": np.array([10**9]),
    }
    return written(folder, models.model(nodes=nodes, weights=weights))


@bad(Step.MEASURE, r"net-v1-onnx-fp32: ")
def reshape_that_fits_one_row_only(folder: Path) -> Path:
    """The shape is made as it runs: nothing can be told before."""
    nodes = [
        node("MatMul", ("pixels", "weight"), "product"),
        node("Reshape", ("product", "row"), "single"),
        node("Shape", ("product",), "like"),
        node("Expand", ("single", "like"), "scores"),
    ]
    weights = {"weight": models.WEIGHT, "row": np.array([1, 3])}
    return written(folder, models.model(nodes=nodes, weights=weights))
