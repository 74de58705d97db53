"""Slow workers: those that take much longer than others of their kind get no queries for a while.

A neighbour on the machine, a throttled core, a failing disk: a worker may be slowed while others of
its kind are not. What it admits it still answers in time, but later than they would, so those that
hold the same variants answer instead. It stays loaded and ready. After a while it is asked again,
and if it is slow still, then twice as long is waited: the queries of that moment are the probe.

Where the others are busy nobody is spared, because half a worker is more than none; and where more
workers of a kind are slow than are not, it is the kind that is slow, which live correction knows
(``planner.reconcile.live_corrections``). Deterministic; knows no clock.
"""

from collections.abc import Iterable, Mapping
from math import exp, log
from statistics import median
from typing import NamedTuple

from variants.types import DeviceKindName, VariantKey, WorkerId

SLOW = 2.0
"""So many times as long as the others: less is what neighbours on one machine do to each other."""
LEAST_MS = 1.0
"""Less than this per batch is nobody's loss."""
ANSWERS = 8
"""Least new answers to judge by; a worker's model needs four batches to follow a change."""
MOST_BUSY = 0.7
"""Share of its time that each of the others may be busy, in the mean, while one is spared."""
FIRST_S, MOST_S = 4.0, 64.0
"""For how long a slow worker is spared at first, and at most."""


class WorkerTimes(NamedTuple):
    """What one worker says of its batches."""

    worker: WorkerId
    kind: DeviceKindName
    answers: int
    """That it gave, of those that are counted."""
    busy_ratio: float
    """Share of its time, lately."""
    beyond_ms: float
    """What its answers take beyond their time there (``planner.types.WorkerView``)."""
    means_ms: Mapping[tuple[VariantKey, int], float]
    """Mean of each variant and size of batch."""


class _Known:
    """Of one worker."""

    __slots__ = ("answers", "strikes", "times", "until_s")

    def __init__(self, answers: int) -> None:
        self.answers = answers
        """When it was judged last."""
        self.until_s = 0.0
        """Until then it is spared."""
        self.strikes = 0
        self.times = 1.0
        """As long as the others, when it was found to be slow."""


class SlowWorkers:
    """The workers that queries are kept from, of those that one gateway is connected to."""

    def __init__(self) -> None:
        self._known: dict[WorkerId, _Known] = {}
        self.spared: dict[WorkerId, float] = {}
        """Workers that get no queries, and how many times as long as the others they took."""

    def look(self, now_s: float, reports: Iterable[WorkerTimes]) -> bool:
        """Take in what all workers that are there say; whether ``spared`` has changed.

        ``now_s`` ascends from call to call.
        """
        kinds: dict[DeviceKindName, list[WorkerTimes]] = {}
        for each in reports:
            kinds.setdefault(each.kind, []).append(each)
        there = {each.worker for of_kind in kinds.values() for each in of_kind}
        self._known = {worker: one for worker, one in self._known.items() if worker in there}
        spared: dict[WorkerId, float] = {}
        for of_kind in kinds.values():
            slow = {each.worker for each in of_kind if self._judge(now_s, each, of_kind)}
            others = [each.busy_ratio for each in of_kind if each.worker not in slow]
            if len(slow) <= len(others) and sum(others) <= MOST_BUSY * len(others):
                spared.update({worker: self._known[worker].times for worker in slow})
        changed = spared.keys() != self.spared.keys()
        self.spared = spared
        return changed

    def _judge(self, now_s: float, report: WorkerTimes, of_kind: list[WorkerTimes]) -> bool:
        """Whether a worker is to be spared now."""
        known = self._known.get(report.worker)
        if known is None:
            known = self._known[report.worker] = _Known(report.answers)
        if now_s < known.until_s:
            known.answers = report.answers
            return True
        fresh = report.answers - known.answers
        if fresh < 0:
            known.answers = report.answers  # it began anew
        if fresh < ANSWERS:
            return False
        known.answers = report.answers
        times = slowness(report, of_kind)
        if times < SLOW:
            known.strikes = 0
            return False
        known.until_s = now_s + min(FIRST_S * 2.0**known.strikes, MOST_S)
        known.strikes += 1
        known.times = times
        return True


def slowness(report: WorkerTimes, of_kind: Iterable[WorkerTimes]) -> float:
    """How many times as long as the others a worker takes, in the geometric mean of what both ran.

    What counts is what an answer takes. A worker whose process is kept from running does not know
    of that, because its clock of a batch stands still as well. 1 where there is nothing to compare,
    or where an answer takes hardly longer.
    """
    others = [each for each in of_kind if each.worker != report.worker]
    beyond_ms = median([each.beyond_ms for each in others] or [0.0])
    logs: list[float] = []
    more_ms: list[float] = []
    for what, mean_ms in report.means_ms.items():
        theirs = [found for each in others if (found := each.means_ms.get(what)) is not None]
        if theirs:
            usual_ms = median(theirs) + max(beyond_ms, 0.0)
            own_ms = mean_ms + max(report.beyond_ms, 0.0)
            logs.append(log(own_ms / usual_ms))
            more_ms.append(own_ms - usual_ms)
    if not logs or max(more_ms) < LEAST_MS:
        return 1.0
    return exp(sum(logs) / len(logs))
