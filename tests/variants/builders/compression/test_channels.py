"""Channels leave together, and what is left computes what it did without them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.variants.builders.compression.nets import Net, outputs, rows, sizes
from variants.builders.compression.channel_dependencies import trace
from variants.builders.compression.channels import STAYS, Channels
from variants.builders.compression.graph import initialisers, multiply_adds, replace_initialisers
from variants.builders.compression.surgery import separable, without

IMAGE = (4, 6, 6)


def widths(net: Any) -> list[int]:
    """Of each group of channels that may leave."""
    return sorted(len(group) for group in trace(separable(net)).groups)


def kept(channels: Channels, share: float, seed: int) -> NDArray[np.bool_]:
    """Some units, at least one of each group."""
    mask = np.ones(channels.count, np.bool_)
    random = np.random.default_rng(seed)
    for group in channels.groups:
        mask[random.permutation(group)[max(1, round(share * len(group))) :]] = False
    return mask


def silenced(model: Any, channels: Channels, mask: NDArray[np.bool_]) -> Any:
    """The whole network, whose channels that leave are 0 where they are made."""
    values = {name: value.copy() for name, value in initialisers(model).items()}
    for cut in channels.cuts:
        if cut.maker is not None:
            along = [1] * values[cut.name].ndim
            along[cut.axis] = -1
            values[cut.name] *= mask[cut.units].reshape(along)
    silent = type(model).FromString(model.SerializeToString())
    replace_initialisers(silent, values)
    return silent


def without_some(net: Any, share: float = 0.5, seed: int = 0) -> tuple[Any, Any]:
    """Smaller, and as large with silent channels."""
    model = separable(net)
    channels = trace(model)
    mask = kept(channels, share, seed)
    return without(model, channels, mask), silenced(model, channels, mask)


def head(net: Net, into: str, width: int) -> Any:
    return net.end(net.op("Softmax", net.gemm(into, width, 5)), 5)


def test_a_hidden_unit_leaves_both_layers() -> None:
    net = Net(6)
    model = head(net, net.op("Relu", net.gemm("pixels", 6, 8)), 8)

    smaller, silent = without_some(model)

    assert widths(model) == [8]
    assert sizes(smaller) == [(4, 6), (5, 4)]
    np.testing.assert_allclose(outputs(smaller, rows(3, 6)), outputs(silent, rows(3, 6)), rtol=1e-5)


def test_an_addition_ties_the_channels_that_it_adds() -> None:
    net = Net(*IMAGE)
    first = net.conv("pixels", 4, 8)
    second = net.conv(net.op("Relu", net.conv(first, 8, 12)), 12, 8)
    third = net.op("Add", net.op("Add", first, second), net.conv("pixels", 4, 8, kernel=1))
    model = head(net, net.op("Flatten", net.op("GlobalMaxPool", third)), 8)

    assert widths(model) == [8, 12]


def test_what_is_added_to_the_input_stays() -> None:
    net = Net(*IMAGE)
    hidden = net.conv(net.op("Relu", net.conv("pixels", 4, 12)), 12, 4)
    model = head(net, net.op("Flatten", net.op("Add", "pixels", hidden)), 144)

    assert widths(model) == [12]


def test_scores_stay() -> None:
    net = Net(6)
    assert widths(net.end(net.gemm("pixels", 6, 8), 8)) == []


def test_a_flattened_channel_leaves_with_all_its_pixels() -> None:
    net = Net(*IMAGE)
    model = head(net, net.op("Flatten", net.op("Relu", net.conv("pixels", 4, 8))), 288)

    smaller, _ = without_some(model)

    assert sizes(smaller) == [(4, 4, 3, 3), (5, 144)]


def test_attention_keeps_its_heads_and_loses_hidden_units() -> None:
    """Queries, keys and values are cut in heads; the layer behind them is free."""
    net = Net(5, 8)
    parts = []
    for _ in range(3):
        made = net.reshape(net.matmul("pixels", 8, 8), -1, 5, 2, 4)
        parts.append(net.op("Transpose", made, perm=[0, 2, 1, 3]))
    query, key, value = parts
    turned = net.op("Transpose", key, perm=[0, 1, 3, 2])
    mixed = net.op("MatMul", net.op("Softmax", net.op("MatMul", query, turned), axis=-1), value)
    joined = net.reshape(net.op("Transpose", mixed, perm=[0, 2, 1, 3]), -1, 5, 8)
    stream = net.op("Add", "pixels", net.matmul(joined, 8, 8))
    normal = net.op("LayerNormalization", stream, net.draw(8), net.draw(8))
    hidden = net.op("Add", net.matmul(normal, 8, 32), net.draw(32))
    stream = net.op("Add", stream, net.matmul(net.op("Gelu", hidden), 32, 8))
    pooled = net.op("ReduceMean", stream, net.const(np.array([1])), keepdims=0)
    model = head(net, pooled, 8)

    smaller, _ = without_some(model)

    assert widths(model) == [32]
    assert (8, 16) in sizes(smaller)
    assert (16, 8) in sizes(smaller)
    assert outputs(smaller, rows(3, 5, 8)).shape == (3, 5)


def test_a_constant_that_two_layers_share_is_cut_for_each() -> None:
    """Exporters store equal constants once."""
    net = Net(*IMAGE)
    shared = net.draw(8)
    one = net.op("Relu", net.op("Conv", "pixels", net.draw(8, 4, 1, 1), shared))
    two = net.op("Relu", net.op("Conv", one, net.draw(8, 8, 1, 1), shared))
    model = head(net, net.op("Flatten", net.op("GlobalAveragePool", two)), 8)

    smaller, silent = without_some(model, share=0.25)

    assert widths(model) == [8, 8]
    np.testing.assert_allclose(
        outputs(smaller, rows(2, *IMAGE)), outputs(silent, rows(2, *IMAGE)), rtol=1e-5
    )


def test_a_view_whose_shape_is_computed_can_be_cut() -> None:
    """As ``x.view(x.size(0), -1)`` is written by some exporters."""
    net = Net(*IMAGE)
    made = net.op("Relu", net.conv("pixels", 4, 8))
    batch = net.op("Gather", net.op("Shape", made), net.const(np.array([0])))
    flat = net.op("Reshape", made, net.op("Concat", batch, net.const(np.array([288])), axis=0))
    model = head(net, flat, 288)

    smaller, _ = without_some(model)

    assert sizes(smaller) == [(4, 4, 3, 3), (5, 144)]
    assert outputs(smaller, rows(7, *IMAGE)).shape == (7, 5)


def test_channels_that_are_cut_apart_stay() -> None:
    net = Net(*IMAGE)
    made = net.conv("pixels", 4, 8)
    net.op("Split", made, net.const(np.array([4, 4])), axis=1, outputs=2)
    half = net.nodes[-1].output[1]
    assert widths(head(net, net.op("Flatten", net.op("GlobalMaxPool", half)), 4)) == []


def test_work_is_foretold() -> None:
    net = Net(*IMAGE)
    made = net.op("Relu", net.conv("pixels", 4, 16, kernel=1))
    each = net.op("Relu", net.conv(made, 16, 16, groups=16))
    model = head(net, net.op("Flatten", net.op("Relu", net.conv(each, 16, 8))), 288)
    model = separable(model)
    channels = trace(model)
    mask = kept(channels, 0.5, 0)

    smaller = without(model, channels, mask)

    assert channels.work(np.ones(channels.count, np.bool_)) == sum(multiply_adds(model).values())
    assert channels.work(mask) == sum(multiply_adds(smaller).values())


def views(net: Net, x: str) -> str:
    """Two versions of each image go through one layer as rows, and their mean goes on."""
    second = net.const(np.array([1]))
    both = [net.op("Unsqueeze", net.op("Mul", x, net.const(by)), second) for by in (0.5, 2.0)]
    made = net.conv(net.reshape(net.op("Concat", *both, axis=1), -1, 8, 6, 6), 8, 8)
    return net.op("ReduceMean", net.reshape(made, -1, 2, 8, 6, 6), second, keepdims=0)


Layer = Callable[[Net, str], str]

STEPS: dict[str, Layer] = {
    "bottleneck": lambda n, x: n.op(
        "Add", x, n.norm(n.conv(n.op("Relu", n.conv(x, 8, 4)), 4, 8, bias=False), 8)
    ),
    "concat": lambda n, x: n.conv(
        n.op("Concat", n.op("Relu", n.conv(x, 8, 6)), x, "pixels", axis=1), 18, 8
    ),
    "concat along": lambda n, x: n.op(
        "MaxPool", n.op("Concat", x, n.conv(x, 8, 8), axis=2), kernel_shape=[2, 1], strides=[2, 1]
    ),
    "conv": lambda n, x: n.op("Relu", n.conv(x, 8, 8)),
    "depthwise": lambda n, x: n.op("HardSwish", n.conv(x, 8, 8, groups=8)),
    "gate": lambda n, x: n.op("Mul", x, n.op("Sigmoid", n.conv(n.op("Relu", n.conv(
        n.op("GlobalAveragePool", x), 8, 4, kernel=1)), 4, 8, kernel=1))),
    "grouped": lambda n, x: n.conv(x, 8, 8, groups=2),
    "instance norm": lambda n, x: n.op("InstanceNormalization", x, n.draw(8), n.draw(8)),
    "mixer": lambda n, x: n.op("Transpose", n.matmul(n.op("Relu", n.matmul(
        n.op("Transpose", x, perm=[0, 2, 3, 1]), 8, 12)), 12, 8), perm=[0, 3, 1, 2]),
    "pad": lambda n, x: n.op(
        "AveragePool", n.op("Pad", x, n.const(np.array([0, 0, 1, 1, 0, 0, 1, 1]))),
        kernel_shape=[3, 3],
    ),
    "prelu": lambda n, x: n.op("PRelu", x, n.draw(8, 1, 1)),
    "scale": lambda n, x: n.op("Mul", n.draw(8, 1, 1), n.op("Div", x, n.const(2.0))),
    "tokens": lambda n, x: n.op("Transpose", n.reshape(n.matmul(
        n.op("Transpose", n.reshape(x, -1, 8, 36), perm=[0, 2, 1]), 8, 8), -1, 6, 6, 8),
        perm=[0, 3, 1, 2]),
    "transposed conv": lambda n, x: n.op(
        "ConvTranspose", x, n.draw(8, 8, 3, 3, deviation=0.1), n.draw(8), pads=[1, 1, 1, 1]
    ),
    "up and down": lambda n, x: n.op(
        "MaxPool", n.op("Resize", x, "", n.const([1.0, 1.0, 2.0, 2.0]), mode="linear"),
        kernel_shape=[2, 2], strides=[2, 2],
    ),
    "views": views,
}  # fmt: skip
"""Each takes and gives eight channels of 6 x 6, and makes 0 of channels that are 0."""
ENDS: dict[str, Callable[[Net, str], Any]] = {
    "flat": lambda n, x: head(n, n.op("Flatten", x), 288),
    "hidden": lambda n, x: head(n, n.op("Relu", n.gemm(n.reshape(x, 0, -1), 288, 9)), 9),
    "pooled": lambda n, x: head(n, n.op("ReduceMean", x, n.const(np.array([2, 3])), keepdims=0), 8),
    "squeezed": lambda n, x: head(
        n, n.op("Squeeze", n.op("GlobalMaxPool", x), n.const(np.array([-2, -1]))), 8
    ),
}


def network(steps: list[str], end: str, seed: int) -> Any:
    net = Net(*IMAGE, seed=seed)
    made = net.op("Relu", net.conv("pixels", 4, 8))
    for step in steps:
        made = STEPS[step](net, made)
    return ENDS[end](net, made)


@pytest.mark.parametrize("step", STEPS)
def test_every_kind_of_layer_can_be_cut(step: str) -> None:
    """Silent channels and channels that are gone: the same answers."""
    smaller, silent = without_some(network([step, "conv"], "flat", 0))

    given = rows(3, *IMAGE)
    np.testing.assert_allclose(outputs(smaller, given), outputs(silent, given), atol=1e-5)
    assert sum(map(np.prod, sizes(smaller))) < sum(map(np.prod, sizes(silent)))


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
    end=st.sampled_from(sorted(ENDS)),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
    batch=st.integers(1, 3),
)
@settings(max_examples=20, deadline=None)
def test_what_is_left_computes_what_it_did(
    steps: list[str], end: str, share: float, seed: int, batch: int
) -> None:
    smaller, silent = without_some(network(steps, end, seed), share, seed)

    given = rows(batch, *IMAGE, seed=seed)
    np.testing.assert_allclose(outputs(smaller, given), outputs(silent, given), atol=1e-5)


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5), end=st.sampled_from(sorted(ENDS))
)
@settings(max_examples=10, deadline=None)
def test_groups_share_no_unit_and_never_hold_what_stays(steps: list[str], end: str) -> None:
    groups = trace(separable(network(steps, end, 0))).groups
    units = [unit for group in groups for unit in group.tolist()]
    assert len(units) == len(set(units))
    assert STAYS not in units
