"""Configurations: all that a device can be, by its kind, its longest batch and its variants.

Given these three, what each option costs in time is settled, and because loads are divisible,
devices of one configuration behave like a single large one. So a plan is a number of devices per
configuration and loads per configuration and option, and nothing is lost by planning that way.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from planner.latency_curve import SizedBatch
from planner.solver.capacity import SLACK, frontier
from planner.solver.options import Options
from planner.types import Objective
from planner.upper_hull import upper_hull

Units = npt.NDArray[np.float64]

MOST_LATENCIES = 2_000
"""Different latencies of batches on a kind, up to which its configurations are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A device kind with the longest batch it may run and the options it offers then."""

    kind: int
    longest_ms: float
    """The longest batch that it may run, in ms by its profile."""
    batches: Mapping[int, SizedBatch]
    """Per option that is worth using here: its cheapest batch."""
    slowdown: float = 1.0
    """Times what profiles say that batches take here."""


def configurations(
    options: Options, objective: Objective, *, most: int
) -> tuple[Configuration, ...] | None:
    """All configurations that an optimal plan may need; None when there are more than ``most``.

    ``most`` limits the sum of options over configurations, which is the size of the program.
    """
    made: list[Configuration] = []
    size = 0
    for kind in range(len(options.counts)):
        indices = [i for i, option in enumerate(options.all) if option.kind == kind]
        if not indices:
            continue
        for table in _tables(options, kind, indices):
            if table.longest.size > MOST_LATENCIES:
                return None
            table.fill()
            table.leave_out_dominated(objective)
            for configuration in _of_kind(options, kind, table, objective, most):
                size += len(configuration.batches)
                if size > most:
                    return None
                made.append(configuration)
    return tuple(made)


def _tables(options: Options, kind: int, indices: Sequence[int]) -> "list[_Table]":
    """One for all options of a kind; under interference also one for each offer alone."""
    slowdown = options.slowdown(kind, 2)
    made = [_Table(options, indices, slowdown)]
    if slowdown > 1:
        users: dict[int, list[int]] = defaultdict(list)
        for index in indices:
            users[options.all[index].offer].append(index)
        made += [_Table(options, found, 1.0) for found in users.values()]
    return made


class _Table:
    """Time per query of the options on a kind (rows), by the device's longest batch (columns)."""

    __slots__ = ("frontiers", "indices", "longest", "options", "slowdown", "units")

    def __init__(self, options: Options, indices: Sequence[int], slowdown: float) -> None:
        self.options = options
        self.slowdown = slowdown
        """Times what profiles say that batches take on these devices."""
        self.indices = list(indices)
        """The option of each row."""
        within: dict[tuple[int, int | None], float] = defaultdict(float)
        for index in indices:
            option = options.all[index]
            half_ms = options.left_ms(option.demand) / slowdown / 2
            run = (option.offer, options.most(option.demand))
            within[run] = max(within[run], half_ms)
        self.frontiers = {
            (offer, most): frontier(options.problem.offers[offer].curve, limit, most)
            for (offer, most), limit in within.items()
        }
        """By offer, and the most rows that a batch of the class may have."""
        longest = {b.latency_ms for found in self.frontiers.values() for b in found}
        self.longest: Units = np.array(sorted(longest))
        """Latency in ms of the device's longest batch, shape ``(columns,)``, ascending."""
        self.units: Units = np.empty((0, 0))
        """Time per query in ms, shape ``(rows, columns)``; empty before ``fill``."""

    def fill(self) -> None:
        """Compute ``units``."""
        self.units = np.array([self._units(index) for index in self.indices])

    def _units(self, index: int) -> Units:
        """One row of ``units``, shape ``(columns,)``.

        Infinite where not even the smallest batch is in time.
        """
        option = self.options.all[index]
        batches = self._frontier(index)
        latencies = np.array([batch.latency_ms for batch in batches])
        units = np.array([inf, *(batch.unit_ms for batch in batches)])
        left_ms = self.options.left_ms(option.demand) / self.slowdown
        limit = np.minimum(self.longest, left_ms - self.longest)
        found: Units = units[np.searchsorted(latencies, limit, side="right")]
        return found

    def _frontier(self, index: int) -> Sequence[SizedBatch]:
        """The batches that an option may run here."""
        option = self.options.all[index]
        return self.frontiers[option.offer, self.options.most(option.demand)]

    def batch(self, row: int, column: int) -> SizedBatch:
        """The batch that a cell of ``units`` stands for; the cell must be finite."""
        option = self.options.all[self.indices[row]]
        longest = float(self.longest[column])
        limit = min(longest, self.options.left_ms(option.demand) / self.slowdown - longest)
        return max(
            (b for b in self._frontier(self.indices[row]) if b.latency_ms <= limit),
            key=lambda b: b.latency_ms,
        )

    def leave_out_dominated(self, objective: Objective) -> None:
        """Leave out columns and offers that others make superfluous."""
        columns = _columns(self.units)
        self.longest, self.units = self.longest[columns], self.units[:, columns]
        rows = self._rows(objective)
        self.indices = [self.indices[row] for row in rows]
        self.units = self.units[rows]

    def _rows(self, objective: Objective) -> list[int]:
        """The rows of offers that no other offer replaces at every longest batch."""
        groups: dict[str, dict[int, dict[int, int]]] = defaultdict(dict)
        for row, index in enumerate(self.indices):
            option = self.options.all[index]
            task = self.options.problem.offers[option.offer].task
            groups[task].setdefault(option.offer, {})[option.demand] = row
        kept: list[int] = []
        for offers in groups.values():
            alive = dict(offers)
            for offer, rows in offers.items():
                others = ((o, r) for o, r in alive.items() if o != offer)
                if any(self._replaces(r, rows, objective) for _, r in others):
                    del alive[offer]
            kept.extend(row for rows in alive.values() for row in rows.values())
        return sorted(kept)

    def _replaces(self, by: dict[int, int], rows: dict[int, int], objective: Objective) -> bool:
        """Whether one offer is as good as another at every longest batch.

        Both are given as class of demand to row.
        """
        first = self.options.all[self.indices[next(iter(by.values()))]]
        second = self.options.all[self.indices[next(iter(rows.values()))]]
        if first.memory_mib > second.memory_mib:
            return False
        if objective is Objective.ACCURACY and first.accuracy < second.accuracy:
            return False
        return all(
            demand in by and bool((self.units[by[demand]] <= self.units[row]).all())
            for demand, row in rows.items()
        )


def _columns(units: Units) -> list[int]:
    """The columns that are not at least as slow in every row as another, ascending.

    ``units`` has shape ``(rows, columns)``. Columns that are infinite throughout are left out.
    """
    _, first = np.unique(units, axis=1, return_index=True)
    kept = sorted(int(column) for column in first)
    alive = units[:, kept]
    result = []
    for at, column in enumerate(kept):
        better = np.flatnonzero((alive <= units[:, [column]]).all(axis=0))
        if not any(int(other) != at for other in better) and np.isfinite(units[:, column]).any():
            result.append(column)
    return result


def _of_kind(
    options: Options, kind: int, table: _Table, objective: Objective, most: int
) -> Iterator[Configuration]:
    """The configurations of one kind: every column with every maximal set of offers."""
    limit = options.problem.kinds[kind].memory_mib * (1 + SLACK)
    known: dict[frozenset[int], list[frozenset[int]]] = {}
    for column in range(table.longest.size):
        rows = [int(row) for row in np.flatnonzero(np.isfinite(table.units[:, column]))]
        memory = {
            options.all[table.indices[row]].offer: options.all[table.indices[row]].memory_mib
            for row in rows
        }
        key = frozenset(memory)
        if key not in known:
            known[key] = list(_maximal(memory, limit, most))
        made: set[tuple[int, ...]] = set()
        for together in known[key]:
            used = [row for row in rows if options.all[table.indices[row]].offer in together]
            worth = _worthwhile(options, table, column, used, objective)
            if worth in made:
                continue
            made.add(worth)
            yield Configuration(
                kind=kind,
                longest_ms=float(table.longest[column]),
                batches={table.indices[row]: table.batch(row, column) for row in worth},
                slowdown=table.slowdown,
            )


def _maximal(memory: Mapping[int, float], limit: float, most: int) -> Iterator[frozenset[int]]:
    """The sets of offers that fit together and to which no other can be added.

    Args:
        memory: offer to MiB.
        limit: MiB of the device.
        most: it stops after so many sets, which are too many for a program anyway.
    """
    offers = sorted(memory, key=lambda offer: (-memory[offer], offer))
    if sum(memory.values()) <= limit:
        yield frozenset(offers)
        return
    rest = [0.0] * (len(offers) + 1)
    for at in range(len(offers) - 1, -1, -1):
        rest[at] = rest[at + 1] + memory[offers[at]]
    count = 0
    stack: list[tuple[int, float, tuple[int, ...], float]] = [(0, limit, (), inf)]
    while stack and count <= most:
        at, left, taken, smallest_out = stack.pop()
        if rest[at] <= left:
            # All that remain fit. Maximal if nothing left out would fit as well.
            if smallest_out > left - rest[at]:
                count += 1
                yield frozenset((*taken, *offers[at:]))
            continue
        size = memory[offers[at]]
        stack.append((at + 1, left, taken, min(smallest_out, size)))
        if size <= left:
            stack.append((at + 1, left - size, (*taken, offers[at]), smallest_out))


def _worthwhile(
    options: Options, table: _Table, column: int, rows: Sequence[int], objective: Objective
) -> tuple[int, ...]:
    """Per class, the rows that no other or mixture of others on the device replaces, ascending."""
    by_class: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for row in rows:
        option = options.all[table.indices[row]]
        by_class[option.demand].append((float(table.units[row, column]), option.accuracy, row))
    kept: list[int] = []
    for found in by_class.values():
        found.sort(key=lambda point: (point[0], -point[1], point[2]))
        if objective is Objective.COST:
            kept.append(found[0][2])
            continue
        kept.extend(row for _, _, row in upper_hull(found))
    return tuple(sorted(kept))
