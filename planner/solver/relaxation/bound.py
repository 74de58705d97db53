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

from planner.solver.milp import SLACK, WIDER_SLACK, Answer, Program, solve
from planner.solver.options import Options
from planner.solver.relaxation.useful_options import hull, useful
from planner.types import Objective

CUTS = 5
"""Dual feasible functions per kind; of parameter k, it cuts what packs badly in k + 1 parts."""


class Relaxation:
    """The aggregated program of a problem; its objective and what must be served are set per use.

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
        "columns",
        "opened",
        "options",
        "program",
    )

    columns: tuple[int, ...]
    """The option that each of the first variables stands for; may change with every solution."""

    def __init__(self, options: Options, objective: Objective) -> None:
        self.options = options
        self._objective = objective
        self._useful = useful(options, objective)
        self._binding: set[int] = set()
        self._lossy: set[int] = set()
        self._factors = [1.0] * len(options.counts)
        self._total = fsum(options.rates)
        self._build()

    def _build(self) -> None:
        options = self.options
        but = self._binding | self._lossy
        self.columns = hull(options, self._useful, self._objective, but=but)
        self.program = Program()
        self.program.variables(len(self.columns), high=1.0)
        self.opened = [
            self.program.variable(high=float(count), whole=True) for count in options.counts
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
        """Kinds on which the fewest copies that carry these loads break a memory row.

        ``values`` has one entry per variable of the program.
        """
        load = self.options.problem.load
        held: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for used in self._users().values():
            shares = [values[at] for at in used]
            if not any(shares):
                continue
            group = [self.options.all[self.columns[at]] for at in used]
            times = [self.options.time(self.columns[at]) for at in used]
            carried = sum(time * share for time, share in zip(times, shares, strict=True)) / load
            copies = max(carried, *shares)
            if copies > 1e-9 and group[0].memory_mib > 0:
                held[group[0].kind].append((copies, group[0].memory_mib))
        broken = set()
        for kind, found in held.items():
            if not isfinite(self.options.problem.kinds[kind].memory_mib):
                continue
            opened = values[self.opened[kind]]
            for row in self._cuts(kind, [memory for _, memory in found]):
                need = fsum(u * copies for u, (copies, _) in zip(row, found, strict=True))
                if need > opened * (1 + 1e-6) + 1e-6:
                    broken.add(kind)
        return broken

    def _users(self) -> dict[int, list[int]]:
        """Variables by the offer that they use; both are indices."""
        return self.options.once(("users", self.columns), self._by_offer)

    def _by_offer(self) -> dict[int, list[int]]:
        users: dict[int, list[int]] = defaultdict(list)
        for at, index in enumerate(self.columns):
            users[self.options.all[index].offer].append(at)
        return users

    def _add_time(self) -> list[int]:
        """One row per kind: its loads take no more than the time of its opened devices.

        Returns the rows' indices, in the order of kinds.
        """
        load = self.options.problem.load
        options, rates = self.options.all, self.options.rates
        by_kind: list[list[int]] = [[] for _ in self.opened]
        times: list[list[float]] = [[] for _ in self.opened]
        for at, index in enumerate(self.columns):
            demand, _, kind, _, _, alone, *_ = options[index]
            by_kind[kind].append(at)
            times[kind].append(rates[demand] * alone.unit_ms / 1000)  # as ``Options.time``
        return [
            self.program.row([*used, opened], [*taken, -load * factor], high=0.0)
            for used, taken, opened, factor in zip(
                by_kind, times, self.opened, self._factors, strict=True
            )
        ]

    def _add_copies(self, used: Sequence[int], copies: dict[int, list[tuple[int, float]]]) -> None:
        """Add the number of copies of one offer, if memory rows are wanted where it runs.

        Args:
            used: the variables that use the offer.
            copies: by kind, the new variable is added with the memory of one copy in MiB.
        """
        load = self.options.problem.load
        first = self.options.all[self.columns[used[0]]]
        if first.kind not in self._binding | self._lossy or first.memory_mib <= 0:
            return
        times = [self.options.time(self.columns[at]) for at in used]
        copy = self.program.variable(high=float(self.options.counts[first.kind]))
        self.program.row([*used, copy], [*times, -load], high=0.0)
        for at, time in zip(used, times, strict=True):
            if time < load:
                self.program.row([at, copy], [1.0, -1.0], high=0.0)
        copies[first.kind].append((copy, first.memory_mib))

    def _cuts(self, kind: int, memory: Sequence[float]) -> Iterator[list[float]]:
        """Coefficients of copies in the memory rows of a kind, per device opened.

        Each row that is yielded has one coefficient per entry of ``memory``, which is in MiB.
        """
        limit = self.options.problem.kinds[kind].memory_mib
        parts = [mib / limit for mib in memory]
        yield parts
        for k in range(1, CUTS + 1):
            row = [_feasible(part, k) for part in parts]
            if any(row):
                yield row

    def _add_pools(self) -> None:
        """One row per pool of hardware that several kinds are cut from."""
        for pool in self.options.problem.pools:
            names = [kind.name for kind in self.options.problem.kinds]
            used = [(n, pool.uses[name]) for n, name in enumerate(names) if name in pool.uses]
            self.program.row(
                [self.opened[n] for n, _ in used], [uses for _, uses in used], high=pool.capacity
            )

    def _add_demand(self) -> tuple[list[int], int]:
        """One row per class that limits what is served of it, and one for what is served in all."""
        rows: list[list[int]] = [[] for _ in self.options.rates]
        for at, index in enumerate(self.columns):
            rows[self.options.all[index].demand].append(at)
        demand = [self.program.row(row, [1.0] * len(row), high=1.0) for row in rows]
        served = self.program.row(list(range(len(self.columns))), self._parts(), low=0.0)
        return demand, served

    def _parts(self) -> list[float]:
        """Per entry of ``columns``: the part of all demand that its class is, in [0, 1]."""
        total = self._total or 1.0
        return [self.options.rates[self.options.all[i].demand] / total for i in self.columns]

    def narrow(self, factors: Sequence[float]) -> None:
        """Plan with less of each kind's time and memory, to allow for what packing will lose.

        ``factors`` has one entry per kind, in (0, 1].
        """
        self._factors = list(factors)
        short = {kind for kind, factor in enumerate(factors) if factor < 1}
        lossy = {kind for kind in short if self.options.binds(kind)}
        if lossy or self._lossy:
            self._lossy = lossy
            self._build()
            return
        for row, opened, factor in zip(self._time, self.opened, factors, strict=True):
            self.program.coefficient(row, opened, -self.options.problem.load * factor)

    def _demand_at_least(self, served_qps: float, *, slack: float = SLACK) -> bool:
        """Demand that all of every class with options is served, or at least this much in total;
        whether it is the latter.

        ``slack`` is the part of it that may be rounding.
        """
        whole = served_qps >= self.options.reachable_qps * (1 - 1e-9)
        for row, serving in zip(self._demand, self.options.of_class, strict=True):
            self.program.limit(row, 1.0 if whole and serving else 0.0, 1.0)
        partly = served_qps > 0 and not whole
        part = served_qps / self._total * (1 - slack) if partly else -inf
        self.program.limit(self._served, part, inf)
        return partly

    def least_cost(
        self, served_qps: float, *, time_limit_s: Callable[[], float], gap: float, nodes: int
    ) -> Answer:
        """The least price of serving at least this much.

        Args:
            served_qps: of all classes together.
            time_limit_s: answers how much time is left.
            gap: relative gap at which the search is done.
            nodes: most nodes of the search, 0 for no limit.

        Returns:
            ``objective`` and ``bound`` are in USD per hour; one value per variable: first the part
            of its class that each of ``columns`` serves, then the devices opened of each kind, then
            copies.
        """

        def solved() -> Answer:
            partly = self._demand_at_least(served_qps)
            costs = [0.0] * self.program.size
            if self.options.has_work:
                for at, index in enumerate(self.columns):
                    option = self.options.all[index]
                    costs[at] = self.options.rates[option.demand] * option.least_work
            for opened, price in zip(self.opened, self.options.prices, strict=True):
                costs[opened] = price
            self.program.aim(costs, maximise=False)
            answer = solve(self.program, time_limit_s=time_limit_s(), gap=gap, nodes=nodes)
            if answer.infeasible and partly:
                self._demand_at_least(served_qps, slack=WIDER_SLACK)
                answer = solve(self.program, time_limit_s=time_limit_s(), gap=gap, nodes=nodes)
            return answer

        return self._settle(solved)

    def most_served(self, *, time_limit_s: Callable[[], float]) -> Answer:
        """The largest part of all demand that can be served, in [0, 1]; values as above."""

        def solved() -> Answer:
            self._demand_at_least(0.0)
            self._aim(self._parts())
            return solve(self.program, time_limit_s=time_limit_s(), relaxed=True)

        return self._settle(solved)

    def most_accurate(self, served_qps: float, *, time_limit_s: Callable[[], float]) -> Answer:
        """The largest sum of rate x accuracy while serving this much, relative to all demand.

        Values as above, with devices as continuous numbers.
        """

        def solved() -> Answer:
            self._demand_at_least(served_qps)
            self._aim(
                [
                    part * self.options.all[index].accuracy
                    for part, index in zip(self._parts(), self.columns, strict=True)
                ]
            )
            return solve(self.program, time_limit_s=time_limit_s(), relaxed=True)

        return self._settle(solved)

    def prices(self, answer: Answer) -> list[float]:
        """Per kind: what a second of its time is worth in rate x accuracy, by an optimal answer of
        ``most_accurate``."""
        return [answer.duals[row] * self._total for row in self._time]

    def _aim(self, costs: list[float]) -> None:
        rest = [0.0] * (self.program.size - len(costs))
        self.program.aim([*costs, *rest], maximise=True)


def _feasible(part: float, k: int) -> float:
    """The dual feasible function of parameter k, for a part x of a device's memory.

    It is ``floor((k + 1) x) / k``, and x itself where ``(k + 1) x`` is whole (Fekete and Schepers
    2001).
    """
    scaled = part * (k + 1)
    if abs(scaled - round(scaled)) < 1e-9:
        return part
    return floor(scaled) / k
