"""ONNX files as they lie, and copies of them without their weights."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from variants.onnx_wire import (
    ALIGNMENT,
    LEAST_FILE_BYTES,
    Weight,
    align_weights,
    aligned,
    fields,
    without_weights,
)


def product(*weights: onnx.TensorProto, inputs: tuple[str, ...] = ("x",)) -> onnx.ModelProto:
    """A model with these constants; ``inputs`` are the graph's."""
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in inputs
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "product", given, [out], list(weights)
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10, producer_name="by hand")
    helper.set_model_props(model, {"modelless.classes": '["a"]'})
    return model


def array(dtype: str, *shape: int, name: str = "w") -> onnx.TensorProto:
    numbers = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return numpy_helper.from_array(numbers, name)


@given(
    dtype=st.sampled_from(["float32", "float64", "float16", "int8", "int64", "bool"]),
    shape=st.lists(st.integers(1, 9), max_size=3),
    least=st.integers(1, 400),
)
def test_what_is_taken_out_and_what_is_left_make_the_model(
    dtype: str, shape: list[int], least: int
) -> None:
    model = product(array(dtype, *shape), array("float32", 3, name="small"))
    data = model.SerializeToString()

    light, weights = without_weights(data, "file", least=least, alignment=1)

    again = onnx.load_from_string(light)
    held = {weight.name: weight for weight in weights}
    for tensor in again.graph.initializer:
        if (weight := held.get(tensor.name)) is None:
            continue
        assert weight.end - weight.start >= least
        assert {entry.key: entry.value for entry in tensor.external_data} == {
            "location": "file",
            "offset": str(weight.start),
            "length": str(weight.end - weight.start),
        }
        assert (tuple(tensor.dims), tensor.data_type) == (weight.shape, weight.dtype)
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = data[weight.start : weight.end]
    assert again == model
    large = {each.name for each in model.graph.initializer if len(each.raw_data) >= least}
    assert held.keys() == large


def test_weights_that_are_not_written_as_they_lie_in_memory_stay() -> None:
    listed = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.5] * 16)
    texts = helper.make_tensor("texts", TensorProto.STRING, [64], ["a text"] * 64)
    four_bits = helper.make_tensor("four", TensorProto.INT4, [64], b"\x11" * 32, raw=True)
    beside = array("float32", 4, 4, name="beside")
    beside.ClearField("raw_data")
    beside.data_location = TensorProto.EXTERNAL
    beside.external_data.add(key="location", value="elsewhere.bin")
    data = product(listed, texts, four_bits, beside).SerializeToString()

    assert without_weights(data, "file", least=1, alignment=1) == (data, [])


def test_a_weight_that_is_an_input_as_well_stays() -> None:
    data = product(array("float32", 4, 4), inputs=("x", "w")).SerializeToString()

    assert without_weights(data, "file", least=1, alignment=1) == (data, [])


def test_a_weight_of_another_size_than_it_says_stays() -> None:
    wrong = array("float32", 4, 4)
    wrong.dims[0] = 5
    data = product(wrong).SerializeToString()

    assert without_weights(data, "file", least=1, alignment=1) == (data, [])


def test_where_a_weight_lies_is_told(tmp_path: Path) -> None:
    data = product(array("int8", 2, 2)).SerializeToString()

    _, [weight] = without_weights(data, "file", least=1, alignment=1)

    assert weight == Weight("w", TensorProto.INT8, (2, 2), weight.start, weight.start + 4)
    assert data[weight.start : weight.end] == b"\x00\x01\x02\x03"


@given(
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=6),
    least=st.sampled_from([1, 400, 4_000]),
    doc=st.text(max_size=200),
)
def test_weights_can_be_had_where_processors_want_them(
    sizes: list[int], least: int, doc: str
) -> None:
    weights = [array("int8", size, name=f"w{at}") for at, size in enumerate(sizes)]
    weights[0].doc_string = doc
    model = product(*weights)

    data = b"".join(aligned(model.SerializeToString(), least))

    again = onnx.load_from_string(data)
    for tensor in (*again.graph.initializer, *model.graph.initializer):
        if len(tensor.raw_data) >= least:
            assert not tensor.doc_string.strip() or tensor.doc_string == doc
            tensor.ClearField("doc_string")
    assert again == model
    light, found = without_weights(data, "file", least=least)
    assert {one.name for one in found} == {f"w{i}" for i, n in enumerate(sizes) if n >= least}
    assert all(one.start % ALIGNMENT == 0 for one in found)
    assert light != data or not found
    assert b"".join(aligned(data, least)) == data


def test_small_files_and_what_is_no_model_stay_as_they_are(tmp_path: Path) -> None:
    small = product(array("float32", 4, 4)).SerializeToString()
    for name, data in {"small": small, "none": b"\xff" * LEAST_FILE_BYTES}.items():
        path = tmp_path / name
        path.write_bytes(data)
        align_weights(path)
        assert path.read_bytes() == data
    assert {path.name for path in tmp_path.iterdir()} == {"small", "none"}


def test_a_large_file_has_its_weights_aligned(tmp_path: Path) -> None:
    model = product(array("int8", 7, name="odd"), array("float32", 2_100, 2_000))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())

    align_weights(path)

    _, [weight] = without_weights(path.read_bytes(), path.name)
    assert weight.name == "w"
    again = onnx.load(path)
    assert again.graph.initializer[1].raw_data == model.graph.initializer[1].raw_data
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx"}


@pytest.mark.parametrize("data", [b"no model at all", b"\x3a\xff\x01", b"\x3a" + b"\xff" * 12])
def test_what_is_no_model_is_told(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        without_weights(data, "file", least=1, alignment=1)


def test_no_field_has_the_number_0() -> None:
    """Else a file of zeros would be millions of them."""
    seen = fields(b"\x08\x0a" + bytes(1_000), 0, 1_002)
    assert next(seen).value == 10
    with pytest.raises(ValueError, match="0"):
        next(seen)
