"""Which channels of a graph have to leave together.

Every output channel of a convolution and every hidden unit of a linear layer is a unit. Units are
followed through the graph: a residual addition ties those it adds, flattening repeats each over its
pixels, a normalisation's constants go with the channel, and the next layer reads it. Units that
reach what cannot shrink (an output, a softmax over channels, an operator unknown here) stay. This
is the dependency graph of Fang and others, *DepGraph: Towards Any Structural Pruning* (CVPR 2023),
found by following single channels instead of rules for pairs of layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from variants.builders.compression.channels import STAYS, Channels, Cut, Layer, Units
from variants.builders.compression.graph import (
    Shapes,
    attribute,
    initialisers,
    multiply_adds,
    opset,
    shapes,
)

_SAME = frozenset({
    "Abs", "Cast", "Ceil", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
})  # fmt: skip
"""Value by value."""
_BROADCAST = frozenset({
    "Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum",
})  # fmt: skip
_PER_CHANNEL = frozenset({
    "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Resize",
})  # fmt: skip
"""Along the pixels of each channel by itself."""
_NORMS = {"BatchNormalization": 4, "InstanceNormalization": 2}
"""Per channel, with so many constants for each."""
_REDUCTIONS = frozenset({
    "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
})  # fmt: skip


def trace(model: Any) -> Channels:
    """Follow all units of a graph whose initialisers are each used once.

    Raises:
        VariantNotBuilt: the graph cannot be run.
    """
    tracer = _Tracer(model, shapes(model))
    for node in model.graph.node:
        tracer.visit(node)
    tracer.stay(*(value.name for value in model.graph.output))
    return tracer.found()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """The one axis of a tensor along which its channels lie."""

    axis: int
    units: Units
    """One unit for each position along the axis."""


@dataclass(slots=True)
class _Ties:
    """Units that are tied, as a forest (union-find); the smallest number stands for all."""

    parent: list[int] = field(default_factory=lambda: [STAYS])

    def new(self, count: int) -> Units:
        begin = len(self.parent)
        self.parent += range(begin, begin + count)
        return np.arange(begin, begin + count)

    def root(self, unit: int) -> int:
        while self.parent[unit] != unit:
            self.parent[unit] = self.parent[self.parent[unit]]
            unit = self.parent[unit]
        return unit

    def tie(self, one: Units, other: Units) -> None:
        for pair in zip(one.tolist(), other.tolist(), strict=True):
            low, high = sorted(map(self.root, pair))
            self.parent[high] = low

    def stay(self, units: Units) -> None:
        self.tie(units, np.zeros_like(units))


class _Tracer:
    """Goes through the nodes in order and notes what hangs together."""

    def __init__(self, model: Any, known: Shapes) -> None:
        self.shape = known.two  # two rows: what holds for both holds for any number
        self.known = known
        self.constants = {name for name, v in initialisers(model).items() if v.dtype.kind == "f"}
        self.values = initialisers(model)
        self.work = multiply_adds(model, known)
        self.opset = opset(model)
        self.ties = _Ties()
        self.axes: dict[str, _Axis] = {}
        self.cuts: list[Cut] = []
        self.depthwise: list[tuple[str, Units]] = []
        self.reshapes: list[tuple[str, list[int], int, Units]] = []
        self.layers: list[Layer] = []

    def visit(self, node: Any) -> None:
        kind = node.op_type
        if kind in ("Conv", "ConvTranspose"):
            self._convolution(node)
        elif kind in ("Gemm", "MatMul"):
            self._linear(node)
        elif any(name in self.axes for name in node.input):
            out = self._passed(node, kind)
            if out is None:
                self.stay(*node.input)
            else:
                self.axes[node.output[0]] = out

    def stay(self, *names: str) -> None:
        """Whatever runs along these tensors must not leave."""
        for name in names:
            if name in self.axes:
                self.ties.stay(self.axes[name].units)

    def found(self) -> Channels:
        roots = np.array([self.ties.root(unit) for unit in range(len(self.ties.parent))])

        def of(units: Units) -> Units:
            return roots[units]

        cuts = [
            Cut(name=cut.name, axis=cut.axis, units=of(cut.units), maker=cut.maker)
            for cut in self.cuts
        ]
        return Channels(
            count=len(roots),
            cuts=cuts,
            depthwise=[(name, of(units)) for name, units in self.depthwise],
            reshapes=[(name, shape, axis, of(u)) for name, shape, axis, u in self.reshapes],
            layers=[Layer(work=x.work, sides=tuple(map(of, x.sides))) for x in self.layers],
            groups=_groups(cuts),
        )

    # Layers: what they read ends, and what they make begins.

    def _convolution(self, node: Any) -> None:
        name, weight = node.input[0], node.input[1]
        groups = attribute(node, "group", 1)
        into, out = (1, 0) if node.op_type == "Conv" else (0, 1)
        inner = self.axes.get(name)
        if inner is not None and inner.axis != 1:
            self.stay(name)
            inner = None
        own = self._own(node, weight)
        if groups == 1 and own:
            self._layer(node, weight, inner, into, out, axis=1)
        elif own and node.op_type == "Conv" and self._each_by_itself(node, groups) and inner:
            self.axes[node.output[0]] = inner
            self._made(node, weight, 0, inner.units)
            self.depthwise.append((node.output[0], inner.units))
            self.layers.append(Layer(work=self.work[node.output[0]], sides=(inner.units,)))
        else:
            self.stay(name)
            self.layers.append(Layer(work=self.work[node.output[0]], sides=()))

    def _linear(self, node: Any) -> None:
        name, weight = node.input[0], node.input[1]
        rank = len(self.shape[name])
        inner = self.axes.get(name)
        turned = bool(attribute(node, "transB", 0))
        plain = not attribute(node, "transA", 0) and len(self.shape[weight]) == 2
        if inner is not None and inner.axis != rank - 1:
            self.stay(name)
            inner = None
        if plain and rank > 1 and self._own(node, weight):
            into, out = (1, 0) if turned else (0, 1)
            self._layer(node, weight, inner, into, out, axis=rank - 1)
        else:
            self.stay(*node.input)
            self.layers.append(Layer(work=self.work[node.output[0]], sides=()))

    def _own(self, node: Any, weight: str) -> bool:
        """Whether the weight is constant, and so is the bias, if there is one."""
        bias = node.input[2] if len(node.input) > 2 else ""
        return weight in self.constants and (not bias or bias in self.constants)

    def _each_by_itself(self, node: Any, groups: int) -> bool:
        """Whether a convolution makes one channel of each."""
        return self.shape[node.input[0]][1] == groups == self.shape[node.output[0]][1]

    def _layer(
        self, node: Any, weight: str, inner: _Axis | None, into: int, out: int, *, axis: int
    ) -> None:
        sides = []
        if inner is not None:
            self.cuts.append(Cut(name=weight, axis=into, units=inner.units))
            sides.append(inner.units)
        units = self.ties.new(self.shape[weight][out])
        self._made(node, weight, out, units)
        self.axes[node.output[0]] = _Axis(axis=axis, units=units)
        self.layers.append(Layer(work=self.work[node.output[0]], sides=(*sides, units)))

    def _made(self, node: Any, weight: str, out: int, units: Units) -> None:
        maker = node.output[0]
        self.cuts.append(Cut(name=weight, axis=out, units=units, maker=maker))
        bias = node.input[2] if len(node.input) > 2 else ""
        if bias and self.shape[bias] and self.shape[bias][-1] == len(units):
            last = len(self.shape[bias]) - 1
            self.cuts.append(Cut(name=bias, axis=last, units=units, maker=maker))

    # What is between layers: each gives the axis of its output, or None if nothing may leave.

    def _passed(self, node: Any, kind: str) -> _Axis | None:
        if kind in _BROADCAST:
            return self._broadcast(node)
        if kind == "Concat":
            return self._concat(node)
        here = self.axes.get(node.input[0])
        if here is None:  # channels come in where a shape, a place or a limit is expected
            return None
        if kind in _SAME:
            return here
        if kind in _PER_CHANNEL:
            return here if here.axis == 1 else None
        if kind in _NORMS:
            return self._norm(node, here)
        if kind in _REDUCTIONS:
            return self._reduced(node, here)
        passed: dict[str, Callable[[Any, _Axis], _Axis | None]] = {
            "Flatten": self._reshaped,
            "Gather": self._gathered,
            "LayerNormalization": self._before_last,
            "LogSoftmax": self._softened,
            "Pad": self._padded,
            "RMSNormalization": self._before_last,
            "Reshape": self._reshaped,
            "Slice": self._sliced,
            "Softmax": self._softened,
            "Squeeze": self._reshaped,
            "Transpose": self._transposed,
            "Unsqueeze": self._reshaped,
        }
        return passed[kind](node, here) if kind in passed else None

    def _broadcast(self, node: Any) -> _Axis | None:
        shape = self.shape[node.output[0]]
        rank = len(shape)
        moving = {
            name: self.axes[name].axis + rank - len(self.shape[name])
            for name in node.input
            if name in self.axes
        }
        axis, *others = set(moving.values())
        if others or any(len(self.axes[name].units) != shape[axis] for name in moving):
            return None
        units = self.axes[next(iter(moving))].units
        cuts = []
        for name in node.input:
            place = axis - rank + len(self.shape[name])
            if name in moving:
                self.ties.tie(units, self.axes[name].units)
            elif place >= 0 and self.shape[name][place] > 1:
                if name not in self.constants:
                    return None
                cuts.append(Cut(name=name, axis=place, units=units))
        self.cuts += cuts
        return _Axis(axis=axis, units=units)

    def _concat(self, node: Any) -> _Axis | None:
        rank = len(self.shape[node.output[0]])
        along = attribute(node, "axis", 0) % rank
        found = [self.axes.get(name) for name in node.input]
        axis, *others = {one.axis for one in found if one is not None}
        if others:
            return None
        if axis == along:
            parts = [
                np.full(self.shape[name][along], STAYS) if one is None else one.units
                for name, one in zip(node.input, found, strict=True)
            ]
            return _Axis(axis=axis, units=np.concatenate(parts))
        units = next(one for one in found if one is not None).units
        cuts = []
        for name, one in zip(node.input, found, strict=True):
            if one is not None:
                self.ties.tie(units, one.units)
            elif name in self.constants:
                cuts.append(Cut(name=name, axis=axis, units=units))
            else:
                return None
        self.cuts += cuts
        return _Axis(axis=axis, units=units)

    def _norm(self, node: Any, here: _Axis) -> _Axis | None:
        constants = node.input[1 : 1 + _NORMS[node.op_type]]
        if here.axis != 1 or not all(name in self.constants for name in constants):
            return None
        for place, name in enumerate(constants):
            maker = node.output[0] if place < 2 else None
            self.cuts.append(Cut(name=name, axis=0, units=here.units, maker=maker))
        return here

    def _numbers(self, node: Any, name: str, place: int) -> list[int] | None:
        """An attribute that later became a constant input; None where it is not known."""
        given = attribute(node, name, None)
        if given is not None:
            return list(given)
        if len(node.input) > place and node.input[place] in self.values:
            return [int(value) for value in self.values[node.input[place]].reshape(-1)]
        return None

    def _reduced(self, node: Any, here: _Axis) -> _Axis | None:
        rank = len(self.shape[node.input[0]])
        axes = {axis % rank for axis in self._numbers(node, "axes", 1) or range(rank)}
        if here.axis in axes:
            return None
        if attribute(node, "keepdims", 1):
            return here
        return _Axis(axis=here.axis - sum(axis < here.axis for axis in axes), units=here.units)

    def _softened(self, node: Any, here: _Axis) -> _Axis | None:
        rank = len(self.shape[node.input[0]])
        if self.opset < 13:  # over all axes from this one on
            return here if here.axis < attribute(node, "axis", 1) % rank else None
        return here if here.axis != attribute(node, "axis", -1) % rank else None

    def _before_last(self, node: Any, here: _Axis) -> _Axis | None:
        rank = len(self.shape[node.input[0]])
        return here if here.axis < attribute(node, "axis", -1) % rank else None

    def _transposed(self, node: Any, here: _Axis) -> _Axis:
        rank = len(self.shape[node.input[0]])
        order = list(attribute(node, "perm", None) or reversed(range(rank)))
        return _Axis(axis=order.index(here.axis), units=here.units)

    def _sliced(self, node: Any, here: _Axis) -> _Axis | None:
        rank = len(self.shape[node.input[0]])
        starts = self._numbers(node, "starts", 1)
        axes = self._numbers(node, "axes", 3) or (None if starts is None else range(len(starts)))
        if axes is None or here.axis in {axis % rank for axis in axes}:
            return None
        return here

    def _gathered(self, node: Any, here: _Axis) -> _Axis | None:
        rank = len(self.shape[node.input[0]])
        axis = attribute(node, "axis", 0) % rank
        if here.axis == axis:
            return None
        more = len(self.shape[node.input[1]]) - 1
        return _Axis(axis=here.axis + (more if axis < here.axis else 0), units=here.units)

    def _padded(self, node: Any, here: _Axis) -> _Axis | None:
        rank = len(self.shape[node.input[0]])
        pads = self._numbers(node, "pads", 1)
        if pads is None or len(node.input) > 3:
            return None
        return None if pads[here.axis] or pads[here.axis + rank] else here

    def _reshaped(self, node: Any, here: _Axis) -> _Axis | None:
        """Where each element's unit comes to lie, if it is again along one axis."""
        before, after = self.shape[node.input[0]], self.shape[node.output[0]]
        if node.op_type == "Squeeze" and self._numbers(node, "axes", 1) is None:
            return None  # a channel axis of one left would be squeezed too
        along = [1] * len(before)
        along[here.axis] = len(here.units)
        units = np.broadcast_to(here.units.reshape(along), before).reshape(after)
        growing = self.known.batch_axes(node.output[0])
        for axis in range(len(after)):
            line = np.moveaxis(units, axis, -1).reshape(-1, after[axis])[0]
            along = [1] * len(after)
            along[axis] = len(line)
            if axis not in growing and len(line) > 1 and (units == line.reshape(along)).all():
                if node.op_type == "Reshape":
                    if len(growing) > 1:
                        return None
                    shape = [-1 if i in growing else size for i, size in enumerate(after)]
                    self.reshapes.append((node.output[0], shape, axis, line))
                return _Axis(axis=axis, units=line)
        return None


def _groups(cuts: Sequence[Cut]) -> list[Units]:
    makers: dict[int, set[str]] = {}
    for cut in cuts:
        if cut.maker is not None:
            for unit in np.unique(cut.units[cut.units != STAYS]).tolist():
                makers.setdefault(unit, set()).add(cut.maker)
    groups: dict[frozenset[str], list[int]] = {}
    for unit in sorted(makers):
        groups.setdefault(frozenset(makers[unit]), []).append(unit)
    return [np.array(units) for units in groups.values()]
