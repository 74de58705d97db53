"""The model in half precision: half the file, and what GPUs compute fastest.

On the CPU, ONNX Runtime has few 16-bit kernels and turns back to fp32 around all other nodes, so
that a variant is smaller on disk and rarely faster. Its profile says so.
"""

from pathlib import Path

import numpy as np

from variants.builders.activations import first_outputs, row_count, spread
from variants.builders.calibration import extremes
from variants.builders.float16 import halved, out_of_range
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.prepared import float_tensors, prepared
from variants.builders.protocol import Built, Material, Rows
from variants.errors import VariantNotBuilt
from variants.figures import counted
from variants.types import Precision

ROWS = 64
MARGIN = 2.0
"""How much larger values may be on rows not seen."""
NAMED = 8


class OnnxFp16(OnnxBuilder):
    """Weights and activations in fp16, inputs and outputs in fp32.

    Nodes around values that fp16 cannot hold on the calibration rows stay in fp32, and the note
    names them.
    """

    precision = Precision.FP16

    def build(self, material: Material, target: Path) -> Built:
        kept = to_fp16(material.source, target, rows=material.calibration)
        if not kept:
            return Built()
        named = ", ".join(kept[:NAMED]) + (", ..." if len(kept) > NAMED else "")
        return Built(
            note=f"{counted(len(kept), 'node')} in fp32, out of the range of fp16: {named}"
        )


def to_fp16(source: Path, target: Path, *, rows: Rows | None = None) -> tuple[str, ...]:
    """Write ``source``, an fp32 ONNX file, in half precision to ``target``; standard ONNX in order.

    Returns the names of the nodes that stay in fp32 because fp16 cannot hold what they read or
    write: known of weights, and with ``rows``, typical inputs, of activations too.

    Raises:
        VariantNotBuilt: nothing in the model can be fp16, or it is not finite then.
    """
    import onnx

    model = prepared(source)
    seen: dict[str, tuple[float, float]] = {}
    some, _ = spread(rows or {}, ROWS)
    if row_count(some):
        seen = extremes(model, sorted(float_tensors(model)), some)
    kept = out_of_range(model, seen, MARGIN)
    half, count = halved(model, kept)
    if not count:
        raise VariantNotBuilt("the model has nothing that can be fp16")
    if row_count(some) and not np.isfinite(first_outputs(half, some)).all():
        raise VariantNotBuilt("its answers are not finite in fp16")
    onnx.save(half, str(target))
    return kept
