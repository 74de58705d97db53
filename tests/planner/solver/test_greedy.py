"""Plans that do without some of their devices."""

from dataclasses import replace

import pytest

from planner.solver.best_fit import Ranking, build, extend
from planner.solver.device import Device
from planner.solver.greedy import TRIES, consolidate
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution, better, finish
from planner.solver.problem import Problem
from planner.types import Objective
from tests.planner.solver.instances import interfering, small

TIMES = 8
PARTS = (0.3, 0.6, 0.9)


@pytest.mark.parametrize("seed", range(80))
def test_what_is_not_tried_in_full_would_not_be_better(seed: int) -> None:
    spread = _emptier(_several(interfering(seed) if seed % 2 else small(seed)), PARTS[seed % 3])

    found = consolidate(spread.copy(), lambda: False)

    assert _told(found) == _told(_each_in_full(spread.copy()))


def _each_in_full(partial: PartialSolution) -> PartialSolution:
    """As ``consolidate``, with all that its tries may take."""
    ranking = Ranking(partial.options, cost=True)
    failed: set[int] = set()
    for _ in range(TRIES):
        wasteful = [
            (-device.left * partial.options.prices[device.kind], at)
            for at, device in enumerate(partial.devices)
            if device.count == 1 and id(device) not in failed
        ]
        if not wasteful:
            break
        _, at = min(wasteful)
        tried = partial.copy()
        tried.close(tried.devices[at])
        extend(tried, ranking, range(len(partial.options.counts)))
        if better(tried, partial, Objective.COST):
            partial = tried
            failed.clear()
        else:
            failed.add(id(partial.devices[at]))
    return partial


def _told(partial: PartialSolution) -> object:
    return finish(partial, Objective.COST, bound=0.0)


def _emptier(problem: Problem, part: float) -> PartialSolution:
    """A plan that serves this part of the demand on the devices that all of it takes."""
    options = Options(problem)
    full = build(options, Ranking(options, cost=True))
    asked = tuple(replace(each, qps=each.qps * part) for each in problem.demand)
    made = PartialSolution(Options(replace(problem, demand=asked)))
    for device in full.devices:
        for _ in range(device.count):
            alike = Device(made.options, device.kind)
            for index, (batch, qps) in device.parts.items():
                alike.put(index, batch, qps * part)
            made.take_in(alike)
    return made


def _several(problem: Problem) -> Problem:
    """The same with several times the devices and the demand."""
    return replace(
        problem,
        kinds=tuple(replace(each, count=each.count * TIMES) for each in problem.kinds),
        demand=tuple(replace(each, qps=each.qps * TIMES / 2) for each in problem.demand),
        pools=(),
    )
