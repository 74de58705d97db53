"""Plans and a bound where variants that share a device slow each other, and memory is no limit.

A device serves with one variant, as fast as its profile says, or with several, all of them slower.
Devices of the second sort become one large one for each kind. Of the first sort each offer has a
whole number: what it has left is of no use to others, and that is what interference costs. So the
relaxation is a mixed program, which its rounding cuts solve nearly at the root.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.solver.device import Device
from planner.solver.greedy import finish_up
from planner.solver.milp import Answer, Program, solve
from planner.solver.options import Options
from planner.solver.packing import DUST, pack
from planner.solver.partial_solution import PartialSolution
from planner.solver.relaxation.aggregate import NEAR, NODES
from planner.solver.relaxation.useful_options import useful
from planner.types import Objective

Left = Callable[[], float]
"""Seconds that are left."""

ENDLESS = 1e20
"""SCIP's infinity."""


@dataclass(slots=True, kw_only=True)
class _Relaxation:
    """The program, and what its variables stand for."""

    program: Program = field(default_factory=Program)
    shared: dict[int, int] = field(default_factory=dict)
    """By option, the variable that is the part of its class on devices with several variants."""
    alone: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By offer and option, the part on devices of its own."""
    devices: dict[int, int] = field(default_factory=dict)
    """By offer, how many devices are its own."""
    several: dict[int, int] = field(default_factory=dict)
    """By kind, how many devices have several variants."""


def apart_or_together(options: Options, *, left: Left) -> tuple[PartialSolution, float]:
    """A plan, and what no plan that serves all that can be served is cheaper than, in USD per hour.

    The plan may serve less when counts or time did not allow it; the bound is 0 when nothing is
    known. Memory is forgotten in the bound.
    """
    relaxation = _built(options)
    answer = solve(relaxation.program, time_limit_s=max(left(), 0.05), gap=NEAR, nodes=NODES)
    partial = PartialSolution(options)
    bound = known_bound(answer)
    if answer.values is None:
        return partial, bound
    values = answer.values
    for offer, parts in relaxation.alone.items():
        served = {index: values[variable] for index, variable in parts.items()}
        _put(partial, served, round(values[relaxation.devices[offer]]))
    shares = {index: values[at] for index, at in relaxation.shared.items() if values[at] > 1e-9}
    pack(partial, shares, [values[relaxation.several[kind]] for kind in relaxation.several])
    return finish_up(partial, Objective.COST, lambda: left() <= 0), bound


def known_bound(answer: Answer) -> float:
    """What an answer says of the least cost, also where no point was found in time; else 0."""
    if answer.infeasible or not 0.0 < answer.bound < ENDLESS:
        return 0.0
    return answer.bound


def _built(options: Options) -> _Relaxation:
    made = _Relaxation()
    program, load = made.program, options.problem.load
    for kind, (count, price) in enumerate(zip(options.counts, options.prices, strict=True)):
        made.several[kind] = program.variable(high=float(count), cost=price, whole=True)
    of_class: list[list[int]] = [[] for _ in options.rates]
    of_kind: list[list[int]] = [[made.several[kind]] for kind in made.several]
    for index in useful(options, Objective.COST):
        option = options.all[index]
        if options.slowdown(option.kind, 2) == 1:
            continue  # alone it is no faster
        made.alone[option.offer][index] = program.variable(high=1.0)
        of_class[option.demand].append(made.alone[option.offer][index])
    for offer, parts in made.alone.items():
        times = [options.time(index) for index in parts]
        kind = options.all[next(iter(parts))].kind
        number = program.variable(
            high=float(options.counts[kind]), cost=options.prices[kind], whole=True
        )
        made.devices[offer] = number
        of_kind[kind].append(number)
        program.row([*parts.values(), number], [*times, -load], high=0.0)
        for variable, time in zip(parts.values(), times, strict=True):
            if time < load:
                program.row([variable, number], [1.0, -1.0], high=0.0)
    times_of: list[list[tuple[int, float]]] = [[] for _ in of_kind]
    for index, time in _together(options).items():
        option = options.all[index]
        made.shared[index] = program.variable(high=1.0)
        of_class[option.demand].append(made.shared[index])
        times_of[option.kind].append((made.shared[index], time))
    for kind, used in enumerate(times_of):
        program.row(
            [v for v, _ in used] + [made.several[kind]], [t for _, t in used] + [-load], high=0.0
        )
        program.row(of_kind[kind], [1.0] * len(of_kind[kind]), high=float(options.counts[kind]))
    for pool in options.problem.pools:
        uses = [
            (number, pool.uses.get(kind.name, 0.0))
            for kind, numbers in zip(options.problem.kinds, of_kind, strict=True)
            for number in numbers
        ]
        program.row([n for n, _ in uses], [use for _, use in uses], high=pool.capacity)
    for variables in of_class:
        if variables:
            program.row(variables, [1.0] * len(variables), low=1.0, high=1.0)
    return made


def _together(options: Options) -> dict[int, float]:
    """For each class and kind, the option that takes least beside others, and what it takes.

    Time is in s per s for the whole class, the slowdown included.
    """
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for index, option in enumerate(options.all):
        slowdown = options.slowdown(option.kind, 2)
        # However short others are, a class waits for at least its own batch.
        batch = options.batch(index, options.left_ms(option.demand) / slowdown / 2)
        if batch is None:
            continue
        time = options.rates[option.demand] * batch.unit_ms * slowdown / 1000
        key = (option.demand, option.kind)
        best[key] = min(best.get(key, (time, index)), (time, index))
    return {index: time for time, index in best.values()}


def _put(partial: PartialSolution, served: dict[int, float], count: int) -> None:
    """Open so many devices for these parts of classes, which one variant serves; the last is less
    full than the others."""
    options = partial.options
    rests = {
        index: part * options.rates[options.all[index].demand] for index, part in served.items()
    }
    for _ in range(count):
        kind = options.all[next(iter(rests))].kind
        if not partial.openable(kind):
            return
        device = Device(options, kind)
        for index, qps in rests.items():
            if qps <= DUST * options.rates[options.all[index].demand]:
                continue
            room = device.room(index)
            if room is not None:
                taken = min(qps, room.qps)
                device.put(index, room.batch, taken)
                rests[index] -= taken
        if device.parts:
            partial.take_in(device)
