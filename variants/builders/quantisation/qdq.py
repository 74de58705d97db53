"""8-bit models in QDQ form: standard ONNX with pairs of QuantizeLinear and DequantizeLinear.

``Quantiser`` makes them in two steps: ranges are found once, and each ``model()`` leaves other
nodes in fp32.
"""

import logging
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from variants.builders.activations import first_line
from variants.builders.calibration import Calibration, ranges
from variants.builders.prepared import drop_unused_weights, float_tensors, prepared
from variants.builders.protocol import Rows
from variants.builders.quantisation.scope import CUTTING, pool_first, quantisation_scope, trimmed
from variants.errors import VariantNotBuilt

FIRST_OPSET = 13
"""The first opset that has scales per channel."""
QUANTISERS = frozenset({"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})
RECURRENT = ("GRU", "LSTM", "RNN")
MOST_RECURRENT = 0.5
"""Of the weights that are computed with; where more are in recurrent layers, quantising the rest
was no quicker, and each kind of ranges gave one more variant to measure (docs/models.md)."""
READY = ("onnx.infer", "onnxruntime.quant")
"""Tells the quantiser that shapes are there already; else it writes and reads the model again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of QDQ model that a back end takes. Weights are always signed and per channel."""

    symmetric: bool = False
    """Activations signed with zero point 0, else unsigned with any."""
    weight_bits: int = 8
    outputs: bool = True
    """Whether results of convolutions and matrix products are quantised too, so that the next node
    takes 8 bits without a step between; else only what goes into them is."""
    biases: bool = True
    """Whether biases become 32-bit integers, else they stay fp32."""
    joins: bool = True
    """Whether additions, concatenations and pooling between them work on 8 bits too."""
    transposed: bool = False
    """Whether transposed convolutions have an 8-bit kernel."""
    shallow: bool = True
    """Whether convolutions over three channels or fewer are quantised. See
    ``quantisation_scope``."""


CPU = Form(weight_bits=7, shallow=False)
"""For ONNX Runtime and OpenVINO. A processor without VNNI adds two 8-bit products in 16 bits and
saturates; with 7-bit weights it cannot, so that the variant answers the same wherever it runs."""
TENSORRT = Form(symmetric=True, outputs=False, biases=False, joins=False, transposed=True)
"""TensorRT fuses what follows a convolution and takes no zero points and no integer biases."""


class Quantiser:
    """A model made ready for 8 bits: simplified, calibrated, its nodes sorted into units.

    Raises:
        VariantNotBuilt: nothing in the model can be quantised, or there are no rows.
    """

    def __init__(
        self, source: Path, *, rows: Rows, how: Calibration = Calibration.MIN_MAX, form: Form = CPU
    ) -> None:
        self._form = form
        self.original = prepared(source, opset=FIRST_OPSET)
        """The fp32 model that is quantised: simplified, every node with a name of its own."""
        self.units, self.skipped = quantisation_scope(self.original, form)
        pool_first(self.original, self.skipped)
        if not self.units:
            raise VariantNotBuilt(_why_nothing(self.original))
        _refuse_recurrent(self.original, {name for unit in self.units for name in unit.nodes})
        self._ranges = ranges(self.original, self._tensors(), rows, how)

    def model(self, keep: Collection[str] = ()) -> Any:
        """A quantised ``ModelProto``, the units that hold a node named in ``keep`` left in fp32.

        Raises:
            VariantNotBuilt: the quantiser fails, or nothing is left to quantise.
        """
        units = [unit for unit in self.units if not {*keep} & {*unit.nodes}]
        if not units:
            raise VariantNotBuilt("the model has nothing that can be quantised")
        try:
            with quiet():
                quantised = self._quantised({name for unit in units for name in unit.nodes})
        except Exception as error:  # the quantiser raises whatever it trips over
            raise VariantNotBuilt(f"quantising failed: {first_line(error)}") from error
        return quantised

    def _tensors(self) -> list[str]:
        """Names of the tensors that may get a scale: all float tensors around the units' nodes."""
        members = {name for unit in self.units for name in unit.nodes}
        floats = float_tensors(self.original)
        around = [
            name
            for node in self.original.graph.node
            if node.name in members
            for name in (*node.input, *node.output)
        ]
        return [name for name in dict.fromkeys(around) if name in floats]

    def _quantised(self, members: set[str]) -> Any:
        import numpy as np
        import onnx
        from onnxruntime.quantization import QDQQuantizer, QuantType, TensorData

        form = self._form
        copy = onnx.ModelProto()
        copy.CopyFrom(self.original)
        _own_biases(copy.graph)
        copy.metadata_props.add(key=READY[0], value=READY[1])
        nodes = trimmed(copy.graph.node, members)
        kinds = sorted({node.op_type for node in copy.graph.node if node.name in nodes})
        cut = {
            node.output[0]
            for node in copy.graph.node
            if node.name in nodes and node.op_type in CUTTING
        }
        found = {
            name: TensorData(lowest=np.float32(low), highest=np.float32(high))
            for name, (low, high) in self._ranges.items()
        }
        quantizer = QDQQuantizer(
            copy,
            per_channel=True,
            reduce_range=form.weight_bits < 8,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QInt8 if form.symmetric else QuantType.QUInt8,
            tensors_range=found,
            nodes_to_quantize=sorted(nodes),
            nodes_to_exclude=[],
            op_types_to_quantize=kinds,
            extra_options={
                "ActivationSymmetric": form.symmetric,
                "WeightSymmetric": True,
                "QuantizeBias": form.biases,
                "OpTypesToExcludeOutputQuantization": [] if form.outputs else kinds,
                "QDQOpTypePerChannelSupportToAxis": {"MatMul": 1},
            },
        )
        quantized = quantizer.quantize_model()
        quantizer.model.topological_sort()  # the quantiser appends, and ONNX wants nodes in order
        _open_ends(quantized, nodes, cut)
        del quantized.graph.value_info[:]
        del quantized.metadata_props[-1:]
        return quantized


def _why_nothing(model: Any) -> str:
    """Why no unit of a model can be quantised, in a clause."""
    from onnx import TensorProto

    graph = model.graph
    if any(node.op_type in QUANTISERS for node in graph.node):
        return "the model is quantised already"
    if any(weight.data_type == TensorProto.FLOAT16 for weight in graph.initializer):
        return "the model computes in float16, and what is quantised is float32"
    return "the model has nothing that can be quantised"


def _refuse_recurrent(model: Any, members: AbstractSet[str]) -> None:
    """Refuse what is mostly recurrent: such layers keep their precision, so 8 bits save nothing.

    Where convolutions are among the ``members``, the names of what would be quantised, weights do
    not tell where the time goes: each of theirs is used many times.

    Raises:
        VariantNotBuilt: more than ``MOST_RECURRENT`` of the weights are in recurrent layers.
    """
    graph = model.graph
    if any(node.op_type == "Conv" for node in graph.node if node.name in members):
        return
    sizes = {weight.name: prod(weight.dims) for weight in graph.initializer}
    looked_up = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    held: dict[str, str] = {
        name: node.op_type
        for node in graph.node
        if node.op_type in RECURRENT
        for name in node.input[1:]
        if name in sizes
    }
    whole = sum(size for name, size in sizes.items() if name not in looked_up)
    share = sum(sizes[name] for name in held) / max(1, whole)
    if share > MOST_RECURRENT:
        kinds = " and ".join(sorted(set(held.values())))
        raise VariantNotBuilt(
            f"{100 * share:.0f} % of its weights are in layers of {kinds}, which are not quantised"
            " with ranges that are measured before"
        )


def _own_biases(graph: Any) -> None:
    """Give each node a bias of its own, where several have the same one.

    The quantiser would do so, and call the second one ``bias0``, whatever else is called that.
    """
    weights = {weight.name: weight for weight in graph.initializer}
    seen: set[str] = set()
    for node in graph.node:
        bias = node.input[2] if node.op_type in ("Conv", "Gemm") and node.input[2:] else ""
        if bias in seen and bias in weights:
            own = graph.initializer.add()
            own.CopyFrom(weights[bias])
            node.input[2] = own.name = f"{bias}_of_{node.output[0]}"
        seen.add(bias)


def _open_ends(model: Any, quantised: Collection[str], cut: AbstractSet[str]) -> None:
    """Take out pairs behind matrix products whose result goes to fp32 nodes or out of the model.

    The same 8-bit kernel gives fp32 as readily, and scores keep their full resolution. Pairs around
    a tensor in ``cut`` do the work of an activation that is gone, and stay.
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    outputs = {value.name for value in graph.output}
    gone = []
    for node in graph.node:
        if node.op_type != "QuantizeLinear":
            continue
        maker = makers.get(node.input[0])
        pair = users.get(node.output[0], [])
        if maker is None or maker.op_type not in ("Gemm", "MatMul") or len(pair) != 1:
            continue
        closing = pair[0]
        after = users.get(closing.output[0], [])
        if cut & {node.input[0], closing.output[0]}:
            continue
        if maker.name not in quantised or any(user.name in quantised for user in after):
            continue
        if len(users[node.input[0]]) != 1 or node.input[0] in outputs:
            continue
        maker.output[0] = closing.output[0]
        gone += [node, closing]
    for node in gone:
        graph.node.remove(node)
    drop_unused_weights(model)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence: the quantiser gives advice through the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
