"""Buckets: arrivals of many keys, counted at odd moments, become rates over equal spans of time."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from planner.forecasting.memory import Memory, array, as_key, as_list, listed, number

KeyT = TypeVar("KeyT")
"""What is counted: a task, or a task with an SLO class."""

Array = npt.NDArray[np.float64]

LONGEST_S = 3_600.0
"""What was counted over longer than this is taken as the rate of the last hour of it."""
_TOLERANCE_S = 1e-6


class Buckets(Generic[KeyT]):
    """Takes counts; gives rates per bucket of ``step_s`` seconds, in arrays of shape ``(rows,)``.

    Each key has a row, in the order of ``rows``.

    Buckets begin with the first count. A count that spans several is spread evenly. A bucket of
    which less than half was observed has no rate: NaN. A key that is not named arrived 0 times,
    and its row begins when it is named first: what was before in its first bucket is not counted
    as observed.
    """

    def __init__(self, step_s: float) -> None:
        if step_s <= 0:
            raise ValueError(f"a bucket takes time, not {step_s} s")
        self.step_s = step_s
        self.rows: dict[KeyT, int] = {}
        """Each key's row in all arrays, ascending."""
        self.slot = 0
        """Of the open bucket, counted from the first."""
        self.open_s = 0.0
        """Observed of the open bucket."""
        self.silent_s = np.zeros(0)
        """Observed time since the last arrival of each key, shape ``(rows,)``."""
        self._open = np.zeros(0)
        self._seen_s = np.zeros(0)
        """Observed of the open bucket since each row began."""
        self._first_s: float | None = None
        self._until_s = 0.0

    @property
    def open_rates(self) -> Array:
        """Rates per second in the observed part of the open bucket, shape ``(rows,)``.

        0 where nothing of it was observed.
        """
        nothing = np.zeros_like(self._open)
        return np.divide(self._open, self._seen_s, out=nothing, where=self._seen_s > 0.0)

    @property
    def seen_s(self) -> Array:
        """Observed of the open bucket since each row began, shape ``(rows,)``."""
        return self._seen_s

    def end_s(self, slot: int) -> float:
        """When a bucket ends, on the clock of the counts."""
        return (self._first_s or 0.0) + (slot + 1) * self.step_s

    def widen(self, counts: Mapping[KeyT, float]) -> int:
        """Begin rows for keys that were not seen before; return how many."""
        fresh = [key for key in counts if key not in self.rows]
        for key in fresh:
            self.rows[key] = len(self.rows)
        if fresh:
            self._open = np.append(self._open, np.zeros(len(fresh)))
            self._seen_s = np.append(self._seen_s, np.zeros(len(fresh)))
            self.silent_s = np.append(self.silent_s, np.zeros(len(fresh)))
        return len(fresh)

    def without(self, gone: Callable[[KeyT], bool]) -> npt.NDArray[np.int64]:
        """The rows of all keys but those that are gone, shape ``(kept,)``, for ``keep``."""
        kept = [row for key, row in self.rows.items() if not gone(key)]
        return np.array(kept, np.int64)

    def keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Keep the rows with these numbers, shape ``(kept,)``, and forget all others.

        The rows that stay are numbered anew, without gaps.
        """
        keys = list(self.rows)
        self.rows = {keys[row]: index for index, row in enumerate(rows)}
        self._open, self.silent_s = self._open[rows], self.silent_s[rows]
        self._seen_s = self._seen_s[rows]

    def add(
        self, now_s: float, elapsed_s: float, counts: Mapping[KeyT, float], blank: int
    ) -> list[tuple[int, Array]]:
        """Take in what arrived in the ``elapsed_s`` seconds before ``now_s``.

        Args:
            now_s: on the clock of the earlier counts.
            elapsed_s: span that was observed. Time between two spans is unknown, not empty.
            counts: by key; all keys must have rows.
            blank: of more than so many buckets in a row that were not observed, only so many are
                returned.

        Returns:
            The buckets that ended, each as its slot and its rates of shape ``(rows,)``.

        Raises:
            ValueError: no time, or an endless time, has elapsed; or the clock went back.
        """
        if not 0.0 < elapsed_s < float("inf"):
            raise ValueError(f"counts need a span of time, not {elapsed_s} s")
        start_s = now_s - elapsed_s
        if self._first_s is None:
            self._first_s, self._until_s = max(start_s, now_s - LONGEST_S), start_s
        if now_s <= self._until_s:
            raise ValueError(f"counts at {now_s} s, after those at {self._until_s} s")
        rates = np.zeros(len(self.rows))
        for key, count in counts.items():
            rates[self.rows[key]] = count / elapsed_s
        overlap_s = max(0.0, self._until_s - start_s)
        start_s = max(start_s + overlap_s, now_s - LONGEST_S)
        rates *= elapsed_s / (elapsed_s - overlap_s)
        self.silent_s = np.where(rates > 0.0, 0.0, self.silent_s + now_s - start_s)
        self._until_s = now_s
        return self._fill(start_s, now_s, rates, blank)

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "step_s": self.step_s,
            "keys": [as_list(key) for key in self.rows],
            "slot": self.slot,
            "open_s": self.open_s,
            "first_s": self._first_s,
            "until_s": self._until_s,
            "silent_s": self.silent_s.copy(),
            "open": self._open.copy(),
            "seen_s": self._seen_s.copy(),
        }

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        if number(memory, "step_s") != self.step_s:
            raise ValueError("the buckets have another length")
        keys = [as_key(key) for key in listed(memory, "keys")]
        self.rows = {key: row for row, key in enumerate(keys)}
        if len(self.rows) != len(keys):
            raise ValueError("a key is there twice")
        self.silent_s = array(memory, "silent_s", (len(keys),))
        self._open = array(memory, "open", (len(keys),))
        self.slot, self.open_s = int(number(memory, "slot")), number(memory, "open_s")
        self._seen_s = array(memory, "seen_s", (len(keys),))
        if memory.get("first_s") is not None:
            self._first_s = number(memory, "first_s") + shift_s
            self._until_s = number(memory, "until_s") + shift_s

    def _fill(
        self, start_s: float, now_s: float, rates: Array, blank: int
    ) -> list[tuple[int, Array]]:
        ended: list[tuple[int, Array]] = []
        missing = 0
        while True:
            end_s = self.end_s(self.slot)
            part_s = min(end_s, now_s) - start_s
            if part_s > 0.0:
                self._open = self._open + rates * part_s
                self._seen_s = self._seen_s + part_s
                self.open_s += part_s
                start_s += part_s
            if now_s < end_s - _TOLERANCE_S:
                return ended
            missing = 0 if self.open_s >= self.step_s / 2 else missing + 1
            seen = self._seen_s >= self.step_s / 2
            ended.append((self.slot, np.where(seen, self.open_rates, np.nan)))
            self.slot += 1
            self._open, self._seen_s = np.zeros(len(rates)), np.zeros(len(rates))
            self.open_s = 0.0
            if missing >= blank:
                skipped = int((start_s - self.end_s(self.slot)) / self.step_s)
                self.slot += max(0, skipped)
