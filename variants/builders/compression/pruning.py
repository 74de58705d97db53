"""The model with whole channels taken out, tuned on the rows that it was trained on."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants.builders.activations import row_count
from variants.builders.compression import graph as graphs
from variants.builders.compression.scores import Targets, training_targets, trial
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.protocol import Built, Material, Needs, Rows
from variants.errors import VariantNotBuilt

if TYPE_CHECKING:
    from variants.builders.compression.training import FineTune

RANKING_SHARE = 0.1
"""Share of the time that finding out which channels matter may take."""


class OnnxPruned(OnnxBuilder):
    """Removes the channels that matter least, tunes what is left, and goes on while it can.

    ``goals`` are the shares of multiply-adds to take out, one after the other. A further one is
    only kept if right answers to at most the share ``loss`` of the calibration rows are lost by it
    and all before. ``fine_tune`` is called at each goal; by default it is AdamW, for ``limit_s``
    seconds at most in all.
    """

    needs = frozenset({Needs.TRAINING})

    def __init__(
        self,
        *,
        goals: Sequence[float] = (0.5, 0.75),
        loss: float = 0.005,
        least: float = 0.1,
        limit_s: float = 120.0,
        fine_tune: "FineTune | None" = None,
    ) -> None:
        self.goals = goals
        self.loss = loss
        self.least = least
        """Share of each layer's channels that is kept in any case."""
        self.limit_s = limit_s
        self.fine_tune = fine_tune

    def build(self, material: Material, target: Path) -> Built:
        if not row_count(material.training):
            raise VariantNotBuilt(f"needs {Needs.TRAINING.value}")
        from variants.builders.compression.channel_dependencies import trace
        from variants.builders.compression.surgery import separable

        model = separable(graphs.read(material.source))
        before = sum(graphs.multiply_adds(model).values())
        if not trace(model).groups:
            raise VariantNotBuilt("nothing can be pruned: no layer's channels may leave")
        pruned = self._pruned(model, material)
        after = sum(graphs.multiply_adds(pruned).values())
        graphs.save(pruned, target)
        return Built(note=f"{100 * (1 - after / before):.0f} % of the multiply-adds removed")

    def _pruned(self, whole: Any, material: Material) -> Any:
        # What the whole model says of each row teaches the smaller one more than the label does.
        rows, targets = training_targets(
            whole, material.training, material.training_labels, limit_s=self.limit_s,
            judged=material.judged,
        )  # fmt: skip
        held = trial(whole, material.calibration, material.calibration_labels, material.judged)
        enough = held.right(whole) - self.loss if held else 0.0
        total = sum(graphs.multiply_adds(whole).values())
        best = whole
        for goal in self.goals:
            smaller = self._narrower(best, rows, targets, work=(1 - goal) * total)
            if smaller is None:
                continue
            if best is not whole and (held is None or held.right(smaller) < enough):
                break
            best = smaller
        if best is whole:
            raise VariantNotBuilt("nothing can be pruned: every layer is as narrow as may be")
        return best

    def _narrower(self, model: Any, rows: Rows, targets: Targets, *, work: float) -> Any | None:
        """Without the least important channels, and tuned; None if none can go."""
        from variants.builders.compression.channel_dependencies import trace
        from variants.builders.compression.importance import importance, lightest
        from variants.builders.compression.surgery import without
        from variants.builders.compression.trainable import TrainableGraph
        from variants.builders.compression.training import Tuning

        share_s = self.limit_s / len(self.goals)
        channels = trace(model)
        scores = importance(
            TrainableGraph(model), channels, rows, targets, limit_s=RANKING_SHARE * share_s
        )
        kept = lightest(channels, scores, work=work, least=self.least)
        if kept.all():
            return None
        graph = TrainableGraph(without(model, channels, kept))
        tune = self.fine_tune or Tuning(
            epochs=20, learning_rate=2e-3, limit_s=(1 - RANKING_SHARE) * share_s
        )
        tune(graph, rows, targets)
        return graph.trained()
