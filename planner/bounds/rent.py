"""The least that so many queries in time can cost, with devices that are ordered and released.

A linear program finds prices of device time, of places in the fleet (there are only so many devices
at a time) and of a query in time. What follows from them by weak duality is valid for any prices
that are not negative, as long as no life of a device earns more than it costs
(``planner.bounds.lives``); prices for which one does are lowered until none does.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, hstack, vstack

from planner.bounds.ceilings import dues, gains
from planner.bounds.classes import Classes
from planner.bounds.devices import DeviceTime, usable_from_ms
from planner.bounds.lines import Line
from planner.bounds.lives import Terms, earning_ratio
from planner.bounds.program import Work, work_of
from planner.bounds.windows import Floats, Windows
from planner.simulation.fleet import LEAST_BILLED_MS
from planner.simulation.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RentPrices:
    """What the program found, in USD."""

    value: float
    """Its optimum; an estimate, not a bound."""
    work: Floats
    """Of device time per ms, shape (kinds, windows)."""
    place: Floats
    """Of a place in the fleet per ms, shape (kinds, windows)."""
    query: float
    """Of one more query in time."""


class Rent:
    """The least cost of so many queries in time."""

    def __init__(
        self, setting: Setting, classes: Classes, time: DeviceTime, *, free_ms: float = 0.0
    ) -> None:
        """
        Args:
            free_ms: what is billed before this time costs nothing.
        """
        self._free_ms = free_ms
        self._classes = classes
        self._counts = np.array([float(kind.count) for kind in setting.kinds])
        self._terms = terms_of(setting, free_ms)
        self._there: npt.NDArray[np.bool_] = time.there_ms > 0
        self._quickest = quickest_options(classes)
        self._work = work_of(self._quickest)
        self._billing = Billing(self._terms, classes.windows)
        self._build()

    def _build(self) -> None:
        """Variables are those of the work, then those of the billing."""
        work, billing, classes = self._work, self._billing, self._quickest
        shape = (classes.kinds, classes.windows.count)
        served = resized(work.per_class, len(classes.queries), work.size + billing.size)
        in_time = np.zeros(work.size + billing.size)
        in_time[: work.options] = -1.0
        rules = hstack((_empty(billing.rules.shape[0], work.size), billing.rules))
        self._limits = vstack(
            (served, self._capacity(work, shape), rules, in_time[np.newaxis, :])
        ).tocsr()
        self._most = np.zeros(self._limits.shape[0])
        self._most[: len(classes.queries)] = classes.queries
        self._balance = resized(work.balance, work.balance.shape[0], work.size + billing.size)
        usual_usd = billing.cost_usd[: billing.size // 2]
        usual_usd = usual_usd[usual_usd > 0.0]
        self._unit_usd = float(np.median(usual_usd)) if len(usual_usd) else 1.0
        """Solvers compare with absolute tolerances: they expect costs of the order of 1."""
        costs = billing.cost_usd / self._unit_usd
        self._cost = np.concatenate((np.zeros(work.size), costs))
        places = np.repeat(self._counts, shape[1])
        self._highest = np.full(work.size + billing.size, np.inf)
        self._highest[work.size : work.size + len(places)] = places

    def _capacity(self, work: Work, shape: tuple[int, int]) -> csr_array:
        """Rows (kinds, windows): work in a window has the time of the devices billed in it, once
        one can have loaded something."""
        there = np.nonzero(self._there.ravel())[0]
        pieces = work.options + np.arange(len(work.kind))
        rows = np.concatenate((work.kind * shape[1] + work.window, there))
        data = np.concatenate((np.ones(len(pieces)), -np.ones(len(there))))
        where = (rows, np.concatenate((pieces, work.size + there)))
        size = (shape[0] * shape[1], work.size + self._billing.size)
        return coo_array((data, where), shape=size).tocsr()

    def prices(self, in_time: float) -> RentPrices | None:
        """Of a fleet for so many queries in time; None when the solver finds none."""
        self._most[-1] = -in_time
        found = linprog(
            self._cost,
            A_ub=self._limits,
            b_ub=self._most,
            A_eq=self._balance,
            b_eq=np.zeros(self._balance.shape[0]),
            bounds=np.stack((np.zeros(len(self._highest)), self._highest), axis=1),
            method="highs-ipm",
        )
        if found.status != 0:
            return None
        windows = self._classes.windows
        duals = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0) * self._unit_usd
        shape = (self._classes.kinds, windows.count)
        first = len(self._quickest.queries)
        work = duals[first : first + shape[0] * shape[1]].reshape(shape) / windows.widths_ms
        upper = np.maximum(-np.asarray(found.upper.marginals)[self._work.size :], 0.0)
        upper *= self._unit_usd
        place = upper[: shape[0] * shape[1]].reshape(shape) / windows.widths_ms
        return RentPrices(
            value=float(found.fun) * self._unit_usd,
            work=work,
            place=place,
            query=float(duals[-1]),
        )

    def line(self, prices: RentPrices) -> Line:
        """Below the cost of any number of queries in time."""
        windows = self._classes.windows
        work = np.empty_like(prices.work)
        # Where nothing is billed, all that is earned is owed to there being so few places.
        free = windows.edges_ms[:-1] < self._free_ms
        place = np.where(free, np.maximum(prices.place, prices.work), prices.place)
        places = 0.0
        for kind, terms in enumerate(self._terms):
            there = self._there[kind]
            first = int(np.argmax(windows.edges_ms > terms.provision_ms * (1 + 1e-12))) - 1
            edges_ms = np.maximum(windows.edges_ms[first:], terms.provision_ms)
            earned = np.where(there, prices.work[kind] - place[kind], 0.0)[first:]
            work[kind] = prices.work[kind] / max(1.0, earning_ratio(terms, edges_ms, earned))
            worth = (place[kind] * windows.widths_ms)[there].sum()
            places += self._counts[kind] * float(worth)
        left = prices.query - dues(self._quickest, work)
        return Line(-gains(self._quickest, left) - places, prices.query)

    def least_life(self) -> Line:
        """Whoever is in time is so on some device, which is billed for the least time at least."""
        usd = [each.usd_per_ms * max(each.least_ms, each.provision_ms) for each in self._terms]
        able = [usd[kind] for kind in range(len(usd)) if self._there[kind].any()]
        return Line(min(able, default=0.0), 0.0)


class Billing:
    """Rows about devices that are billed after they became usable, per kind and window.

    Variables: how many there are (kinds, windows), then how many have started since the beginning
    (kinds, windows). Sums keep the rows short.
    """

    def __init__(self, terms: list[Terms], windows: Windows) -> None:
        self._kinds, self._windows = len(terms), windows
        self.size = 2 * len(terms) * windows.count
        billed = [each.usd_per_ms * _after(windows, each.free_ms) for each in terms]
        started = [_start_usd(each, windows) for each in terms]
        self.cost_usd: Floats = np.concatenate((*billed, *started))
        rows = [self._kind(number, each.paid_ms) for number, each in enumerate(terms)]
        self.rules = vstack(rows).tocsr()

    def _kind(self, kind: int, paid_ms: float) -> csr_array:
        """Rows, all at most 0: what is more than in the window before has started; who started less
        than ``paid_ms`` before the end of a window is billed in it."""
        count, edges_ms = self._windows.count, self._windows.edges_ms
        window = np.arange(count)
        billed, started = kind * count + window, (self._kinds + kind) * count + window
        since = np.searchsorted(edges_ms[:-1], edges_ms[1:] - paid_ms, side="left")
        since = np.minimum(since, window + 1)
        long = np.nonzero(since > 0)[0]
        later = window[1:]
        parts = (
            (window, billed, 1.0), (later, billed[:-1], -1.0),
            (window, started, -1.0), (later, started[:-1], 1.0),
            (count + window, started, 1.0), (count + window, billed, -1.0),
            (count + long, started[since[long] - 1], -1.0),
            (2 * count + later, started[:-1], 1.0), (2 * count + later, started[1:], -1.0),
        )  # fmt: skip
        data = np.concatenate([np.full(len(row), value) for row, _, value in parts])
        where = (
            np.concatenate([row for row, _, _ in parts]),
            np.concatenate([column for _, column, _ in parts]),
        )
        return coo_array((data, where), shape=(3 * count, self.size)).tocsr()


def _after(windows: Windows, free_ms: float) -> Floats:
    """How much of each window is after a time."""
    edges_ms = windows.edges_ms
    left_ms: Floats = np.maximum(edges_ms[1:] - np.maximum(edges_ms[:-1], free_ms), 0.0)
    return left_ms


def _start_usd(terms: Terms, windows: Windows) -> Floats:
    """What being provided costs, as a cost of those that have started by the end of each window."""
    usable_ms = np.maximum(windows.edges_ms[:-1], terms.provision_ms)
    each = terms.usd_per_ms * np.clip(usable_ms - terms.free_ms, 0.0, terms.provision_ms)
    found: Floats = each - np.append(each[1:], 0.0)
    return found


def quickest_options(classes: Classes) -> Classes:
    """Only the quickest option of each class on each kind."""
    order = np.lexsort((classes.row_ms, classes.kind, classes.of))
    key = classes.of[order] * classes.kinds + classes.kind[order]
    kept = np.sort(order[np.concatenate(([True], np.diff(key) > 0))])
    of = classes.of[kept]
    return Classes(
        requests=classes.requests,
        windows=classes.windows,
        kinds=classes.kinds,
        queries=classes.queries,
        first=classes.first,
        last=classes.last,
        begin=np.searchsorted(of, np.arange(len(classes.queries))),
        of=of,
        kind=classes.kind[kept],
        accuracy=classes.accuracy[kept],
        row_ms=classes.row_ms[kept],
    )


def terms_of(setting: Setting, free_ms: float = 0.0) -> list[Terms]:
    """What a device of each kind costs, beyond what is billed before ``free_ms``."""
    return [
        Terms(
            usd_per_hour=kind.usd_per_hour,
            provision_ms=usable_from_ms(setting),
            least_ms=LEAST_BILLED_MS,
            free_ms=free_ms,
        )
        for kind in setting.kinds
    ]


def resized(matrix: csr_array, rows: int, columns: int) -> csr_array:
    """The matrix with another shape; what is new is empty."""
    found = matrix.copy()
    found.resize((rows, columns))
    return found


def _empty(rows: int, columns: int) -> csr_array:
    return csr_array((rows, columns))
