"""Best fit on devices that are open already."""

from dataclasses import replace

import pytest

from planner.latency_curve import SizedBatch
from planner.solver.best_fit import Ranking, extend, next_device
from planner.solver.check import violations
from planner.solver.device import Device
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution, finish
from planner.solver.problem import Problem
from planner.types import Demand, Objective
from tests.planner.solver.instances import interfering, small
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


TIMES = 6
"""Times the demand and the devices of a small problem, so that one device is filled like another.
"""


@pytest.mark.parametrize("seed", range(60))
def test_a_device_is_filled_as_if_none_was_filled_before_it(seed: int) -> None:
    options = _several(seed)
    kept, ranking = PartialSolution(options), Ranking(options, cost=True)
    anew = PartialSolution(options)

    while next_device(anew, Ranking(options, cost=True)) is not None:
        next_device(kept, ranking)

    assert next_device(kept, ranking) is None
    assert list(map(_told, kept.devices)) == list(map(_told, anew.devices))
    assert kept.missing == anew.missing


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_of_batches_takes_less_than_the_best_of_each(seed: int) -> None:
    options = _several(seed)
    partial = PartialSolution(options)
    while next_device(partial, Ranking(options, cost=True)) is not None:
        pass

    for device in partial.devices:
        for index, option in enumerate(options.all):
            if option.kind == device.kind and index not in device.parts:
                beside = [*device.parts, index]
                least_ms = device._busy_ms_at_least() * device._slowdown(beside)
                assert all(busy_ms >= least_ms for busy_ms, _ in device._arrangements(beside))


def _several(seed: int) -> Options:
    problem = interfering(seed) if seed % 2 else small(seed)
    return Options(
        replace(
            problem,
            kinds=tuple([replace(one, count=one.count * TIMES) for one in problem.kinds]),
            demand=tuple([each.at_rate(each.qps * TIMES) for each in problem.demand]),
        )
    )


def _told(device: Device) -> object:
    return (device.kind, device.count, device.parts, device.left, device.longest_ms)
