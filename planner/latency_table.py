"""Latency of whole batches as a look-up table, and what larger batches save."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

from planner.latency_curve import Curve

ROUNDING = 1e-9
"""Part of a row's time by which sums of measured times differ for no reason."""


class LatencyTable:
    """Latency of a whole batch for every batch size, as a look-up.

    Between profiled sizes it is linear, below the smallest it is the smallest's, above the largest
    the batch is forbidden; it is made non-decreasing.
    """

    __slots__ = (
        "__weakref__", "_curve", "_economy", "_least_gain", "doubling", "max_batch", "ms", "points",
        "row_ms",
    )  # fmt: skip

    ms: tuple[float, ...]
    """``ms[b]`` is the latency of a batch of ``b`` rows; ``ms[0]`` equals ``ms[1]``."""
    max_batch: int
    points: tuple[tuple[int, float], ...]
    """As given."""
    doubling: tuple[float, ...]
    """``doubling[k]`` is the latency of a batch of ``2**k`` rows: a lower bound up to the next."""
    row_ms: float
    """Least time per row of the given points."""

    def __init__(self, points: Sequence[tuple[int, float]], least_gain: float = ROUNDING) -> None:
        """Take (batch size, latency in ms) points, ascending by batch size, at least one.

        Batches save nothing unless a row takes less in a larger one by ``least_gain`` of its time.
        """
        self._least_gain = least_gain
        self.points = tuple(points)
        table = [points[0][1]] * (points[0][0] + 1)
        for (low, low_ms), (high, high_ms) in pairwise(points):
            floor = max(low_ms, table[-1])
            ceiling = max(high_ms, floor)
            step = (ceiling - floor) / (high - low)
            table += [floor + step * rows for rows in range(1, high - low + 1)]
        self.ms = tuple(table)
        self.max_batch = len(table) - 1
        self.doubling = tuple([table[1 << k] for k in range(self.max_batch.bit_length())])
        self.row_ms = min([ms / rows for rows, ms in points])
        self._economy: Economy | None = None
        self._curve: Curve | None = None

    @property
    def curve(self) -> Curve:
        """The same as a curve, which planning asks; made at the first use."""
        if self._curve is None:
            self._curve = Curve(self.points)
        return self._curve

    @property
    def economy(self) -> "Economy":
        """What larger batches save; computed at the first use, from the whole table."""
        if self._economy is None:
            self._economy = _economy(self.ms, self._least_gain)
        return self._economy


class Economy(NamedTuple):
    """What a row takes in a batch, compared with a batch of its own."""

    unit_ms: float
    """Time of a row where it is least."""
    saving: float
    """Part of a row's time that a batch can save."""
    gains: bool
    """Whether a row can be cheaper in a larger batch."""


def _economy(table_ms: Sequence[float], least_gain: float) -> Economy:
    each_ms = [ms / rows for rows, ms in enumerate(table_ms) if rows]
    unit_ms = min(each_ms)
    return Economy(
        unit_ms,
        1.0 - unit_ms / each_ms[0] if each_ms[0] else 0.0,
        any(
            own < most * (1 - least_gain)
            for own, most in zip(each_ms, accumulate(each_ms, max), strict=True)
        ),
    )


_TABLES: WeakValueDictionary[tuple[tuple[int, float], ...], LatencyTable] = WeakValueDictionary()


def latency_table(points: tuple[tuple[int, float], ...]) -> LatencyTable:
    """The table of these (batch size, latency in ms) points; the same object while one is in use.

    A table never changes, and to compute one for a thousand batch sizes takes longer than all else
    that is made of a profile.
    """
    table = _TABLES.get(points)
    if table is None:
        table = _TABLES[points] = LatencyTable(points)
    return table
