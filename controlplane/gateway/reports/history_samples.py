"""HistorySamples: how the queries of each ten seconds ended, for charts of the last hour.

A sample is what the counters grew by. All gateways cut time at the same moments, so that their
samples of one moment can be added up (``controlplane.views.history``). Nothing is done on the query
path.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from controlplane.gateway.counting.task_counters import BOUNDS_MS, TaskCounters
from controlplane.gateway.reports.recent_outcomes import Counted, difference
from controlplane.views.history import slot_of


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was counted of one task when the last sample was taken."""

    ended: Counted
    buckets: tuple[int, ...]
    rows: Mapping[str, int]
    """By variant."""


class HistorySamples:
    """Takes a sample of a gateway's counters whenever ten seconds are over."""

    def __init__(self, wall_s: float) -> None:
        """``wall_s``: the Unix time when nothing was counted yet."""
        self._slot = slot_of(wall_s)
        self._seen: dict[str, _Seen] = {}
        self._asked: Mapping[str, int] = {}
        """Rows asked for by demand counter, when the last sample was taken."""

    def is_due(self, wall_s: float) -> bool:
        """Whether ten seconds have ended since the last sample."""
        return slot_of(wall_s) != self._slot

    def take(
        self,
        wall_s: float,
        ended: Mapping[str, Counted],
        counters: Mapping[str, TaskCounters],
        accuracies: Mapping[tuple[str, str], float],
        *,
        asked: Mapping[str, int] = MappingProxyType({}),
        last: bool = False,
    ) -> dict[str, Any] | None:
        """What was counted since the last sample, if ten seconds have ended since then.

        Args:
            wall_s: Unix time.
            ended: how the queries of each task ended, since the gateway started.
            counters: all that was counted of them.
            accuracies: by task and variant, in [0, 1].
            asked: rows asked for by demand counter (``controlplane.demand_counters``), since the
                gateway started.
            last: nothing comes after this; the ten seconds that are not over count as well.

        Returns:
            ``slot``, the number of the ten seconds since 1970 that have ended; and ``tasks``, those
            that were asked: a ``Counted`` of each, ``latencies`` (lists of from ms, to ms, and how
            many answers took so long; the last one ends at null), and ``accuracy`` (rows times the
            accuracy of their variants, and rows); and where any were, ``asked``, the rows asked for
            by demand counter. None while the ten seconds last.
        """
        slot = slot_of(wall_s)
        if slot == self._slot and not last:
            return None
        # Where a clock was set back, the new time counts.
        over = slot - 1 if slot > self._slot else slot
        self._slot = slot
        found = {}
        for task, now in ended.items():
            told = self._grown(task, now, counters[task], accuracies)
            if told["met"] or told["missed"] or told["errors"] or told["infeasible_answered"]:
                found[task] = told
        self._seen = {task: self._seen[task] for task in ended}
        before, self._asked = self._asked, dict(asked)
        sample: dict[str, Any] = {"slot": over, "tasks": found}
        if more := {name: rows for name, rows in _more(before, asked) if rows}:
            sample["asked"] = more
        return sample

    def _grown(
        self,
        task: str,
        ended: Counted,
        counters: TaskCounters,
        accuracies: Mapping[tuple[str, str], float],
    ) -> dict[str, Any]:
        before = self._seen.get(task)
        rows = {name: one.rows for name, one in counters.variants.items()}
        now = self._seen[task] = _Seen(ended, tuple(counters.buckets), rows)
        had = before.buckets if before else (0,) * len(now.buckets)
        more = {name: count - (before.rows.get(name, 0) if before else 0)
                for name, count in rows.items() if (task, name) in accuracies}  # fmt: skip
        return {
            **difference(ended, before.ended if before else None),
            "latencies": [
                [*_bounds(i), count - had[i]]
                for i, count in enumerate(now.buckets)
                if count > had[i]
            ],
            "accuracy": [
                sum(accuracies[task, name] * count for name, count in more.items()),
                sum(more.values()),
            ],
        }


def _more(before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """By how much counters grew; one that was forgotten and comes anew begins at 0."""
    for name, rows in now.items():
        had = before.get(name, 0)
        yield name, rows - had if rows >= had else rows


def _bounds(bucket: int) -> tuple[float, float | None]:
    """From when to when latencies fall into a bucket, in ms."""
    low = BOUNDS_MS[bucket - 1] if bucket else 0.0
    return low, BOUNDS_MS[bucket] if bucket < len(BOUNDS_MS) else None
