"""Rounding cuts: a class that fills 2.4 devices needs three that hold it.

A class of which m is missing is served by columns in parts p: ``sum of p x >= m``, x being how many
devices are opened of each column. Those are whole numbers. So with u the devices that serve the
whole class where they do nothing else, n = floor(u m) and f = u m - n, mixed integer rounding
(Nemhauser and Wolsey, Integer and Combinatorial Optimization, 1988, section II.1.7) gives

    ``sum of F(p) x >= n + 1`` with ``F(p) = floor(u p) + min(1, (u p - floor(u p)) / f)``

F is no concave function of p where one device serves more than one u-th of the class. There the
cut has the least concave function above F: a larger coefficient keeps a cut of this kind valid, and
a device at prices is then worth a concave function of what it serves, which can be priced exactly.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import floor

import numpy as np

from planner.solver.columns.column import Array, Column, Indices
from planner.solver.columns.menus import Menus
from planner.solver.options import Options

LEAST = 1e-3
"""Nearer to a whole number of devices, nothing is rounded: it is less than what is gained, and
rounding errors stay far away."""
APART = 1e-12
"""Parts of a class that are closer than this are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A rounding cut."""

    demand: int
    """The class."""
    scale: float
    """Devices that serve the whole class: u above."""
    rest: float
    """Of ``scale`` times what is missing, what exceeds a whole number: f above."""
    least: float
    """What the coefficients of the opened columns add up to at least: n + 1 above."""

    def hull(self, most: float) -> list[tuple[float, float]]:
        """Corners (part, coefficient) of the coefficient of an option, from (0, 0).

        ``most`` is the part of the class that a device serves at most by that option.
        """
        scale, rest = self.scale, self.rest
        reach = scale * most
        if reach <= rest:
            return [(0.0, 0.0), (most, reach / rest)]
        whole = floor(reach)
        if whole and reach - whole < rest:
            last = [((whole - 1 + rest) / scale, float(whole))]
            last.append((most, whole + (reach - whole) / rest))
        else:
            last = [((whole + rest) / scale, whole + 1.0), (most, whole + 1.0)]
        corners = [(0.0, 0.0), (rest / scale, 1.0)]
        for corner in last:
            if corner[0] > corners[-1][0] + APART:
                corners.append(corner)
        return corners


class Rounding:
    """The rounding cuts of all classes, and the coefficients of options in them.

    What an option is worth at prices is linear between the corners of its coefficients, so each
    option is divided into pieces there, whatever the prices are.
    """

    __slots__ = ("_cut", "_hulls", "_piece", "_slope", "cuts", "demand", "first", "length", "start")

    cuts: list[Cut]
    first: dict[int, tuple[int, int]]
    """By option: its first piece, and how many it has."""
    start: Array
    """Per piece: the part of its class where it begins."""
    length: Array
    """The part of its class that it is."""
    demand: Indices
    """Its class."""

    def __init__(self, menus: Menus, missing: Array) -> None:
        options = menus.options
        most = _most(menus, missing)
        of_class: dict[int, list[int]] = {}
        self.cuts = []
        for (demand, _), part in sorted(_best(options, most).items()):
            self._cut_if_useful(demand, part, float(missing[demand]), of_class)
        self._hulls: dict[int, list[tuple[int, list[tuple[float, float]]]]] = {}
        self.first = {}
        start: list[float] = []
        length: list[float] = []
        demands: list[int] = []
        slopes: list[tuple[int, int, float]] = []
        for index, part in most.items():
            demand = options.all[index].demand
            hulls = [(cut, self.cuts[cut].hull(part)) for cut in of_class.get(demand, ())]
            if hulls:
                self._hulls[index] = hulls
            corners = _apart([0.0, part, *(at for _, hull in hulls for at, _ in hull)])
            self.first[index] = (len(start), len(corners) - 1)
            for low, high in pairwise(corners):
                for cut, hull in hulls:
                    rise = coefficient(hull, high) - coefficient(hull, low)
                    slopes.append((len(start), cut, rise / (high - low)))
                start.append(low)
                length.append(high - low)
                demands.append(demand)
        self.start, self.length = np.array(start), np.array(length)
        self.demand = np.array(demands, dtype=np.int64)
        self._piece = np.array([piece for piece, _, _ in slopes], dtype=np.int64)
        self._cut = np.array([cut for _, cut, _ in slopes], dtype=np.int64)
        self._slope = np.array([slope for _, _, slope in slopes])

    def _cut_if_useful(
        self, demand: int, part: float, missing: float, of_class: dict[int, list[int]]
    ) -> None:
        if part >= missing:
            return
        scale = 1 / part
        rest = scale * missing - floor(scale * missing)
        known = [self.cuts[cut].scale for cut in of_class.get(demand, ())]
        if LEAST <= rest <= 1 - LEAST and all(abs(s - scale) > LEAST * scale for s in known):
            of_class.setdefault(demand, []).append(len(self.cuts))
            least = floor(scale * missing) + 1.0
            self.cuts.append(Cut(demand=demand, scale=scale, rest=rest, least=least))

    def of(self, column: Column) -> dict[int, float]:
        """The coefficients of a column, by cut."""
        made: dict[int, float] = {}
        for index, (_, part) in column.parts.items():
            for cut, hull in self._hulls.get(index, ()):
                made[cut] = made.get(cut, 0.0) + coefficient(hull, part)
        return made

    def slopes(self, classes: Array, cuts: Array) -> Array:
        """What each piece is worth per part of its class, at prices of classes and of cuts."""
        added = np.bincount(
            self._piece, weights=self._slope * cuts[self._cut], minlength=self.demand.size
        )
        made: Array = classes[self.demand] + added
        return made


def coefficient(hull: list[tuple[float, float]], part: float) -> float:
    """Between the corners of a hull; beyond the last, its coefficient."""
    low, value = hull[0]
    for high, reached in hull[1:]:
        if part <= high:
            return value + (reached - value) * (part - low) / (high - low)
        low, value = high, reached
    return value


def _most(menus: Menus, missing: Array) -> dict[int, float]:
    """By option that is of use: the part of its class that a device serves by it at most."""
    options, load = menus.options, menus.options.problem.load
    made = {}
    for indices in menus.indices:
        for index in indices:
            option = options.all[index]
            part = float(missing[option.demand])
            if part > 0:
                time = options.time(index)
                made[index] = min(part, load / time) if time > 0 else part
    return made


def _best(options: Options, most: dict[int, float]) -> dict[tuple[int, int], float]:
    """By class and kind, the largest part that a device serves."""
    made: dict[tuple[int, int], float] = {}
    for index, part in most.items():
        key = (options.all[index].demand, options.all[index].kind)
        made[key] = max(made.get(key, 0.0), part)
    return made


def _apart(values: list[float]) -> list[float]:
    """Ascending, without those that are the same."""
    made: list[float] = []
    for value in sorted(values):
        if not made or value > made[-1] + APART:
            made.append(value)
    return made
