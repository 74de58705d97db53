"""The model taught by a larger one of its task."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants.builders.activations import row_count
from variants.builders.compression import graph as graphs
from variants.builders.compression.scores import (
    check_trainable,
    output_name,
    scores_output,
    training_targets,
    trial,
)
from variants.builders.compression.surgery import separable
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.protocol import Built, Material, Needs
from variants.errors import VariantNotBuilt
from variants.metrics.metric import Judged

if TYPE_CHECKING:
    from variants.builders.compression.training import FineTune


class OnnxDistilled(OnnxBuilder):
    """Goes on training the model's weights, on its own rows, towards a teacher's answers: the
    scores of a classifier, else the output that the task's metric judges.

    The graph stays what it is, and so does its cost; what may change is how often it is right.
    """

    needs = frozenset({Needs.TRAINING, Needs.TEACHER})

    def __init__(self, *, limit_s: float = 120.0, fine_tune: "FineTune | None" = None) -> None:
        self.limit_s = limit_s
        self.fine_tune = fine_tune

    def build(self, material: Material, target: Path) -> Built:
        if material.teacher is None:
            raise VariantNotBuilt(f"needs {Needs.TEACHER.value}")
        if not row_count(material.training):
            raise VariantNotBuilt(f"needs {Needs.TRAINING.value}")
        from variants.builders.compression.trainable import TrainableGraph
        from variants.builders.compression.training import Tuning

        model, teacher = separable(graphs.read(material.source)), graphs.read(material.teacher)
        _check(model, teacher, material.judged)
        graph = TrainableGraph(model)
        rows, targets = training_targets(
            teacher, material.training, material.training_labels, limit_s=self.limit_s,
            judged=material.judged,
        )  # fmt: skip
        tune = self.fine_tune or Tuning(epochs=30, limit_s=self.limit_s)
        tune(graph, rows, targets)
        taught = graph.trained()
        _compare(model, taught, material)
        graphs.save(taught, target)
        return Built(note="taught by a larger model")


def _compare(model: Any, taught: Any, material: Material) -> None:
    """Refuse what costs the same as the model and answers worse."""
    judged = material.judged
    held = trial(model, material.calibration, material.calibration_labels, judged)
    if held is None or material.calibration_labels is None:
        return
    before, after = held.right(model), held.right(taught)
    if after < before and not (judged.metric.classifies and judged.metric.counts_rows):
        raise VariantNotBuilt(
            f"taught, its {judged.metric} on the calibration rows is {100 * after:.1f} %, and "
            f"{100 * before:.1f} % "
            "as it was"
        )
    if after < before:
        raise VariantNotBuilt(
            f"taught, it answers {100 * after:.1f} % of the calibration rows rightly, "
            f"and {100 * before:.1f} % as it was"
        )


def _check(model: Any, teacher: Any, judged: Judged) -> None:
    """Refuse a teacher of another task, and answers that are not trained for."""
    check_trainable(judged)
    own, other = ([_signature(value) for value in one.graph.input] for one in (model, teacher))
    if sorted(own) != sorted(other):
        raise VariantNotBuilt("the teacher takes other inputs than the model")
    if not judged.metric.classifies:
        mine, its = (
            graphs.shapes(one).one[output_name(one, judged)][1:] for one in (model, teacher)
        )
        if mine != its:
            raise VariantNotBuilt(f"the teacher gives {its} for a row, and the model {mine}")
        return
    classes, taught = scores_output(model)[1], scores_output(teacher)[1]
    if classes != taught:
        raise VariantNotBuilt(f"the teacher has {taught} classes, and the model {classes}")


def _signature(value: Any) -> tuple[str, int, list[int]]:
    tensor = value.type.tensor_type
    return value.name, tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim[1:]]
