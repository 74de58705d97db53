"""The planner that is always there: best fit and its improvement, without a solver.

A plan is built by best fit (``planner.solver.best_fit``). Then devices are taken out again and what
they served is placed anew, as long as that helps. For ``accuracy`` the price of device time is
searched: at a low price every class takes its most accurate variant and some are not served, at a
high price every class takes its fastest.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import fsum, inf

from planner.solver.best_fit import (
    Ranking,
    build,
    extend,
    fill_open,
    is_large,
    least_usd,
    next_device,
)
from planner.solver.device import FULL, ROUNDING, Device
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution, better, finish, nothing
from planner.solver.power import by_power
from planner.solver.problem import Problem, Solution
from planner.types import Objective

EFFORT = 60_000
"""Tries of an option on a device that improvement may take: a few hundred ms at most."""
FEW = 6
"""Devices up to which three are taken out at once, and every kind is tried in their place."""
TRIES = 40
"""Devices of a large plan that are taken out to see whether it does without them."""
RUINED = 24
"""Devices that improvement takes out, alone and in pairs."""
ROOMS = 32
"""Devices with room that parts are moved to."""
PRICES = 12
"""Steps of the search for the price of device time."""

Stop = Callable[[], bool]
"""Whether time is up."""


def greedy(problem: Problem, objective: Objective) -> Solution:
    """A plan by best fit. The bound is the trivial one: no cost, or the best accuracy offered."""
    if objective is Objective.ENERGY:
        priced = by_power(problem)
        return priced.restored(greedy(priced.problem, Objective.COST))
    options = Options(problem)
    if problem.least_accuracy is not None and not options.has_time:
        return nothing(options, objective)
    partial = plan(options, objective)
    best = max((option.accuracy for option in options.all), default=0.0)
    bound = 0.0 if objective is Objective.COST else best
    return finish(partial, objective, bound=bound, notes=("best fit",))


def plan(
    options: Options, objective: Objective, stop: Stop = lambda: False, *, quick: bool = False
) -> PartialSolution:
    """The best plan of best fit and its improvement; ``quick`` leaves the improvement out."""
    cost = objective is Objective.COST
    cheap, fast = Ranking(options, cost=True), Ranking(options, cost=False)
    best = build(options, cheap if cost else fast)
    if cost and not best.complete:
        best = _best(best, build(options, fast), objective)
    if quick:
        return best
    if not is_large(options):
        for ranking in (cheap, fast):
            for kinds in _subsets(options):
                best = _best(best, build(options, ranking, kinds), objective)
    ranking = cheap if cost and best.complete else fast
    if not cost:
        best, ranking = _accurate(options, best, stop)
    return _improve(best, ranking, objective, stop)


def _subsets(options: Options) -> list[tuple[int, ...]]:
    """Kinds to begin with: each alone, and each left out."""
    kinds = range(len(options.counts))
    alone: list[tuple[int, ...]] = [(kind,) for kind in kinds]
    others = [tuple(k for k in kinds if k != kind) for kind in kinds if len(kinds) > 2]
    return [*alone, *others]


def _best(one: PartialSolution, other: PartialSolution, objective: Objective) -> PartialSolution:
    return other if better(other, one, objective) else one


def _improve(
    partial: PartialSolution, ranking: Ranking, objective: Objective, stop: Stop
) -> PartialSolution:
    """Take out one or two devices and place what they served anew, as long as that helps."""
    effort = EFFORT
    improved = True
    while improved and not stop():
        improved = False
        single = [at for at, device in enumerate(partial.devices) if device.count == 1]
        # The emptiest are the easiest to do without.
        single.sort(key=lambda at: -partial.devices[at].left)
        single = single[:RUINED]
        pairs: list[tuple[int, ...]] = [(a,) for a in single]
        pairs += [(a, b) for a in single for b in single if b < a]
        step = max(1, len(partial.options.all) * max(1, len(partial.devices)) // 4)
        firsts: list[tuple[int, ...] | None] = [None]
        if len(single) <= FEW:
            firsts += [(kind,) for kind in range(len(partial.options.counts))]
            pairs += [(a, b, c) for a in single for b in single for c in single if c < b < a]
        for out, first in product(pairs, firsts):
            effort -= step
            if effort < 0 or stop():
                return partial
            tried = _without(partial, out)
            if first is not None:
                if not partial.options.counts[first[0]] or tried.complete:
                    continue
                fill_open(tried, ranking)
                next_device(tried, ranking, first)
            extend(tried, ranking)
            if objective is Objective.ACCURACY:
                upgrade(tried, stop)
            if better(tried, partial, objective):
                partial = tried
                improved = True
                break
    return partial


def consolidate(partial: PartialSolution, stop: Stop) -> PartialSolution:
    """Do without devices that waste most, one at a time; for plans of many devices."""
    options = partial.options
    ranking = Ranking(options, cost=True)
    tries = TRIES
    failed: set[int] = set()
    most_usd, spare_usd = _to_beat(partial, ranking), _spare_usd(partial)
    while tries and not stop():
        wasteful = [
            (-device.left * options.prices[device.kind], at)
            for at, device in enumerate(partial.devices)
            if device.count == 1 and id(device) not in failed
        ]
        if not wasteful:
            break
        tries -= 1
        _, at = min(wasteful)
        tried = partial.without(at)
        if least_usd(tried, ranking, fsum(spare_usd) - spare_usd[at]) < most_usd:
            tried = tried.copy()
            extend(tried, ranking, range(len(options.counts)), below_usd=most_usd)
        useful = tried.complete or least_usd(tried, ranking) < most_usd
        if useful and better(tried, partial, Objective.COST):
            partial = tried
            failed.clear()
            most_usd, spare_usd = _to_beat(partial, ranking), _spare_usd(partial)
        else:
            failed.add(id(partial.devices[at]))
    return partial


def _to_beat(partial: PartialSolution, ranking: Ranking) -> float:
    """What a better plan has to cost less than, where all is served by this one; infinite where
    that is not all that counts."""
    alone = not partial.options.has_work and min(ranking.worth, default=0.0) > 0
    return partial.usd_per_hour * (1 - 1e-9) if partial.complete and alone else inf


def _spare_usd(partial: PartialSolution) -> list[float]:
    """Per device: what the time is worth that it may have left, whatever batches are on it."""
    options = partial.options
    whole = options.problem.load * (1 + ROUNDING)
    found: list[float] = []
    for device in partial.devices:
        spare = 0.0
        if device.count == 1 and device.left > FULL:
            parts = device.parts.items()
            ms = fsum([qps * options.needs[index][2].unit_ms for index, (_, qps) in parts])
            spare = 1 - ms / 1_000 * device.slowdown / whole
        found.append(spare * options.prices[device.kind])
    return found


def _without(partial: PartialSolution, out: Sequence[int]) -> PartialSolution:
    made = partial.copy()
    for device in [made.devices[at] for at in out]:
        made.close(device)
    for device in made.devices:
        device.tighten()
    return made


def _accurate(
    options: Options, served: PartialSolution, stop: Stop
) -> tuple[PartialSolution, Ranking]:
    """Search the price of device time at which the plan is best; ends with that ranking."""
    best, ranking = served, Ranking(options, cost=False)
    times = [option.alone.unit_ms for option in options.all if option.alone.unit_ms > 0]
    if not times:
        return best, ranking
    low, high = -6.0, 1.0
    for step in range(PRICES if not is_large(options) else 4):
        if stop():
            break
        exponent = low if step == 0 else (low + high) / 2
        tried = Ranking(options, cost=False, time_price=10**exponent / min(times))
        found = upgrade(build(options, tried), stop)
        if found.served_qps >= best.served_qps * (1 - 1e-9):
            high = exponent
        else:
            low = exponent
        if better(found, best, Objective.ACCURACY):
            best, ranking = found, tried
    return upgrade(best.copy(), stop), ranking


def upgrade(partial: PartialSolution, stop: Stop = lambda: False) -> PartialSolution:
    """Move parts to more accurate variants while there is room, the least accurate first."""
    options = partial.options
    for kind in range(len(options.counts)):
        for _ in range(min(partial.openable(kind), ROOMS)):
            partial.open(kind)
    rooms = [device for device in partial.devices if device.count == 1 and device.left > 1e-6]
    rooms = sorted(rooms, key=lambda device: -device.left)[:ROOMS]
    top = [max((options.all[i].accuracy for i in found), default=0.0) for found in options.of_class]
    moving = [
        (options.all[index].accuracy - top[options.all[index].demand], at, index)
        for at, device in enumerate(partial.devices)
        if device.count == 1
        for index in device.parts
    ]
    for gap, at, index in sorted(moving)[: ROOMS * ROOMS]:
        if gap < 0 and not stop():
            _move_up(partial.devices[at], index, rooms, options)
    partial.drop_empty()
    return partial


def _move_up(device: Device, index: int, rooms: Sequence[Device], options: Options) -> None:
    """Serve a part, or what there is room for of it, by something more accurate elsewhere."""
    option = options.all[index]
    for other in sorted(options.of_class[option.demand], key=lambda i: -options.all[i].accuracy):
        if options.all[other].accuracy <= option.accuracy:
            return
        for target in rooms:
            if target is device or target.kind != options.all[other].kind:
                continue
            room = target.room(other)
            if room is None:
                continue
            target.put(other, room.batch, device.take(index, room.qps))
            if index not in device.parts:
                return


def finish_up(partial: PartialSolution, objective: Objective, stop: Stop) -> PartialSolution:
    """Serve what packing left over, then use the room there is for accuracy."""
    if not partial.complete:
        extend(partial, Ranking(partial.options, cost=objective is Objective.COST))
    return upgrade(partial, stop) if objective is Objective.ACCURACY else consolidate(partial, stop)
