"""What no plan can beat, from a relaxation that forgets which device is which.

All devices of a kind become one large one. Time: every option at its ``alone`` batch, the cheapest
that any plan can use. Memory, where it can bind: copies z of each variant, with the load of a
variant at most ``load`` per copy and the share of a class at most one per copy, and the copies
limited by dual feasible functions (Fekete and Schepers, Math. Program. 91, 2001): any set of
variants that fits one device has ``sum u(memory / M) <= 1`` for each such function u. What remains
whole is the number of devices opened; a search for it that is stopped still gives a valid bound.
"""

from collections import defaultdict
from math import floor, inf

from planner.menu import Menu
from planner.milp import Answer, Program, solve
from planner.problem import Objective

CUTS = 5
"""Dual feasible functions per kind; of parameter k, it cuts what packs badly in k + 1 parts."""


class Relaxation:
    """The aggregated program of a menu; its objective and what must be served are set per use."""

    __slots__ = ("_demand", "_served", "_time", "_total", "menu", "opened", "options", "program")

    def __init__(self, menu: Menu, options: tuple[int, ...]) -> None:
        """Take the options to choose from; they must hold an optimal plan's or dominate it."""
        self.menu = menu
        self.options = options
        self.program = Program()
        self._total = sum(menu.rates)
        for _ in options:
            self.program.variable(high=1.0)
        self.opened = [
            self.program.variable(high=float(count), whole=True) for count in menu.counts
        ]
        self._time = self._add_time()
        self._add_memory()
        self._add_pools()
        self._demand, self._served = self._add_demand()

    def _add_time(self) -> list[int]:
        load = self.menu.problem.load
        by_kind: list[list[int]] = [[] for _ in self.opened]
        for at, index in enumerate(self.options):
            by_kind[self.menu.options[index].kind].append(at)
        return [
            self.program.row(
                [*used, self.opened[kind]],
                [*(self.menu.options[self.options[at]].time for at in used), -load],
                high=0.0,
            )
            for kind, used in enumerate(by_kind)
        ]

    def _add_memory(self) -> None:
        load = self.menu.problem.load
        users: dict[int, list[int]] = defaultdict(list)
        for at, index in enumerate(self.options):
            users[self.menu.options[index].offer].append(at)
        binding = {kind for kind in range(len(self.opened)) if self.menu.binds(kind)}
        copies: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for used in users.values():
            first = self.menu.options[self.options[used[0]]]
            if first.kind not in binding or first.memory_mib <= 0:
                continue
            times = [self.menu.options[self.options[at]].time for at in used]
            copy = self.program.variable(high=float(self.menu.counts[first.kind]))
            self.program.row([*used, copy], [*times, -load], high=0.0)
            for at, time in zip(used, times, strict=True):
                if time < load:
                    self.program.row([at, copy], [1.0, -1.0], high=0.0)
            copies[first.kind].append((copy, first.memory_mib))
        for kind, held in copies.items():
            self._add_cuts(kind, held)

    def _add_cuts(self, kind: int, held: list[tuple[int, float]]) -> None:
        limit = self.menu.problem.kinds[kind].memory_mib
        parts = [memory / limit for _, memory in held]
        rows = [parts, *([_feasible(part, k) for part in parts] for k in range(1, CUTS + 1))]
        for row in rows:
            used = [(copy, u) for (copy, _), u in zip(held, row, strict=True) if u > 0]
            if used:
                self.program.row(
                    [*(copy for copy, _ in used), self.opened[kind]],
                    [*(u for _, u in used), -1.0],
                    high=0.0,
                )

    def _add_pools(self) -> None:
        for pool in self.menu.problem.pools:
            names = [kind.name for kind in self.menu.problem.kinds]
            used = [(n, pool.uses[name]) for n, name in enumerate(names) if name in pool.uses]
            self.program.row(
                [self.opened[n] for n, _ in used], [uses for _, uses in used], high=pool.capacity
            )

    def _add_demand(self) -> tuple[list[int], int]:
        rows: list[list[int]] = [[] for _ in self.menu.rates]
        for at, index in enumerate(self.options):
            rows[self.menu.options[index].demand].append(at)
        demand = [self.program.row(row, [1.0] * len(row), high=1.0) for row in rows]
        served = self.program.row(list(range(len(self.options))), self._parts(), low=0.0)
        return demand, served

    def _parts(self) -> list[float]:
        """Per option: the part of all demand that its class is."""
        total = self._total or 1.0
        return [self.menu.rates[self.menu.options[i].demand] / total for i in self.options]

    def narrow(self, factors: list[float]) -> None:
        """Plan with this factor of each kind's time: what packing is expected to lose."""
        load = self.menu.problem.load
        for row, opened, factor in zip(self._time, self.opened, factors, strict=True):
            self.program.coefficient(row, opened, -load * factor)

    def demand_all(self) -> None:
        for row, rate in zip(self._demand, self.menu.rates, strict=True):
            self.program.limit(row, 1.0 if rate > 0 else 0.0, 1.0)
        self.program.limit(self._served, -inf, inf)

    def demand_part(self, served_qps: float) -> None:
        """At least this much in total, whichever classes it is."""
        for row in self._demand:
            self.program.limit(row, 0.0, 1.0)
        self.program.limit(self._served, served_qps / (self._total or 1.0) * (1 - 1e-9), inf)

    def least_cost(self, *, time_limit_s: float, gap: float, nodes: int) -> Answer:
        costs = [0.0] * self.program.size
        for opened, price in zip(self.opened, self.menu.prices, strict=True):
            costs[opened] = price
        self.program.aim(costs, maximise=False)
        return solve(self.program, time_limit_s=time_limit_s, gap=gap, nodes=nodes)

    def most_served(self, *, time_limit_s: float) -> Answer:
        """Relative to all demand."""
        self.demand_part(0.0)
        self._aim(self._parts())
        return solve(self.program, time_limit_s=time_limit_s, relaxed=True)

    def most_accurate(self, served_qps: float, *, time_limit_s: float) -> Answer:
        """The largest mean accuracy x rate, relative to all demand."""
        self.demand_part(served_qps)
        parts = self._parts()
        self._aim(
            [
                part * self.menu.options[index].accuracy
                for part, index in zip(parts, self.options, strict=True)
            ]
        )
        return solve(self.program, time_limit_s=time_limit_s, relaxed=True)

    def _aim(self, costs: list[float]) -> None:
        rest = [0.0] * (self.program.size - len(costs))
        self.program.aim([*costs, *rest], maximise=True)


def _feasible(part: float, k: int) -> float:
    """The dual feasible function of parameter k: ``floor((k + 1) x) / k``, x itself at whole."""
    scaled = part * (k + 1)
    if abs(scaled - round(scaled)) < 1e-9:
        return part
    return floor(scaled) / k


def useful(menu: Menu, objective: Objective) -> Relaxation:
    """The relaxation over the options that matter for an objective."""
    return Relaxation(menu, menu.useful(objective))
