"""The model with whole channels taken out, tuned on the rows that it was trained on."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants.builders import Built, Material, Needs
from variants.builders.activations import row_count
from variants.builders.compression import graph as graphs
from variants.builders.compression.scores import lessons
from variants.errors import VariantNotBuilt
from variants.types import Precision

if TYPE_CHECKING:
    from variants.builders.compression.training import FineTune

NO_TORCH = "torch is not installed; pip install 'modelless[torch]'"


class OnnxPruned:
    """Removes the channels that matter least, a part at a time, and tunes what is left each time.

    ``remove`` is the share of multiply-adds to take out, ``rounds`` the number of parts, and
    ``fine_tune`` what is done after each; by default AdamW for ``limit_s`` seconds at most in all.
    """

    runtime = "onnx"
    precision = Precision.FP32
    options: Mapping[str, str] = {}
    suffix = ".onnx"
    gpu = False
    needs: frozenset[Needs] = frozenset({Needs.TRAINING})

    def __init__(
        self,
        *,
        remove: float = 0.5,
        rounds: int = 4,
        least: float = 0.2,
        limit_s: float = 120.0,
        fine_tune: "FineTune | None" = None,
    ) -> None:
        self.remove = remove
        self.rounds = rounds
        self.least = least
        """Share of each layer's channels that is kept in any case."""
        self.limit_s = limit_s
        self.fine_tune = fine_tune

    def missing(self) -> str | None:
        return None if find_spec("torch") else NO_TORCH

    def build(self, material: Material, target: Path) -> Built:
        if not row_count(material.training):
            raise VariantNotBuilt(f"needs {Needs.TRAINING.value}")
        from variants.builders.compression.surgery import separable

        model = separable(graphs.read(material.source))
        before = sum(graphs.multiply_adds(model).values())
        model = self._pruned(model, material)
        after = sum(graphs.multiply_adds(model).values())
        graphs.save(model, target)
        return Built(note=f"{1 - after / before:.0%} of the multiply-adds removed")

    def _pruned(self, model: Any, material: Material) -> Any:
        from variants.builders.compression.channels import trace
        from variants.builders.compression.importance import importance, lightest
        from variants.builders.compression.surgery import without
        from variants.builders.compression.trainable import TrainableGraph
        from variants.builders.compression.training import Tuning

        # What the whole model says of each row teaches the smaller one more than the label does.
        rows, targets = lessons(
            model, material.training, material.training_labels, limit_s=self.limit_s
        )
        share_s = self.limit_s / self.rounds
        tune = self.fine_tune or Tuning(epochs=5, learning_rate=2e-3, limit_s=0.9 * share_s)
        whole = trace(model)
        if not whole.groups:
            raise VariantNotBuilt("nothing can be pruned: no layer's channels may leave")
        total = sum(layer.work for layer in whole.layers)
        graph, changed = TrainableGraph(model), False
        for part in range(1, self.rounds + 1):
            channels = trace(model)
            scores = importance(graph, channels, rows, targets, limit_s=0.1 * share_s)
            goal = total * (1 - self.remove) ** (part / self.rounds)
            kept = lightest(channels, scores, work=goal, least=self.least)
            if kept.all():
                continue
            graph, changed = TrainableGraph(without(model, channels, kept)), True
            tune(graph, rows, targets)
            model = graph.trained()
        if not changed:
            raise VariantNotBuilt("nothing can be pruned: every layer is as narrow as may be")
        return model
