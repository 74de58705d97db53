"""Variants for OpenVINO: the same ONNX files as ONNX Runtime's, in the precision it is told."""

from collections.abc import Mapping
from pathlib import Path

from variants.builders.calibration import Calibration
from variants.builders.onnx_fp32 import OnnxFp32
from variants.builders.processor import missing_arithmetic
from variants.builders.protocol import Built, Material, Needs
from variants.builders.quantisation.onnx_int8 import build_qdq
from variants.builders.quantisation.qdq import CPU
from variants.types import Precision


class OpenVino:
    """The simplified model in fp32, bf16 or fp16, or the quantised one.

    In 16 bits the file stays in fp32 and OpenVINO casts as it compiles: so three variants share one
    artifact with ``onnx-fp32``, and int8 is that of ``onnx-int8``, byte for byte.
    """

    runtime = "openvino"
    suffix = ".onnx"
    gpu = False
    needs: frozenset[Needs] = frozenset()

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        sixteen_bits = precision in (Precision.BF16, Precision.FP16)
        self.options: Mapping[str, str] = {"precision": precision.value} if sixteen_bits else {}

    def missing(self) -> str | None:
        return missing_arithmetic(self.precision)

    def build(self, material: Material, target: Path) -> Built:
        if self.precision is Precision.INT8:
            return build_qdq(material, target, how=Calibration.MIN_MAX, form=CPU)
        return OnnxFp32().build(material, target)


def fp32() -> OpenVino:
    return OpenVino(Precision.FP32)


def bf16() -> OpenVino:
    return OpenVino(Precision.BF16)


def fp16() -> OpenVino:
    return OpenVino(Precision.FP16)


def int8() -> OpenVino:
    return OpenVino(Precision.INT8)
