"""Variants for TensorRT 11: ONNX files from which the runtime builds an engine where it runs.

An engine fits one kind of GPU and one version of TensorRT, and is code that its reader trusts. So
no engine is an artifact: each machine builds its own (``workers.runtimes.engine_store``).
"""

from variants.builders.onnx_gpu import GpuOnnx
from variants.types import Precision


def fp32() -> GpuOnnx:
    return GpuOnnx("tensorrt", Precision.FP32)


def fp16() -> GpuOnnx:
    return GpuOnnx("tensorrt", Precision.FP16)


def int8() -> GpuOnnx:
    return GpuOnnx("tensorrt", Precision.INT8)
