"""A bound in which batches are not interrupted: ``python -m
tests.bench.simulation.regret.uninterrupted``.

The bound of ``planner/bounds`` lets the work of a query be done at any moments before its deadline.
This one knows that a batch runs from one moment to another: a batch of b rows that takes l(b) and
begins at s pays for the time of its device from s to s + l(b), and each of its rows the b-th part.
All of its rows have come by s and none is due before s + l(b), so that at s there are at least b
such queries of its task. So, for any prices of device time p >= 0 and any beta,

    sum over queries in time of (accuracy + beta)
      <= sum over queries of max(0, max over variants, kinds, b and s of
                                   accuracy + beta - (price from s to s + l(b)) / b)
       + sum over kinds of price x device time.

Moments are looked at in cells, of which each stands for its cheapest begin, so that the bound stays
one. Prices begin as those of the linear program and then follow what is asked for beyond what there
is (a subgradient), each with a step of its own (Kingma, Ba, *Adam*, ICLR 2015, section 2).

What is printed is by how much mean accuracy the bound is lower for as many queries in time as ours
has. Half a minute for a draw; nothing depends on the machine.
"""

from dataclasses import dataclass

import numpy as np

from planner.bounds.bound import ROUNDING
from planner.bounds.classes import TOLERANCE_MS, classes_of
from planner.bounds.devices import device_time, holdable, ready_from_ms
from planner.bounds.program import ServingProgram
from planner.bounds.windows import Floats, Ints, range_least
from planner.latency_table import LatencyTable
from planner.simulate import bound, offers_of, simulate
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.draws import draws_of, draws_parser

CELL_MS = 20.0
ROUNDS = 100
STEP = 0.05
"""First step of a price, as a part of their mean; at round n it is divided by 1 + n / 15."""
KEPT, KEPT_SQUARES = 0.8, 0.98
"""Of a direction, and of its square, from one round to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A size of batch of a variant on a kind, and the queries that may be in one."""

    kind: int
    accuracy: float
    rows: int
    ms: float
    queries: Ints
    first: Ints
    """By query: the cell of the first moment at which it may begin."""
    last: Ints
    there: np.ndarray
    """By cell: whether enough queries are there."""


class Uninterrupted:
    """The bound of a trace, for a number of queries in time, at least one."""

    def __init__(
        self, setting: Setting, trace: Trace, in_time: int, cell_ms: float = CELL_MS
    ) -> None:
        offers = offers_of(setting.catalog)
        classes = classes_of(setting, trace, offers)
        end_ms = float(trace.arrival_s[-1]) * 1_000
        time = device_time(setting, offers, classes.windows, end_ms)
        found = ServingProgram(classes, time).most_accurate(in_time * (1 - ROUNDING))
        self.in_time, self.beta = in_time, found.query
        self._cell_ms = cell_ms
        self._arrival_ms = np.asarray(trace.arrival_s, dtype=float) * 1_000
        self._due_ms = self._arrival_ms + np.asarray(trace.latency_ms, dtype=float) + TOLERANCE_MS
        self._cells = int(self._due_ms.max() / cell_ms) + 2
        self._edges_ms = np.arange(self._cells + 1) * cell_ms
        edges_ms = classes.windows.edges_ms
        self.prices = np.array(
            [
                np.diff(np.interp(self._edges_ms, edges_ms, _summed(each * np.diff(edges_ms))))
                for each in time.prices(found.per_ms)
            ]
        )
        """Per ms, shape (kinds, cells)."""
        self.prices /= cell_ms
        self._there_ms = np.array(
            [
                kind.count * np.clip(self._edges_ms[1:] - ready_ms, 0.0, cell_ms)
                for kind, ready_ms in zip(
                    setting.kinds, ready_from_ms(setting, offers), strict=True
                )
            ]
        )
        self._batches = self._all_batches(setting, trace)

    def _all_batches(self, setting: Setting, trace: Trace) -> list[Batch]:
        offers = offers_of(setting.catalog)
        task, floor = np.asarray(trace.task), np.asarray(trace.min_accuracy)
        ceiling = np.asarray(trace.max_cost)
        found = []
        for kind, candidates in enumerate(holdable(setting, offers)):
            for each in candidates:
                if each.task not in trace.tasks:
                    continue
                mine = np.nonzero(
                    (task == trace.tasks.index(each.task))
                    & (floor <= each.accuracy)
                    & (ceiling >= each.price_usd_per_1k)
                )[0]
                for rows in _sizes(each.table):
                    batch = self._batch(kind, each.accuracy, rows, each.table.ms[rows], mine)
                    if batch is not None:
                        found.append(batch)
        return found

    def _batch(self, kind: int, accuracy: float, rows: int, ms: float, mine: Ints) -> Batch | None:
        arrival_ms, last_ms = self._arrival_ms[mine], self._due_ms[mine] - ms
        able = np.nonzero(last_ms >= arrival_ms)[0]
        arrival_ms, last_ms = arrival_ms[able], last_ms[able]
        come = np.searchsorted(arrival_ms, self._edges_ms[1:], side="right")
        over = np.searchsorted(np.sort(last_ms), self._edges_ms[:-1], side="left")
        there = come - over >= rows
        if not there.any():
            return None
        return Batch(
            kind=kind,
            accuracy=accuracy,
            rows=rows,
            ms=ms,
            queries=mine[able],
            first=(arrival_ms / self._cell_ms).astype(np.int64),
            last=(last_ms / self._cell_ms).astype(np.int64),
            there=there,
        )

    def _begins(self, batch: Batch, until: Floats) -> tuple[Floats, Floats]:
        """By cell: what a row pays at the cheapest begin in it, and that begin, in ms.

        What a batch pays is linear between moments at which it begins or ends at an edge.
        ``until`` is what a device's time costs from 0 to each edge.
        """
        edges_ms, cell_ms = self._edges_ms, self._cell_ms
        ends_at_edge = edges_ms[:-1] + (cell_ms - batch.ms % cell_ms) % cell_ms
        begins_ms = np.stack((edges_ms[:-1], edges_ms[1:], ends_at_edge))
        paid = np.interp(begins_ms + batch.ms, edges_ms, until)
        paid -= np.interp(begins_ms, edges_ms, until)
        which = paid.argmin(axis=0)[np.newaxis]
        least = np.take_along_axis(paid, which, axis=0)[0] / batch.rows
        cheapest_ms = np.take_along_axis(begins_ms, which, axis=0)[0]
        return np.where(batch.there, least, np.inf), cheapest_ms

    def accuracy(self, prices: Floats, beta: float) -> tuple[float, Floats]:
        """The bound on mean accuracy, and in which direction prices have to fall for a lower one:
        what there is less what is asked for, in ms, shape (kinds, cells)."""
        until = [_summed(each * self._cell_ms) for each in prices]
        best = np.zeros(len(self._arrival_ms))
        chosen = np.full(len(best), -1)
        for number, batch in enumerate(self._batches):
            least, _ = self._begins(batch, until[batch.kind])
            paid = range_least(least, batch.first, batch.last)
            value = batch.accuracy + beta - paid
            better = value > best[batch.queries]
            best[batch.queries[better]] = value[better]
            chosen[batch.queries[better]] = number
        left_ms = self._there_ms.copy()
        for number, batch in enumerate(self._batches):
            mine = chosen[batch.queries] == number
            if mine.any():
                begin_ms = self._cheapest_ms(batch, mine, until[batch.kind])
                left_ms[batch.kind] -= self._used_ms(begin_ms, batch.ms) / batch.rows
        earned = float(best.sum() + (prices * self._there_ms).sum())
        return (earned - beta * self.in_time) / self.in_time, left_ms

    def _cheapest_ms(self, batch: Batch, mine: np.ndarray, until: Floats) -> Floats:
        """When the batches of some of its queries begin."""
        least, begins_ms = self._begins(batch, until)
        first, last = batch.first[mine], batch.last[mine]
        cells = first[:, np.newaxis] + np.arange(int((last - first).max()) + 1)
        inside = cells <= last[:, np.newaxis]
        paid = np.where(inside, least[np.minimum(cells, self._cells - 1)], np.inf)
        found: Floats = begins_ms[first + paid.argmin(axis=1)]
        return found

    def _used_ms(self, begin_ms: Floats, ms: float) -> Floats:
        """By cell: device time of batches of that length."""
        found = np.zeros(self._cells)
        for at_ms, sign in ((begin_ms, -1.0), (begin_ms + ms, 1.0)):
            cell = np.minimum((at_ms / self._cell_ms).astype(np.int64), self._cells - 1)
            part = np.bincount(cell, at_ms / self._cell_ms - cell, self._cells)
            later = np.bincount(cell, minlength=self._cells)[::-1].cumsum()[::-1]
            found += sign * self._cell_ms * (part + np.append(later[1:], 0))
        return found

    def least_accuracy(self, rounds: int = ROUNDS) -> float:
        """The lowest bound that is found in so many rounds."""
        prices = self.prices.copy()
        along, squares = np.zeros_like(prices), np.zeros_like(prices)
        step = STEP * float(prices[prices > 0].mean()) if (prices > 0).any() else 0.0
        least = np.inf
        for number in range(rounds):
            found, left_ms = self.accuracy(prices, self.beta)
            least = min(least, found)
            along = KEPT * along + (1 - KEPT) * left_ms
            squares = KEPT_SQUARES * squares + (1 - KEPT_SQUARES) * left_ms**2
            mean = along / (1 - KEPT ** (number + 1))
            size = np.sqrt(squares / (1 - KEPT_SQUARES ** (number + 1))) + 1e-9
            prices = np.maximum(0.0, prices - step / (1 + number / 15) * mean / size)
        return float(least)


def _summed(values: Floats) -> Floats:
    return np.concatenate(([0.0], values.cumsum()))


def _sizes(table: LatencyTable) -> list[int]:
    """Of batches in which a row takes less than alone, and 1: the others are no use, because a
    batch of theirs has room for as many rows one after the other."""
    ms = table.ms
    return [b for b in range(1, table.max_batch + 1) if b == 1 or ms[b] < b * ms[1] * (1 - 1e-9)]


def main() -> None:
    given = draws_parser(__doc__).parse_args()
    print("| draw | regret | bound lower by |\n|---|--:|--:|")
    for number in draws_of(given):
        case = Case(catalog="draws", workload=f"draw-{number:02}", seed=given.seed)
        setting, trace = setting_of(case, Objective.ACCURACY), made(case)[2].trace
        report = simulate(setting, trace, "modelless", clock=lambda: 0.0)
        known = bound(setting, trace, [report])
        lower = known.accuracy(report.in_time)
        found = Uninterrupted(setting, trace, report.in_time).least_accuracy()
        regret = known.beside(report).regret_accuracy
        print(f"| {number} | {regret:.4f} | {max(0.0, lower - found):.4f} |", flush=True)


if __name__ == "__main__":
    main()
