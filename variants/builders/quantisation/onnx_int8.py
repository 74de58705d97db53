"""The model with 8-bit weights and activations, for ONNX Runtime: static quantisation."""

from pathlib import Path

from variants.builders.calibration import Calibration
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.protocol import Built, Material
from variants.builders.quantisation.qdq import CPU, Form, Quantiser
from variants.builders.quantisation.sensitivity import describe, losses, quantise
from variants.errors import VariantNotBuilt
from variants.types import Precision


class OnnxInt8(OnnxBuilder):
    """Static quantisation in QDQ form, weights per channel, ranges from the calibration rows.

    Nodes whose quantisation costs the task its accuracy floor stay in fp32, and the note names
    them. Without a floor they do so where more is lost than may be, and a variant that loses more
    all the same is not built; with other ranges than those by min-max that is not tried. ``how``
    says how ranges are found.
    """

    precision = Precision.INT8

    def __init__(self, how: Calibration = Calibration.MIN_MAX) -> None:
        self._how = how

    def build(self, material: Material, target: Path) -> Built:
        return build_qdq(material, target, how=self._how, form=CPU)


def entropy() -> OnnxInt8:
    """Ranges that lose least information."""
    return OnnxInt8(Calibration.ENTROPY)


def percentile() -> OnnxInt8:
    """Ranges without the outermost values."""
    return OnnxInt8(Calibration.PERCENTILE)


def build_qdq(material: Material, target: Path, *, how: Calibration, form: Form) -> Built:
    """What a builder of static 8-bit variants does, for any back end that takes QDQ models.

    Raises:
        VariantNotBuilt: there are no calibration rows, nothing can be quantised, or, without a
            floor, too much is lost.
    """
    import onnx

    rows = dict(material.calibration)
    quantiser = Quantiser(material.source, rows=rows, how=how, form=form)
    lone = material.floor is None and how is not Calibration.MIN_MAX
    mixed = quantise(
        quantiser,
        rows,
        material.calibration_labels,
        material.floor,
        material.judged,
        loss=material.loss,
        search=not lone,
    )
    if material.floor is None and mixed.misses:
        raise VariantNotBuilt(
            losses(mixed.right, mixed.wanted, "" if lone else " at best")
            + ": --accuracy sets one, for which nodes stay in fp32"
        )
    onnx.save(mixed.model, str(target))
    return Built(note=describe(mixed, quantiser.skipped, material.judged.metric))
