"""The least device time that a query can take: its share of the best batch that it can be in.

A batch of b rows that takes l(b) occupies its device for l(b), and each of its rows stands for
l(b) / b of that. Its members have all arrived when it begins and none is late when it ends: there
is a moment that lies between arrival and deadline - l(b) of every one of them. So a query can be in
a batch of b only if b queries have such a moment in common with it, which is counted. Rows that are
late anyway are no help: without them the batch is shorter.
"""

from math import inf

import numpy as np

from planner.bounds.windows import Floats, Ints
from planner.latency_table import LatencyTable

COUNTED = 1_000_000
"""Of more queries of one task, how many are there together is not counted."""
ALL_TO = 8
"""Up to here every batch size is looked at; then four in each doubling."""


def least_row_ms(arrival_ms: Floats, deadline_ms: Floats, table: LatencyTable) -> Floats:
    """Per query, the least device time in ms by a variant; infinite where none is in time.

    Args:
        arrival_ms: of the queries that the variant may answer, ascending.
        deadline_ms: of the same.
        table: latency of the variant's batches.
    """
    found = np.full(len(arrival_ms), inf)
    latency_ms = deadline_ms - arrival_ms
    sizes = batch_sizes(table.max_batch)
    for size, beyond in zip(sizes, [*sizes[1:], table.max_batch + 1], strict=True):
        batch_ms = table.ms[size]
        able = np.nonzero(latency_ms >= batch_ms)[0]
        if size > 1 and len(arrival_ms) <= COUNTED:
            able = able[_together(arrival_ms[able], deadline_ms[able] - batch_ms, size)]
        if not len(able):
            break  # nor is there a larger batch: it takes no less time
        each_ms = min(table.ms[rows] / rows for rows in range(size, beyond))
        found[able] = np.minimum(found[able], each_ms)
    return found


def batch_sizes(largest: int) -> list[int]:
    """The sizes that are looked at, ascending; each stands for those up to the next."""
    sizes = list(range(1, min(ALL_TO, largest) + 1))
    step = ALL_TO // 4
    while sizes[-1] + step <= largest:
        sizes.append(sizes[-1] + step)
        if sizes[-1] >= 8 * step:
            step *= 2
    return sizes


def _together(begin_ms: Floats, end_ms: Floats, count: int) -> Ints:
    """Indices of the intervals that share a moment with ``count`` intervals, itself included.

    How many intervals cover a moment grows only where one begins, so only those moments count.
    ``begin_ms`` ascends, and no interval ends before it begins.
    """
    begun = np.searchsorted(begin_ms, begin_ms, side="right")
    over = np.searchsorted(np.sort(end_ms), begin_ms, side="left")
    enough = np.concatenate(([0], np.cumsum(begun - over >= count)))
    low = np.searchsorted(begin_ms, begin_ms, side="left")
    high = np.searchsorted(begin_ms, end_ms, side="right")
    return np.nonzero(enough[high] > enough[low])[0]
