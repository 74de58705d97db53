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
from functools import cache
from math import sqrt
from typing import NamedTuple

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
    best = (made, found)

    @cache
    def tried(scale: float) -> _Tried:
        build = builder(kinds, scale)
        problem = build.problem(load=MOST_LOAD, refused=REFUSED)
        answer = filled(problem.problem, planner(problem.problem, Objective.COST), planner)
        build.forget()
        return _Tried(problem, answer)

    first = _Steps(too_much * LEAST, too_much * NEARLY, too_much, tries)
    steps: _Steps | None = first
    if tried(first.scale).found.feasible:
        # Mostly all that follow fit as well: only the last of them is asked then.
        last = first.if_all_fit()
        if tried(last).found.feasible:
            steps = first.at(last)
    while steps is not None:
        one = tried(steps.scale)
        if one.found.feasible:
            factors = tuple([factor * steps.scale for factor in one.made.factors])
            best = (replace(one.made, asked=wide.asked, factors=factors), one.found)
        steps = steps.following(one)
    return best


class _Tried(NamedTuple):
    """A multiple of the demand, and what came of it."""

    made: BuiltProblem
    found: Solution

    @property
    def asked_qps(self) -> float:
        return sum(each.qps for each in self.made.problem.demand)


class _Steps(NamedTuple):
    """A search for the largest multiple that fits: which one is tried next."""

    fits: float
    """Of what is known to fit, or taken to, the most."""
    scale: float
    """The multiple to be tried."""
    too_much: float
    """Of what does not fit, the least."""
    left: int
    """How many may be tried, this one included."""

    def following(self, tried: _Tried) -> "_Steps | None":
        """Once this one was tried; None where that was the last."""
        if tried.found.feasible:
            return self._after_fit()
        served = self.scale * SERVED * tried.found.served_qps / tried.asked_qps
        nearer = max(sqrt(self.fits * self.scale), served)
        return self._unless_done(self.fits, nearer, self.scale)

    def if_all_fit(self) -> float:
        """The last one to be tried if all of them fit."""
        last, following = self, self._after_fit()
        while following is not None:
            last, following = following, following._after_fit()
        return last.scale

    def at(self, scale: float) -> "_Steps":
        """Only this one is left."""
        return self._replace(scale=scale, left=1)

    def _after_fit(self) -> "_Steps | None":
        return self._unless_done(self.scale, sqrt(self.scale * self.too_much), self.too_much)

    def _unless_done(self, fits: float, scale: float, too_much: float) -> "_Steps | None":
        if self.left <= 1 or too_much < fits * ALIKE:
            return None
        return _Steps(fits, scale, too_much, self.left - 1)
