"""The model with 8-bit weights, its activations quantised as they come: no calibration needed."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from variants.builders.activations import first_line, open_session
from variants.builders.onnx_fp32 import simplify
from variants.builders.prepared import drop_stale_shapes
from variants.builders.protocol import Built, Material, Needs
from variants.builders.quantisation.qdq import quiet
from variants.errors import VariantNotBuilt
from variants.types import Precision

QUANTISED = ("Gemm", "MatMul", "LSTM")
LEAST_SHARE = 0.5
"""Least share of the weights that has to be quantised. Convolutions are left out: dynamically
quantised, they are slower than in fp32 (docs/decisions/0009-quantisation.md), and a model that
mostly is convolutions gains nothing."""


class OnnxInt8Dynamic:
    """Matrix products with 8-bit weights, per channel; each batch sets the scales of its own
    activations.

    So an answer depends a little on what else is in the batch, unlike with all other kinds.
    """

    runtime = "onnx"
    precision = Precision.INT8
    options: Mapping[str, str] = {}
    suffix = ".onnx"
    gpu = False
    needs: frozenset[Needs] = frozenset()

    def missing(self) -> str | None:
        return None

    def build(self, material: Material, target: Path) -> Built:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        with tempfile.TemporaryDirectory() as folder:
            simplified = Path(folder) / "simplified.onnx"
            simplify(material.source, simplified)
            model = onnx.load(str(simplified))
            share = quantisable_share(model)
            if share == 0.0:
                raise VariantNotBuilt("the model has no matrix product with weights of its own")
            if share < LEAST_SHARE:
                raise VariantNotBuilt(
                    f"only {100 * share:.0f} % of its weights are in matrix products; quantised "
                    "dynamically, convolutions are slower"
                )
            unshare_matrices(model.graph)
            drop_stale_shapes(model.graph)  # it transposes matrices
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
        open_session(target)
        return Built()


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
