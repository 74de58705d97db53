"""Thinking a queue through: the batches that would run, if nobody is late by them.

Two ways, both earliest deadline first and each memoryless: what follows its first batch is the same
way again of the rest. So once one of them is in time, following it stays in time.
"""

from collections.abc import Sequence
from math import inf

from planner.agenda import ROUNDING_MS, Entry
from planner.lanes import Item, Lane

Runs = list[tuple[Lane, list[Entry]]]
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
    """The batches when each grows as far as the deadline of its head allows; ``None`` if late.

    ``order`` ascends by deadline. ``fresh`` has to be done by ``limit_ms`` as well, and by
    ``open_ms`` if it is alone in its batch. Batches do not
    grow in a lane that gains nothing by it. If not ``strict``, lateness does not matter: a batch
    whose head is late is as large as it can be.
    """
    queues: dict[Lane, list[Entry]] = {}
    for entry in order:
        queues.setdefault(entry[2].lane, []).append(entry)
    taken = dict.fromkeys(queues, 0)
    met = dict.fromkeys(queues, 0)
    runs: Runs = []
    for deadline_ms, _, head in order:
        lane = head.lane
        first = met[lane]
        met[lane] += 1
        if first < taken[lane]:
            continue
        queue, ms, correction, rows = queues[lane], lane.ms, lane.correction, head.rows
        done_ms = start_ms + ms[rows] * correction
        reach_ms = deadline_ms
        if done_ms > deadline_ms + ROUNDING_MS:
            if strict:
                return None
            reach_ms = inf
        last = first + 1
        while lane.gains and last < len(queue):
            more = rows + queue[last][2].rows
            if more > lane.limit:
                break
            later_ms = start_ms + ms[more] * correction
            if later_ms > reach_ms:
                break
            rows, done_ms = more, later_ms
            last += 1
        entries = queue[first:last]
        if done_ms > limit_ms and any(entry[2] is fresh for entry in entries):
            return None
        if head is fresh and last - first == 1 and done_ms > open_ms:
            return None
        runs.append((lane, entries))
        start_ms = done_ms
        taken[lane] = last
    return runs


def alone(
    order: Sequence[Entry], start_ms: float, fresh: Item | None = None, limit_ms: float = inf
) -> Runs | None:
    """Every query by itself, in the given order; ``None`` if one is late."""
    for deadline_ms, _, item in order:
        lane = item.lane
        start_ms += lane.ms[item.rows] * lane.correction
        if start_ms > deadline_ms + ROUNDING_MS or (item is fresh and start_ms > limit_ms):
            return None
    return [(entry[2].lane, [entry]) for entry in order]


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
