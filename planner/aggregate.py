"""Plans for large problems: the relaxation's shares, packed onto concrete devices.

The relaxation says how much of each class each variant serves on each kind, and what no plan can
beat. Packing loses a little where devices are shared; a kind that needs more devices than the
relaxation gave it is planned again with that much less time per device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf

from planner.bound import Relaxation
from planner.draft import Draft, better
from planner.greedy import finish_up
from planner.menu import Menu
from planner.milp import Answer
from planner.pack import pack
from planner.problem import Objective

ROUNDS = 5
"""Of planning again with what packing lost."""
ENOUGH = 0.004
"""A gap with which planning again is not worth its time: less than half of what is asked for."""
NEAR = 0.001
"""A gap that is as good as none: a tenth of what is asked for."""
NODES = 500

Left = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The best plan, and what is known of all plans that serve at least ``served_qps``."""

    draft: Draft
    served_qps: float
    bound: float
    """Least USD per hour, or the largest sum of rate x accuracy; 0 or infinite when unknown."""
    incomplete: bool
    """It is proven that no plan serves everything."""


def aggregated(
    menu: Menu, relaxation: Relaxation, known: Draft, objective: Objective, *, left: Left
) -> Aggregated:
    """Solve the relaxation, pack it, correct it; begins with a known plan."""
    total = fsum(menu.rates)
    cost = objective is Objective.COST
    best = known
    served = total
    bound = 0.0 if cost else inf
    incomplete = False
    factors = [1.0] * len(menu.counts)
    stale = False
    for turn in range(ROUNDS):
        if left() <= 0:
            break
        relaxation.narrow(factors)
        answer = None
        if cost or known.complete or turn:
            answer = _best(relaxation, objective, served, left)
        if answer is None or (answer.values is None and left() > 0):
            # Not everything can be served, or not in what packing leaves.
            most = relaxation.most_served(time_limit_s=left)
            if most.values is None:
                break
            reachable = min(1.0, most.objective) * total
            if turn == 0:
                served = reachable
                incomplete = most.optimal and reachable < total * (1 - 1e-9)
            answer = _best(relaxation, objective, reachable, left)
        if answer.values is None:
            break
        if turn == 0:
            bound = answer.bound if cost else answer.bound * total
        draft = Draft(menu)
        wanted = pack(draft, _shares(relaxation, answer))
        draft = finish_up(draft, objective, lambda: left() <= 0)
        gained = better(draft, best, objective)
        if gained:
            best = draft
        if _near(best, served, bound, cost=cost) or (turn and not gained and stale):
            break
        stale = bool(turn) and not gained
        given = [answer.values[at] for at in relaxation.opened]
        if all(w <= g + 1e-6 for w, g in zip(wanted, given, strict=True)):
            break
        factors = [
            factor * (1 - 0.5 * min(0.5, max(0.0, 1 - g / w if w else 0.0)))
            for factor, w, g in zip(factors, wanted, given, strict=True)
        ]
    relaxation.narrow([1.0] * len(menu.counts))
    return Aggregated(draft=best, served_qps=served, bound=bound, incomplete=incomplete)


def _best(relaxation: Relaxation, objective: Objective, served_qps: float, left: Left) -> Answer:
    if objective is Objective.COST:
        return relaxation.least_cost(served_qps, time_limit_s=left, gap=NEAR, nodes=NODES)
    return relaxation.most_accurate(served_qps, time_limit_s=left)


def _shares(relaxation: Relaxation, answer: Answer) -> dict[int, float]:
    values: Sequence[float] = answer.values or ()
    return {
        index: min(1.0, values[at])
        for at, index in enumerate(relaxation.options)
        if values[at] > 1e-9
    }


def _near(draft: Draft, served: float, bound: float, *, cost: bool) -> bool:
    """Whether a plan is as good as the bound, for all that packing could still do."""
    if draft.served_qps < served * (1 - 1e-9):
        return False
    if cost:
        return draft.usd_per_hour <= bound * (1 + ENOUGH)
    return draft.weighed >= bound * (1 - NEAR)
