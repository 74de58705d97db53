"""Plans for large problems: the relaxation's shares, packed onto concrete devices.

The relaxation says how much of each class each variant serves on each kind, and what no plan can
beat. Packing loses a little where devices are shared; a kind that needs more devices than the
relaxation gave it is planned again with that much less time per device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf

from planner.solver.greedy import finish_up
from planner.solver.milp import Answer
from planner.solver.options import Options
from planner.solver.packing import pack
from planner.solver.partial_solution import PartialSolution, better
from planner.solver.relaxation.bound import Relaxation
from planner.types import Objective

ROUNDS = 5
"""So often a problem is planned anew, with less time per device by what packing lost."""
ENOUGH = 0.006
"""A gap at which planning anew is not worth its time; 1 % is asked for. At 0.004, three classes for
each of 100 tasks took up to 1.3 s of processor time and won 0.02 %."""
NEAR = 0.001
"""A gap that is as good as none: a tenth of what is asked for."""
TOO_MUCH = 1e-5
"""Relative: more than by this part above the most that can be served, no program is solved."""
NODES = 500
"""Most nodes of each search for the least cost."""

Left = Callable[[], float]
"""Seconds that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The best plan, and what is known of all plans that serve at least ``served_qps``."""

    partial: PartialSolution
    served_qps: float
    bound: float
    """Least USD per hour, or the largest sum of rate x accuracy; 0 or infinite when unknown."""


def aggregated(
    options: Options,
    relaxation: Relaxation,
    known: PartialSolution,
    objective: Objective,
    *,
    left: Left,
    far: float = inf,
    known_answer: Answer | None = None,
) -> Aggregated:
    """Solve the relaxation, pack it onto devices, and plan anew with what packing lost.

    Args:
        options: of the problem.
        relaxation: of the same options; it is narrowed meanwhile, and wide again at the end.
        known: a plan to begin with, which is returned where nothing better is found.
        objective: what counts once all is served.
        left: answers how many seconds are left.
        far: a gap after the first packing above which planning anew is left to others.
        known_answer: the relaxation's best that serves all, where it was found already.
    """
    cost = objective is Objective.COST
    best, bound = known, 0.0 if cost else inf
    served = options.reachable_qps
    whole = served * (1 - 1e-9)
    factors = [1.0] * len(options.counts)
    idle = 0
    short = False
    for turn in range(ROUNDS):
        if left() <= 0 or idle > 1:
            break
        relaxation.narrow(factors)
        # For cost it may be so; for accuracy only if a plan shows it.
        hopeful = turn > 0 or known.served_qps >= whole or (cost and _may_serve(options))
        if turn == 0 and hopeful and known_answer is not None and known_answer.values is not None:
            answer, reached = known_answer, served
        else:
            doubtful = cost and short
            answer, reached = _answer(
                relaxation, objective, served, left, hopeful=hopeful, doubtful=doubtful
            )
        if answer.values is None:
            break
        if turn == 0:
            bound = answer.bound if cost else answer.bound * fsum(options.rates)
            served = reached
        partial = PartialSolution(options)
        given = [answer.values[at] for at in relaxation.opened]
        wanted = pack(partial, _shares(relaxation, answer), given)
        partial = finish_up(partial, objective, lambda: left() <= 0)
        short = partial.served_qps < served * (1 - 1e-9)
        gained = better(partial, best, objective)
        idle = 0 if gained or short else idle + 1
        if gained:
            best = partial
        if _near(best, served, bound, cost=cost):
            break
        if cost and not short and best.usd_per_hour > bound * (1 + far):
            break
        lost = [max(0.0, 1 - g / w) if w else 0.0 for w, g in zip(wanted, given, strict=True)]
        if not any(loss > 1e-6 for loss in lost):
            break
        # Consolidation wins back some; where too little is served, nothing did.
        part = 1.0 if short else 0.5
        factors = [f * (1 - part * min(0.5, x)) for f, x in zip(factors, lost, strict=True)]
    relaxation.narrow([1.0] * len(options.counts))
    return Aggregated(partial=best, served_qps=served, bound=bound)


def _may_serve(options: Options) -> bool:
    """Whether there may be time for all that has options; quickly."""
    return options.has_time or options.reachable_qps < fsum(options.rates)


def _answer(
    relaxation: Relaxation,
    objective: Objective,
    served: float,
    left: Left,
    *,
    hopeful: bool,
    doubtful: bool,
) -> tuple[Answer, float]:
    """The relaxation's best that serves this much, or else the most; and how much that is.

    Args:
        hopeful: whether this much may be served at all.
        doubtful: whether it may well be too much: then the most is asked for first, by a program
            that is quicker to solve than to find that one with whole devices has no solution.
    """
    total = fsum(relaxation.options.rates)
    most: Answer | None = None
    if hopeful and doubtful:
        most = relaxation.most_served(time_limit_s=left)
        if most.optimal and most.objective * total < served * (1 - TOO_MUCH):
            hopeful = False
    if hopeful:
        answer = _best(relaxation, objective, served, left)
        if answer.values is not None or left() <= 0:
            return answer, served
    if most is None:
        most = relaxation.most_served(time_limit_s=left)
    if most.values is None:
        return most, 0.0
    reached = min(served, most.objective * total)
    return _best(relaxation, objective, reached, left), reached


def _best(relaxation: Relaxation, objective: Objective, served_qps: float, left: Left) -> Answer:
    if objective is Objective.COST:
        return relaxation.least_cost(served_qps, time_limit_s=left, gap=NEAR, nodes=NODES)
    return relaxation.most_accurate(served_qps, time_limit_s=left)


def _shares(relaxation: Relaxation, answer: Answer) -> dict[int, float]:
    """Option to the part of its class that it serves in an answer, in (0, 1]."""
    values: Sequence[float] = answer.values or ()
    return {
        index: min(1.0, values[at])
        for at, index in enumerate(relaxation.columns)
        if values[at] > 1e-9
    }


def _near(partial: PartialSolution, served: float, bound: float, *, cost: bool) -> bool:
    """Whether a plan is as good as the bound, for all that packing could still do."""
    if partial.served_qps < served * (1 - 1e-9):
        return False
    if cost:
        return partial.usd_per_hour <= bound * (1 + ENOUGH)
    return partial.weighed >= bound * (1 - NEAR)
