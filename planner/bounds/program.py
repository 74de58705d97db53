"""The linear program that finds prices of device time.

Its variables are how many queries of a class are served by an option, and in which window the work
on each kind is done: work of queries that arrive in window p and are due in window q is spread over
p to q, which is less than any schedule has to keep. The duals of its rows for device time are the
prices. It may also leave possibilities out (``MOST_AGES``): the prices are only less good then.

HiGHS' interior point method through scipy: on 110,000 variables it took 4.5 s and its dual simplex
54 s.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, vstack

from planner.bounds.classes import Classes
from planner.bounds.devices import DeviceTime
from planner.bounds.windows import Floats, Ints

MOST_AGES = 16
"""Windows between arrival and deadline in which work may be done; of more, these are spread."""


@dataclass(frozen=True, slots=True)
class Work:
    """Where the work of options can be done: variables and rows that all programs share.

    Variables are options first, then pieces of work. Work is counted in windows of one device: a
    piece of 1 occupies one device for the whole window.
    """

    options: int
    kind: Ints
    """Per piece."""
    window: Ints
    """Per piece."""
    per_class: csr_array
    """Rows (classes, options): what is served of each class."""
    balance: csr_array
    """Rows (arrival window, deadline window, kind) over options and pieces: work = pieces."""

    @property
    def size(self) -> int:
        """Variables of the program: options, then pieces."""
        return self.options + len(self.kind)


def work_of(classes: Classes) -> Work:
    """What the classes ask of device time, as rows and columns of the program."""
    windows = classes.windows
    spans, span_of = np.unique(np.stack((classes.first, classes.last)), axis=1, return_inverse=True)
    span_of = span_of.ravel()
    options = len(classes.of)
    rows = span_of[classes.of] * classes.kinds + classes.kind
    used, row_of = np.unique(rows, return_inverse=True)
    span, window = _ages(spans[0][used // classes.kinds], spans[1][used // classes.kinds])
    kind = used[span] % classes.kinds
    width_ms = windows.widths_ms
    unit_ms = float(np.median(width_ms))
    data = np.concatenate((classes.row_ms / unit_ms, -width_ms[window] / unit_ms))
    columns = np.arange(options + len(window))
    balance = coo_array((data, (np.concatenate((row_of.ravel(), span)), columns))).tocsr()
    per_class = coo_array(
        (np.ones(options), (classes.of, np.arange(options))),
        shape=(len(classes.queries), options),
    ).tocsr()
    return Work(options, kind, window, per_class, balance)


def _ages(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """For each span of windows, those in which its work may be done: (span, window) pairs."""
    spans, windows = [], []
    length = last - first
    for age in range(min(int(length.max(initial=0)) + 1, MOST_AGES)):
        offset = np.full(len(length), age)
        long = length >= MOST_AGES
        offset[long] = np.round(age * length[long] / (MOST_AGES - 1)).astype(np.int64)
        at = np.nonzero(offset <= length)[0]
        spans.append(at)
        windows.append(first[at] + offset[at])
    return np.concatenate(spans), np.concatenate(windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the program found."""

    value: float
    """Its optimum; an estimate, not a bound."""
    per_ms: Floats
    """Shape (resources, windows)."""
    query: float
    """What one more query in time is worth; 0 where their number is not prescribed."""


class ServingProgram:
    """Most queries in time, or the most accurate answers to a number of them."""

    def __init__(self, classes: Classes, time: DeviceTime) -> None:
        self._classes = classes
        self._work = work = work_of(classes)
        count = classes.windows.count
        self._shape = time.there_ms.shape
        width_ms = classes.windows.widths_ms
        resource = [work.kind * count + work.window]
        if time.failing:
            resource.append(time.kinds * count + work.window)
        pieces = np.tile(np.arange(len(work.kind)), len(resource)) + work.options
        used = coo_array(
            (np.ones(len(pieces)), (np.concatenate(resource), pieces)),
            shape=(self._shape[0] * count, work.size),
        ).tocsr()
        classes_rows = work.per_class.copy()
        classes_rows.resize((len(classes.queries), work.size))
        self._matrix = vstack((classes_rows, used)).tocsr()
        self._limit = np.concatenate((classes.queries, (time.there_ms / width_ms).ravel()))

    def most_served(self) -> Prices:
        """Queries in time at most."""
        return self._solved(np.ones(self._work.options), None)

    def most_accurate(self, in_time: float) -> Prices:
        """Sum of accuracies at most, of so many in time."""
        return self._solved(self._classes.accuracy, in_time)

    def _solved(self, worth: Floats, in_time: float | None) -> Prices:
        work = self._work
        worth = np.concatenate((worth, np.zeros(len(work.kind))))
        equal, value = work.balance, np.zeros(work.balance.shape[0])
        if in_time is not None:
            served = np.concatenate((np.ones(work.options), np.zeros(len(work.kind))))
            equal = vstack((equal, served[np.newaxis, :])).tocsr()
            value = np.append(value, in_time)
        found = linprog(
            -worth,
            A_ub=self._matrix,
            b_ub=self._limit,
            A_eq=equal,
            b_eq=value,
            method="highs-ipm",
        )
        if found.status != 0:
            return Prices(value=np.inf, per_ms=np.zeros(self._shape), query=0.0)
        rows = -np.asarray(found.ineqlin.marginals)[len(self._classes.queries) :]
        per_ms = np.maximum(rows.reshape(self._shape), 0.0) / self._classes.windows.widths_ms
        query = 0.0 if in_time is None else float(found.eqlin.marginals[-1])
        return Prices(value=-float(found.fun), per_ms=per_ms, query=query)
