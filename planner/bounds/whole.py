"""The least that so many queries in time can cost with whole devices.

``planner.bounds.rent`` may rent a part of a device. Here how many devices of a kind have started
and how many have gone is a whole number in every window. Per kind and window w, with S the devices
that have started by its end, X those that have gone by its end (and are no longer billed for a
minute that they did not stay), and b the time billed in it, in windows of one device:

* who was there before w and is there after it is billed throughout: ``S[w-1] - X[w] <= b[w]``;
* only who was there at some moment of w is billed in it: ``b[w] <= S[w] - X[w-1]``;
* who started so late that what is billed at least reaches beyond w is billed throughout;
* work in w takes no more time than is billed, nor more than that of as many devices as there are
  places for.

Every fleet of whole devices fulfils all of that, so the least cost of the mixed program is a bound.
What is used of it is the bound that branch and bound proves at its root, so that it takes little
time. Unlike the rest of this package, it trusts the solver's arithmetic; so much of it is given
away that its tolerances, a millionth, do not matter.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

from planner.bounds.classes import Classes
from planner.bounds.devices import DeviceTime
from planner.bounds.program import work_of
from planner.bounds.rent import quickest_options, resized, terms_of
from planner.bounds.windows import Floats, Ints
from planner.simulation.setting import Setting

GIVEN = 1e-4
"""Part of the cost that is given away for the solver's tolerances."""
GAP = 5e-3
"""Part of the cost: where some fleet is no dearer than the bound by more, the search ends."""
NODES = 1
"""Of the search tree. A limit by nodes, not by time, gives the same bound everywhere."""


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Step:
    """So many queries in time, or more, cost so much at least."""

    in_time: int
    usd: float


class WholeRent:
    """The least cost of so many queries in time, on whole devices."""

    def __init__(self, setting: Setting, classes: Classes, time: DeviceTime) -> None:
        self._terms = terms_of(setting)
        self._quickest = quickest_options(classes)
        self._work = work_of(self._quickest)
        self._widths_ms, self._edges_ms = classes.windows.widths_ms, classes.windows.edges_ms
        self._cells = len(self._terms) * classes.windows.count
        """Kinds x windows."""
        self._size = self._work.size + 3 * self._cells
        """Variables: work, then b, S and X, each of shape (kinds, windows)."""
        counts = [float(kind.count) for kind in setting.kinds]
        self._build(np.array(counts), (time.there_ms[: len(counts)] > 0).ravel())

    def _build(self, counts: Floats, there: Bools) -> None:
        work, windows = self._work, len(self._widths_ms)
        served = resized(work.per_class, len(self._quickest.queries), self._size)
        used = self._used()
        billed = self._rows([(self._at(0), np.where(there, -1.0, 0.0))])
        rules = [
            self._rules(kind, terms.paid_ms, kind * windows)
            for kind, terms in enumerate(self._terms)
        ]
        in_time = np.zeros((1, self._size))
        in_time[0, : work.options] = -1.0
        self._limits = vstack((served, used + billed, used, *rules, csr_array(in_time))).tocsr()
        self._most = np.zeros(self._limits.shape[0])
        first = len(self._quickest.queries)
        self._most[:first] = self._quickest.queries
        self._most[first + self._cells : first + 2 * self._cells] = np.repeat(counts, windows)
        self._balance = resized(work.balance, work.balance.shape[0], self._size)
        usd = np.array([each.usd_per_ms for each in self._terms])
        cost = np.zeros((3, len(self._terms), windows))
        cost[0] = usd[:, None] * self._widths_ms
        cost[1, :, -1] = usd * [each.provision_ms for each in self._terms]
        self._unit_usd = float(np.median(cost[0])) or 1.0
        self._cost = np.concatenate((np.zeros(work.size), cost.ravel() / self._unit_usd))
        self._whole = np.zeros(self._size)
        self._whole[work.size + self._cells :] = 1

    def _used(self) -> csr_array:
        """Rows (kinds, windows): the work that is done there."""
        work = self._work
        rows = work.kind * len(self._widths_ms) + work.window
        pieces = work.options + np.arange(len(work.kind))
        where = (rows, pieces)
        return coo_array((np.ones(len(pieces)), where), shape=(self._cells, self._size)).tocsr()

    def _at(self, part: int) -> Ints:
        """Columns of b, S or X."""
        return self._work.size + part * self._cells + np.arange(self._cells)

    def _rows(self, parts: list[tuple[Ints, Floats | float]]) -> csr_array:
        """A row for each column of a part, the sum of all parts; none where a column is below 0."""
        count = len(parts[0][0])
        rows, columns, data = [], [], []
        for column, value in parts:
            known = np.nonzero(column >= 0)[0]
            rows.append(known)
            columns.append(column[known])
            data.append(np.broadcast_to(np.asarray(value, dtype=float), count)[known])
        where = (np.concatenate(rows), np.concatenate(columns))
        return coo_array((np.concatenate(data), where), shape=(count, self._size)).tocsr()

    def _rules(self, kind: int, paid_ms: float, first: int) -> csr_array:
        """Rows of a kind, all at most 0."""
        edges_ms = self._edges_ms
        windows = np.arange(len(self._widths_ms))
        b, s, x = (self._at(part)[first + windows] for part in range(3))
        before = np.concatenate(([-1], s[:-1])), np.concatenate(([-1], x[:-1]))
        since = np.searchsorted(edges_ms[:-1], edges_ms[1:] - paid_ms, side="left")
        late = windows[since < windows]
        earlier = np.where(since[late] > 0, s[since[late] - 1], -1)
        return vstack((
            self._rows([(before[0], 1.0), (x, -1.0), (b, -1.0)]),
            self._rows([(b, 1.0), (s, -1.0), (before[1], 1.0)]),
            self._rows([(before[0][late], 1.0), (earlier, -1.0), (b[late], -1.0)]),
            self._rows([(before[0], 1.0), (s, -1.0)]),
            self._rows([(before[1], 1.0), (x, -1.0)]),
            self._rows([(x, 1.0), (s, -1.0)]),
        ))  # fmt: skip

    def least(self, in_time: int) -> Step | None:
        """What so many queries in time cost at least; None where the solver proves nothing."""
        self._most[-1] = -in_time * (1 - 1e-9)
        found = milp(
            self._cost,
            integrality=self._whole,
            bounds=Bounds(0.0, np.inf),
            constraints=[
                LinearConstraint(self._limits, -np.inf, self._most),
                LinearConstraint(self._balance, 0.0, 0.0),
            ],
            options={"node_limit": NODES, "mip_rel_gap": GAP},
        )
        proven = getattr(found, "mip_dual_bound", None)
        if proven is None or not np.isfinite(proven):
            return None
        return Step(in_time, float(proven) * self._unit_usd * (1 - GIVEN))
