"""What no plan can beat, from a relaxation that forgets which device is which.

All devices of a kind become one large one. Time: every option at its ``alone`` batch, the cheapest
that any plan can use. Memory, where it can bind: copies z of each variant, with the load of a
variant at most ``load`` per copy and the share of a class at most one per copy, and the copies
limited by dual feasible functions (Fekete and Schepers, Math. Program. 91, 2001): any set of
variants that fits one device has ``sum u(memory / M) <= 1`` for each such function u. What remains
whole is the number of devices opened; a search for it that is stopped still gives a valid bound.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import floor, fsum, inf, isfinite

from planner.menu import Menu
from planner.milp import Answer, Program, solve
from planner.problem import Objective

CUTS = 5
"""Dual feasible functions per kind; of parameter k, it cuts what packs badly in k + 1 parts."""


class Relaxation:
    """The aggregated program of a menu; its objective and what must be served are set per use.

    Memory rows are the larger part of it and seldom matter, so they are added for a kind only when
    a solution breaks them. Without them a mixture of two variants costs nothing but its time, and
    options that such a mixture replaces are left out.
    """

    __slots__ = (
        "_binding",
        "_demand",
        "_factors",
        "_lossy",
        "_objective",
        "_served",
        "_time",
        "_total",
        "_useful",
        "menu",
        "opened",
        "options",
        "program",
    )

    options: tuple[int, ...]
    """What the first variables stand for, in their order; may change with every solution."""

    def __init__(self, menu: Menu, objective: Objective) -> None:
        self.menu = menu
        self._objective = objective
        self._useful = menu.useful(objective)
        self._binding: set[int] = set()
        self._lossy: set[int] = set()
        self._factors = [1.0] * len(menu.counts)
        self._total = fsum(menu.rates)
        self._build()

    def _build(self) -> None:
        menu = self.menu
        self.options = menu.hull(self._useful, self._objective, but=self._binding | self._lossy)
        self.program = Program()
        for _ in self.options:
            self.program.variable(high=1.0)
        self.opened = [
            self.program.variable(high=float(count), whole=True) for count in menu.counts
        ]
        self._time = self._add_time()
        users = self._users()
        copies: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for used in users.values():
            self._add_copies(used, copies)
        for kind, held in copies.items():
            for row in self._cuts(kind, [memory for _, memory in held]):
                cut = [(copy, u) for (copy, _), u in zip(held, row, strict=True) if u > 0]
                self.program.row(
                    [*(copy for copy, _ in cut), self.opened[kind]],
                    [*(u for _, u in cut), -self._factors[kind]],
                    high=0.0,
                )
        self._add_pools()
        self._demand, self._served = self._add_demand()

    def _settle(self, solved: Callable[[], Answer]) -> Answer:
        """Solve, and again with the memory rows of the kinds whose memory the answer breaks."""
        answer = solved()
        while answer.values is not None:
            broken = self._broken(answer.values) - self._binding - self._lossy
            if not broken:
                break
            self._binding |= broken
            self._build()
            answer = solved()
        return answer

    def _broken(self, values: Sequence[float]) -> set[int]:
        """Kinds on which the fewest copies that carry these loads break a memory row."""
        load = self.menu.problem.load
        held: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for used in self._users().values():
            options = [self.menu.options[self.options[at]] for at in used]
            shares = [values[at] for at in used]
            carried = sum(o.time * share for o, share in zip(options, shares, strict=True)) / load
            copies = max(carried, *shares)
            if copies > 1e-9 and options[0].memory_mib > 0:
                held[options[0].kind].append((copies, options[0].memory_mib))
        broken = set()
        for kind, found in held.items():
            if not isfinite(self.menu.problem.kinds[kind].memory_mib):
                continue
            opened = values[self.opened[kind]]
            for row in self._cuts(kind, [memory for _, memory in found]):
                need = fsum(u * copies for u, (copies, _) in zip(row, found, strict=True))
                if need > opened * (1 + 1e-6) + 1e-6:
                    broken.add(kind)
        return broken

    def _users(self) -> dict[int, list[int]]:
        """Variables by the offer they use."""
        users: dict[int, list[int]] = defaultdict(list)
        for at, index in enumerate(self.options):
            users[self.menu.options[index].offer].append(at)
        return users

    def _add_time(self) -> list[int]:
        load = self.menu.problem.load
        by_kind: list[list[int]] = [[] for _ in self.opened]
        for at, index in enumerate(self.options):
            by_kind[self.menu.options[index].kind].append(at)
        return [
            self.program.row(
                [*used, self.opened[kind]],
                [*(self.menu.options[self.options[at]].time for at in used), -load * factor],
                high=0.0,
            )
            for kind, (used, factor) in enumerate(zip(by_kind, self._factors, strict=True))
        ]

    def _add_copies(self, used: Sequence[int], copies: dict[int, list[tuple[int, float]]]) -> None:
        """The number of copies of one offer, if memory rows are wanted where it runs."""
        load = self.menu.problem.load
        first = self.menu.options[self.options[used[0]]]
        if first.kind not in self._binding | self._lossy or first.memory_mib <= 0:
            return
        times = [self.menu.options[self.options[at]].time for at in used]
        copy = self.program.variable(high=float(self.menu.counts[first.kind]))
        self.program.row([*used, copy], [*times, -load], high=0.0)
        for at, time in zip(used, times, strict=True):
            if time < load:
                self.program.row([at, copy], [1.0, -1.0], high=0.0)
        copies[first.kind].append((copy, first.memory_mib))

    def _cuts(self, kind: int, memory: Sequence[float]) -> Iterator[list[float]]:
        """Coefficients of copies in the memory rows of a kind, per device opened."""
        limit = self.menu.problem.kinds[kind].memory_mib
        parts = [mib / limit for mib in memory]
        yield parts
        for k in range(1, CUTS + 1):
            row = [_feasible(part, k) for part in parts]
            if any(row):
                yield row

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

    def narrow(self, factors: Sequence[float]) -> None:
        """Plan with this factor of each kind's time and memory: what packing will lose."""
        self._factors = list(factors)
        short = {kind for kind, factor in enumerate(factors) if factor < 1}
        lossy = {kind for kind in short if self.menu.binds(kind)}
        if lossy or self._lossy:
            self._lossy = lossy
            self._build()
            return
        for row, opened, factor in zip(self._time, self.opened, factors, strict=True):
            self.program.coefficient(row, opened, -self.menu.problem.load * factor)

    def _demand_at_least(self, served_qps: float) -> None:
        """All of every class that has options, or at least this much in total of whichever."""
        whole = served_qps >= self.menu.reachable_qps * (1 - 1e-9)
        for row, options in zip(self._demand, self.menu.of_class, strict=True):
            self.program.limit(row, 1.0 if whole and options else 0.0, 1.0)
        part = -inf if whole or not served_qps else served_qps / self._total * (1 - 1e-9)
        self.program.limit(self._served, part, inf)

    def least_cost(
        self, served_qps: float, *, time_limit_s: Callable[[], float], gap: float, nodes: int
    ) -> Answer:
        """The least price of serving at least this much."""

        def solved() -> Answer:
            self._demand_at_least(served_qps)
            costs = [0.0] * self.program.size
            for opened, price in zip(self.opened, self.menu.prices, strict=True):
                costs[opened] = price
            self.program.aim(costs, maximise=False)
            return solve(self.program, time_limit_s=time_limit_s(), gap=gap, nodes=nodes)

        return self._settle(solved)

    def most_served(self, *, time_limit_s: Callable[[], float]) -> Answer:
        """The largest part of all demand that can be served."""

        def solved() -> Answer:
            self._demand_at_least(0.0)
            self._aim(self._parts())
            return solve(self.program, time_limit_s=time_limit_s(), relaxed=True)

        return self._settle(solved)

    def most_accurate(self, served_qps: float, *, time_limit_s: Callable[[], float]) -> Answer:
        """The largest sum of rate x accuracy while serving this much, relative to all demand."""

        def solved() -> Answer:
            self._demand_at_least(served_qps)
            self._aim(
                [
                    part * self.menu.options[index].accuracy
                    for part, index in zip(self._parts(), self.options, strict=True)
                ]
            )
            return solve(self.program, time_limit_s=time_limit_s(), relaxed=True)

        return self._settle(solved)

    def _aim(self, costs: list[float]) -> None:
        rest = [0.0] * (self.program.size - len(costs))
        self.program.aim([*costs, *rest], maximise=True)


def _feasible(part: float, k: int) -> float:
    """The dual feasible function of parameter k: ``floor((k + 1) x) / k``, x itself at whole."""
    scaled = part * (k + 1)
    if abs(scaled - round(scaled)) < 1e-9:
        return part
    return floor(scaled) / k
