"""Lanes: the waiting queries of each loaded variant, what they take, and whose they are."""

from bisect import bisect_right
from math import exp, inf

from planner.types import LatencyTable

DECAY_MS = 5_000.0
"""Time constant with which busy time is forgotten."""
RISE, FALL = 0.2, 0.02
"""Weights of an observation above and below the estimate of the correction."""
CORRECTION = (0.2, 5.0)
"""The correction's range; an observation is brought into it first, so that one stall is not
remembered for long."""
RELAX_MS = 5_000.0
"""Time constant with which a correction above 1 is forgotten while nothing is observed."""


class Tenant:
    """A task on this slice: its planned share and the time that it used."""

    __slots__ = ("busy_ms", "lanes", "seen_ms", "share", "stamp_ms")

    def __init__(self) -> None:
        self.share = 0.0
        self.busy_ms = 0.0
        self.stamp_ms = 0.0
        self.seen_ms = -inf
        self.lanes: list[Lane] = []

    def used_ms(self, now_ms: float) -> float:
        """Decayed busy time and the work that is queued."""
        return self.decayed_ms(now_ms) + sum(lane.work_ms for lane in self.lanes)

    def decayed_ms(self, now_ms: float) -> float:
        return self.busy_ms * exp(min(0.0, self.stamp_ms - now_ms) / DECAY_MS)


class Lane:
    """The waiting queries of one loaded variant."""

    __slots__ = (
        "correction", "gains", "limit", "max_batch", "ms", "queue", "rows", "saving", "task",
        "tenant", "unit_ms", "work_ms",
    )  # fmt: skip

    def __init__(self, task: str, tenant: Tenant, table: LatencyTable) -> None:
        self.task = task
        self.tenant = tenant
        self.correction = 1.0
        """Observed over predicted latency; multiplies the table."""
        self.queue: list[tuple[float, int, Item]] = []
        """A heap of (deadline, order of arrival, query)."""
        self.rows = 0
        self.work_ms = 0.0
        """At most this long to run all that waits, merged."""
        self.limit = 0
        """Rows of the largest batch that is formed for now; at most ``max_batch``."""
        self.set_table(table)

    @classmethod
    def detached(cls, task: str, table: LatencyTable) -> "Lane":
        """A lane of no schedule, for a variant that takes no queries."""
        return cls(task, Tenant(), table)

    def set_table(self, table: LatencyTable) -> None:
        """Take over a table, and what larger batches save by it."""
        self.ms = table.ms
        self.max_batch = table.max_batch
        # What waits was admitted counting on the old limit: it does not shrink under it.
        held = self.limit if self.queue else self.max_batch
        self.limit = min(held, self.max_batch)
        # If a row costs no less in a larger batch, two batches never cost more than one of both:
        # ms[a] <= a / (a + b) * ms[a + b], and the same for b.
        self.unit_ms, self.saving, self.gains = table.economy

    def keep_within(self, batch_ms: float) -> None:
        """Form no batches that take longer than this or a single row. The lane must be empty."""
        self.limit = bisect_right(self.ms, max(batch_ms / self.correction, self.ms[1])) - 1

    def latency_ms(self, rows: int) -> float:
        """Predicted latency of a batch."""
        return self.ms[rows] * self.correction

    def bound_ms(self, count: int, rows: int) -> float:
        """At most this long for ``count`` queries of ``rows`` rows in all, merged in any order.

        Filled one after the other, two neighbouring batches together exceed the largest batch, so
        rows R in batches of at most B make at most 2R/B + 1 batches; single rows fill them all.
        """
        largest = self.limit
        if rows <= largest:
            return self.ms[rows] * self.correction if rows else 0.0
        if count == rows:
            full, rest = divmod(rows, largest)
            whole = full * self.ms[largest]
            return (whole + self.ms[rest] if rest else whole) * self.correction
        return (2 * rows // largest + 1) * self.ms[largest] * self.correction


class Item:
    """One query in a lane. Whoever queues more about it derives from it."""

    __slots__ = ("deadline_ms", "lane", "rows")

    def __init__(self, lane: Lane, deadline_ms: float, rows: int) -> None:
        self.lane = lane
        self.deadline_ms = deadline_ms
        self.rows = rows


def learned(correction: float, ratio: float) -> float:
    """The correction after a batch took ``ratio`` times what the profile says.

    It rises ten times as fast as it falls, so it settles near the 90th percentile of the ratios (an
    expectile, Newey and Powell 1987): that takes the place of a fixed margin.
    """
    seen = min(max(ratio, CORRECTION[0]), CORRECTION[1])
    return correction + (RISE if seen > correction else FALL) * (seen - correction)


def relaxed(correction: float, idle_ms: float) -> float:
    """The correction when nothing was observed for a while.

    Without it, a variant that was slow once and is refused since could never prove itself again.
    """
    if correction <= 1.0:
        return correction
    return 1.0 + (correction - 1.0) * exp(-max(0.0, idle_ms) / RELAX_MS)
