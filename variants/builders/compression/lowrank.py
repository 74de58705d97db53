"""The model with its linear layers split in two thinner ones each, where that saves time."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from variants.builders.activations import row_count
from variants.builders.compression import graph as graphs
from variants.builders.compression.factors import Layer, layers, split
from variants.builders.compression.scores import Trial, training_targets, trial
from variants.builders.compression.surgery import separable
from variants.builders.onnx_builder import OnnxBuilder
from variants.builders.protocol import Built, Material
from variants.errors import VariantNotBuilt

if TYPE_CHECKING:
    from variants.builders.compression.training import FineTune

ENERGIES = (0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Shares of the layers' outputs that are kept, tried from the smallest."""
BLIND_ENERGY = 0.99
"""Kept where there are no rows to try on."""
LEAST_SHARE = 0.4
"""Least share of its multiply-adds that splitting has to save of a layer; else it is not split."""
LEAST_WORK = 16_000
"""Multiply-adds of a row: a further kernel costs about as much time as these."""
LEAST_SAVED = 0.2
"""Least share of its multiply-adds that has to be saved of a model; else it is not built."""


class OnnxLowRank(OnnxBuilder):
    """Keeps as few directions of each layer's outputs as leave the answers alone.

    ``loss`` is the accuracy that may be lost, for a classifier the share of rows: by labels or
    targets where they are known, else by the model's own answers. If the rows that the model was
    trained on are given, ``loss_before_tuning`` may be lost at first, and what is left is tuned,
    for ``limit_s`` seconds at most; not where each position of a row is judged by itself.
    """

    def __init__(
        self,
        *,
        loss: float = 0.01,
        loss_before_tuning: float = 0.04,
        limit_s: float = 120.0,
        fine_tune: "FineTune | None" = None,
    ) -> None:
        self.loss = loss
        self.loss_before_tuning = loss_before_tuning
        self.limit_s = limit_s
        self.fine_tune = fine_tune

    def build(self, material: Material, target: Path) -> Built:
        model = graphs.read(material.source)
        total = sum(graphs.multiply_adds(model).values())
        judged = material.judged
        held = trial(model, material.calibration, material.calibration_labels, judged)
        held = held or trial(model, material.training, material.training_labels, judged)
        found = layers(model, held.rows if held else {})
        if not found:
            raise VariantNotBuilt("the model has no linear layer that could be split")
        trains = bool(row_count(material.training)) and judged.along is None
        tuned = trains and find_spec("torch") is not None
        loss = self.loss_before_tuning if tuned else self.loss
        ranks = least_ranks(model, found, held, loss=loss)
        saved = sum(layer.saved(ranks[layer.output]) for layer in found if layer.output in ranks)
        if saved < LEAST_SAVED * total:
            raise VariantNotBuilt(
                f"low rank would save {100 * saved / max(1, total):.0f} % of the multiply-adds, "
                f"and less than {100 * LEAST_SAVED:.0f} % is not worth a variant"
            )
        small = split(model, ranks, found)
        if tuned:
            small = self._tuned(small, model, material)
        graphs.save(small, target)
        return Built(note=_note(ranks, saved / total))

    def _tuned(self, small: Any, model: Any, material: Material) -> Any:
        from variants.builders.compression.trainable import TrainableGraph
        from variants.builders.compression.training import Tuning

        graph = TrainableGraph(separable(small))
        rows, targets = training_targets(
            model, material.training, material.training_labels, limit_s=self.limit_s,
            judged=material.judged,
        )  # fmt: skip
        tune = self.fine_tune or Tuning(epochs=5, limit_s=self.limit_s)
        tune(graph, rows, targets)
        return graph.trained()


def worthwhile(found: Sequence[Layer], energy: float) -> dict[str, int]:
    """Output of each layer that a split makes quicker, to the rank that keeps ``energy``."""
    ranks = {}
    for layer in found:
        rank = layer.rank(energy)
        if layer.saved(rank) >= max(LEAST_SHARE * layer.work, LEAST_WORK):
            ranks[layer.output] = rank
    return ranks


def least_ranks(
    model: Any, found: Sequence[Layer], held: Trial | None, *, loss: float
) -> dict[str, int]:
    """Layer to rank, at the least energy that loses at most ``loss`` of the accuracy."""
    if held is None:
        return worthwhile(found, BLIND_ENERGY)
    enough = held.right(model) - loss

    def suffices(energy: float) -> bool:
        ranks = worthwhile(found, energy)
        return not ranks or held.right(split(model, ranks, found)) >= enough

    # More energy never answers worse, but for chance: halving finds the least in three tries.
    place = bisect_left(ENERGIES, True, key=suffices)
    return worthwhile(found, ENERGIES[place]) if place < len(ENERGIES) else {}


def _note(ranks: Mapping[str, int], saved: float) -> str:
    low, high = min(ranks.values()), max(ranks.values())
    many = f"{len(ranks)} layers" if len(ranks) > 1 else "1 layer"
    span = f"{low}" if low == high else f"{low}-{high}"
    return f"{many} to rank {span}, {100 * saved:.0f} % of the multiply-adds removed"
