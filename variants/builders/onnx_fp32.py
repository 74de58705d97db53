"""The model as it is, simplified once so that every load is quick."""

from collections.abc import Mapping
from pathlib import Path

from variants.builders import Built, Material, Needs
from variants.errors import VariantNotBuilt
from variants.types import Precision


class OnnxFp32:
    """Folds constants and merges what is the same everywhere.

    Only ONNX Runtime's basic level is written down: it stays within standard ONNX and gives the
    same file on every machine. The higher levels choose layouts and fused kernels for the
    processor at hand, so each worker applies those itself when it loads.
    """

    runtime = "onnx"
    precision = Precision.FP32
    options: Mapping[str, str] = {}
    suffix = ".onnx"
    gpu = False
    needs: frozenset[Needs] = frozenset()

    def missing(self) -> str | None:
        return None

    def build(self, material: Material, target: Path) -> Built:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            ort.InferenceSession(str(material.source), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the binding raises a different type for each cause
            raise VariantNotBuilt(f"ONNX Runtime refuses the model: {first_line(error)}") from error
        if not target.is_file() or not target.stat().st_size:
            raise VariantNotBuilt("ONNX Runtime wrote no simplified model")
        return Built()


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without the code that ONNX Runtime puts in front."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rpartition(" : ")[2][:300]
