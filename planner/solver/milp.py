"""Linear programs, continuous or mixed: the only file that knows OR-tools.

Of what the wheel of OR-tools 9.15 brings, GLOP was the fastest for continuous programs and SCIP for
mixed ones: on an aggregated placement of 500 classes GLOP took 0.1 s, SCIP 0.15 s, HiGHS 0.8 s, CBC
0.9 s, and CP-SAT had no useful bound after 4 s. Both run on one thread and are repeatable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

INFINITE = 1e20
"""What SCIP takes for infinite, and says where it has no bound."""
SLACK = 1e-9
"""Relative, of a row that keeps what was reached before."""
WIDER_SLACK = 1e-8
"""The same where SCIP finds no point although there is one: a row that leaves its variables no more
than its own tolerance may look to it as if it left them nothing."""


@dataclass(slots=True)
class Program:
    """Variables with costs, and rows ``low <= sum of coefficient x variable <= high``."""

    maximise: bool = False
    _low: list[float] = field(default_factory=list)
    _high: list[float] = field(default_factory=list)
    _cost: list[float] = field(default_factory=list)
    _whole: list[bool] = field(default_factory=list)
    _rows: list[tuple[list[int], list[float], float, float]] = field(default_factory=list)

    def variable(self, *, high: float = inf, cost: float = 0.0, whole: bool = False) -> int:
        """Add a variable from 0; return its index."""
        self._low.append(0.0)
        self._high.append(high)
        self._cost.append(cost)
        self._whole.append(whole)
        return len(self._low) - 1

    def variables(self, count: int, *, high: float) -> None:
        """Add so many continuous variables from 0 without a cost."""
        self._low += [0.0] * count
        self._high += [high] * count
        self._cost += [0.0] * count
        self._whole += [False] * count

    def row(
        self,
        variables: Sequence[int],
        coefficients: Sequence[float],
        *,
        low: float = -inf,
        high: float = inf,
    ) -> int:
        """Add a row; return its index.

        Args:
            variables: indices, each at most once.
            coefficients: one per variable, in their order.
            low: least value of the sum.
            high: largest value of the sum.
        """
        self._rows.append((list(variables), list(coefficients), low, high))
        return len(self._rows) - 1

    def column(self, cost: float, entries: Iterable[tuple[int, float]]) -> int:
        """Add a variable to rows that are there: (row, coefficient) of each; return its index."""
        made = self.variable(cost=cost)
        for row, coefficient in entries:
            variables, coefficients, _, _ = self._rows[row]
            variables.append(made)
            coefficients.append(coefficient)
        return made

    def aim(self, costs: Sequence[float], *, maximise: bool) -> None:
        """Replace the objective; ``costs`` has one entry per variable."""
        self._cost = list(costs)
        self.maximise = maximise

    def limit(self, row: int, low: float, high: float) -> None:
        """Replace the limits of a row."""
        variables, coefficients, _, _ = self._rows[row]
        self._rows[row] = (variables, coefficients, low, high)

    def coefficient(self, row: int, variable: int, value: float) -> None:
        """Replace the coefficient of a variable that stands in a row."""
        variables, coefficients, _, _ = self._rows[row]
        coefficients[variables.index(variable)] = value

    def fix(self, variable: int, value: float) -> None:
        """Let a variable have no other value."""
        self._low[variable] = self._high[variable] = value

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self._low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a solver found."""

    values: tuple[float, ...] | None
    """One per variable, in their order; None when no point was found."""
    objective: float
    """At ``values``; without any, infinite on the side that is worst."""
    bound: float
    """What no point can beat; infinite when nothing is known."""
    optimal: bool
    """Whether ``values`` is proven to be the best point, to the gap that was asked for."""
    infeasible: bool
    """Whether it is proven that there is no point."""
    duals: tuple[float, ...] = ()
    """Of an optimal continuous program: what one more of each row's limit changes the objective by,
    in the order of rows."""


def solve(
    program: Program,
    *,
    time_limit_s: float,
    relaxed: bool = False,
    gap: float = 0.0,
    nodes: int = 0,
) -> Answer:
    """Solve with GLOP if continuous or ``relaxed``, else with SCIP.

    Args:
        program: What to solve.
        time_limit_s: A guard; what is repeatable must end by itself before.
        relaxed: Take whole variables as continuous.
        gap: Relative gap at which a mixed program is done.
        nodes: Most nodes of the search, 0 for no limit.
    """
    from ortools.linear_solver import pywraplp

    if any(program._whole) and not relaxed:
        return _mixed(program, time_limit_s=time_limit_s, gap=gap, nodes=nodes)
    solver: Any = pywraplp.Solver.CreateSolver("GLOP")
    solver.LoadModelFromProto(_model(program))
    solver.SetTimeLimit(_ms(time_limit_s))
    status = solver.Solve(pywraplp.MPSolverParameters())
    return _answer(solver, status, maximise=program.maximise)


def _mixed(program: Program, *, time_limit_s: float, gap: float, nodes: int) -> Answer:
    """Solve with SCIP, handed over directly.

    Through ``pywraplp``, SCIP is set up and taken down twice, which takes as long as solving a
    program of a hundred variables.
    """
    from ortools.linear_solver.python import model_builder_helper

    model: Any = model_builder_helper.ModelBuilderHelper()
    for low, high, cost, whole in zip(
        program._low, program._high, program._cost, program._whole, strict=True
    ):
        made = model.add_var()
        model.set_var_lower_bound(made, low)
        model.set_var_upper_bound(made, high)
        if cost:
            model.set_var_objective_coefficient(made, cost)
        if whole:
            model.set_var_integrality(made, True)
    for variables, coefficients, low, high in program._rows:
        row = model.add_linear_constraint()
        model.set_constraint_lower_bound(row, low)
        model.set_constraint_upper_bound(row, high)
        for variable, coefficient in zip(variables, coefficients, strict=True):
            model.add_term_to_constraint(row, variable, coefficient)
    model.set_maximize(program.maximise)
    parameters = [f"limits/gap = {gap}", "numerics/feastol = 1e-9"]
    if nodes:
        parameters.append(f"limits/nodes = {nodes}")
    solver: Any = model_builder_helper.ModelSolverHelper("scip")
    solver.set_solver_specific_parameters("\n".join(parameters))
    solver.set_time_limit_in_seconds(_ms(time_limit_s) / 1_000)
    solver.solve(model)
    worst = inf if program.maximise else -inf
    statuses, status = model_builder_helper.SolveStatus, solver.status()
    found = status in {statuses.OPTIMAL, statuses.FEASIBLE}
    bound = solver.best_objective_bound() if found else worst
    return Answer(
        values=tuple(solver.variable_values().tolist()) if found else None,
        objective=solver.objective_value() if found else -worst,
        bound=bound if abs(bound) < INFINITE else worst,
        optimal=status == statuses.OPTIMAL,
        infeasible=status == statuses.INFEASIBLE,
    )


def _ms(limit_s: float) -> int:
    """A time limit in whole ms, at least one."""
    return max(1, int(limit_s * 1000))


class Growing:
    """A continuous program at its least cost that is solved again and again while it grows.

    Beside building it anew each time, on 190 rows and 1,000 variables this took 4 ms and not 9.
    """

    __slots__ = ("_rows", "_solver", "_variables")

    def __init__(self) -> None:
        from ortools.linear_solver import pywraplp

        self._solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.Objective().SetMinimization()
        self._rows: list[Any] = []
        self._variables: list[Any] = []

    def row(
        self, *, low: float = -inf, high: float = inf, entries: Iterable[tuple[int, float]] = ()
    ) -> int:
        """Add a row with (variable, coefficient) of those that are in it; return its index."""
        made = self._solver.Constraint(low, high)
        for variable, coefficient in entries:
            made.SetCoefficient(self._variables[variable], coefficient)
        self._rows.append(made)
        return len(self._rows) - 1

    def column(self, cost: float, entries: Iterable[tuple[int, float]]) -> int:
        """Add a variable from 0 with (row, coefficient) of each it is in; return its index."""
        made = self._solver.NumVar(0.0, inf, "")
        self._solver.Objective().SetCoefficient(made, cost)
        for row, coefficient in entries:
            self._rows[row].SetCoefficient(made, coefficient)
        self._variables.append(made)
        return len(self._variables) - 1

    def change(self, variable: int, *, cost: float, high: float) -> None:
        """Replace the cost of a variable and its largest value."""
        self._solver.Objective().SetCoefficient(self._variables[variable], cost)
        self._variables[variable].SetBounds(0.0, high)

    def solve(self, *, time_limit_s: float) -> Answer:
        """The best point; the time limit is a guard."""
        from ortools.linear_solver import pywraplp

        self._solver.SetTimeLimit(_ms(time_limit_s))
        status = self._solver.Solve()
        if status == self._solver.ABNORMAL:  # its numbers went astray from where it stood before
            anew = pywraplp.MPSolverParameters()
            anew.SetIntegerParam(anew.INCREMENTALITY, anew.INCREMENTALITY_OFF)
            status = self._solver.Solve(anew)
        return _answer(self._solver, status, maximise=False)


def _model(program: Program) -> Any:
    """The program as OR-tools reads it, all of its variables continuous."""
    from ortools.linear_solver import linear_solver_pb2

    model = linear_solver_pb2.MPModelProto(maximize=program.maximise)
    for low, high, cost in zip(program._low, program._high, program._cost, strict=True):
        model.variable.add(lower_bound=low, upper_bound=high, objective_coefficient=cost)
    for variables, coefficients, low, high in program._rows:
        model.constraint.add(
            var_index=variables, coefficient=coefficients, lower_bound=low, upper_bound=high
        )
    return model


def _answer(solver: Any, status: int, *, maximise: bool) -> Answer:
    """What a solver of OR-tools found, read out of it."""
    from ortools.linear_solver import linear_solver_pb2

    found = status in {solver.OPTIMAL, solver.FEASIBLE}
    worst = inf if maximise else -inf
    objective = solver.Objective().Value() if found else -worst
    bound = objective if status == solver.OPTIMAL else worst
    values, duals = None, ()
    if found:
        told = linear_solver_pb2.MPSolutionResponse()
        solver.FillSolutionResponseProto(told)
        values = tuple(told.variable_value)
        if status == solver.OPTIMAL:
            duals = tuple(told.dual_value)
    return Answer(
        values=values,
        objective=objective,
        bound=bound,
        optimal=status == solver.OPTIMAL,
        infeasible=status == solver.INFEASIBLE,
        duals=duals,
    )
