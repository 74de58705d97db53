"""The widest plan: under ``cost``, the one that has room for most of what may come.

To a solver, all plans that serve a demand on as many workers are equal: some workers are full, the
last ones have next to nothing, and a tight class is where it just fits. Workers are there and paid
for whatever they do, and fleets are sized so that most are nearly full. So of all plans on the
kinds that are used, the one is looked for that would serve the largest multiple of the demand. What
is multiplied is what a class needs so that next to nothing of it is refused by chance: tight
classes many times what they ask for, loose ones hardly more. Where that does not fit, a part of it
is planned for, of which tight classes still have their share: with the batches that such a part
fills, which are shorter (those that all of it fills leave 1.5 in place of 1.0 % violated of the
workload with three classes of SLOs).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import sqrt

from planner.reconcile.assigning.filled import filled
from planner.reconcile.problem_builder import BuiltProblem, ProblemBuilder
from planner.reconcile.sizing import MOST_LOAD
from planner.solver.problem import AvailableKind, Planner, Solution
from planner.types import Objective

REFUSED = 1e-14
"""Part of a class that may be refused by chance (docs/decisions/0007-planning.md has the sweep)."""
TRIES = 6
"""How often a multiple is tried."""
MANY = 384
"""So many workers, divided by theirs, are the tries of a larger fleet; none beyond."""
NEARLY = 0.96
"""Part of what would fit if all workers were equally full that is tried first."""
LEAST = 0.5
"""Part of it from which on multiples are looked for."""
SERVED = 0.99
"""Of a multiple that does not fit, this part of what was served of it is tried next."""
ALIKE = 1.003
"""Two multiples that are this near to each other are one."""


def widest(
    made: BuiltProblem,
    found: Solution,
    kinds: Sequence[AvailableKind],
    builder: Callable[[Iterable[AvailableKind], float], ProblemBuilder],
    planner: Planner,
) -> tuple[BuiltProblem, Solution]:
    """The problem and the plan with most room; those given where none is found.

    Args:
        made: the problem of the demand.
        found: a plan that serves it.
        kinds: those that it uses.
        builder: makes problems of these kinds, for a part of the demand.
    """
    workers = sum(kind.count for kind in kinds)
    tries = min(TRIES, MANY // max(workers, 1))
    if tries == 0:
        return made, found
    wide = builder(kinds, 1.0).problem(load=MOST_LOAD, refused=REFUSED)
    if len(wide.asked) != len(made.asked):
        return made, found
    rates = [each.qps for each in made.problem.demand]
    busy = sum(
        one.share * wide.problem.demand[one.demand].qps / rates[one.demand]
        for one in found.assignments
    )
    # If all workers were as full as may be, and each row took what it takes in the plan.
    too_much = MOST_LOAD * workers / max(busy, 1e-9) * ALIKE
    fits, scale = too_much * LEAST, too_much * NEARLY
    best = (made, found)
    for _ in range(tries):
        build = builder(kinds, scale)
        tried = build.problem(load=MOST_LOAD, refused=REFUSED)
        answer = filled(tried.problem, planner(tried.problem, Objective.COST), planner)
        build.forget()
        if answer.feasible:
            factors = tuple([factor * scale for factor in tried.factors])
            best, fits = (replace(tried, asked=wide.asked, factors=factors), answer), scale
            scale = sqrt(fits * too_much)
        else:
            asked_qps = sum(each.qps for each in tried.problem.demand)
            too_much = scale
            scale = max(sqrt(fits * too_much), scale * SERVED * answer.served_qps / asked_qps)
        if too_much < fits * ALIKE:
            break
    return best
