"""Answers that are held for a while, without a timer for each of them."""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

STEP_MS = 2.0
"""Answers whose times lie closer together are given in one go, none of them later than its own."""
MOST_PER_S = 2_000.0
"""Holding pays while those who are held come back no more often than this. More of them are dear
even so, and may be the connections of one client whose pool is used up: then being held is what
keeps them busy, and its next queries wait for them until it is too late (decision 3)."""
SHORT_MS = 20.0
"""Who is held for less counts as if it were for this: he was told to come back that soon."""
PAUSE_MS = 1_000.0
"""For so long nobody is held after there were more."""


class HeldAnswers:
    """Calls to be made at certain times, by steps of the clock."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._steps: dict[int, list[Callable[[], None]]] = {}
        self._count = 0
        self._per_s = 0.0
        self._paused_until_ms = -inf

    def __len__(self) -> int:
        """How many are held."""
        return self._count

    def slows_down(self, until_ms: float, now_ms: float) -> bool:
        """Whether holding one more until then keeps those who are held from coming too often."""
        if now_ms < self._paused_until_ms:
            return False
        if self._per_s + _per_s(until_ms - now_ms) <= MOST_PER_S:
            return True
        self._paused_until_ms = now_ms + PAUSE_MS
        return False

    def hold(self, until_ms: float, answer: Callable[[], None]) -> None:
        """Call ``answer`` at that time or up to a step before it, but never at once."""
        now_ms = self._clock_ms()
        per_s = _per_s(until_ms - now_ms)
        self._count += 1
        self._per_s += per_s

        def give() -> None:
            self._count -= 1
            self._per_s = self._per_s - per_s if self._count else 0.0
            answer()

        step = int(until_ms / STEP_MS)
        held = self._steps.get(step)
        if held is not None:
            held.append(give)
            return
        self._steps[step] = [give]
        left_ms = max(0.0, step * STEP_MS - now_ms)
        asyncio.get_running_loop().call_later(left_ms / 1_000, self._give, step)

    def _give(self, step: int) -> None:
        for give in self._steps.pop(step):
            try:
                give()
            except Exception as error:
                sparing.error("", error, "an answer that was held could not be given")


def _per_s(for_ms: float) -> float:
    """How often somebody comes who asks again at once and is held for so long each time."""
    return 1_000.0 / max(SHORT_MS, for_ms)
