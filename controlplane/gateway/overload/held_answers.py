"""Answers that are held for a while, without a timer for each of them."""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

STEP_MS = 2.0
"""Answers whose times lie closer together are given in one go, none of them later than its own."""


class HeldAnswers:
    """Calls to be made at certain times, by steps of the clock."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._steps: dict[int, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        """How many are held."""
        return sum(map(len, self._steps.values()))

    def hold(self, until_ms: float, answer: Callable[[], None]) -> None:
        """Call ``answer`` at that time or up to a step before it, but never at once."""
        step = int(until_ms / STEP_MS)
        held = self._steps.get(step)
        if held is not None:
            held.append(answer)
            return
        self._steps[step] = [answer]
        left_ms = max(0.0, step * STEP_MS - self._clock_ms())
        asyncio.get_running_loop().call_later(left_ms / 1_000, self._give, step)

    def _give(self, step: int) -> None:
        for answer in self._steps.pop(step):
            try:
                answer()
            except Exception:
                log.exception("an answer that was held could not be given")
