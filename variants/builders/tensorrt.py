"""Variants for TensorRT 11: ONNX files from which the runtime builds an engine where it runs.

An engine fits one kind of GPU and one version of TensorRT, and is code that its reader trusts. So
no engine is an artifact: each machine builds its own (``workers.engines``).
"""

from variants.builders.gpu import missing_tensorrt
from variants.builders.onnx_gpu import GpuOnnx
from variants.types import Precision


def fp32() -> GpuOnnx:
    return GpuOnnx("tensorrt", Precision.FP32, missing_tensorrt)


def fp16() -> GpuOnnx:
    return GpuOnnx("tensorrt", Precision.FP16, missing_tensorrt)


def int8() -> GpuOnnx:
    return GpuOnnx("tensorrt", Precision.INT8, missing_tensorrt)
