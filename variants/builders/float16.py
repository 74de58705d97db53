"""Half precision: the same graph with 16-bit weights and activations, fp32 at its ends.

Which operators can is asked of ONNX's own schemas, so that no list of operators has to be kept.
What reads or writes a tensor that fp16 cannot hold stays in fp32, and so do a few kinds whose
result depends on small differences or large sums.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from variants.builders.prepared import drop_unused_weights, float_tensors
from variants.checks.onnx_walk import inner_names

LARGEST = 65504.0
SMALLEST = 2.0**-14
"""The smallest normal number; below it fp16 loses digits with every halving."""

KEPT_KINDS = frozenset(
    {
        "CumSum",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Exp",
        "NonMaxSuppression",
        "Pow",
        "QuantizeLinear",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMean",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "TopK",
    }
)
"""Sums of many terms, powers and orders: where fp16 overflows or ties first, on rows not seen too.
"""


def halved(model: Any, keep: Collection[str] = ()) -> tuple[Any, int]:
    """A ``ModelProto`` in half precision, the nodes named in ``keep`` in fp32; and how many of its
    nodes work on 16 bits.

    ``model`` is prepared: in order, typed, its nodes named. Inputs, outputs and their types stay.
    """
    writer = _Writer(model)
    count = 0
    for node in model.graph.node:
        signature = None if node.name in keep else writer.signature(node)
        if signature is None:
            writer.keep(node)
        else:
            writer.halve(node, *signature)
            count += 1
    return writer.finish(), count


def out_of_range(
    model: Any, extremes: Mapping[str, tuple[float, float]], margin: float
) -> tuple[str, ...]:
    """Names of the nodes that read or write what fp16 cannot hold.

    ``extremes`` are the lowest and highest value of tensors seen; values up to ``margin`` times as
    far from zero have to fit too.
    """
    unfit = {
        name
        for name, (low, high) in extremes.items()
        if not _fits(max(abs(low), abs(high)), margin)
    }
    for weight in model.graph.initializer:
        from onnx import TensorProto, numpy_helper

        if weight.data_type == TensorProto.FLOAT:
            values = np.abs(numpy_helper.to_array(weight))
            finite = values[np.isfinite(values)]
            if finite.size and not _fits(float(finite.max()), 1.0):
                unfit.add(weight.name)
    return tuple(
        node.name
        for node in model.graph.node
        if node.op_type not in KEPT_KINDS and unfit & {*node.input, *node.output}
    )


def _fits(magnitude: float, margin: float) -> bool:
    return magnitude == 0.0 or SMALLEST <= magnitude <= LARGEST / margin


class _Writer:
    """Writes the new graph node by node. A tensor keeps its name in fp32 and has a second one in
    fp16; whichever is missing is made by a cast where it is first needed."""

    def __init__(self, model: Any) -> None:
        import onnx

        self._result = onnx.ModelProto()
        self._result.CopyFrom(model)
        del self._result.graph.node[:]
        del self._result.graph.value_info[:]
        self._source = model
        self._floats = float_tensors(model)
        self._weights = {
            weight.name: weight
            for weight in model.graph.initializer
            if weight.data_type == onnx.TensorProto.FLOAT
        }
        self._typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
        self._known = self._typed | {value.name for value in model.graph.input}
        self._known |= {weight.name for weight in model.graph.initializer}
        self._full = {value.name for value in model.graph.input} | set(self._weights)
        self._half: set[str] = set()
        self._opsets = {opset.domain: opset.version for opset in model.opset_import}
        names = {name for node in model.graph.node for name in (*node.input, *node.output)}
        self._suffix = "_fp16"
        while any(name + self._suffix in names for name in names):
            self._suffix += "_"

    def signature(self, node: Any) -> tuple[list[bool], list[bool]] | None:
        """Which inputs and which outputs of a node are to be fp16; None if it stays in fp32."""
        from onnx import AttributeProto, defs

        graphs = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
        if node.domain not in ("", "ai.onnx") or node.op_type in KEPT_KINDS:
            return None
        if any(attribute.type in graphs for attribute in node.attribute):
            return None
        if any(name and name not in self._typed for name in node.output):
            return None
        if any(name and name not in self._known for name in node.input):
            return None
        try:
            schema = defs.get_schema(node.op_type, self._opsets.get("", 1), "")
        except defs.SchemaError:
            return None
        able = {
            constraint.type_param_str
            for constraint in schema.type_constraints
            if "tensor(float16)" in constraint.allowed_type_strs
        }
        inputs = [
            self._is_float(n) and _type(schema.inputs, i) in able for i, n in enumerate(node.input)
        ]
        bound = {_type(schema.inputs, i) for i, half in enumerate(inputs) if half}
        outputs = [
            self._is_float(n) and _type(schema.outputs, i) in bound
            for i, n in enumerate(node.output)
        ]
        all_follow = all(
            half or not self._is_float(name)
            for half, name in zip(outputs, node.output, strict=True)
        )
        return (inputs, outputs) if any(inputs) and all_follow else None

    def keep(self, node: Any) -> None:
        """Copy a node as it is."""
        for name in (*node.input, *inner_names(node)):
            self._need_full(name)
        self._result.graph.node.append(node)
        self._full.update(node.output)

    def halve(self, node: Any, inputs: list[bool], outputs: list[bool]) -> None:
        """Copy a node, with the marked inputs and outputs in fp16."""
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for index, (name, half) in enumerate(zip(node.input, inputs, strict=True)):
            if half:
                copy.input[index] = self._need_half(name)
            else:
                self._need_full(name)
        for index, (name, half) in enumerate(zip(node.output, outputs, strict=True)):
            if half:
                copy.output[index] = name + self._suffix
                self._half.add(name)
            else:
                self._full.add(name)
        self._result.graph.node.append(copy)

    def finish(self) -> Any:
        """The whole model, its outputs in fp32 again."""
        for value in self._source.graph.output:
            self._need_full(value.name)
        drop_unused_weights(self._result)
        return self._result

    def _is_float(self, name: str) -> bool:
        return name in self._floats or name in self._weights

    def _need_full(self, name: str) -> None:
        from onnx import TensorProto

        if name in self._half and name not in self._full:
            self._cast(name + self._suffix, name, TensorProto.FLOAT)
            self._full.add(name)

    def _need_half(self, name: str) -> str:
        from onnx import TensorProto, numpy_helper

        short = name + self._suffix
        if name in self._half:
            return short
        self._half.add(name)
        if name in self._weights:
            values = numpy_helper.to_array(self._weights[name]).astype(np.float16)
            self._result.graph.initializer.append(numpy_helper.from_array(values, short))
        else:
            self._cast(name, short, TensorProto.FLOAT16)
        return short

    def _cast(self, before: str, after: str, kind: int) -> None:
        from onnx import helper

        cast = helper.make_node("Cast", [before], [after], name=f"cast_{after}", to=kind)
        self._result.graph.node.append(cast)


def _type(formal: Any, index: int) -> str:
    """The type parameter of an input or output; the last one of a schema may repeat."""
    if not formal:
        return ""
    parameter = formal[min(index, len(formal) - 1)]
    return str(getattr(parameter, "type_str", None) or parameter.typeStr)
