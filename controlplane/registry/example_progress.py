"""ExampleProgress: how far the making of the example is, training and registering on one scale.

What is left is reckoned from what is done, so each model counts for as long as it takes.
"""

from collections.abc import Callable, Mapping, Sequence

from controlplane.building.types import Progress

IMPORTING_S = 9.0
"""What it took until the first one was trained: torch and its exporter are imported."""
TRAINING_S: Mapping[str, float] = {
    "linear-pooled": 4, "linear": 2, "mlp-small": 1, "mlp": 2, "cnn-small": 14, "cnn": 10,
    "cnn-large": 12,
}  # fmt: skip
"""What training and exporting each model took on two cores."""
REGISTERING_S: Mapping[str, float] = {
    "linear-pooled": 2.5, "linear": 2, "mlp-small": 3, "mlp": 6, "cnn-small": 5, "cnn": 5,
    "cnn-large": 30,
}  # fmt: skip
"""What checking, building and measuring its variants took there."""
PARTS_PER_S = 100
"""A scale of whole numbers."""


class ExampleProgress:
    """Passes progress on; what is done never goes back."""

    def __init__(
        self,
        progress: Callable[[Progress], None],
        missing: Sequence[str],
        untrained: Sequence[str] = (),
    ) -> None:
        """
        Args:
            missing: the models that are registered, in this order.
            untrained: those that are trained before, in this order.
        """
        self._progress = progress
        self._missing = missing
        self._untrained = untrained
        self._training_s = IMPORTING_S if untrained else 0.0
        self._training_s += sum(TRAINING_S[model] for model in untrained)
        self._total_s = self._training_s + sum(REGISTERING_S[model] for model in missing)
        self._furthest = 0

    def trained(self, one: Progress) -> None:
        """What the training says: two steps of each model, in their order."""
        done_s = self._training_s if one.step == "done" else 0.0
        if one.step in ("train", "export") and one.done:
            before = self._untrained[: one.done // 2]
            done_s = IMPORTING_S + sum(TRAINING_S[model] for model in before)
        self._tell(one, done_s)

    def registered(self, index: int, one: Progress) -> None:
        """What the registration of a missing model says."""
        before_s = sum(REGISTERING_S[model] for model in self._missing[:index])
        share = one.done / one.total if one.total else 0.0
        here_s = REGISTERING_S[self._missing[index]] * share
        self._tell(one, self._training_s + before_s + here_s)

    def _tell(self, one: Progress, done_s: float) -> None:
        self._furthest = max(self._furthest, round(PARTS_PER_S * done_s))
        total = round(PARTS_PER_S * self._total_s)
        self._progress(
            Progress(step=one.step, done=self._furthest, total=total, message=one.message)
        )
