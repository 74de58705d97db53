"""Whole devices from the relaxation over columns.

Columns that the relaxation takes at least once are opened as often as it takes them whole; then
those it takes most of. What remains is relaxed again, with columns cut down to it: a class of which
little remains no longer fills a device, so the new prices say what sharing costs.

The last devices of a dive are worth least, because little is left to choose from. Where the plan is
further from its bound than is asked for, the half of its devices that lose most at the prices of
the relaxation is given back, and what they served is dived for again.
"""

from math import floor

from planner.solver.columns.column import Column
from planner.solver.columns.devices import MORE_WORK, Left
from planner.solver.columns.master import NEARER, Master
from planner.solver.columns.menus import Menus
from planner.solver.columns.prices import Prices
from planner.solver.device import FULL, Device
from planner.solver.greedy import finish_up
from planner.solver.milp import Answer
from planner.solver.options import Options
from planner.solver.partial_solution import PartialSolution, better
from planner.types import Objective

ROUNDS = 6
"""Of new columns for what remains. With 12, plans were no cheaper and took twice the time."""
ROUNDS_ALL = 80
"""Of new columns for the whole problem; about 20 were needed."""
PART = 6
"""One in so many of the columns is opened in a step that opens no whole ones; with 12, plans were
no cheaper."""
WORTHY = 0.6
"""Part of its cost that a column must be worth to be kept for what remains."""
WANTED = 0.02
"""A gap above which a part of the devices is chosen again: so much is asked for."""
AGAIN = 0.5
"""That part, of the price of all; with less, plans gained less."""
TURNS = 2
"""So often at most."""
DUST = 1e-11
"""Relative: rates below this part of a class are none."""


def generated(
    options: Options, known: PartialSolution, *, left: Left
) -> tuple[PartialSolution, float]:
    """A plan by column generation, and what no plan that serves as much is cheaper than.

    Args:
        options: of the problem.
        known: a plan that serves all that can be served, to begin with.
        left: answers how many seconds are left.

    Returns:
        The plan may serve less than the known one when time ran out; the bound, in USD per hour,
        may be 0.
    """
    master = Master(Menus(options), PartialSolution(options))
    master.seed(known)
    master.generate(left, ROUNDS_ALL)
    answer = master.generate(left, ROUNDS_ALL, closely=True)
    # The plan comes before the proof: where time runs out, a plan is of more use.
    best = _finished(_dive(PartialSolution(options), master, answer, left), left)
    kept = best if better(best, known, Objective.COST) else known
    enough = kept.usd_per_hour * (1 - WANTED)
    answer, bound = master.prove(left, enough=enough)
    if _is_far(best, bound) and answer.objective > bound * (1 + NEARER) and left() > 0:
        master.devices.work = MORE_WORK
        answer, proven = master.prove(left, NEARER, enough=enough)
        bound = max(bound, proven)
    for _ in range(TURNS):
        if not _is_far(best, bound) or not answer.duals or left() <= 0:
            break
        tried = _finished(_again(best, master, master.prices(answer), left), left)
        if not better(tried, best, Objective.COST):
            break
        best = tried
    return best, bound


def _is_far(plan: PartialSolution, bound: float) -> bool:
    """Whether a plan that serves all that can be served is further from its bound than is asked."""
    served = plan.served_qps >= plan.options.reachable_qps * (1 - 1e-9)
    return served and plan.usd_per_hour * (1 - WANTED) > bound


def _finished(partial: PartialSolution, left: Left) -> PartialSolution:
    return finish_up(partial, Objective.COST, lambda: left() <= 0)


def _again(plan: PartialSolution, master: Master, prices: Prices, left: Left) -> PartialSolution:
    """Another plan, with the devices of one that lose least at some prices.

    Args:
        master: the relaxation of the whole problem.
    """
    options, rates = master.options, master.options.rates
    partial = plan.copy()
    lost: list[tuple[float, int]] = []
    for at, device in enumerate(partial.devices):
        parts = {
            index: (batch, qps / rates[options.all[index].demand])
            for index, (batch, qps) in device.parts.items()
        }
        worth = master.worth(Column(kind=device.kind, parts=parts), prices)
        price = max(options.prices[device.kind], 1e-9)
        lost.append(((worth - float(prices.kinds[device.kind])) / price, at))
    devices = list(partial.devices)
    given_back = 0.0
    for _, at in sorted(lost):
        if given_back >= AGAIN * plan.usd_per_hour:
            break
        given_back += devices[at].count * options.prices[devices[at].kind]
        partial.close(devices[at])
    rest = Master(master.menus, partial)
    rest.again(_worthy(master, prices))
    return _dive(partial, rest, rest.generate(left, ROUNDS), left)


def _worthy(master: Master, prices: Prices) -> list[Column]:
    """The columns that may be of use for a part of what is missing."""
    return [
        column
        for column in master.columns
        if master.worth(column, prices) >= WORTHY * prices.kinds[column.kind]
    ]


def _dive(partial: PartialSolution, master: Master, answer: Answer, left: Left) -> PartialSolution:
    """Open devices for all that a partial solution does not serve yet.

    Args:
        master: the relaxation of that, with its answer.
    """
    while answer.values is not None and answer.duals and left() > 0:
        if not _open(partial, master, answer):
            break
        columns = _worthy(master, master.prices(answer))
        master = Master(master.menus, partial)
        if not master.missing.any():
            break
        master.again(columns)
        answer = master.generate(left, ROUNDS)
    return partial


def _open(partial: PartialSolution, master: Master, answer: Answer) -> int:
    """Open what an answer takes whole, or else what it takes most of; return how many."""
    values = answer.values or ()
    opened = 0
    for column, value in zip(master.columns, values, strict=True):
        if value >= 1 - 1e-6:
            opened += _put(partial, column, floor(value + 1e-6))
    if opened:
        return opened
    ranked = sorted((-value, at) for at, value in enumerate(values) if value > 1e-6)
    touched: set[int] = set()
    for _, at in ranked[: max(1, len(ranked) // PART)]:
        classes = set(master.columns[at].classes(master.options))
        if not touched & classes:
            touched |= classes
            opened += _put(partial, master.columns[at], 1)
    return opened


def _put(partial: PartialSolution, column: Column, count: int) -> int:
    """Open a column so many times; return how many devices that are."""
    options = partial.options
    count = min(count, partial.openable(column.kind))
    if count <= 0:
        return 0
    device = Device(options, column.kind)
    missing: dict[int, float] = {}
    for index, (batch, part) in column.parts.items():
        demand = options.all[index].demand
        left = missing.get(demand, partial.missing[demand] / count)
        qps = min(part * options.rates[demand], left)
        if qps > DUST * options.rates[demand]:
            device.put(index, batch, qps)
            missing[demand] = left - qps
    if not device.parts:
        return 0
    if device.left <= FULL:
        partial.take_in(device, count)
    else:
        for _ in range(count):  # others may come to each of them
            partial.take_in(device.copy())
    return count
