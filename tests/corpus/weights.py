"""ONNX files that are refused for their weights, before anything of them runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_models as models
from tests.corpus.case import Step, bad
from tests.corpus.graphs import node, written


def initializer(folder: Path, change: Callable[[Any], None]) -> Path:
    """The right model with something wrong about its weight."""
    what = models.model()
    change(what.graph.initializer[0])
    return written(folder, what)


# -- weights -------------------------------------------------------------------------------------


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' does not hold what it declares$")
def weight_shorter_than_declared(folder: Path) -> Path:
    def change(weight: Any) -> None:
        weight.raw_data = weight.raw_data[:7]

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' does not hold what it declares$")
def weight_that_declares_more_than_there_is(folder: Path) -> Path:
    def change(weight: Any) -> None:
        weight.dims[:] = [2**40, 3]

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' does not hold what it declares$")
def weight_whose_size_overflows(folder: Path) -> Path:
    """2^62 x 4 elements of 4 bytes: 16 modulo 2^64."""

    def change(weight: Any) -> None:
        weight.dims[:] = [2**62, 4]
        weight.raw_data = bytes(16)

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' does not hold what it declares$")
def weight_of_a_negative_size(folder: Path) -> Path:
    def change(weight: Any) -> None:
        weight.dims[:] = [-1, 3]

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' does not hold what it declares$")
def weight_of_an_unknown_type(folder: Path) -> Path:
    def change(weight: Any) -> None:
        weight.data_type = 999

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx is not a valid ONNX model: .*one and only one value field")
def weight_in_two_forms(folder: Path) -> Path:
    def change(weight: Any) -> None:
        weight.float_data.extend([1.0] * 12)

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' contains NaN$")
def weight_with_a_nan(folder: Path) -> Path:
    weight = models.WEIGHT.copy()
    weight[2, 1] = np.nan
    return written(folder, models.model(weights={"weight": weight}))


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'weight' contains NaN$")
def half_precision_weight_with_a_nan(folder: Path) -> Path:
    weight = models.WEIGHT.astype(np.float16)
    weight[0, 0] = np.nan
    nodes = [
        node("Cast", ("weight",), "wide", to=TensorProto.FLOAT),
        node("MatMul", ("pixels", "wide"), "scores"),
    ]
    return written(folder, models.model(nodes=nodes, weights={"weight": weight}))


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'inner' contains NaN$")
def constant_with_a_nan(folder: Path) -> Path:
    value = numpy_helper.from_array(np.full((4, 3), np.nan, np.float32), "inner")
    nodes = [
        helper.make_node("Constant", [], ["other"], value=value),
        node("MatMul", ("pixels", "other"), "scores"),
    ]
    return written(folder, models.model(nodes=nodes))


@bad(Step.CHECK, r"net-v1: net.onnx: tensor 'sparse' declares 1\.1e\+12 elements")
def sparse_weight_that_is_huge_when_dense(folder: Path) -> Path:
    values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "")
    what = models.model(nodes=[
        node("MatMul", ("pixels", "weight"), "product"),
        node("ReduceMax", ("sparse",), "most", keepdims=0),
        node("Add", ("product", "most"), "scores"),
    ])  # fmt: skip
    what.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**20, 2**20]))
    return written(folder, what)


# -- data in other files -------------------------------------------------------------------------


def external(folder: Path, location: str) -> Path:
    def change(weight: Any) -> None:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", location

    return initializer(folder, change)


@bad(Step.CHECK, r"net-v1: net.onnx keeps tensor 'weight' in another file")
def data_at_an_absolute_path(folder: Path) -> Path:
    return external(folder, "/etc/passwd")


@bad(Step.CHECK, r"net-v1: net.onnx keeps tensor 'weight' in another file")
def data_above_its_folder(folder: Path) -> Path:
    return external(folder, "../../../../etc/passwd")


@bad(Step.CHECK, r"net-v1: net.onnx keeps tensor 'weight' in another file")
def data_behind_a_link(folder: Path) -> Path:
    (folder / "weights.bin").symlink_to("/etc/passwd")
    return external(folder, "weights.bin")


@bad(Step.CHECK, r"net-v1: net.onnx keeps tensor 'weight' in another file")
def data_that_is_not_there(folder: Path) -> Path:
    return external(folder, "weights.bin")


@bad(Step.CHECK, r"net-v1: net.onnx keeps tensor 'inner' in another file")
def data_of_a_constant_elsewhere(folder: Path) -> Path:
    value = numpy_helper.from_array(models.WEIGHT, "inner")
    value.ClearField("raw_data")
    value.data_location = TensorProto.EXTERNAL
    entry = value.external_data.add()
    entry.key, entry.value = "location", "/proc/self/environ"
    nodes = [
        helper.make_node("Constant", [], ["other"], value=value),
        node("MatMul", ("pixels", "other"), "scores"),
    ]
    return written(folder, models.model(nodes=nodes))
