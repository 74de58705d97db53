"""The relaxation over columns: parts of devices that serve everything at the least price.

New columns come from the best device at the prices of the classes, until none is worth more than
it costs. At any prices it also bounds from below: divided by how many times its cost the best
device is worth, they are prices at which no device is worth more than it costs (Farley, Oper. Res.
38, 1990).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from planner.solver.columns.column import NOTHING, Column
from planner.solver.columns.menus import Menu, Menus
from planner.solver.columns.pricing import Array, Priced, best_devices
from planner.solver.milp import Answer, Program, solve
from planner.solver.partial_solution import PartialSolution

LABELS = 150
"""Sets that a pricing keeps of each step, where it looks for columns."""
MANY = 1_000
"""The same where it bounds."""
COLUMNS = 8
"""That one pricing adds at most. With 1, the relaxation of 100 classes took 65 rounds; with 8, 20;
with 16 as many."""
ROUNDS = 30
"""Of new columns for the whole problem."""
SPLITS = 24
"""Menus that the bound of a kind is divided into at most."""
NARROW = 1.02
"""Between longest batches as close as this, a menu is not divided any more."""
OFF = 0.001
"""Relative; what a device may be worth more than it costs where the bound is concerned."""

Left = Callable[[], float]
"""Seconds that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What classes are worth, and what devices cost."""

    total: float
    """Of the relaxation: USD per hour."""
    classes: Array
    """Per class, of serving all of it."""
    kinds: Array
    """Per kind, of a device, what it takes from counts and pools included."""


class Master:
    """The relaxation of what a partial solution does not serve yet."""

    __slots__ = ("_known", "columns", "menus", "missing", "options", "program")

    def __init__(self, menus: Menus, partial: PartialSolution) -> None:
        options, problem = menus.options, menus.options.problem
        self.menus, self.options = menus, options
        parts = [
            missing / rate if rate > 0 and found else 0.0
            for missing, rate, found in zip(
                partial.missing, options.rates, options.of_class, strict=True
            )
        ]
        self.missing: Array = np.array([part if part > NOTHING else 0.0 for part in parts])
        """Per class, the part that is to be served."""
        self.columns: list[Column] = []
        self._known: set[tuple[object, ...]] = set()
        # Rows: one per class, one per kind, one per pool.
        self.program = Program()
        for part in self.missing:
            self.program.row([], [], low=float(part))
        for count, opened in zip(options.counts, partial.opened, strict=True):
            self.program.row([], [], high=float(count - opened))
        for pool in problem.pools:
            used = sum(
                pool.uses.get(kind.name, 0.0) * opened
                for kind, opened in zip(problem.kinds, partial.opened, strict=True)
            )
            self.program.row([], [], high=pool.capacity - used)

    # -- columns ----------------------------------------------------------------------------------

    def add(self, column: Column) -> bool:
        """Add a column; False if there is nothing in it, or if it is there already."""
        parts = sorted(column.parts.items())
        key = (column.kind, *((i, b.size, round(part, 9)) for i, (b, part) in parts))
        if not parts or key in self._known:
            return False
        self._known.add(key)
        problem = self.options.problem
        name = problem.kinds[column.kind].name
        classes, kinds = len(self.missing), len(problem.kinds)
        entries = [*column.classes(self.options).items(), (classes + column.kind, 1.0)]
        entries += [
            (classes + kinds + at, pool.uses[name])
            for at, pool in enumerate(problem.pools)
            if name in pool.uses
        ]
        self.program.column(self.options.prices[column.kind], entries)
        self.columns.append(column)
        return True

    def seed(self, partial: PartialSolution) -> None:
        """Add the devices of a plan, and every option on a device of its own."""
        rates = self.options.rates
        for device in partial.devices:
            parts = {
                index: (batch, qps / rates[self.options.all[index].demand])
                for index, (batch, qps) in device.parts.items()
            }
            self.add(Column(kind=device.kind, parts=parts))
        self._add_alone()

    def _add_alone(self) -> None:
        worth = np.ones(len(self.missing))
        for found in self.menus.alone:
            for index in found.indices:
                self.add(found.column(found.filled((index,), worth, self.missing)))

    def again(self, columns: Iterable[Column]) -> None:
        """Add columns of an earlier relaxation, cut down to what is missing now."""
        options = self.options
        for column in columns:
            slowdown = column.slowdown(options)
            left = options.problem.load
            parts = {}
            for index, (batch, _) in column.parts.items():
                demand = options.all[index].demand
                time = options.rates[demand] * batch.unit_ms * slowdown / 1000
                part = float(self.missing[demand])
                part = min(part, left / time) if time > 0 else part
                if part > NOTHING:
                    parts[index] = (batch, part)
                    left -= part * time
            self.add(Column(kind=column.kind, parts=parts))
        self._add_alone()

    # -- prices -----------------------------------------------------------------------------------

    def solve(self, left: Left) -> Answer:
        """The parts of the columns there are, in their order; no values when it cannot be."""
        costs = [self.options.prices[column.kind] for column in self.columns]
        self.program.aim(costs, maximise=False)
        return solve(self.program, time_limit_s=max(left(), 0.05), relaxed=True)

    def prices(self, answer: Answer) -> Prices:
        """The prices of an optimal answer."""
        duals = np.array(answer.duals)
        classes, problem = len(self.missing), self.options.problem
        kinds = len(problem.kinds)
        cost = np.array(self.options.prices) - duals[classes : classes + kinds]
        for at, pool in enumerate(problem.pools):
            uses = [pool.uses.get(kind.name, 0.0) for kind in problem.kinds]
            cost -= duals[classes + kinds + at] * np.array(uses)
        return Prices(total=answer.objective, classes=np.maximum(duals[:classes], 0.0), kinds=cost)

    def worth(self, column: Column, prices: Prices) -> float:
        """What a device is worth."""
        classes = column.classes(self.options)
        return sum(float(prices.classes[demand]) * part for demand, part in classes.items())

    def _best(self, found: Menu, prices: Prices, *, labels: int, over: float = 0.0) -> Priced:
        """The best devices of a menu, among those worth more than they cost."""
        time = np.maximum(found.items.time, 1e-12)
        part = np.minimum(self.missing[found.classes], 1 / time)
        return best_devices(
            found.items,
            part,
            prices.classes[found.classes] * part,
            enough=float(prices.kinds[found.kind]) * (1 + over),
            labels=labels,
            most=COLUMNS,
        )

    # -- generation -------------------------------------------------------------------------------

    def generate(self, left: Left, rounds: int = ROUNDS) -> Answer:
        """Solve, with new columns until none is worth more than it costs."""
        answer = self.solve(left)
        for _ in range(rounds):
            if answer.values is None or not answer.duals or left() <= 0:
                break
            prices = self.prices(answer)
            kinds = [k for k, cost in enumerate(prices.kinds) if cost > 0 and self.menus.indices[k]]
            if not sum(self._look_widely(kind, prices) for kind in kinds) and not sum(
                self._look_closely(kind, prices) for kind in kinds
            ):
                break
            answer = self.solve(left)
        return answer

    def _look_widely(self, kind: int, prices: Prices) -> int:
        """Add the best sets of variants, each at its best longest batch; return how many."""
        wide = self.menus.wide[kind]
        added = 0
        for parts in self._best(wide, prices, labels=LABELS).devices:
            chosen = {wide.indices[at] for at in parts}
            made = [
                found.column(found.filled(chosen, prices.classes, self.missing))
                for found in self.menus.exact[kind]
            ]
            best = max(made, key=lambda column: self.worth(column, prices))
            added += self._add_worthy(best, prices)
        return added

    def _look_closely(self, kind: int, prices: Prices) -> int:
        """Add the best devices of every longest batch; return how many."""
        return sum(
            self._add_worthy(found.column(parts), prices)
            for found in self.menus.exact[kind]
            for parts in self._best(found, prices, labels=LABELS).devices
        )

    def _add_worthy(self, column: Column, prices: Prices) -> bool:
        worth = self.worth(column, prices)
        return worth > prices.kinds[column.kind] * (1 + 1e-6) and self.add(column)

    # -- bound ------------------------------------------------------------------------------------

    def bound(self, answer: Answer, left: Left) -> float:
        """What no plan that serves everything is cheaper than, in USD per hour.

        Longest batches at which a device is worth too much are tried for new columns from then on.
        """
        if not answer.duals:
            return 0.0
        prices = self.prices(answer)
        ratios = [self._ratio(kind, prices, left) for kind in range(len(prices.kinds))]
        return prices.total / max(1.0, *ratios) * (1 - 1e-9)

    def _ratio(self, kind: int, prices: Prices, left: Left) -> float:
        """How many times its cost a device is worth at most.

        All longest batches are one menu at first; where that promises too much it is divided.
        """
        cost = float(prices.kinds[kind])
        if not self.menus.indices[kind]:
            return 0.0
        if cost <= 0:
            return inf
        enough = cost * (1 + OFF) * (1 + 1e-9)
        alone = self._alone_worth(kind, prices)
        whole = self._best(self.menus.wide[kind], prices, labels=MANY, over=OFF).bound
        parts = [(whole, 0.0, inf)]
        splits = SPLITS
        while splits > 0 and left() > 0:
            worst, low_ms, high_ms = max(parts)
            narrow = high_ms < inf and low_ms > 0 and high_ms <= low_ms * NARROW
            if worst <= enough:
                break
            if narrow:
                self.menus.refine(kind, high_ms)
                break
            parts.remove((worst, low_ms, high_ms))
            for low, high in self._halves(kind, low_ms, high_ms):
                found = self.menus.between(kind, low, high)
                if found.indices:
                    bound = self._best(found, prices, labels=MANY, over=OFF).bound
                    parts.append((min(worst, bound), low, high))
                splits -= 1
            if not parts:
                break
        return max(alone, *(worth for worth, _, _ in parts), 0.0) / cost

    def _halves(self, kind: int, low_ms: float, high_ms: float) -> list[tuple[float, float]]:
        """Two ranges of the longest batch that cover one."""
        every = self.options.all
        if low_ms == 0:
            low_ms = min(every[index].smallest_ms for index in self.menus.indices[kind])
        # Longer than half of what the loosest SLO leaves, no batch is ever in time.
        slowdown = self.options.slowdown(kind, 2)
        loosest = max(
            self.options.left_ms(every[index].demand) for index in self.menus.indices[kind]
        )
        high_ms = min(high_ms, loosest / slowdown / 2)
        middle = sqrt(low_ms * high_ms)
        return [(low_ms, middle), (middle, high_ms)] if low_ms < high_ms else [(low_ms, low_ms)]

    def _alone_worth(self, kind: int, prices: Prices) -> float:
        """What a device with one variant is worth at most, where others would slow it down."""
        if self.options.slowdown(kind, 2) == 1:
            return 0.0
        found = self.menus.alone[kind]
        users: dict[int, list[int]] = {}
        for index in found.indices:
            users.setdefault(self.options.all[index].offer, []).append(index)
        columns = [
            found.column(found.filled(chosen, prices.classes, self.missing))
            for chosen in users.values()
        ]
        return max(self.worth(column, prices) for column in columns)
