"""A model in 8 bits, as the builders of static quantisation make it."""

from collections.abc import Collection
from pathlib import Path

import onnx

from variants.builders.calibration import Calibration
from variants.builders.protocol import Rows
from variants.builders.quantisation.qdq import CPU, Form, Quantiser


def to_qdq(
    source: Path,
    target: Path,
    *,
    rows: Rows,
    how: Calibration = Calibration.MIN_MAX,
    form: Form = CPU,
    keep: Collection[str] = (),
) -> None:
    """Write ``source``, an fp32 ONNX file, with 8-bit weights and activations to ``target``.

    ``rows`` are typical inputs, ``keep`` names nodes to leave in fp32.
    """
    quantiser = Quantiser(source, rows=rows, how=how, form=form)
    onnx.save(quantiser.model(keep), str(target))
