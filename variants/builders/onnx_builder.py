"""What builders have in common whose variants are ONNX files for ONNX Runtime on CPUs."""

from collections.abc import Mapping

from variants.builders.protocol import Needs
from variants.types import Precision


class OnnxBuilder:
    """All that ``Builder`` names but ``build``; one that is otherwise says so itself."""

    runtime = "onnx"
    precision = Precision.FP32
    options: Mapping[str, str] = {}
    suffix = ".onnx"
    gpu = False
    needs: frozenset[Needs] = frozenset()

    def missing(self) -> str | None:
        return None
