"""Variants for NVIDIA GPUs that are stored as ONNX, and ONNX Runtime's among them.

What differs from those for CPUs is the file: it says in which precision each tensor is computed,
for TensorRT takes the file's word. Building one needs no GPU; running it does.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from variants.builders.gpu_requirements import (
    missing_onnxruntime_gpu,
    missing_tensorrt_of_onnxruntime,
)
from variants.builders.protocol import Built, Material, Needs
from variants.types import Precision


class GpuOnnx:
    """An ONNX file in one precision, with inputs and outputs as the model has them."""

    suffix = ".onnx"
    gpu = True
    needs: frozenset[Needs] = frozenset()

    def __init__(
        self,
        runtime: str,
        precision: Precision,
        lacks: Callable[[], str | None] = lambda: None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.runtime = runtime
        self.precision = precision
        self.options: Mapping[str, str] = options or {}
        self._lacks = lacks

    def missing(self) -> str | None:
        return self._lacks()

    def build(self, material: Material, target: Path) -> Built:
        return _WRITERS[self.precision](material, target)


def fp32_cuda() -> GpuOnnx:
    return GpuOnnx("onnx", Precision.FP32, missing_onnxruntime_gpu, {"provider": "cuda"})


def fp16_cuda() -> GpuOnnx:
    return GpuOnnx("onnx", Precision.FP16, missing_onnxruntime_gpu, {"provider": "cuda"})


def fp16_tensorrt() -> GpuOnnx:
    lacks = missing_tensorrt_of_onnxruntime
    return GpuOnnx("onnx", Precision.FP16, lacks, {"provider": "tensorrt"})


def int8_tensorrt() -> GpuOnnx:
    lacks = missing_tensorrt_of_onnxruntime
    return GpuOnnx("onnx", Precision.INT8, lacks, {"provider": "tensorrt"})


def _fp32(material: Material, target: Path) -> Built:
    """The same file as for CPUs, byte for byte, so that it is stored once."""
    from variants.builders.onnx_fp32 import OnnxFp32

    return OnnxFp32().build(material, target)


def _fp16(material: Material, target: Path) -> Built:
    from variants.builders.onnx_fp16 import OnnxFp16

    return OnnxFp16().build(material, target)


def _int8(material: Material, target: Path) -> Built:
    """Symmetric, without integer biases: TensorRT has neither zero points nor those."""
    from variants.builders.calibration import Calibration
    from variants.builders.quantisation.onnx_int8 import build_qdq
    from variants.builders.quantisation.qdq import TENSORRT

    return build_qdq(material, target, how=Calibration.MIN_MAX, form=TENSORRT)


_WRITERS: Mapping[Precision, Callable[[Material, Path], Built]] = {
    Precision.FP32: _fp32,
    Precision.FP16: _fp16,
    Precision.INT8: _int8,
}
