"""Queries that are alike become one class: same task, same windows, same limits.

For each class there are options: a variant on a device kind, with its accuracy and the least device
time that any of the queries of the class could take by it. To take the least of them all for each
of them keeps a bound valid.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from planner.bounds.devices import Offers, holdable, ready_from_ms, usable_from_ms
from planner.bounds.row_times import least_row_ms
from planner.bounds.windows import Floats, Ints, Windows, windows_of
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Candidate

TOLERANCE_MS = 1e-6
"""The simulator forgives so much when it compares with a deadline."""
GIVEN_MS = 1e-5
"""A query is given so much of its device time for nothing, and the rest of it lies before its
deadline less so much: what is forgiven, and rounding, never let it into another window."""
LATENCIES = 8
"""Classes of latency SLOs that are kept apart within a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Classes of queries that something can serve, and the options of each.

    The options of a class are neighbours, in the order of classes.
    """

    requests: int
    """All queries, those that nothing can serve included."""
    windows: Windows
    kinds: int
    queries: Floats
    """Per class: how many there are."""
    first: Ints
    """Per class: the window of the arrivals."""
    last: Ints
    """Per class: the window of the deadlines."""
    begin: Ints
    """Per class: its first option."""
    of: Ints
    """Per option: its class."""
    kind: Ints
    """Per option: the device kind, an index into the setting's."""
    accuracy: Floats
    row_ms: Floats
    """Per option: device time of one query."""

    @property
    def servable(self) -> float:
        """Queries that some option can serve in time."""
        return float(self.queries.sum())


@dataclass(frozen=True, slots=True)
class _Queries:
    """Columns of the queries of one task, ascending by arrival."""

    arrival_ms: Floats
    deadline_ms: Floats
    floor: Floats
    ceiling: Floats


def classes_of(
    setting: Setting, trace: Trace, offers: Offers, *, most_windows: int | None = None
) -> Classes:
    """The classes of a trace with at least one query.

    Args:
        most_windows: before the last arrival; None: as many as the other programs can take.
    """
    arrival_ms = np.asarray(trace.arrival_s, dtype=float) * 1_000
    deadline_ms = arrival_ms + np.asarray(trace.latency_ms, dtype=float) + TOLERANCE_MS
    floor = np.asarray(trace.min_accuracy, dtype=float)
    ceiling = np.asarray(trace.max_cost, dtype=float)
    task = np.asarray(trace.task, dtype=np.int64)
    windows = windows_of(
        arrival_ms,
        deadline_ms - GIVEN_MS,
        ready_from_ms(setting, offers),
        tasks=len(trace.tasks),
        most=most_windows,
    )
    held = holdable(setting, offers)
    parts = []
    for number, name in enumerate(trace.tasks):
        mine = np.nonzero(task == number)[0]
        queries = _Queries(arrival_ms[mine], deadline_ms[mine], floor[mine], ceiling[mine])
        options = [
            (kind, candidate)
            for kind, candidates in enumerate(held)
            for candidate in candidates
            if candidate.task == name
        ]
        if len(mine) and options:
            parts.append(_Part(setting, windows, queries, options))
    return _together(parts, len(trace), windows, len(setting.kinds))


class _Part:
    """The classes of one task."""

    def __init__(
        self,
        setting: Setting,
        windows: Windows,
        queries: _Queries,
        options: list[tuple[int, Candidate]],
    ) -> None:
        first, last = (
            windows.first(queries.arrival_ms),
            windows.last(queries.deadline_ms - GIVEN_MS),
        )
        key = np.stack((first, last, *_limits(queries)))
        _, where, counts = np.unique(key, axis=1, return_inverse=True, return_counts=True)
        order = np.argsort(where.ravel(), kind="stable")
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        self.queries = counts.astype(float)
        self.first, self.last = first[order][starts], last[order][starts]
        self.kind = np.array([kind for kind, _ in options])
        self.accuracy = np.array([candidate.accuracy for _, candidate in options])
        self.row_ms = np.full((len(counts), len(options)), inf)
        """Shape (classes, options); infinite where an option does not serve a class."""
        for column, (_, candidate) in enumerate(options):
            each_ms = _row_ms(setting, queries, candidate)
            self.row_ms[:, column] = np.minimum.reduceat(each_ms[order], starts)
        self._forget_dominated()

    def _forget_dominated(self) -> None:
        """An option is no use beside one on the same kind that is as accurate and as quick."""
        for kind in set(self.kind.tolist()):
            columns = np.nonzero(self.kind == kind)[0]
            columns = columns[np.argsort(-self.accuracy[columns], kind="stable")]
            least_ms = np.full(len(self.queries), inf)
            for column in columns:
                mine = self.row_ms[:, column]
                better = mine < least_ms
                least_ms = np.minimum(least_ms, mine)
                mine[~better] = inf


def _limits(queries: _Queries) -> Iterator[Ints]:
    """Columns of numbers that tell queries apart that ask for different things."""
    for values in (queries.floor, queries.ceiling):
        yield np.unique(values, return_inverse=True)[1].astype(np.int64)
    latency_ms = queries.deadline_ms - queries.arrival_ms
    steps = np.unique(np.quantile(latency_ms, np.linspace(0, 1, LATENCIES + 1)[1:-1]))
    # Rounding makes equal latencies differ by little.
    yield np.searchsorted(steps * (1 + 1e-9), latency_ms).astype(np.int64)


def _row_ms(setting: Setting, queries: _Queries, candidate: Candidate) -> Floats:
    """Per query, the least device time by a candidate; infinite where it does not serve it."""
    ready_ms = usable_from_ms(setting) + candidate.load_ms
    answers = (queries.floor <= candidate.accuracy) & (
        queries.ceiling >= candidate.price_usd_per_1k
    )
    found = np.full(len(queries.arrival_ms), inf)
    if setting.instant:
        found[answers] = 0.0
        return found
    in_time = queries.deadline_ms >= ready_ms + candidate.table.ms[1]
    able = np.nonzero(answers & in_time)[0]
    least_ms = least_row_ms(queries.arrival_ms[able], queries.deadline_ms[able], candidate.table)
    found[able] = np.maximum(least_ms - GIVEN_MS, 0.0)
    return found


def _together(parts: list[_Part], requests: int, windows: Windows, kinds: int) -> Classes:
    """The classes of all tasks, without those that nothing can serve."""
    queries, accuracy, row_ms = ([np.zeros(0)] for _ in range(3))
    first, last, of, kind = ([np.zeros(0, dtype=np.int64)] for _ in range(4))
    count = 0
    for part in parts:
        served = np.isfinite(part.row_ms).any(axis=1)
        each_ms = part.row_ms[served]
        row, column = np.nonzero(np.isfinite(each_ms))
        queries.append(part.queries[served])
        first.append(part.first[served])
        last.append(part.last[served])
        of.append(row + count)
        kind.append(part.kind[column])
        accuracy.append(part.accuracy[column])
        row_ms.append(each_ms[row, column])
        count += int(served.sum())
    all_of = np.concatenate(of)
    return Classes(
        requests=requests,
        windows=windows,
        kinds=kinds,
        queries=np.concatenate(queries),
        first=np.concatenate(first),
        last=np.concatenate(last),
        begin=np.searchsorted(all_of, np.arange(count)),
        of=all_of,
        kind=np.concatenate(kind),
        accuracy=np.concatenate(accuracy),
        row_ms=np.concatenate(row_ms),
    )
