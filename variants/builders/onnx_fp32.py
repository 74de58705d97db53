"""The model as it is, simplified once so that every load is quick."""

import shutil
from pathlib import Path

from variants.builders.activations import first_line
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.protocol import Built, Material
from variants.errors import VariantNotBuilt

__all__ = ["OnnxFp32", "first_line", "simplify"]

GROWTH = 1.5
"""Folded constants may make the file so many times as large; a table that a formula stood for is
read from disk at every load, where the formula takes no time."""


class OnnxFp32(OnnxBuilder):
    """Folds constants and merges what is the same everywhere.

    Only ONNX Runtime's basic level is written down: it stays within standard ONNX, which all other
    builders start from, and gives the same file on every machine. The higher levels choose layouts
    and fused kernels for the processor at hand, so each worker applies those itself when it loads
    (docs/decisions/0009-quantisation.md has what that costs).
    """

    def build(self, material: Material, target: Path) -> Built:
        simplify(material.source, target)
        allowed = GROWTH * material.source.stat().st_size + 2**20
        if (size := target.stat().st_size) > allowed:
            shutil.copyfile(material.source, target)
            return Built(note=f"as handed in: folding its constants takes {size / 2**20:,.0f} MiB")
        return Built()


def simplify(source: Path, target: Path) -> None:
    """Write the model with constants folded, no node without effect, and normalisation merged into
    the convolutions before it.

    Raises:
        VariantNotBuilt: ONNX Runtime refuses it.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the binding raises a different type for each cause
        raise VariantNotBuilt(f"ONNX Runtime refuses the model: {first_line(error)}") from error
    if not target.is_file() or not target.stat().st_size:
        raise VariantNotBuilt("ONNX Runtime wrote no simplified model")
