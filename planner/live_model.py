"""How long a variant's batches take on one worker: it starts at the profile and learns from each.

The logarithm of taken over profiled time is followed for each *context* and each size of batch, up
to the next power of two: its mean and its variance, with older batches fading. What was never seen
follows from what is nearest to it. A batch is late to a prediction for reasons that no bell curve
knows (a neighbour, a stall), so how many standard deviations hold 95 % of batches is followed as
well, by what each batch did: the estimate rises by 0.95 steps when a batch took longer, and falls
by 0.05 steps when it did not, so in the long run 95 % are within it, whatever the distribution
(Gibbs and Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021).

Learning from a batch takes some microseconds. Nothing here knows a clock.
"""

from enum import IntEnum
from math import exp, inf, log, log1p, sqrt
from typing import NamedTuple

from planner.latency_table import LatencyTable
from planner.rhythms.bounded import bounded
from planner.rhythms.busy_time import BusyBatch, BusyTime

MEMORY = 64
"""Batches of a context and size that are remembered: older ones count less."""
PRIOR = 4
"""Batches that the profile, or the nearest of what was seen, counts for."""
FARTHEST = 1.5
"""Most that one batch's logarithm counts away from the mean: a stall is not remembered for long."""
SHIFTED = 4
"""So many batches in a row on one side, beyond two deviations each: it is another time now, and
what was seen before is forgotten, but for how far all of them were: one may be a stall besides."""
FIRST_SPREAD, LEAST_SPREAD, MOST_SPREAD = 0.1, 0.02, 1.0
"""Of a logarithm, as a standard deviation: the least before a batch has run, because queries come
in another rhythm than a profile's batches, the least (clocks and caches make 2 %) and the most."""
STEP = 0.1
"""Of the number of deviations that hold ``COVERED``."""
COVERED = 0.95
DEVIATIONS, LEAST_DEVIATIONS, MOST_DEVIATIONS = 1.645, 0.0, 8.0
"""At first, as of a normal distribution, and the range."""
SETTLED = 4
"""Back-to-back batches of a size before their mean is what batches beside others are compared with,
at first and after slowness was forgotten."""
RECENT = 16
"""Batches beside others that are compared with the back-to-back ones before them, at most: later
ones may be of another time."""
LEAST_GAIN = 0.05
"""Batches that seem to save less of a row's time than this save nothing: means are that unsure."""
RELAX_MS = 5_000.0
"""Time constant with which slowness is forgotten while nothing is observed."""
LEAST_MS = 1e-5
"""Profiles are rounded to this."""
A_PAUSE_MS = 100.0
"""For how long nothing ran before a batch after idling, where nobody says it."""
UNCOMPARED = 0.25
"""Standard deviation of the logarithm of what others prolong a batch by, where none was compared
with what ran back to back."""


class Context(IntEnum):
    """What a batch came after."""

    AFTER_IDLE = 0
    BACK_TO_BACK = 1
    BESIDE = 2
    """Right after a batch of another variant, whose data are in the caches."""


# Looking a member up in its enumeration takes ten times as long as a name.
AFTER_IDLE, BACK_TO_BACK, BESIDE = Context


class LivePoint(NamedTuple):
    """What batches of up to ``rows`` rows took lately."""

    rows: int
    mean_ms: float
    p95_ms: float


class Neighbours(NamedTuple):
    """How other variants on the same worker prolong batches."""

    times: float = 1.0
    """As long beside another variant as back to back, in the mean of the sizes that were both."""
    batches: int = 0
    """That ran beside another variant and were compared, each with back-to-back ones shortly before
    it; 0: nothing is known."""
    sizes: tuple[int, ...] = ()
    """Of ``LiveModel.points``, the rows of those that are of batches beside another variant."""
    ms: float = 0.0
    """What those that were compared took back to back, in the mean."""


class _Cell:
    """Of one context and size: mean and variance of the logarithm of taken over profiled time."""

    __slots__ = (
        "alone", "compared", "gap", "least", "mean", "row", "seen", "told", "uncompared",
        "variance", "weight",
    )  # fmt: skip

    def __init__(self, mean: float, variance: float) -> None:
        self.mean = mean
        self.variance = variance
        self.weight = PRIOR
        self.row = 0
        """How many values in a row were far above the mean; negative: below."""
        self.least = 0.0
        """The nearest to the mean of them, of what they are beyond it."""
        self.seen = 0
        self.told = mean
        """The mean that the last table was made with."""
        self.uncompared = -SETTLED
        """Of back-to-back batches: so many others may be compared with them, if above 0."""
        self.compared = 0
        """Of batches beside another variant: so many were compared with back-to-back ones."""
        self.gap = 0.0
        """Of those: the mean of the logarithm of both times' ratio."""
        self.alone = 0.0
        """Of those: the mean of what they were compared with."""

    def compare(self, longer: float, alone: float) -> None:
        """Take in a batch beside another variant.

        Args:
            longer: the logarithm of taken over profiled time.
            alone: what it was lately for back-to-back batches, in the mean.
        """
        self.compared += 1
        part = 1.0 / min(self.compared, MEMORY)
        self.gap += part * min(max(longer - alone - self.gap, -FARTHEST), FARTHEST)
        self.alone += part * (alone - self.alone)


class LiveModel:
    """Of one variant on one worker. Times in ms of whole batches, hand-overs included."""

    __slots__ = (
        "_at_first", "_beside", "_busy", "_busy_spread", "_cells", "_deviations", "_sizes",
        "_spread", "_typical", "batches", "busy_sure", "change", "covered", "sure", "told_ms",
    )  # fmt: skip

    def __init__(self, typical: LatencyTable, high: LatencyTable) -> None:
        """Take the profile: medians and 95th percentiles up to the same largest batch."""
        self._typical = [max(ms, LEAST_MS) for ms in typical.ms]
        largest = typical.max_batch
        self._sizes = [min(1 << k, largest) for k in range((largest - 1).bit_length() + 1)]
        """The largest batch of each size class."""
        over = log(max(high.ms[1] / self._typical[1], 1.0)) / DEVIATIONS
        self._spread = min(max(over, FIRST_SPREAD), MOST_SPREAD) ** 2
        """Typical variance of a batch's logarithm."""
        self._at_first = self._busy_spread = self._spread
        self._busy: dict[int, BusyTime] = {}
        """By size, what batches take that follow on others."""
        self._cells: tuple[dict[int, _Cell], ...] = ({}, {}, {})
        self._deviations = [DEVIATIONS] * len(Context)
        self._beside = 0.0
        """Share of the batches that follow on others that come after another variant's."""
        self.change = inf
        """Most by which a mean's logarithm has changed since the last table; infinite before it."""
        self.told_ms = -inf
        """When its owner last asked for a table."""
        self.batches = 0
        self.sure = 0.0
        """With how many times its mean its queue counts a batch alone; 0 before any ran."""
        self.busy_sure = 0.0
        """With how many times its mean a batch counts that follows on another one."""
        self.covered = 0
        """Batches that took no longer than the 95th percentile that was predicted."""

    def learn(
        self, rows: int, context: Context, took_ms: float, pause_ms: float = A_PAUSE_MS
    ) -> bool:
        """Take in a batch; whether it took no longer than the 95th percentile predicted for it.

        One that is larger than the profile's largest, as where the profile was measured anew while
        it ran, says nothing. ``pause_ms`` is for how long nothing ran before one after idling.
        """
        if took_ms <= 0.0 or rows >= len(self._typical):
            return True
        size = (rows - 1).bit_length()
        cell = self._cell(context, size)
        longer = log(took_ms / self._typical[rows])
        self._learn_busy(size, context, longer, pause_ms, cell)
        gap = longer - cell.mean
        deviation = sqrt(cell.variance)
        deviations = self._deviations[context]
        within = gap <= deviations * deviation
        deviations += STEP * ((COVERED - 1.0) if within else COVERED)
        self._deviations[context] = bounded(deviations, LEAST_DEVIATIONS, MOST_DEVIATIONS)
        self.batches += 1
        self.covered += within
        spread = self._spread
        far = 2.0 * sqrt(cell.variance if cell.variance < spread else spread)
        if gap > far:
            cell.least = gap if cell.row <= 0 or gap < cell.least else cell.least
            cell.row = max(cell.row, 0) + 1
        elif gap < -far:
            cell.least = gap if cell.row >= 0 or gap > cell.least else cell.least
            cell.row = min(cell.row, 0) - 1
        else:
            cell.row = 0
        cell.seen += 1
        if abs(cell.row) >= SHIFTED:
            cell.mean += cell.least
            cell.variance = min(cell.variance, self._spread)
            cell.weight, cell.row = PRIOR, 0
        else:
            if cell.weight < MEMORY:
                cell.weight += 1
            part = 1.0 / cell.weight
            gap = bounded(gap, -FARTHEST, FARTHEST)
            cell.mean += part * gap
            variance = (1.0 - part) * (cell.variance + part * gap * gap)
            cell.variance = bounded(variance, LEAST_SPREAD**2, MOST_SPREAD**2)
            self._spread += (cell.variance - self._spread) / MEMORY
        if context is BESIDE:
            self._beside += (1.0 - self._beside) / MEMORY
            alone = self._cells[BACK_TO_BACK].get(size)
            if alone is not None and alone.uncompared > 0:
                alone.uncompared -= 1
                cell.compare(longer, alone.mean)
        elif context is BACK_TO_BACK:
            self._beside -= self._beside / MEMORY
            if cell.uncompared < RECENT:
                cell.uncompared += 1
        change = abs(cell.mean - cell.told)
        self.change = change if change > self.change else self.change
        return within

    def mean_ms(self, rows: int, context: Context) -> float:
        """What a batch is expected to take."""
        cell = self._cell(context, (rows - 1).bit_length())
        return self._typical[rows] * exp(cell.mean + cell.variance / 2)

    def p95_ms(self, rows: int, context: Context) -> float:
        """What 95 % of such batches take at most."""
        cell = self._cell(context, (rows - 1).bit_length())
        above = self._deviations[context] * sqrt(cell.variance)
        return self._typical[rows] * exp(cell.mean + above)

    @property
    def within(self) -> float | None:
        """Share of the batches that took no longer than their 95th percentile; None before any."""
        return round(self.covered / self.batches, 4) if self.batches else None

    @property
    def spread(self) -> float:
        """Standard deviation of a batch's time over its mean."""
        return sqrt(exp(self._spread) - 1.0)

    @property
    def busy_spread(self) -> float:
        """The same of batches that follow on others."""
        return sqrt(exp(self._busy_spread) - 1.0)

    @property
    def first_ms(self) -> float:
        """What a single row takes longer after idling than in a queue."""
        if not self._cells[AFTER_IDLE]:
            return 0.0
        return max(0.0, self.mean_ms(1, AFTER_IDLE) - self._queued_ms(1))

    def table(self, between_ms: float = 0.0) -> LatencyTable:
        """What batches in a queue take in the mean, by all that was seen, each with so much that
        passes before it."""
        for cells in self._cells:
            for cell in cells.values():
                cell.told = cell.mean
        self.change = 0.0
        points = dict.fromkeys(self._sizes)
        return LatencyTable(
            [(rows, self._queued_ms(rows) + between_ms) for rows in points], LEAST_GAIN
        )

    def points(self) -> tuple[LivePoint, ...]:
        """Mean and 95th percentile of the sizes that were seen, one of each power of two."""
        seen = sorted({size for cells in self._cells for size in cells})
        return tuple([self._point(size) for size in seen if size < len(self._sizes)])

    def busy(self) -> tuple[BusyBatch, ...]:
        """What batches take that follow on one another, without what other variants prolong, of the
        sizes that were seen in any rhythm."""
        found: list[BusyBatch] = []
        of_one_ms = inf
        for size, known in sorted(self._busy.items()):
            rows = self._sizes[size]
            ms = self._typical[rows] * exp(known.ratio + self._busy_spread / 2)
            found.append(BusyBatch(rows, min(ms, rows * of_one_ms), known.error))
            of_one_ms = ms if size == 0 else of_one_ms
        return tuple(found)

    def neighbours(self) -> Neighbours:
        """How other variants on this worker prolong its batches.

        What was learned stays where nothing can be compared: it is no difference of two means, of
        which one may go on, or be forgotten, without the other.
        """
        beside = self._cells[BESIDE]
        batches, gap, ms = 0, 0.0, 0.0
        for size, cell in beside.items():
            if cell.compared:
                batches += cell.compared
                gap += cell.compared * cell.gap
                ms += cell.compared * self._typical[self._sizes[size]] * exp(cell.alone)
        sizes = tuple(
            [
                self._sizes[size]
                for size in sorted(beside)
                if size < len(self._sizes) and self._commonest(size) is BESIDE
            ]
        )
        if not batches:
            return Neighbours(sizes=sizes)
        return Neighbours(exp(gap / batches), batches, sizes, ms / batches)

    def relax(self, idle_ms: float) -> None:
        """Forget slowness, and how it varied, for a time in which nothing was observed.

        Otherwise a variant that was slow once, and whose queries are refused since, would never be
        observed again.
        """
        keep = exp(-max(0.0, idle_ms) / RELAX_MS)
        self._spread = min(self._spread, self._at_first + keep * (self._spread - self._at_first))
        for cells in self._cells:
            for cell in cells.values():
                if cell.mean > 0.0:
                    cell.mean *= keep
                    cell.weight = min(cell.weight, PRIOR)
                    cell.uncompared = -SETTLED
                cell.variance = min(cell.variance, self._spread)
        self._busy_spread = min(self._busy_spread, max(self._spread, self._at_first))
        for known in self._busy.values():
            known.relax(keep)
        self.change = inf

    # -- inside -----------------------------------------------------------------------------------

    def _learn_busy(
        self, size: int, context: Context, longer: float, pause_ms: float, cell: _Cell
    ) -> None:
        """Take a batch into what is known of a busy worker; ``cell`` is before it."""
        known = self._busy.get(size)
        if known is None:
            profiled_ms = self._typical[self._sizes[size]]
            known = self._busy[size] = BusyTime(profiled_ms, self._at_first)
        # Of few batches nobody knows how they vary: no less than the others.
        variance = cell.variance if cell.variance > self._spread else self._spread
        if context is AFTER_IDLE:
            known.learn(longer, pause_ms, variance)
            return
        if context is BACK_TO_BACK:
            known.learn(longer, None, variance)
        elif cell.compared:
            known.learn(longer - cell.gap, None, variance)
        else:
            known.learn(longer, None, variance + UNCOMPARED**2)
        self._busy_spread += (known.spread - self._busy_spread) / MEMORY

    def _cell(self, context: Context, size: int) -> _Cell:
        cell = self._cells[context].get(size)
        return self._opened(context, size) if cell is None else cell

    def _opened(self, context: Context, size: int) -> _Cell:
        """A cell of something that was never seen, by what is nearest to it."""
        cell = self._cells[context][size] = _Cell(self._guess(context, size), self._spread)
        return cell

    def _guess(self, context: Context, size: int) -> float:
        """A logarithm for what was never seen.

        From the nearest size that was, in this context or else in any. What it took longer is
        either a factor or an amount that each batch pays; the lesser is believed, because only
        what is believed to be possible is tried, and then learned.
        """
        near = self._nearest(self._cells[context], size)
        for cells in self._cells if near is None else ():
            near = near or self._nearest(cells, size)
        if near is None:
            return 0.0
        found, cell = near
        if cell.mean <= 0.0 or found >= size:
            return cell.mean
        own_ms = self._typical[self._sizes[min(size, len(self._sizes) - 1)]]
        more_ms = self._typical[self._sizes[found]] * (exp(cell.mean) - 1.0)
        return log1p(more_ms / own_ms)

    @staticmethod
    def _nearest(cells: dict[int, _Cell], size: int) -> tuple[int, _Cell] | None:
        seen = [(abs(k - size), k) for k, cell in cells.items() if cell.seen]
        if not seen:
            return None
        _, found = min(seen)
        return found, cells[found]

    def _queued_ms(self, rows: int) -> float:
        """What a batch takes that follows on another one."""
        size = (rows - 1).bit_length()
        alone, beside = (
            cells[size].mean if size in cells else self._guess(context, size)
            for context, cells in ((BACK_TO_BACK, self._cells[1]), (BESIDE, self._cells[2]))
        )
        mean = alone + self._beside * (beside - alone)
        ms = self._typical[rows] * exp(mean + self._spread / 2)
        return min(ms, rows * self._queued_ms(1)) if rows > 1 and self._knows_one_row else ms

    @property
    def _knows_one_row(self) -> bool:
        """Whether single rows were seen: a batch takes no longer than its rows one by one.

        A size that ran last while others had the cores would else be believed to take as long for
        as long as nobody is let in with it, whatever smaller batches take by now.
        """
        return any(0 in cells and cells[0].seen for cells in self._cells)

    def _point(self, size: int) -> LivePoint:
        most, rows = self._commonest(size), self._sizes[size]
        mean_ms, p95_ms = self.mean_ms(rows, most), self.p95_ms(rows, most)
        if rows > 1 and self._knows_one_row:
            _, mean_of_one_ms, p95_of_one_ms = self._point(0)
            mean_ms = min(mean_ms, rows * mean_of_one_ms)
            p95_ms = min(p95_ms, rows * p95_of_one_ms)
        return LivePoint(rows, mean_ms, max(mean_ms, p95_ms))

    def _commonest(self, size: int) -> Context:
        """What most batches of a size came after."""
        return max(
            Context, key=lambda c: self._cells[c][size].seen if size in self._cells[c] else 0
        )
