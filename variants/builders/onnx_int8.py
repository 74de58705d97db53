"""The model with 8-bit weights and activations: ONNX Runtime's static quantisation."""

import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from variants.builders import Built, Material, Needs, Rows
from variants.builders.onnx_fp32 import first_line
from variants.errors import VariantNotBuilt
from variants.types import Precision

CALIBRATION_BATCH = 16
CALIBRATION_ROWS = 128
"""At most so many are run, evenly spread over what is given: ranges hardly grow after that."""
QUANTISED = (
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
)
"""Where the arithmetic is, and the pooling between, which passes 8 bits on. The rest, the final
softmax above all, costs little and loses much: scores keep their full resolution."""


class OnnxInt8:
    """Static quantisation in QDQ form, weights per channel, ranges from the calibration rows.

    Weights use 7 of their 8 bits: a processor without VNNI adds two 8-bit products in 16 bits and
    saturates, so that a full-range variant would be less accurate there than where it was measured.
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
        from onnxruntime.quantization import (
            CalibrationMethod,
            QuantFormat,
            QuantType,
            quantize_static,
        )
        from onnxruntime.quantization.shape_inference import quant_pre_process

        calibration = material.calibration
        if not calibration or not min(len(rows) for rows in calibration.values()):
            raise VariantNotBuilt("quantising needs calibration rows, and there are none")
        logging.getLogger().setLevel(logging.ERROR)  # the quantiser logs advice to the root
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            prepared = Path(folder) / "prepared.onnx"
            try:
                quant_pre_process(str(material.source), str(prepared), skip_symbolic_shape=True)
                quantize_static(
                    str(prepared),
                    str(target),
                    _Batches(calibration),
                    quant_format=QuantFormat.QDQ,
                    op_types_to_quantize=list(QUANTISED),
                    per_channel=True,
                    reduce_range=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                    calibrate_method=CalibrationMethod.MinMax,
                )
                kinds = {node.op_type for node in onnx.load(str(target)).graph.node}
            except Exception as error:  # the quantiser raises whatever it trips over
                target.unlink(missing_ok=True)
                raise VariantNotBuilt(f"quantising failed: {first_line(error)}") from error
        if "QuantizeLinear" not in kinds:
            target.unlink(missing_ok=True)
            raise VariantNotBuilt("the model has nothing that can be quantised")
        return Built()


class _Batches:
    """Calibration rows, a few at a time: the interface that the quantiser reads."""

    def __init__(self, rows: Rows) -> None:
        self._batches = self._cut(rows)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._batches, None)

    def __len__(self) -> int:
        raise TypeError("read with get_next")

    @staticmethod
    def _cut(rows: Rows) -> Iterator[dict[str, Any]]:
        count = min(len(array) for array in rows.values())
        step = -(-count // CALIBRATION_ROWS)
        spread = {name: array[:count:step] for name, array in rows.items()}
        for start in range(0, -(-count // step), CALIBRATION_BATCH):
            yield {name: array[start : start + CALIBRATION_BATCH] for name, array in spread.items()}
