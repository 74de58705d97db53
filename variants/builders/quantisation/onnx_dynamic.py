"""The model with 8-bit weights, its activations quantised as they come.

All rows of a batch share the scales of its activations, and these rows come from different clients.
So what is quantised is bounded: a row that is far from what the model was made for, such as pixels
up to 255 where they go up to 1, would leave no digits to the rows beside it.
"""

import tempfile
from collections import Counter
from collections.abc import Collection
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from variants.builders.activations import first_line, observe, open_session, row_count, spread
from variants.builders.calibration import ROWS, extremes
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.onnx_fp32 import simplify
from variants.builders.prepared import drop_stale_shapes
from variants.builders.protocol import Built, Material, Rows
from variants.builders.quantisation.qdq import quiet
from variants.builders.quantisation.sensitivity import UNASKED_ROWS, Judge, losses
from variants.checks.onnx_batch import fresh_name
from variants.errors import VariantNotBuilt
from variants.types import Precision

QUANTISED = ("Gemm", "MatMul", "LSTM")
LEAST_SHARE = 0.5
"""Least share of the weights that has to be quantised. Convolutions are left out: dynamically
quantised, they are slower than in fp32 (docs/decisions/0009-quantisation.md), and a model that
mostly is convolutions gains nothing."""
REACH = 2.0
"""What is quantised may be so many times as far from 0 as on the calibration rows, on either side:
that these rows have hardly anything below 0 does not say that others may not. So another row takes
two of the eight bits at most, where those beside it are all on one side."""
OPSET = 11
"""The oldest that is quantised as it is: of 10 the quantiser makes wrong answers, what is older it
only calls 11, and before that ``Clip`` took its ends in another way."""
_FIRST_STATE = 5
"""The place of what an LSTM begins with."""


class OnnxInt8Dynamic(OnnxBuilder):
    """Matrix products with 8-bit weights, per channel; each batch sets the scales of its own
    activations, within what the calibration rows say that they may be. Without any, nothing bounds
    them.

    So an answer depends a little on what else is in the batch, unlike with all other kinds.
    """

    precision = Precision.INT8

    def build(self, material: Material, target: Path) -> Built:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        with tempfile.TemporaryDirectory() as folder:
            simplified = Path(folder) / "simplified.onnx"
            simplify(material.source, simplified)
            model = _of_opset(onnx.load(str(simplified)))
            share = quantisable_share(model)
            if share == 0.0:
                raise VariantNotBuilt("the model has no matrix product with weights of its own")
            if share < LEAST_SHARE:
                raise VariantNotBuilt(
                    f"only {100 * share:.0f} % of its weights are in matrix products; "
                    + _why_no_others(model)
                )
            unshare_matrices(model.graph)
            drop_stale_shapes(model.graph)  # it transposes matrices
            bound_activations(model, material.calibration)
            try:
                with quiet():
                    quantize_dynamic(
                        model,
                        target,
                        op_types_to_quantize=list(QUANTISED),
                        per_channel=True,
                        reduce_range=True,  # as in quantisation.CPU
                        weight_type=QuantType.QInt8,
                        # Of what comes after an operator of ONNX-ML no type is inferred.
                        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
                    )
            except Exception as error:  # the quantiser raises whatever it trips over
                target.unlink(missing_ok=True)
                raise VariantNotBuilt(f"quantising failed: {first_line(error)}") from error
            del model
            _refuse_losses(simplified, target, material)
        return Built()


def _refuse_losses(original: Path, quantised: Path, material: Material) -> None:
    """Refuse what loses too much where no floor keeps queries from it.

    Raises:
        VariantNotBuilt: it does so on the calibration rows, or the model does not run.
    """
    rows = dict(material.calibration)
    if material.floor is not None or material.loss is None or not row_count(rows):
        open_session(quantised)
        return
    labels, judged = material.calibration_labels, material.judged
    judge = Judge(original, rows, labels, judged, UNASKED_ROWS)
    right = judge.share(quantised)
    if judge.original is None:
        return
    wanted = judge.original - material.loss
    if right < wanted:
        quantised.unlink()
        raise VariantNotBuilt(losses(right, wanted))


def _why_no_others(model: Any) -> str:
    """Why weights that are in no matrix product stay as they are, in a clause."""
    kinds = {node.op_type for node in model.graph.node}
    if {"Conv", "ConvTranspose"} & kinds:
        return "quantised dynamically, convolutions are slower"
    if "GRU" in kinds:
        return "ONNX Runtime has no GRU with 8-bit weights"
    return "nothing else is quantised dynamically"


def _of_opset(model: Any) -> Any:
    """The ``ModelProto``, of ``OPSET`` or a newer one.

    Raises:
        VariantNotBuilt: its operators are too old to be carried over.
    """
    from onnx import version_converter

    has = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 1)
    if has >= OPSET:
        return model
    try:
        return version_converter.convert_version(model, OPSET)
    except Exception as error:  # what its native code gives it
        raise VariantNotBuilt(f"its operators cannot be read: {first_line(error)}") from error


def bound_activations(model: Any, rows: Rows) -> None:
    """Cut off what the quantised operators of a ``ModelProto`` read, ``REACH`` times as far as it
    goes on the rows.

    Raises:
        VariantNotBuilt: the model does not run on the rows.
    """
    weights = {weight.name for weight in model.graph.initializer}
    names = {n for node in model.graph.node for n in _read_by(node, weights).values()}
    if not names or not row_count(rows):
        return
    chosen, _ = spread(rows, ROWS)
    first = next(observe(model, sorted(names), chosen))
    floats = [name for name in sorted(names) if first[name].dtype == np.float32]
    ends = extremes(model, floats, chosen)
    bounded: dict[str, str] = {}
    nodes: list[Any] = []
    for node in model.graph.node:
        for place, name in _read_by(node, weights).items():
            low, high = ends.get(name, (0.0, 0.0))
            if low == high:  # always 0, which says nothing
                continue
            if name not in bounded:
                bounded[name] = fresh_name(model, f"{name}_bounded")
                reach = REACH * max(-low, high)
                nodes.append(_bounding(model, name, reach, bounded[name]))
            node.input[place] = bounded[name]
        nodes.append(node)
    nodes = [deepcopy(node) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _read_by(node: Any, weights: Collection[str]) -> dict[int, str]:
    """The tensors that a node reads and that are quantised as they come, by their place."""
    if node.op_type not in QUANTISED or node.input[1] not in weights:
        return {}
    places = (0, _FIRST_STATE) if node.op_type == "LSTM" else (0,)
    found = {place: node.input[place] for place in places if place < len(node.input)}
    return {place: name for place, name in found.items() if name and name not in weights}


def _bounding(model: Any, name: str, reach: float, bounded: str) -> Any:
    """The node that cuts a tensor off as far from 0 on either side, at ends that become weights of
    the model."""
    from onnx import helper, numpy_helper

    names = [f"{bounded}_least", f"{bounded}_most"]
    most = min(reach, float(np.finfo(np.float32).max))
    for end, called in zip((-most, most), names, strict=True):
        value = np.array(end, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, called))
    return helper.make_node("Clip", [name, *names], [bounded], name=bounded)


def unshare_matrices(graph: Any) -> None:
    """Give each ``Gemm`` a matrix of its own: the quantiser transposes it in place, for each anew.

    Layers share one where they were never trained apart, and tied embeddings do.
    """
    weights = {weight.name: weight for weight in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        if node.op_type == "Gemm" and node.input[1] in weights and uses[node.input[1]] > 1:
            own = graph.initializer.add()
            own.CopyFrom(weights[node.input[1]])
            own.name = f"{own.name}_of_{node.output[0]}"
            node.input[1] = own.name


def quantisable_share(model: Any) -> float:
    """Share of a ``ModelProto``'s weights that its matrix products hold, in [0, 1].

    Tables, of which rows are only looked up, are not counted: half of a small language model is
    its words' vectors, which take no time.
    """
    graph = model.graph
    sizes = {weight.name: prod(weight.dims) for weight in graph.initializer}
    readers: dict[str, set[bool]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, set()).add(node.op_type == "Gather" and place == 0)
    for name in [name for name in sizes if readers.get(name) == {True}]:
        del sizes[name]
    held = {
        name
        for node in graph.node
        if node.op_type in QUANTISED
        for name in node.input[1:]
        if name in sizes
    }
    return float(sum(sizes[name] for name in held) / max(1, sum(sizes.values())))
