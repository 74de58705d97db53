"""How many devices are needed at least: no way to pack needs fewer, at no point of it."""

from dataclasses import replace

import pytest

from planner.solver.device import Device
from planner.solver.least_devices import LeastDevices
from planner.solver.options import Options
from planner.solver.packing import pack
from planner.solver.partial_solution import PartialSolution
from planner.solver.problem import Problem
from planner.types import Demand
from tests.planner.solver.instances import interfering, small
from tests.planner.solver.test_solve import kind, offer
from variants.types import TaskName

MANY = 200
TIMES = 12.0


@pytest.mark.parametrize("given", [None, 0.0])
@pytest.mark.parametrize("seed", range(60))
def test_no_way_to_pack_needs_fewer(seed: int, given: float | None) -> None:
    problem = _many(interfering(seed) if seed % 2 else small(seed))
    options = Options(problem)
    shares = {found[seed % len(found)]: 1.0 for found in options.of_class if found}
    partial = PartialSolution(options)

    wanted = pack(partial, shares, None if given is None else [given] * len(options.counts))

    for at, needed in enumerate(wanted):
        rates = {
            index: options.rates[options.all[index].demand]
            for index in shares
            if options.all[index].kind == at
        }
        least = LeastDevices(options, at, rates)
        assert least.devices <= needed
        for device in partial.devices:
            if device.kind == at and device.count == 1:
                least.filled(device)
                assert least.devices <= needed


def test_what_is_left_unused_makes_it_more() -> None:
    options = _two_tasks(qps=(120.0, 120.0))
    least = LeastDevices(options, 0, {0: 120.0, 1: 120.0})
    assert least.devices == 3

    half_full = Device(options, 0)
    half_full.put(0, options.all[0].alone, 30.0)
    least.filled(half_full)

    assert least.devices == 4


def test_variants_beside_others_count_by_the_interference() -> None:
    """Together they take 1.92 devices, and beside one another 2.11 of them."""
    small_parts = {0: 52.0, 1: 102.0}
    assert LeastDevices(_two_tasks(qps=(52.0, 102.0)), 0, small_parts).devices == 2
    slowed = _two_tasks(qps=(52.0, 102.0), interference=0.2)
    assert LeastDevices(slowed, 0, small_parts).devices == 3


def test_a_variant_that_fills_devices_alone_is_not_slowed() -> None:
    alone = _two_tasks(qps=(79.9, 80.0), interference=0.5)
    assert LeastDevices(alone, 0, {0: 79.9, 1: 80.0}).devices == 2


def _two_tasks(qps: tuple[float, float], interference: float = 0.0) -> Options:
    """Of two tasks a device serves 80 queries per second each."""
    tasks = (TaskName("digits"), TaskName("faces"))
    return Options(
        Problem(
            offers=tuple(offer("cnn", 10.0, task=task) for task in tasks),
            kinds=(replace(kind(), count=MANY, interference=interference),),
            demand=tuple(
                Demand(task=task, latency_ms=100.0, accuracy=None, qps=rate)
                for task, rate in zip(tasks, qps, strict=True)
            ),
        )
    )


def _many(problem: Problem) -> Problem:
    """The same with many devices, and so many times the demand."""
    return replace(
        problem,
        kinds=tuple(replace(each, count=MANY) for each in problem.kinds),
        demand=tuple(replace(each, qps=each.qps * TIMES) for each in problem.demand),
        pools=(),
    )
