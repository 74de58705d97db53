"""Plans for large problems: the relaxation's shares, packed onto concrete devices.

The relaxation says how much of each class each variant serves on each kind, and what no plan can
beat. Packing loses a little where devices are shared; a kind that needs more devices than the
relaxation gave it is planned again with that much less time per device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum, inf

from planner.bound import Relaxation
from planner.draft import Draft, better
from planner.greedy import finish_up
from planner.menu import Menu
from planner.milp import Answer
from planner.pack import pack
from planner.problem import Objective

ROUNDS = 4
"""Of planning again with what packing lost."""
GAP = 0.001
"""At which the search for whole numbers of devices stops: a tenth of what is asked for."""
NODES = 500

Left = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The best plan found, and what is known of all plans."""

    draft: Draft | None
    least_usd_per_hour: float
    """Of all plans that serve everything; 0 when unknown, infinite when there is none."""


def aggregated(
    menu: Menu, relaxation: Relaxation, objective: Objective, *, left: Left
) -> Aggregated:
    """Solve the relaxation, pack it, correct it."""
    factors = [1.0] * len(menu.counts)
    best: Draft | None = None
    least = 0.0
    for turn in range(ROUNDS):
        if left() <= 0:
            break
        relaxation.narrow(factors)
        answer = _shares(relaxation, objective, left)
        if turn == 0 and objective is Objective.COST:
            if answer.infeasible:
                least = inf
            elif answer.bound > 0:
                least = answer.bound
        if answer.values is None:
            answer = _most(relaxation, objective, left)
        if answer.values is None:
            break
        shares = {
            index: min(1.0, answer.values[at])
            for at, index in enumerate(relaxation.options)
            if answer.values[at] > 1e-9
        }
        draft = Draft(menu)
        wanted = pack(draft, shares)
        draft = finish_up(draft, objective, lambda: left() <= 0)
        gained = best is None or better(draft, best, objective)
        if gained:
            best = draft
        given = [answer.values[at] for at in relaxation.opened]
        over = [w > g + 1e-6 for w, g in zip(wanted, given, strict=True)]
        if not any(over) or (turn and not gained):
            break
        factors = [
            factor * (max(g, 0.5) / w if o else 1.0)
            for factor, w, g, o in zip(factors, wanted, given, over, strict=True)
        ]
    relaxation.narrow([1.0] * len(menu.counts))
    return Aggregated(draft=best, least_usd_per_hour=least)


def _shares(relaxation: Relaxation, objective: Objective, left: Left) -> Answer:
    if objective is Objective.COST:
        relaxation.demand_all()
        return relaxation.least_cost(time_limit_s=left(), gap=GAP, nodes=NODES)
    return _most(relaxation, objective, left)


def _most(relaxation: Relaxation, objective: Objective, left: Left) -> Answer:
    """Shares that serve the most; of those, the most accurate or the cheapest."""
    most = relaxation.most_served(time_limit_s=left())
    if most.values is None or left() <= 0:
        return most
    served = most.objective * fsum(relaxation.menu.rates)
    if objective is Objective.ACCURACY:
        answer = relaxation.most_accurate(served, time_limit_s=left())
    else:
        relaxation.demand_part(served)
        answer = relaxation.least_cost(time_limit_s=left(), gap=GAP, nodes=NODES)
    return answer if answer.values is not None else most
