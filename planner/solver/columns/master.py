"""The relaxation over columns: parts of devices that serve everything at the least price.

New columns come from the best device at the prices of the classes, until none is worth more than
it costs. At any prices it also bounds from below: divided by how many times its cost the best
device is worth, they are prices at which no device is worth more than it costs (Farley, Oper. Res.
38, 1990). Rounding cuts are part of it: their prices are in what a device is worth.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from planner.solver.columns.column import NOTHING, Array, Column
from planner.solver.columns.devices import Devices, Left
from planner.solver.columns.menus import Menus
from planner.solver.columns.prices import Prices
from planner.solver.columns.rounding import Rounding
from planner.solver.milp import Answer, Growing
from planner.solver.partial_solution import PartialSolution

SLOW = 2e-4
"""A relative fall of the relaxation in one round that is little."""
PATIENCE = 2
"""So many such rounds in a row end the search for columns."""
BOXES = 2
"""So often a bound is sought from prices that only fall."""
FALLS = 30
"""Most rounds of one of them; about ten were needed."""
NEAR = 0.003
"""A bound as near to the relaxation as this is good enough."""
NEARER = 0.001
"""How near the bound has to be where the plan is too far from the relaxation."""
BROKEN = 1e-3
"""By so much a rounding cut must be broken to be added."""


class Master:
    """The relaxation of what a partial solution does not serve yet."""

    __slots__ = (
        "_at", "_coefficients", "_known", "_rounding", "_rows", "_variables", "columns", "devices",
        "menus", "missing", "options", "program",
    )  # fmt: skip

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
        self._rounding = Rounding(menus, self.missing)
        self.devices = Devices(menus, self._rounding, self.missing)
        self._variables: list[int] = []
        """Of the columns, in the program."""
        self._rows: dict[int, int] = {}
        """By rounding cut, its row."""
        self._at: list[tuple[int, int]] = []
        """Column and rounding cut of each of the coefficients."""
        self._coefficients: list[float] = []
        # Rows: one per class, one per kind, one per pool; then those of rounding cuts.
        self.program = Growing()
        for part in self.missing:
            self.program.row(low=float(part))
        for count, opened in zip(options.counts, partial.opened, strict=True):
            self.program.row(high=float(count - opened))
        for pool in problem.pools:
            used = sum(
                pool.uses.get(kind.name, 0.0) * opened
                for kind, opened in zip(problem.kinds, partial.opened, strict=True)
            )
            self.program.row(high=pool.capacity - used)

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
        for cut, value in self._rounding.of(column).items():
            self._at.append((len(self.columns), cut))
            self._coefficients.append(value)
            if cut in self._rows:
                entries.append((self._rows[cut], value))
        self._variables.append(self.program.column(self.options.prices[column.kind], entries))
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
        load = self.options.problem.load
        for menu in self.menus.alone:
            for index, batch in zip(menu.indices, menu.batches, strict=True):
                demand = self.options.all[index].demand
                time = self.options.rates[demand] * batch.unit_ms / 1000
                part = float(self.missing[demand])
                part = min(part, load / time) if time > 0 else part
                if part > NOTHING:
                    self.add(Column(kind=menu.kind, parts={index: (batch, part)}))

    def again(self, columns: Iterable[Column]) -> None:
        """Add columns of an earlier relaxation, cut down to what is missing now."""
        options = self.options
        for column in columns:
            slowdown = column.slowdown(options)
            left = options.problem.load
            missing: dict[int, float] = {}
            parts = {}
            for index, (batch, _) in column.parts.items():
                demand = options.all[index].demand
                time = options.rates[demand] * batch.unit_ms * slowdown / 1000
                part = missing.get(demand, float(self.missing[demand]))
                part = min(part, left / time) if time > 0 else part
                if part > NOTHING:
                    parts[index] = (batch, part)
                    left -= part * time
                    missing[demand] = float(self.missing[demand]) - part
            self.add(Column(kind=column.kind, parts=parts))
        self._add_alone()

    # -- prices -----------------------------------------------------------------------------------

    def solve(self, left: Left) -> Answer:
        """The parts of the columns there are, in their order; no values when it cannot be.

        Rounding cuts that it breaks are added first.
        """
        answer = self._solve(left)
        if answer.values is not None and self._cut(np.array(answer.values)):
            answer = self._solve(left)
        return answer

    def _solve(self, left: Left) -> Answer:
        answer = self.program.solve(time_limit_s=max(left(), 0.05))
        if answer.values is None:
            return answer
        return replace(answer, values=tuple(answer.values[at] for at in self._variables))

    def _cut(self, values: Array) -> bool:
        """Add the rounding cuts that these parts of columns break; whether there are any."""
        cuts = self._rounding.cuts
        if not self._at:
            return False
        at, coefficients = np.array(self._at), np.array(self._coefficients)
        sums = np.bincount(at[:, 1], weights=coefficients * values[at[:, 0]], minlength=len(cuts))
        least = np.array([cut.least for cut in cuts])
        broken = [int(cut) for cut in np.flatnonzero(sums < least - BROKEN)]
        new = [cut for cut in broken if cut not in self._rows]
        for cut in new:
            chosen = at[:, 1] == cut
            pairs = zip(at[chosen, 0].tolist(), coefficients[chosen].tolist(), strict=True)
            self._rows[cut] = self.program.row(low=cuts[cut].least, entries=pairs)
        return bool(new)

    def prices(self, answer: Answer, most: Prices | None = None) -> Prices:
        """The prices of an optimal answer, of classes and cuts no more than ``most``."""
        duals = np.array(answer.duals)
        count, problem = len(self.missing), self.options.problem
        kinds = len(problem.kinds)
        cost = np.array(self.options.prices) - duals[count : count + kinds]
        for at, pool in enumerate(problem.pools):
            uses = [pool.uses.get(kind.name, 0.0) for kind in problem.kinds]
            cost -= duals[count + kinds + at] * np.array(uses)
        classes = np.maximum(duals[:count], 0.0)
        cuts = np.zeros(len(self._rounding.cuts))
        for cut, row in self._rows.items():
            cuts[cut] = max(0.0, float(duals[row]))
        asked = float(classes @ self.missing)
        asked += sum(
            price * cut.least for price, cut in zip(cuts, self._rounding.cuts, strict=True)
        )
        scarce = min(0.0, answer.objective - float(asked))
        if most is not None:
            classes, cuts = np.minimum(classes, most.classes), np.minimum(cuts, most.cuts)
            asked = float(classes @ self.missing)
            asked += sum(p * cut.least for p, cut in zip(cuts, self._rounding.cuts, strict=True))
        return Prices(
            classes=classes,
            cuts=cuts,
            slopes=self._rounding.slopes(classes, cuts),
            kinds=cost,
            asked=float(asked),
            scarce=scarce,
        )

    def worth(self, column: Column, prices: Prices) -> float:
        """What a device is worth."""
        classes = column.classes(self.options)
        worth = sum(float(prices.classes[demand]) * part for demand, part in classes.items())
        cuts = self._rounding.of(column)
        return worth + sum(float(prices.cuts[cut]) * value for cut, value in cuts.items())

    # -- generation -------------------------------------------------------------------------------

    def generate(self, left: Left, rounds: int, *, closely: bool = False) -> Answer:
        """Solve, with new columns as long as the relaxation falls.

        Args:
            left: answers how many seconds are left.
            rounds: most solutions beside the first.
            closely: whether columns are looked for closely.
        """
        answer = self.solve(left)
        slow = 0
        for _ in range(rounds):
            if answer.values is None or not answer.duals or left() <= 0 or slow == PATIENCE:
                break
            before, prices = answer.objective, self.prices(answer)
            found = [
                column
                for kind in range(len(prices.kinds))
                for column in self.devices.some(kind, prices, closely=closely)
            ]
            if not sum(self.add(column) for column in found):
                break
            answer = self.solve(left)
            slow = slow + 1 if answer.objective > before * (1 - SLOW) else 0
        return answer

    def prove(self, left: Left, near: float = NEAR, *, enough: float = inf) -> tuple[Answer, float]:
        """Generate until it is proven how much better the relaxation can become.

        Args:
            left: answers how many seconds are left.
            near: a bound as near to the relaxation as this is not made better.
            enough: nor is one that is this high, in USD per hour.

        Returns:
            The last answer, and what no plan that serves everything is cheaper than, in USD per
            hour.
        """
        bound = 0.0
        answer = self.solve(left)
        for _ in range(BOXES):
            if not answer.duals or self.devices.work <= 0 or left() <= 0:
                break
            if answer.objective <= bound * (1 + near) or bound >= enough:
                break
            bound = max(bound, self._falling(self.prices(answer), left, enough))
            answer = self.solve(left)
        return answer, bound

    def _falling(self, prices: Prices, left: Left, enough: float) -> float:
        """A bound from prices that only fall, with the columns that are found on the way.

        What is asked for can be had at the last prices beside the columns. So no price of a class
        or a cut rises from one round to the next, and where devices were worth too little they stay
        so. Without that, prices go up and down for many rounds.

        Args:
            prices: to begin with.
            left: answers how many seconds are left.
            enough: a bound as high as this is not made better, in USD per hour.
        """
        rows = [*range(len(self.missing)), *self._rows.values()]
        made = [self.program.column(0.0, [(row, 1.0)]) for row in rows]
        self.devices.reset()
        bound = 0.0
        for _ in range(FALLS):
            kinds = range(len(prices.kinds))
            found = [self.devices.all(kind, prices, left) for kind in kinds]
            # Divided by this, at their prices no device is worth more than it costs.
            ratio = max(1.0, *(ratio for _, ratio in found))
            bound = max(bound, (prices.asked / ratio + prices.scarce) * (1 - 1e-7))
            added = sum(self.add(column) for columns, _ in found for column in columns)
            if not added or bound >= enough or self.devices.work <= 0 or left() <= 0:
                break
            last = [*prices.classes.tolist(), *(float(prices.cuts[cut]) for cut in self._rows)]
            for variable, price in zip(made, last, strict=True):
                self.program.change(variable, cost=price, high=inf)
            answer = self._solve(left)
            if not answer.duals:
                break
            cost, prices = prices.kinds, self.prices(answer, prices)
            if (prices.kinds < cost).any():
                self.devices.reset()
        for variable in made:
            self.program.change(variable, cost=0.0, high=0.0)
        return bound
