"""Graphs in torch give what ONNX Runtime gives, and take what they learned back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.variants.builders.compression.nets import Net, outputs, perceptron, rows
from variants.builders.compression.trainable import TrainableGraph
from variants.errors import VariantNotBuilt

IMAGE = (3, 7, 9)


def agree(net: Any, given: dict[str, Any]) -> None:
    with torch.no_grad():
        tensors = {name: torch.tensor(value) for name, value in given.items()}
        found = TrainableGraph(net)(tensors)["scores"].numpy()
    expected = outputs(net, given)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


ONE_INPUT: dict[str, dict[str, Any]] = {
    "Abs": {}, "ArgMax": {"axis": 1, "keepdims": 0}, "Ceil": {}, "Cos": {}, "Dropout": {},
    "Elu": {"alpha": 0.7}, "Erf": {}, "Exp": {}, "Flatten": {"axis": 2}, "Floor": {},
    "Gelu": {"approximate": "tanh"}, "GlobalAveragePool": {}, "GlobalMaxPool": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "HardSwish": {}, "Identity": {},
    "LeakyRelu": {"alpha": 0.2}, "LogSoftmax": {"axis": 1}, "Mish": {}, "Neg": {},
    "Reciprocal": {}, "Relu": {}, "Round": {}, "Selu": {}, "Shape": {"start": 1, "end": -1},
    "Sigmoid": {}, "Sign": {}, "Sin": {}, "Softmax": {"axis": 2}, "Softplus": {}, "Softsign": {},
    "Tanh": {}, "Transpose": {"perm": [0, 2, 3, 1]},
}  # fmt: skip


@pytest.mark.parametrize("kind", ONE_INPUT)
def test_an_operator_of_one_input(kind: str) -> None:
    net = Net(*IMAGE)
    agree(net.end(net.op(kind, "pixels", **ONE_INPUT[kind])), rows(2, *IMAGE))


Layer = Callable[[Net], str]


def const(net: Net, *values: int) -> str:
    return net.const(np.array(values))


SOME = {
    "Add, a channel each": lambda n: n.op("Add", "pixels", n.draw(3, 1, 1)),
    "AveragePool, padded unevenly": lambda n: n.op(
        "AveragePool", "pixels", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1]
    ),
    "AveragePool, padding counted": lambda n: n.op(
        "AveragePool", "pixels", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "AveragePool, padded unevenly, counted": lambda n: n.op(
        "AveragePool", "pixels", kernel_shape=[3, 3], pads=[0, 1, 1, 2], count_include_pad=1
    ),
    "BatchNormalization": lambda n: n.norm("pixels", 3),
    "Cast and back": lambda n: n.op("Cast", n.op("Cast", "pixels", to=TensorProto.INT32), to=1),
    "Clip": lambda n: n.op("Clip", "pixels", n.const(-0.5), n.const(1.0)),
    "Clip, above only": lambda n: n.op("Clip", "pixels", "", n.const(0.5)),
    "Concat": lambda n: n.op("Concat", "pixels", n.op("Relu", "pixels"), axis=-3),
    "ConstantOfShape": lambda n: n.op(
        "Add", "pixels", n.op("ConstantOfShape", n.op("Shape", "pixels"))
    ),
    "Conv": lambda n: n.conv("pixels", 3, 5),
    "Conv, no bias, dilated": lambda n: n.conv("pixels", 3, 4, bias=False, dilations=[2, 1]),
    "Conv, padded unevenly": lambda n: n.op(
        "Conv", "pixels", n.draw(4, 3, 3, 3), strides=[2, 1], pads=[0, 1, 2, 0]
    ),
    "Conv, same below": lambda n: n.op(
        "Conv", "pixels", n.draw(4, 3, 4, 2), strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "Conv, same above": lambda n: n.op("Conv", "pixels", n.draw(4, 3, 4, 2), auto_pad="SAME_UPPER"),
    "Conv, valid": lambda n: n.op("Conv", "pixels", n.draw(4, 3, 4, 2), auto_pad="VALID"),
    "Conv, each channel by itself": lambda n: n.conv("pixels", 3, 6, groups=3),
    "ConvTranspose": lambda n: n.op(
        "ConvTranspose", "pixels", n.draw(3, 4, 3, 3), n.draw(4), strides=[2, 2],
        pads=[1, 1, 1, 1], output_padding=[1, 1],
    ),
    "DepthToSpace": lambda n: n.op(
        "DepthToSpace", n.conv("pixels", 3, 8), blocksize=2, mode="CRD"
    ),
    "Div, whole numbers": lambda n: n.op(
        "Div", n.op("Cast", n.op("Mul", "pixels", n.const(9.0)), to=7), const(n, 3)
    ),
    "Einsum": lambda n: n.op("Einsum", "pixels", n.draw(9, 4), equation="bchw,wo->boch"),
    "Expand": lambda n: n.op("Expand", n.op("GlobalMaxPool", "pixels"), const(n, 1, 3, 2, 5)),
    "Flatten from behind": lambda n: n.op("Flatten", "pixels", axis=-1),
    "Gather": lambda n: n.op("Gather", "pixels", places(n), axis=2),
    "Gather a number": lambda n: n.op(
        "Range", n.const(np.array(0)),
        n.op("Gather", n.op("Shape", "pixels"), n.const(np.array(1))), n.const(np.array(1)),
    ),
    "Gather one": lambda n: n.op("Gather", "pixels", n.const(np.array(-1)), axis=1),
    "Gelu, made of Erf": lambda n: n.op(
        "Mul",
        n.op("Mul", "pixels", n.const(0.5)),
        n.op("Add", n.op("Erf", n.op("Div", "pixels", n.const(2**0.5))), n.const(1.0)),
    ),
    "GroupNormalization": lambda n: n.op(
        "GroupNormalization", n.conv("pixels", 3, 6), n.draw(3), n.draw(3), num_groups=3
    ),
    "InstanceNormalization": lambda n: n.op(
        "InstanceNormalization", "pixels", n.draw(3), n.draw(3)
    ),
    "LayerNormalization": lambda n: n.op("LayerNormalization", "pixels", n.draw(9), n.draw(9)),
    "LayerNormalization, two axes": lambda n: n.op(
        "LayerNormalization", "pixels", n.draw(7, 9), axis=2, epsilon=1e-3
    ),
    "Less and Where": lambda n: n.op(
        "Where", n.op("Less", "pixels", n.const(0.1)), n.const(2.0), "pixels"
    ),
    "MatMul": lambda n: n.matmul("pixels", 9, 4),
    "MatMul, both made": lambda n: n.op(
        "MatMul", "pixels", n.op("Transpose", "pixels", perm=[0, 1, 3, 2])
    ),
    "Max and Min": lambda n: n.op("Max", n.op("Min", "pixels", n.const(1.0)), n.draw(9)),
    "MaxPool": lambda n: n.op(
        "MaxPool", "pixels", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1
    ),
    "MaxPool, padded unevenly": lambda n: n.op(
        "MaxPool", "pixels", kernel_shape=[2, 3], pads=[1, 0, 0, 2], dilations=[2, 1]
    ),
    "Mean and Sum": lambda n: n.op("Mean", n.op("Sum", "pixels", "pixels", n.draw(9)), "pixels"),
    "Pad": lambda n: n.op("Pad", "pixels", const(n, 0, 1, 2, 0, 0, 0, -1, 3), n.const(0.5)),
    "Pad with the edge": lambda n: n.op(
        "Pad", "pixels", const(n, 0, 0, 2, 0, 0, 0, 1, 3), mode="edge"
    ),
    "Pad, some axes": lambda n: n.op("Pad", "pixels", const(n, 1, 2), "", const(n, -1)),
    "Pow": lambda n: n.op("Pow", n.op("Abs", "pixels"), n.const(1.5)),
    "PRelu": lambda n: n.op("PRelu", "pixels", n.draw(3, 1, 1)),
    "Range": lambda n: n.op(
        "Add", "pixels",
        n.op("Range", *(n.const(np.array(end, np.float32)) for end in (0, 4.5, 0.5))),
    ),
    "ReduceL2": lambda n: n.op("ReduceL2", "pixels", const(n, -1)),
    "ReduceMax": lambda n: n.op("ReduceMax", "pixels", const(n, 2, 3), keepdims=0),
    "ReduceMean": lambda n: n.op("ReduceMean", "pixels", const(n, 1)),
    "ReduceMean of everything": lambda n: n.op("ReduceMean", "pixels"),
    "ReduceMean of nothing": lambda n: n.op("ReduceMean", "pixels", noop_with_empty_axes=1),
    "ReduceMin": lambda n: n.op("ReduceMin", "pixels", const(n, 2)),
    "ReduceProd": lambda n: n.op("ReduceProd", "pixels", const(n, 1, -1), keepdims=0),
    "ReduceSum": lambda n: n.op("ReduceSum", "pixels", const(n, 1, 2)),
    "Reshape, 0 and -1": lambda n: n.reshape("pixels", 0, -1, 21),
    "Reshape by its own shape": lambda n: n.op(
        "Reshape", "pixels",
        n.op("Concat", n.op("Gather", n.op("Shape", "pixels"), const(n, 0)), const(n, -1), axis=0),
    ),
    "Resize, linear": lambda n: n.op(
        "Resize", "pixels", "", n.const([1.0, 1.0, 2.0, 3.0]), mode="linear"
    ),
    "Resize, linear, to the corners": lambda n: n.op(
        "Resize", "pixels", "", "", const(n, 5, 4), mode="linear", axes=[2, 3],
        coordinate_transformation_mode="align_corners",
    ),
    "Resize, nearest": lambda n: n.op("Resize", "pixels", "", n.const([1.0, 1.0, 2.0, 2.0])),
    "Resize, nearest below": lambda n: n.op(
        "Resize", "pixels", "", n.const([1.0, 1.0, 2.0, 3.0]), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    ),
    "Slice": lambda n: n.op(
        "Slice", "pixels", const(n, 1, -1), const(n, 99, -99), const(n, 2, 3), const(n, 2, -2)
    ),
    "Slice, all axes": lambda n: n.op("Slice", "pixels", const(n, 0, 1), const(n, 9, 3)),
    "Split": lambda n: n.op(
        "Concat", n.op("Split", "pixels", const(n, 2, 5), axis=2, outputs=2), "split_0_1", axis=2
    ),
    "Split in equal parts": lambda n: n.op("Split", "pixels", axis=3, num_outputs=2, outputs=2),
    "Squeeze": lambda n: n.op("Squeeze", n.op("GlobalAveragePool", "pixels"), const(n, 2, -1)),
    "Sub and Sqrt": lambda n: n.op("Sqrt", n.op("Abs", n.op("Sub", n.draw(9), "pixels"))),
    "Tile": lambda n: n.op("Tile", "pixels", const(n, 1, 2, 1, 3)),
    "Unsqueeze": lambda n: n.op("Unsqueeze", "pixels", const(n, -1, 1)),
}  # fmt: skip


def places(net: Net) -> str:
    return net.const(np.array([[0, -1], [3, 3]]))


@pytest.mark.parametrize("case", SOME)
def test_an_operator(case: str) -> None:
    net = Net(*IMAGE)
    agree(net.end(SOME[case](net)), rows(2, *IMAGE))


OLDER: dict[str, tuple[int, Layer]] = {
    "axes of ReduceSum": (11, lambda n: n.op("ReduceSum", "pixels", axes=[1])),
    "axes of Squeeze": (
        12, lambda n: n.op("Squeeze", n.op("GlobalMaxPool", "pixels"), axes=[2, 3])
    ),
    "ends of Clip": (10, lambda n: n.op("Clip", "pixels", min=-0.5, max=0.5)),
    "pads of Pad": (
        10, lambda n: n.op("Pad", "pixels", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=3.0)
    ),
    "places of Slice": (9, lambda n: n.op("Slice", "pixels", axes=[2], starts=[1], ends=[-1])),
    "scales of Resize": (
        10, lambda n: n.op("Resize", "pixels", n.const([1.0, 1.0, 2.0, 2.0]), mode="nearest")
    ),
    "Softmax over all that follows": (11, lambda n: n.op("Softmax", "pixels", axis=1)),
    "sizes of Split": (12, lambda n: n.op("Split", "pixels", axis=2, split=[3, 4], outputs=2)),
}  # fmt: skip


@pytest.mark.parametrize("case", OLDER)
def test_what_older_opsets_said_otherwise(case: str) -> None:
    opset, layer = OLDER[case]
    net = Net(*IMAGE)
    agree(net.end(layer(net), opset=opset), rows(2, *IMAGE))


@pytest.mark.parametrize("turned", [True, False])
def test_gemm_scales_and_turns(turned: bool) -> None:
    net = Net(6)
    shape = (4, 6) if turned else (6, 4)
    inputs = (net.draw(*shape), net.draw(4))
    made = net.op("Gemm", "pixels", *inputs, transB=int(turned), alpha=0.5, beta=2.0)
    agree(net.end(made), rows(3, 6))


def test_words_are_looked_up_in_a_table_that_is_trained() -> None:
    net = Net(5, kind=TensorProto.INT64)
    found = net.op("Gather", net.draw(11, 4), "pixels")
    graph = net.end(net.op("ReduceMean", found, net.const(np.array([1])), keepdims=0))

    agree(graph, {"pixels": np.arange(20).reshape(4, 5) % 11})
    assert [tuple(weight.shape) for weight in TrainableGraph(graph).parameters()] == [(11, 4)]


STEPS: dict[str, Layer] = {
    "conv": lambda n: n.op("Relu", n.conv(last(n), 4, 4)),
    "depthwise": lambda n: n.op("HardSwish", n.conv(last(n), 4, 4, groups=4, kernel=5)),
    "pool": lambda n: n.op(
        "MaxPool", last(n), kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]
    ),
    "residual": lambda n: n.op("Add", last(n), n.norm(n.conv(last(n), 4, 4, kernel=1), 4)),
    "gate": lambda n: n.op(
        "Mul", last(n), n.op("Sigmoid", n.conv(n.op("GlobalAveragePool", last(n)), 4, 4, kernel=1))
    ),
    "norm": lambda n: n.norm(last(n), 4),
    "concat": lambda n: n.conv(n.op("Concat", last(n), "pixels", axis=1), 8, 4),
    "mix": lambda n: n.op(
        "Transpose", n.matmul(n.op("Transpose", last(n), perm=[0, 2, 3, 1]), 4, 4),
        perm=[0, 3, 1, 2],
    ),
}  # fmt: skip


def last(net: Net) -> str:
    return str(net.nodes[-1].output[0]) if net.nodes else "pixels"


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
    batch=st.integers(1, 3),
)
@settings(max_examples=25, deadline=None)
def test_networks_agree_on_any_batch(steps: list[str], seed: int, batch: int) -> None:
    net = Net(4, 6, 6, seed=seed)
    for step in steps:
        STEPS[step](net)
    flat = net.op("Flatten", last(net))
    agree(net.end(net.op("Softmax", net.gemm(flat, 144, 5))), rows(batch, 4, 6, 6, seed=seed))


def test_what_was_trained_is_written_back() -> None:
    net = perceptron(8, seed=3)
    graph = TrainableGraph(net)
    before = outputs(net, rows(5, 64))
    with torch.no_grad():
        for weight in graph.parameters():
            weight.add_(0.5 * torch.ones_like(weight).cumsum(0))

    trained = outputs(graph.trained(), rows(5, 64))

    with torch.no_grad():
        own = graph({"pixels": torch.tensor(rows(5, 64)["pixels"])})["scores"].numpy()
    np.testing.assert_allclose(trained, own, rtol=1e-4, atol=1e-6)
    assert abs(trained - before).max() > 0.1
    np.testing.assert_array_equal(outputs(net, rows(5, 64)), before)


def test_what_prepares_the_input_is_not_trained() -> None:
    net = Net(3, 4, 4)
    ready = net.op("Div", net.op("Sub", "pixels", net.draw(3, 1, 1)), net.draw(3, 1, 1))
    scaled = net.op("Mul", net.conv(ready, 3, 4), net.draw(4, 1, 1))
    graph = TrainableGraph(net.end(net.op("Add", scaled, net.const(1.0))))

    assert [tuple(weight.shape) for weight in graph.parameters()] == [
        (4, 3, 3, 3),
        (4,),
        (4, 1, 1),
    ]


def test_an_operator_that_cannot_be_trained_is_named() -> None:
    net = Net(4)
    with pytest.raises(VariantNotBuilt, match=r"^cannot be trained: it has the operator 'CumSum'$"):
        TrainableGraph(net.end(net.op("CumSum", "pixels", net.const(np.array(1)))))


def test_a_form_of_an_operator_that_cannot_be_trained_is_named() -> None:
    net = Net(3, 4, 4)
    graph = TrainableGraph(
        net.end(net.op("Resize", "pixels", "", net.const([1.0, 1.0, 2.0, 2.0]), mode="cubic"))
    )
    with pytest.raises(VariantNotBuilt, match=r"^cannot be trained: Resize with mode 'cubic'"):
        graph({"pixels": torch.zeros(1, 3, 4, 4)})


def test_what_torch_refuses_is_one_sentence() -> None:
    graph = TrainableGraph(perceptron(4))
    with pytest.raises(VariantNotBuilt, match=r"^cannot be trained: Gemm fails in torch: mat1 and"):
        graph({"pixels": torch.zeros(1, 65)})


def test_weights_that_have_diverged_are_not_written() -> None:
    graph = TrainableGraph(perceptron(4))
    with torch.no_grad():
        next(iter(graph.parameters())).mul_(torch.inf)
    with pytest.raises(VariantNotBuilt, match="training diverged"):
        graph.trained()


def test_only_what_is_wanted_is_computed() -> None:
    net = Net(4)
    hidden = net.gemm("pixels", 4, 3)
    graph = TrainableGraph(net.end(net.op("Softmax", hidden)))

    assert set(graph({"pixels": torch.zeros(2, 4)}, (hidden,))) == {hidden}
