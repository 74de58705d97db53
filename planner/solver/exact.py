"""The best plan there is, for problems whose configurations can be listed.

A mixed program over configurations: whole numbers of devices, divisible loads. What SCIP says is
not taken on trust: the numbers of devices it found are fixed, the loads are solved anew at full
precision, and only what then stands on concrete devices is returned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf

from planner.solver.configurations import Configuration
from planner.solver.device import ROUNDING, Room
from planner.solver.milp import SLACK, WIDER_SLACK, Answer, Program, solve
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution
from planner.types import Objective

NODES = 20_000
"""Of each search: what makes it repeatable."""

Left = Callable[[], float]
"""Seconds that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan with what is proven."""

    partial: PartialSolution | None
    bound: float
    """Cost from below; or, under accuracy, the sum of rate x accuracy from above."""
    proven: bool
    """Whether the plan is the best there is."""
    served_qps: float
    """What the plan must serve for the bound to hold."""


class ConfigurationProgram:
    """Devices per configuration and loads per configuration and option.

    Variables, in this order: the devices opened of each of ``configurations``; then, for each of
    ``pairs`` (configuration, option), the part of the option's class that is served there.
    """

    __slots__ = (
        "_demand",
        "_kept",
        "_parts",
        "_total",
        "configurations",
        "opened",
        "options",
        "pairs",
        "program",
    )

    def __init__(self, options: Options, configurations: Sequence[Configuration]) -> None:
        self.options = options
        self.configurations = configurations
        self.program = Program()
        self._total = fsum(options.rates) or 1.0
        self._kept: list[tuple[int, float]] = []
        """Rows that keep what earlier stages reached, and what that was."""
        self.opened = [
            self.program.variable(high=float(options.counts[c.kind]), whole=True)
            for c in configurations
        ]
        self.pairs = [(at, index) for at, c in enumerate(configurations) for index in c.batches]
        first = len(self.opened)
        for _ in self.pairs:
            self.program.variable(high=1.0)
        self._parts = [
            options.rates[options.all[index].demand] / self._total for _, index in self.pairs
        ]
        self._add_time(first)
        demand: list[list[int]] = [[] for _ in options.rates]
        for at, (_, index) in enumerate(self.pairs):
            demand[options.all[index].demand].append(first + at)
        self._demand = [self.program.row(row, [1.0] * len(row), high=1.0) for row in demand]
        self._add_counts()

    def _add_time(self, first: int) -> None:
        load = self.options.problem.load
        used: list[list[int]] = [[] for _ in self.opened]
        times: list[list[float]] = [[] for _ in self.opened]
        for at, (configuration, index) in enumerate(self.pairs):
            batch = self.configurations[configuration].batches[index]
            rate = self.options.rates[self.options.all[index].demand]
            used[configuration].append(first + at)
            slowdown = self.configurations[configuration].slowdown
            times[configuration].append(rate * batch.unit_ms * slowdown / 1000)
        for opened, row, time in zip(self.opened, used, times, strict=True):
            self.program.row([*row, opened], [*time, -load], high=0.0)

    def _add_counts(self) -> None:
        problem = self.options.problem
        of_kind: list[list[int]] = [[] for _ in problem.kinds]
        for opened, configuration in zip(self.opened, self.configurations, strict=True):
            of_kind[configuration.kind].append(opened)
        for row, count in zip(of_kind, self.options.counts, strict=True):
            self.program.row(row, [1.0] * len(row), high=float(count))
        for pool in problem.pools:
            uses = [
                (opened, pool.uses.get(kind.name, 0.0))
                for kind, row in zip(problem.kinds, of_kind, strict=True)
                for opened in row
            ]
            self.program.row([o for o, _ in uses], [u for _, u in uses], high=pool.capacity)

    def costs(self) -> list[float]:
        """USD per hour; one coefficient per variable."""
        prices = [self.options.prices[c.kind] for c in self.configurations]
        return [*prices, *([0.0] * len(self.pairs))]

    def served(self) -> list[float]:
        """What is served, relative to all demand; one coefficient per variable."""
        return [*([0.0] * len(self.opened)), *self._parts]

    def weighed(self) -> list[float]:
        """Accuracy x rate, relative to all demand; one coefficient per variable."""
        accuracy = [self.options.all[index].accuracy for _, index in self.pairs]
        rest = [part * a for part, a in zip(self._parts, accuracy, strict=True)]
        return [*([0.0] * len(self.opened)), *rest]

    def demand_all(self, wanted: bool) -> None:
        """Demand, or no longer demand, that every class is served whole."""
        for row, rate in zip(self._demand, self.options.rates, strict=True):
            self.program.limit(row, 1.0 if wanted and rate > 0 else 0.0, 1.0)

    def at_least(self, coefficients: Sequence[float], value: float) -> None:
        """Add a row that keeps what an earlier stage reached.

        ``coefficients`` has one entry per variable.
        """
        used = [(at, c) for at, c in enumerate(coefficients) if c]
        row = self.program.row(
            [at for at, _ in used], [c for _, c in used], low=value - SLACK * abs(value)
        )
        self._kept.append((row, value))

    def stage(self, aim: Sequence[float], *, maximise: bool, left: Left, nodes: int) -> Answer:
        """Solve for one objective, ``aim``, with one coefficient per variable."""
        self.program.aim(aim, maximise=maximise)
        answer = solve(self.program, time_limit_s=left(), nodes=nodes)
        if answer.infeasible and self._kept:
            for row, value in self._kept:
                self.program.limit(row, value - WIDER_SLACK * abs(value), inf)
            answer = solve(self.program, time_limit_s=left(), nodes=nodes)
        return answer

    def settled(
        self, numbers: Sequence[int], objective: Objective, left: Left
    ) -> PartialSolution | None:
        """The best loads on these devices, at full precision, as a plan.

        ``numbers`` has the devices opened of each configuration. None when time ran out.
        """
        program = ConfigurationProgram(self.options, self.configurations)
        for opened, number in zip(program.opened, numbers, strict=True):
            program.program.fix(opened, float(number))
        served = program._loads(program.served(), left)
        if served is None:
            return None
        best = served
        if objective is Objective.ACCURACY and served.objective > 0:
            program.at_least(program.served(), served.objective)
            best = program._loads(program.weighed(), left) or served
        if best.values is None:
            return None
        return program._placed(numbers, best.values)

    def _loads(self, aim: Sequence[float], left: Left) -> Answer | None:
        self.program.aim(aim, maximise=True)
        answer = solve(self.program, time_limit_s=max(left(), 0.05), relaxed=True)
        return answer if answer.optimal else None

    def _placed(self, numbers: Sequence[int], values: Sequence[float]) -> PartialSolution:
        """Fill the devices of each configuration one after the other.

        Args:
            numbers: of devices, per configuration.
            values: one per variable of the program.
        """
        partial = PartialSolution(self.options)
        loads: list[list[tuple[int, float]]] = [[] for _ in self.opened]
        for (at, index), value in zip(self.pairs, values[len(self.opened) :], strict=True):
            if value > 1e-12:
                loads[at].append(
                    (index, value * self.options.rates[self.options.all[index].demand])
                )
        for configuration, number, load in zip(self.configurations, numbers, loads, strict=True):
            if not number:
                continue
            _fill(partial, configuration, number, load)
        partial.drop_empty()
        return partial


def _fill(
    partial: PartialSolution,
    configuration: Configuration,
    number: int,
    load: Sequence[tuple[int, float]],
) -> None:
    """Open so many devices of a configuration, and fill one after the other.

    A device counts as slow as the configuration says from its first option on: it may be that the
    others come.
    """
    devices = iter([partial.open(configuration.kind) for _ in range(number)])
    device, left = next(devices), partial.options.problem.load * (1 + ROUNDING)
    for index, rate in load:
        batch = configuration.batches[index]
        unit_ms = batch.unit_ms * configuration.slowdown
        rest = rate
        while rest > 1e-12 * rate:
            taken = min(rest, max(left * 1000 / unit_ms, 0.0) if unit_ms > 0 else inf)
            if taken > 1e-12 * rate:
                partial.serve(device, index, Room(batch, taken), taken)
                left -= taken * unit_ms / 1000
            rest -= taken
            if rest > 1e-12 * rate:
                following = next(devices, None)
                if following is None:
                    break
                device, left = following, partial.options.problem.load * (1 + ROUNDING)


def exact(
    options: Options,
    configurations: Sequence[Configuration],
    objective: Objective,
    *,
    left: Left,
    nodes: int = NODES,
) -> Found:
    """The best plan over these configurations, in stages: served, then accuracy, then cost.

    Args:
        options: of the problem.
        configurations: all that an optimal plan may need.
        objective: under ``cost`` the stage of accuracy is left out.
        left: answers how many seconds are left.
        nodes: most nodes of each search.
    """
    program = ConfigurationProgram(options, configurations)
    total = fsum(options.rates)
    if objective is Objective.COST:
        program.demand_all(True)
        answer = program.stage(program.costs(), maximise=False, left=left, nodes=nodes)
        if not answer.infeasible:
            return _found(program, answer, objective, answer.bound, total, left)
        program.demand_all(False)
    answer = program.stage(program.served(), maximise=True, left=left, nodes=nodes)
    if answer.values is None or not answer.optimal:
        return _found(program, answer, objective, inf, 0.0, left)
    served = min(1.0, answer.objective)
    program.at_least(program.served(), served)
    bound = inf
    if objective is Objective.ACCURACY:
        weighed = program.stage(program.weighed(), maximise=True, left=left, nodes=nodes)
        bound = weighed.bound * total
        if weighed.values is None or not weighed.optimal:
            return _found(program, weighed, objective, bound, served * total, left)
        answer = weighed
        program.at_least(program.weighed(), weighed.objective)
    cheapest = program.stage(program.costs(), maximise=False, left=left, nodes=nodes)
    if objective is Objective.COST:
        bound = cheapest.bound
    last = cheapest if cheapest.values is not None else answer
    found = _found(program, last, objective, bound, served * total, left)
    return (
        found
        if cheapest.optimal
        else Found(partial=found.partial, bound=bound, proven=False, served_qps=served * total)
    )


def _found(
    program: ConfigurationProgram,
    answer: Answer,
    objective: Objective,
    bound: float,
    served_qps: float,
    left: Left,
) -> Found:
    partial = None
    if answer.values is not None:
        numbers = [round(answer.values[at]) for at in program.opened]
        partial = program.settled(numbers, objective, left)
    return Found(partial=partial, bound=bound, proven=answer.optimal, served_qps=served_qps)
