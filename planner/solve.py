"""Solving a planning problem: an answer at once, then a better one, with what is proven.

Best fit answers first and always. Small problems are then solved exactly over configurations, large
ones by the aggregated relaxation and packing. The relaxation bounds what is not solved exactly.
"""

from collections.abc import Callable
from math import fsum, inf

from planner.aggregate import aggregated
from planner.bound import Relaxation
from planner.configurations import configurations
from planner.draft import Draft, better, finish
from planner.exact import exact as exactly
from planner.greedy import plan
from planner.menu import Menu
from planner.problem import Clock, Objective, Problem, Solution

SMALL = 2_500
"""Options summed over configurations up to which a problem is solved exactly."""
FEW = 400
"""Options that matter, up to which configurations are listed at all."""
DONE = 1e-6
"""A gap that is none."""


def solve(
    problem: Problem,
    objective: Objective,
    *,
    clock: Clock,
    time_limit_s: float,
    exact: bool = True,
) -> Solution:
    """The best plan found within the limit, with its bound. Never fails to answer.

    The same problem gives the same solution unless ``timed_out``. Without ``exact``, best fit's
    plan is bounded and returned.
    """
    until = clock() + time_limit_s
    search = _Search(problem, objective, lambda: until - clock())
    search.greedy()
    if exact and not search.out_of_time:
        search.exact()
    return search.solution()


class _Search:
    """The best plan and the best bounds so far."""

    __slots__ = (
        "_accuracy", "_least", "best", "left", "menu", "notes", "objective", "proven", "relaxation",
    )  # fmt: skip

    def __init__(self, problem: Problem, objective: Objective, left: Callable[[], float]) -> None:
        self.left = left
        self.objective = objective
        self.menu = Menu(problem)
        self.notes: list[str] = []
        self.best = Draft(self.menu)
        self.proven = False
        self.relaxation = Relaxation(self.menu, self.menu.useful(objective))
        self._least = 0.0
        """Of all plans that serve everything; infinite when there is none."""
        self._accuracy = inf
        """Of the sum of rate x accuracy, over all plans that serve as much as the best."""

    @property
    def out_of_time(self) -> bool:
        return self.left() <= 0

    def offer(self, draft: Draft | None, note: str) -> None:
        """Keep a plan if it is the best so far."""
        if draft is not None and better(draft, self.best, self.objective):
            self.best = draft
            self.notes.append(note)

    def greedy(self) -> None:
        self.offer(plan(self.menu, self.objective, lambda: self.out_of_time), "best fit")

    def exact(self) -> None:
        few = len(self.relaxation.options) <= FEW
        listed = configurations(self.menu, self.objective, most=SMALL) if few else None
        if listed is not None:
            found = exactly(self.menu, listed, self.objective, left=self.left)
            self.offer(found.draft, "exact over configurations")
            served = self.best.served_qps
            if found.served_qps <= served * (1 + 1e-9):
                if self.objective is Objective.ACCURACY:
                    self._accuracy = min(self._accuracy, found.bound)
                elif found.bound < inf:
                    self._least = max(self._least, found.bound)
            self.proven = found.proven
            if found.proven:
                return
        packed = aggregated(self.menu, self.relaxation, self.objective, left=self.left)
        self.offer(packed.draft, "packed from the relaxation")
        self._least = max(self._least, packed.least_usd_per_hour)

    def bound(self) -> float:
        """In terms of the objective, for the best plan."""
        served = self.best.served_qps
        if self.objective is Objective.ACCURACY:
            if not self.proven or self._accuracy == inf:
                self._accuracy = min(self._accuracy, self._relaxed_accuracy(served))
            return self._accuracy / served if served else 0.0
        if self._least in {0.0, inf} and not self.proven:
            return self._relaxed_cost(served)
        return self._least if self._least < inf else 0.0

    def _relaxed_accuracy(self, served: float) -> float:
        answer = self.relaxation.most_accurate(served, time_limit_s=max(self.left(), 0.05))
        if answer.optimal:
            return answer.bound * fsum(self.menu.rates)
        best = [
            max((self.menu.options[i].accuracy for i in found), default=0.0)
            for found in self.menu.of_class
        ]
        return fsum(rate * a for rate, a in zip(self.menu.rates, best, strict=True))

    def _relaxed_cost(self, served: float) -> float:
        if self.best.complete:
            self.relaxation.demand_all()
        else:
            self.relaxation.demand_part(served)
        answer = self.relaxation.least_cost(
            time_limit_s=max(self.left(), 0.05), gap=0.001, nodes=500
        )
        return max(0.0, answer.bound) if answer.bound < inf else 0.0

    def solution(self) -> Solution:
        bound = self.bound()
        return finish(
            self.best,
            self.objective,
            bound=bound,
            timed_out=self.out_of_time,
            notes=self.notes,
        )
