"""A program that grows: the same answer whether it goes on from the last one or begins anew."""

from collections.abc import Callable
from typing import Any

import pytest

from planner.solver.milp import Growing


class AstrayOnce:
    """A solver whose first solution goes astray, as one that goes on from the last one may."""

    def __init__(self, solver: Any) -> None:
        self._solver = solver
        self._astray = True

    def Solve(self, *parameters: Any) -> int:
        if self._astray:
            self._astray = False
            return int(self._solver.ABNORMAL)
        return int(self._solver.Solve(*parameters))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._solver, name)


def calm(solver: Any) -> Any:
    return solver


@pytest.mark.parametrize("become", [calm, AstrayOnce])
def test_it_is_solved_again_when_its_numbers_went_astray(become: Callable[[Any], Any]) -> None:
    program = Growing()
    rows = [program.row(low=2.0), program.row(low=3.0)]
    for row, cost in zip(rows, (1.0, 4.0), strict=True):
        program.column(cost, [(row, 1.0)])
    assert program.solve(time_limit_s=60.0).objective == pytest.approx(14.0)

    program.column(1.5, [(rows[0], 1.0), (rows[1], 1.0)])
    program._solver = become(program._solver)
    found = program.solve(time_limit_s=60.0)

    assert found.optimal
    assert found.objective == pytest.approx(4.5)
    assert found.duals == pytest.approx((0.0, 1.5))
