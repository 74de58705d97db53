"""Best fit on devices that are open already."""

from planner.latency_curve import SizedBatch
from planner.solver.best_fit import Ranking, extend
from planner.solver.check import violations
from planner.solver.device import Device
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution, finish
from planner.solver.problem import Problem
from planner.types import Demand, Objective
from tests.planner.solver.test_solve import kind, offer
from variants.types import TaskName

DIGITS, FACES = TaskName("digits"), TaskName("faces")


def test_nothing_is_added_to_one_of_many_devices_that_are_alike() -> None:
    """What is put there would run on each of them: more than is asked for."""
    problem = Problem(
        offers=(offer("cnn", 10.0, task=DIGITS), offer("net", 10.0, task=FACES)),
        kinds=(kind(),),
        demand=tuple(
            Demand(task=task, latency_ms=100.0, accuracy=None, qps=qps)
            for task, qps in ((DIGITS, 80.0), (FACES, 20.0))
        ),
    )
    options = Options(problem)
    partial = PartialSolution(options)
    half_full = Device(options, 0)
    half_full.put(0, SizedBatch(1, 10.0, 10.0), 40.0)
    partial.take_in(half_full, 2)

    extend(partial, Ranking(options, cost=True))

    assert partial.complete
    assert violations(problem, finish(partial, Objective.COST, bound=0.0)) == ()
