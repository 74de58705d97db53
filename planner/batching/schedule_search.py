"""Schedule search: going through a whole queue for batches of which none is late.

There are two ways, ``merged`` and ``alone``. Both go by the earliest deadline, and both are
memoryless: what follows the first batch is the same way again, applied to the rest. So once one of
them is in time, following it stays in time.
"""

from collections.abc import Sequence
from math import inf

from planner.batching.feasible_schedule import FeasibleSchedule
from planner.batching.variant_queues import ROUNDING_MS, Entry, Item, VariantQueue

Runs = list[tuple[VariantQueue, list[Entry]]]
"""Batches in the order in which they would run."""


def merged(
    order: Sequence[Entry],
    start_ms: float,
    fresh: Item | None = None,
    limit_ms: float = inf,
    open_ms: float = inf,
    *,
    strict: bool = True,
) -> Runs | None:
    """The batches when each grows as far as the deadline of its first query allows.

    Batches of a variant that gains nothing by them hold one query each.

    Args:
        order: what waits, ascending by deadline.
        start_ms: when the first batch begins.
        fresh: a query that is to be admitted, already in its place in ``order``.
        limit_ms: when the batch of ``fresh`` has to be done at the latest.
        open_ms: the same, where ``fresh`` is alone in its batch.
        strict: return None if a query would be late. If not, a batch whose first query is late is
            as large as it can be.
    """
    waiting: dict[VariantQueue, list[Entry]] = {}
    for entry in order:
        waiting.setdefault(entry[2].queue, []).append(entry)
    taken = dict.fromkeys(waiting, 0)
    met = dict.fromkeys(waiting, 0)
    runs: Runs = []
    for deadline_ms, _, head in order:
        queue = head.queue
        first = met[queue]
        met[queue] += 1
        if first < taken[queue]:
            continue
        own, ms, correction, rows = waiting[queue], queue.ms, queue.correction, head.rows
        done_ms = start_ms + ms[rows] * correction
        reach_ms = deadline_ms
        if done_ms > deadline_ms + ROUNDING_MS:
            if strict:
                return None
            reach_ms = inf
        last = first + 1
        while queue.gains and last < len(own):
            more = rows + own[last][2].rows
            if more > queue.limit:
                break
            later_ms = start_ms + ms[more] * correction
            if later_ms > reach_ms:
                break
            rows, done_ms = more, later_ms
            last += 1
        entries = own[first:last]
        if done_ms > limit_ms and any(entry[2] is fresh for entry in entries):
            return None
        if head is fresh and last - first == 1 and done_ms > open_ms:
            return None
        runs.append((queue, entries))
        start_ms = done_ms
        taken[queue] = last
    return runs


def alone(
    order: Sequence[Entry], start_ms: float, fresh: Item | None = None, limit_ms: float = inf
) -> Runs | None:
    """Every query in a batch of its own, in the given order; None if a query would be late."""
    for deadline_ms, _, item in order:
        queue = item.queue
        start_ms += queue.ms[item.rows] * queue.correction
        if start_ms > deadline_ms + ROUNDING_MS or (item is fresh and start_ms > limit_ms):
            return None
    return [(entry[2].queue, [entry]) for entry in order]


def forecast(
    order: Sequence[Entry],
    start_ms: float,
    fresh: Item | None = None,
    limit_ms: float = inf,
    open_ms: float = inf,
) -> Runs | None:
    """Batches that are in time, if one of the two ways finds them. Takes O(n)."""
    runs = merged(order, start_ms, fresh, limit_ms, open_ms)
    return alone(order, start_ms, fresh, min(limit_ms, open_ms)) if runs is None else runs


def scheduled(order: Sequence[Entry], start_ms: float) -> FeasibleSchedule:
    """A new schedule of all that waits; it is late where no forecast is in time. Takes O(n)."""
    runs = forecast(order, start_ms)
    return FeasibleSchedule(runs or merged(order, start_ms, strict=False) or ())
