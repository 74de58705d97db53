"""The widest plan: under ``cost``, the one that has room for most of what may come.

Plans are solved for more of the demand than is asked for, or for as much of it as fits, and scaled
back.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import NamedTuple, Protocol

from planner.reconcile.problem_builder import MOST_LOAD, BuiltProblem, ProblemBuilder
from planner.solver.problem import AvailableKind, Planner, Solution
from planner.types import Demand, Objective
from variants.types import DeviceKindName

EVENED = 4
"""How often a larger part of the demand is tried, or more than all of it, once a part fits: the
more fits at once, the more evenly are the workers full when it is scaled back."""
EVENED_WORKERS = 256
"""So many workers, divided by theirs, are the tries that a larger fleet gets."""
NEARLY = 0.96
"""Part of what would fit if all workers were equally full that is tried first."""
ALIKE = 1.003
"""Two parts of the demand that are this near to each other are one."""


class Planned(NamedTuple):
    """What a solver made of the demand, and what it was asked."""

    made: BuiltProblem
    found: Solution
    tail: float
    scale: float
    """The part of the demand that was planned for, or how many times as much."""
    even_load: float | None
    too_much: float = inf
    """The least part of the demand that did not fit."""


class Builder(Protocol):
    """Makes the problems of a demand, of all kinds of devices or of some."""

    def __call__(
        self, part: Sequence[Demand], only: Collection[DeviceKindName] | None = None
    ) -> ProblemBuilder: ...


def widest(
    planned: Planned,
    kinds: Iterable[AvailableKind],
    builder: Builder,
    demand: Sequence[Demand],
    planner: Planner,
) -> Planned:
    """The plan for the largest part of the demand, or multiple of it, that is found to fit.

    To a solver, all plans that serve a demand on as many workers are equal: some workers are full,
    and the last ones have next to nothing. Workers are there and paid for whatever they do, and
    fleets are sized so that most are nearly full. So what a plan is worth is how much would have to
    come until its fullest worker is full. Kinds that the plan does without get no work.
    """
    used = frozenset(planned.found.devices)
    workers = sum(kind.count for kind in kinds if kind.name in used)
    busy = sum(one.share for one in planned.found.assignments)
    fits = planned.scale
    # If all were as full as may be, and each row took what it takes now.
    too_much = min(planned.too_much, fits * MOST_LOAD * workers / max(busy, 1e-9) * ALIKE)
    scale = max(too_much * NEARLY, sqrt(fits * too_much))
    for _ in range(min(EVENED, EVENED_WORKERS // max(workers, 1))):
        if too_much < fits * ALIKE:
            break
        build = builder([replace(each, qps=each.qps * scale) for each in demand], used)
        made = build.problem(tail=planned.tail)
        found = planner(made.problem, Objective.COST)
        build.forget()
        if found.feasible and len(made.asked) == len(planned.made.asked):
            planned, fits = Planned(made, found, planned.tail, scale, None), scale
        else:
            too_much = scale
        scale = sqrt(fits * too_much)
    return planned
