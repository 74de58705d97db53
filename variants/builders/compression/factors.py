"""Splitting a linear layer in two thinner ones, where its outputs need few directions.

Of all maps of rank r, the one whose outputs differ least from a layer's own projects them onto
their first r principal components: for outputs Y = XW with second moment M = YᵀY, the rank-r matrix
nearest to Y is Y V Vᵀ, V the first r eigenvectors of M (Eckart and Young, 1936). So W becomes WV
and Vᵀ. That takes what the layer sees into account (Chen and others, *DRONE: Data-aware Low-rank
Compression*, NeurIPS 2021; for convolutions Zhang and others, *Accelerating Very Deep Convolutional
Networks*, 2015, section 3.1); without rows M = WᵀW, and it is the truncated SVD of W. Where the
second layer has a bias, Y is centred first: the mean needs no direction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.builders.activations import observe, row_count
from variants.builders.compression.graph import (
    attribute,
    copied,
    drop_unused,
    fresh,
    initialisers,
    multiply_adds,
    names,
    replace_initialisers,
    replace_nodes,
    shapes,
)
from variants.builders.protocol import Rows

Matrix = NDArray[np.float64]

WIDEST = 4096
"""Outputs of a layer that is still analysed: its second moment has the square of it."""
MOST_DIRECTIONS = 2048
"""The lesser of a layer's inputs and outputs: finding directions takes the cube of it."""
UNSEEN = 1e-3
"""Share of the weight's own second moment in what is taken for the outputs': directions that the
rows at hand do not show are not lost altogether."""
ALIGN = 16
"""Ranks are multiples of it: kernels compute 8 or 16 numbers at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that could be split, and what its outputs are made of."""

    output: str
    weight: str
    bias: str
    fan_in: int
    """Numbers that an output is a sum of: m."""
    fan_out: int
    """Outputs at each position: n."""
    work: int
    """Multiply-adds of one row."""
    mean: Matrix
    """``(n,)`` to centre with; zeros where nothing holds a bias."""
    directions: Matrix
    """``(n, min(m, n))`` orthonormal columns, the strongest first."""
    energies: Matrix
    """``(min(m, n),)`` share of the outputs' second moment along each direction."""

    def rank(self, energy: float) -> int:
        """The least rank, in whole blocks, that keeps so much of the outputs."""
        enough = int(np.searchsorted(np.cumsum(self.energies), energy - 1e-12)) + 1
        return min(len(self.energies), -(-enough // ALIGN) * ALIGN)

    def saved(self, rank: int) -> float:
        """Multiply-adds of a row that a rank saves; below 0 if it costs more."""
        thin = rank * (self.fan_in + self.fan_out)
        return self.work * (1 - thin / (self.fan_in * self.fan_out))


def layers(model: Any, rows: Rows) -> list[Layer]:
    """Every convolution of one group and every product with a constant matrix, analysed over rows.

    On one thread: those of linear algebra wait by spinning, which takes dozens of times as long
    where something else computes meanwhile, and the result depends on how many there are.

    Raises:
        VariantNotBuilt: the model cannot be run on the rows.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=1, user_api="blas"):
        return _layers(model, rows)


def _layers(model: Any, rows: Rows) -> list[Layer]:
    values, work = initialisers(model), multiply_adds(model, shapes(model))
    nodes = [node for node in model.graph.node if _splits(node, values)]
    moments = _moments(model, nodes, rows)
    found = []
    for node in nodes:
        weight = _matrix(node, values[node.input[1]])
        own = (weight.T @ weight).astype(np.float64)
        mean, moment = moments.get(node.output[0], (np.zeros(len(own)), own))
        if node.op_type == "MatMul":
            mean = np.zeros(len(own))
        moment = moment - np.outer(mean, mean)
        moment = _scaled(moment) + UNSEEN * _scaled(own)
        energies, directions = _principal(moment, weight)
        found.append(
            Layer(
                output=node.output[0],
                weight=node.input[1],
                bias=node.input[2] if len(node.input) > 2 else "",
                fan_in=weight.shape[0],
                fan_out=weight.shape[1],
                work=work[node.output[0]],
                mean=mean,
                directions=directions,
                energies=energies,
            )
        )
    return found


def split(model: Any, ranks: Mapping[str, int], found: Sequence[Layer]) -> Any:
    """A copy in which the layers named in ``ranks`` (by output) are two layers each."""
    model = copied(model)
    values, taken = initialisers(model), names(model)
    known = {layer.output: layer for layer in found}
    added: dict[str, NDArray[Any]] = {}
    nodes = []
    for node in model.graph.node:
        if node.output and node.output[0] in ranks:
            layer = known[node.output[0]]
            nodes += _two(node, layer, ranks[layer.output], values, added, taken)
        else:
            nodes.append(node)
    replace_nodes(model, nodes)
    replace_initialisers(model, added)
    drop_unused(model)
    return model


def _splits(node: Any, values: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a node is a linear layer that can be split; ``values`` are the constants by name."""
    if node.op_type not in ("Conv", "Gemm", "MatMul"):
        return False
    weight = values.get(node.input[1])
    bias = node.input[2] if len(node.input) > 2 else ""
    if (
        weight is None
        or weight.dtype != np.float32
        or weight.ndim < 2
        or (bias and bias not in values)
    ):
        return False
    fan_in, fan_out = _matrix(node, weight).shape[-2:]
    if (
        fan_out > WIDEST
        or min(fan_in, fan_out) > MOST_DIRECTIONS
        or (bias and values[bias].size not in (1, fan_out))
    ):
        return False
    if node.op_type == "Conv":
        return bool(attribute(node, "group", 1) == 1)
    return weight.ndim == 2 and not attribute(node, "transA", 0)


def _matrix(node: Any, weight: NDArray[Any]) -> Any:
    """``(m, n)``: what a position's inputs are multiplied with."""
    if node.op_type == "Conv":
        return weight.reshape(len(weight), -1).T
    if node.op_type == "Gemm":
        weight = weight.T if attribute(node, "transB", 0) else weight
        return weight * attribute(node, "alpha", 1.0)
    return weight


def _principal(moment: Matrix, weight: Any) -> tuple[Matrix, Matrix]:
    """Shares ``(k,)``, the largest first, and directions ``(n, k)`` of a moment ``(n, n)``, which
    lies in the span of the rows of ``weight`` ``(m, n)``."""
    fan_in, fan_out = weight.shape
    if fan_in < fan_out:  # so few directions that a smaller matrix has them all
        span, _ = np.linalg.qr(weight.T.astype(np.float64))
        energies, inner = np.linalg.eigh(span.T @ moment @ span)
        directions = span @ inner
    else:
        energies, directions = np.linalg.eigh(moment)
    energies = np.maximum(energies[::-1], 0.0)
    return energies / max(float(energies.sum()), 1e-300), directions[:, ::-1]


def _scaled(moment: Matrix) -> Matrix:
    """The moment ``(n, n)`` with a trace of 1."""
    return moment / max(float(np.trace(moment)), 1e-300)


def _moments(model: Any, nodes: Sequence[Any], rows: Rows) -> dict[str, tuple[Matrix, Matrix]]:
    """By output: its mean ``(n,)`` and second moment ``(n, n)`` over all positions and rows."""
    if not row_count(rows) or not nodes:
        return {}
    sums: dict[str, tuple[Matrix, Matrix, int]] = {}
    convolutions = {node.output[0] for node in nodes if node.op_type == "Conv"}
    for found in observe(model, [node.output[0] for node in nodes], rows):
        for name, values in found.items():
            lines = np.moveaxis(values, 1, -1) if name in convolutions else values
            lines = lines.reshape(-1, lines.shape[-1]).astype(np.float64)
            mean, moment, seen = sums.get(name, (0.0, 0.0, 0))
            sums[name] = (mean + lines.sum(0), moment + lines.T @ lines, seen + len(lines))
    return {name: (mean / seen, moment / seen) for name, (mean, moment, seen) in sums.items()}


def _two(
    node: Any,
    layer: Layer,
    rank: int,
    values: Mapping[str, NDArray[Any]],
    added: dict[str, NDArray[Any]],
    taken: set[str],
) -> list[Any]:
    """The nodes in place of ``node``: the first without a bias, the second with the original's."""
    from onnx import helper

    def name(suffix: str, value: NDArray[Any] | None = None) -> str:
        made = fresh(f"{layer.output}_{suffix}", taken)
        taken.add(made)
        if value is not None:
            added[made] = value.astype(np.float32)
        return made

    basis = layer.directions[:, :rank]
    weight = values[layer.weight]
    narrow = _matrix(node, weight) @ basis.astype(np.float32)
    bias = np.zeros(layer.fan_out)
    if layer.bias:
        bias = bias + values[layer.bias].reshape(-1).astype(np.float64) * attribute(
            node, "beta", 1.0
        )
    bias = layer.mean + (bias - layer.mean) @ basis @ basis.T
    middle = name("narrow")
    if node.op_type == "Conv":
        ones = [1] * (weight.ndim - 2)
        first = type(node).FromString(node.SerializeToString())
        del first.input[2:]
        first.input[1] = name("first", narrow.T.reshape(rank, *weight.shape[1:]))
        first.output[0], first.name = middle, ""
        second = helper.make_node(
            "Conv",
            [middle, name("second", basis.reshape(*basis.shape, *ones)), name("bias", bias)],
            [layer.output],
            kernel_shape=ones,
        )
        return [first, second]
    first = helper.make_node("MatMul", [node.input[0], name("first", narrow)], [middle])
    if node.op_type == "MatMul":
        inputs = [middle, name("second", basis.T)]
        return [first, helper.make_node("MatMul", inputs, [layer.output])]
    inputs = [middle, name("second", basis.T), name("bias", bias)]
    return [first, helper.make_node("Gemm", inputs, [layer.output])]
