"""ONNX operators in torch: arithmetic, and what moves values about. ``layers`` has the rest.

Each takes its node's ``Call`` and inputs and gives one tensor, or several. Attributes that later
opsets turned into inputs are read from wherever they are. Imports torch: import it late.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch.nn import functional

Tensor = Any
Operator = Callable[["Call", Sequence[Tensor]], Tensor | tuple[Tensor, ...]]


class Unsupported(Exception):
    """Raised for what an operator has no counterpart of here; its text follows the operator's
    name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a node says beside its inputs."""

    kind: str
    attributes: Mapping[str, Any]
    outputs: int
    opset: int

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def ints(self, name: str, inputs: Sequence[Tensor], place: int) -> list[int] | None:
        """Integers from the attribute, or from the input at ``place``; None where neither is
        given."""
        if name in self.attributes:
            return [int(value) for value in self.attributes[name]]
        found = optional(inputs, place)
        return None if found is None else [int(value) for value in found.reshape(-1).tolist()]


def optional(inputs: Sequence[Tensor], place: int) -> Tensor | None:
    """An input that may be left out."""
    return inputs[place] if len(inputs) > place else None


def dtype(element: int) -> Any:
    """The torch type of an ONNX element type."""
    from onnx import TensorProto

    known = {
        TensorProto.FLOAT: torch.float32,
        TensorProto.DOUBLE: torch.float64,
        TensorProto.FLOAT16: torch.float16,
        TensorProto.INT64: torch.int64,
        TensorProto.INT32: torch.int32,
        TensorProto.INT8: torch.int8,
        TensorProto.UINT8: torch.uint8,
        TensorProto.BOOL: torch.bool,
    }
    if element not in known:
        raise Unsupported(f"to {TensorProto.DataType.Name(element).lower()}")
    return known[element]


def _unary(function: Callable[[Tensor], Tensor]) -> Operator:
    return lambda call, inputs: function(inputs[0])


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda call, inputs: function(inputs[0], inputs[1])


def _variadic(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda call, inputs: reduce(function, inputs)


def _divide(one: Tensor, other: Tensor) -> Tensor:
    if one.is_floating_point():
        return one / other
    return torch.div(one, other, rounding_mode="trunc")  # as C divides integers


def _gelu(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return functional.gelu(inputs[0], approximate=call.text("approximate", "none"))


def _leaky(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return functional.leaky_relu(inputs[0], call.get("alpha", 0.01))


def _elu(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return functional.elu(inputs[0], call.get("alpha", 1.0))


def _prelu(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, slope = inputs
    return torch.where(values < 0, values * slope, values)


def _hard_sigmoid(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return (inputs[0] * call.get("alpha", 0.2) + call.get("beta", 0.5)).clamp(0, 1)


def _hard_swish(values: Tensor) -> Tensor:
    return values * (values / 6 + 0.5).clamp(0, 1)


def _swish(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0] * torch.sigmoid(call.get("alpha", 1.0) * inputs[0])


def _clip(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    low, high = call.get("min", optional(inputs, 1)), call.get("max", optional(inputs, 2))
    values = inputs[0]
    if low is not None:
        values = torch.maximum(values, torch.as_tensor(low, dtype=values.dtype))
    if high is not None:
        values = torch.minimum(values, torch.as_tensor(high, dtype=values.dtype))
    return values


def _softmax(function: Callable[..., Tensor]) -> Operator:
    def apply(call: Call, inputs: Sequence[Tensor]) -> Tensor:
        values = inputs[0]
        if call.opset >= 13:
            return function(values, dim=call.get("axis", -1))
        axis = call.get("axis", 1) % values.dim()  # once, all axes from this one on were one
        return function(values.flatten(axis), dim=-1).reshape(values.shape)

    return apply


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor], since: int) -> Operator:
    """``since``: the opset from which on axes are an input."""

    def apply(call: Call, inputs: Sequence[Tensor]) -> Tensor:
        values = inputs[0]
        axes = call.ints("axes", inputs if call.opset >= since else (), 1)
        if not axes:
            if call.get("noop_with_empty_axes", 0):
                return values
            axes = list(range(values.dim()))
        return function(values, axes, bool(call.get("keepdims", 1)))

    return apply


def _cast(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0].to(dtype(call.attributes["to"]))


def _shape(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return torch.tensor(list(inputs[0].shape)[call.get("start", 0) : call.get("end", None)])


def _reshape(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, wanted = inputs[0], call.ints("shape", inputs, 1) or []
    if not call.get("allowzero", 0):
        wanted = [values.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return values.reshape(wanted)


def _flatten(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, axis = inputs[0], call.get("axis", 1)
    axis = axis + values.dim() if axis < 0 else axis
    rows = 1
    for size in values.shape[:axis]:
        rows *= size
    return values.reshape(rows, -1)


def _transpose(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    order = call.get("perm", None)
    return inputs[0].permute(list(order) if order else list(range(inputs[0].dim()))[::-1])


def _squeeze(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    axes = call.ints("axes", inputs, 1)
    values = inputs[0]
    if axes is None:
        return values.squeeze()
    return values.squeeze(tuple(axes)) if axes else values


def _unsqueeze(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    axes = call.ints("axes", inputs, 1) or []
    values = inputs[0]
    rank = values.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        values = values.unsqueeze(axis)
    return values


def _concat(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(inputs), call.attributes["axis"])


def _slice(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values = inputs[0]
    starts, ends = call.ints("starts", inputs, 1) or [], call.ints("ends", inputs, 2) or []
    axes = call.ints("axes", inputs, 3) or list(range(len(starts)))
    steps = call.ints("steps", inputs, 4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen = range(*slice(start, end, step).indices(values.shape[axis]))
        if step == 1:
            values = values.narrow(axis, chosen.start, len(chosen))
        else:
            values = values.index_select(axis, torch.tensor(list(chosen), dtype=torch.int64))
    return values


def _split(call: Call, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    values, axis = inputs[0], call.get("axis", 0)
    sizes = call.ints("split", inputs, 1)
    if sizes is None:
        return tuple(values.split(-(-values.shape[axis] // call.outputs), axis))
    return tuple(values.split(sizes, axis))


def _gather(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, places = inputs
    axis = call.get("axis", 0) % values.dim()
    size = values.shape[axis]
    places = torch.where(places < 0, places + size, places)
    found = values.index_select(axis, places.reshape(-1).to(torch.int64))
    return found.reshape((*values.shape[:axis], *places.shape, *values.shape[axis + 1 :]))


def _expand(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    shape = torch.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist()))
    return inputs[0].expand(shape)


def _tile(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0].repeat(inputs[1].tolist())


def _pad(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    values, pads = inputs[0], call.ints("pads", inputs, 1) or []
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}.get(
        call.text("mode", "constant")
    )
    if mode is None:
        raise Unsupported(f"with mode {call.text('mode', '')!r}")
    axes = call.ints("axes", inputs, 3) or list(range(values.dim()))
    both = {axis % values.dim(): (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    if mode == "constant":
        fill = call.get("value", optional(inputs, 2))
        flat = [size for axis in reversed(range(values.dim())) for size in both.get(axis, (0, 0))]
        return functional.pad(values, flat, value=0.0 if fill is None else float(fill))
    if any(both.get(axis, (0, 0)) != (0, 0) for axis in (0, 1)) or values.dim() < 3:
        raise Unsupported(f"with mode {call.text('mode', '')!r} along rows or channels")
    flat = [size for axis in reversed(range(2, values.dim())) for size in both.get(axis, (0, 0))]
    return functional.pad(values, flat, mode=mode)


def _filled(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    value = call.get("value", None)
    if value is None:
        return torch.zeros(inputs[0].tolist())
    return value.reshape(()).expand(inputs[0].tolist())


def _range(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    start, end, step = (value.item() for value in inputs)
    return torch.arange(start, end, step, dtype=inputs[0].dtype)


def _einsum(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    return torch.einsum(call.text("equation", ""), *inputs)


def _arg_max(call: Call, inputs: Sequence[Tensor]) -> Tensor:
    if call.get("select_last_index", 0):
        raise Unsupported("with select_last_index")
    return inputs[0].argmax(call.get("axis", 0), keepdim=bool(call.get("keepdims", 1)))


def _product(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % values.dim() for axis in axes), reverse=True):
        values = values.prod(axis, keepdim=keep)
    return values


def _norm(values: Tensor, axes: list[int], keep: bool) -> Tensor:
    return values.square().sum(axes, keepdim=keep).sqrt()


OPERATORS: dict[str, Operator] = {
    "Abs": _unary(torch.abs),
    "Add": _binary(torch.add),
    "And": _binary(torch.logical_and),
    "ArgMax": _arg_max,
    "Cast": _cast,
    "Ceil": _unary(torch.ceil),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Cos": _unary(torch.cos),
    "Div": _binary(_divide),
    "Dropout": _unary(lambda values: values),
    "Einsum": _einsum,
    "Elu": _elu,
    "Equal": _binary(torch.eq),
    "Erf": _unary(torch.erf),
    "Exp": _unary(torch.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _unary(torch.floor),
    "Gather": _gather,
    "Gelu": _gelu,
    "Greater": _binary(torch.gt),
    "GreaterOrEqual": _binary(torch.ge),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _unary(_hard_swish),
    "Identity": _unary(lambda values: values),
    "LeakyRelu": _leaky,
    "Less": _binary(torch.lt),
    "LessOrEqual": _binary(torch.le),
    "Log": _unary(torch.log),
    "LogSoftmax": _softmax(functional.log_softmax),
    "MatMul": _binary(torch.matmul),
    "Max": _variadic(torch.maximum),
    "Mean": lambda call, inputs: reduce(torch.add, inputs) / len(inputs),
    "Min": _variadic(torch.minimum),
    "Mish": _unary(functional.mish),
    "Mul": _binary(torch.mul),
    "Neg": _unary(torch.neg),
    "Not": _unary(torch.logical_not),
    "Or": _binary(torch.logical_or),
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": _binary(torch.pow),
    "Range": _range,
    "Reciprocal": _unary(torch.reciprocal),
    "ReduceL2": _reduction(_norm, 18),
    "ReduceMax": _reduction(lambda values, axes, keep: values.amax(axes, keepdim=keep), 18),
    "ReduceMean": _reduction(lambda values, axes, keep: values.mean(axes, keepdim=keep), 18),
    "ReduceMin": _reduction(lambda values, axes, keep: values.amin(axes, keepdim=keep), 18),
    "ReduceProd": _reduction(_product, 18),
    "ReduceSum": _reduction(lambda values, axes, keep: values.sum(axes, keepdim=keep), 13),
    "Relu": _unary(functional.relu),
    "Reshape": _reshape,
    "Round": _unary(torch.round),
    "Selu": _unary(functional.selu),
    "Shape": _shape,
    "Sigmoid": _unary(torch.sigmoid),
    "Sign": _unary(torch.sign),
    "Sin": _unary(torch.sin),
    "Slice": _slice,
    "Softmax": _softmax(functional.softmax),
    "Softplus": _unary(functional.softplus),
    "Softsign": _unary(functional.softsign),
    "Split": _split,
    "Sqrt": _unary(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(torch.sub),
    "Sum": _variadic(torch.add),
    "Swish": _swish,
    "Tanh": _unary(torch.tanh),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda call, inputs: torch.where(*inputs),
}
