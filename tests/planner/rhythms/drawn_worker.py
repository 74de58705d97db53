"""A worker that is busy now and then, and whose batches take longer after a pause."""

import random

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.live_costs import LiveCosts
from planner.latency_table import LatencyTable
from planner.live_model import LiveModel
from planner.reconcile.corrections.correction import Seen
from planner.reconcile.live_profiles import busy_ratios_to, ratios_to
from planner.types import ProfileKey

PROFILED_MS = 10.0
PROFILE = LatencyTable([(1, PROFILED_MS), (8, 8 * PROFILED_MS)])
PAUSE_MS = 1.0


class Worker:
    """One that answers single rows, which come as a Poisson process.

    A batch takes ``slow`` times its profile where it follows on another, and ``pause`` times as
    long as that after a pause, log-normal either way.
    """

    def __init__(self, seed: int, load: float, slow: float, pause: float) -> None:
        self.model = LiveModel(PROFILE, PROFILE)
        queue = DeadlineQueue()
        self._costs, self._queue = LiveCosts(queue), queue.add_variant("digits", PROFILE)
        self._draw = random.Random(seed)
        self._per_ms = load / (PROFILED_MS * slow)
        self.slow, self.pause = slow, pause
        self._arrives_ms = self._free_ms = 0.0

    @property
    def now_s(self) -> float:
        """When the last batch ended."""
        return self._free_ms / 1_000

    def batch(self) -> None:
        """Run one more."""
        self._arrives_ms += self._draw.expovariate(self._per_ms)
        began_ms = max(self._arrives_ms, self._free_ms)
        took_ms, spread = PROFILED_MS * self.slow, 0.1
        if began_ms - self._free_ms >= PAUSE_MS:
            took_ms, spread = took_ms * self.pause, 0.25
        took_ms *= self._draw.lognormvariate(0.0, spread)
        self._costs.ran(self._queue, self.model, 1, began_ms, took_ms, queries=1)
        self._free_ms = began_ms + took_ms

    def runs(self, batches: int) -> "Worker":
        for _ in range(batches):
            self.batch()
        return self

    @property
    def busy(self) -> float:
        """How many times its profile it is believed to take where one follows on another."""
        return self.model.busy()[0].mean_ms / PROFILED_MS

    def says(self, key: ProfileKey) -> Seen:
        """What it reports."""
        model = self.model
        means = [(rows, mean_ms) for rows, mean_ms, _ in model.points()]
        return Seen(
            key,
            "",
            model.batches,
            ratios_to(means, model.sure, PROFILE, PROFILE),
            model.neighbours(),
            busy_ratios_to(model.busy(), model.busy_sure, PROFILE),
        )
