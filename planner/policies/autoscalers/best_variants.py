"""The best static variant of each task, chosen with the trace's own mean rates.

Under the objectives ``cost`` and ``energy``, of which these autoscalers know nothing, it is the
cheapest that is feasible. Under ``accuracy`` the fleet is given, and the variants are the most
accurate with which it still serves ``PEAK`` times the mean rates, a whole device for each replica:
from the most accurate ones downwards, each step where it saves the most work for the accuracy it
loses. Nobody who sizes by hand knows that much.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from planner.policies.static import Pick, least_cost, picks, unit_ms
from planner.solver.problem import AvailableKind
from planner.types import Candidate, Demand, Objective
from variants.types import TaskName

PEAK = 2.0
"""Times the mean rates that the fleet has to serve."""


def best_variants(
    candidates: Mapping[TaskName, Sequence[Candidate]],
    demand: Mapping[TaskName, Sequence[Demand]],
    kinds: Sequence[AvailableKind],
    objective: Objective,
) -> dict[TaskName, Pick]:
    """A variant for each task with demand that some variant meets."""
    able = {task: _widest(candidates.get(task, ()), wanted) for task, wanted in demand.items()}
    able = {task: found for task, found in able.items() if found}
    if objective is not Objective.ACCURACY:
        return {
            task: max(found, key=lambda p: (*least_cost(p), p.variant))
            for task, found in able.items()
        }
    ladders = {task: _ladder(found) for task, found in able.items()}
    steps = dict.fromkeys(ladders, 0)
    while True:
        chosen = {task: ladders[task][step] for task, step in steps.items()}
        lower = [task for task, step in steps.items() if step + 1 < len(ladders[task])]
        if not lower or _suffices(chosen, kinds):
            return chosen
        steps[max(lower, key=lambda task: _gain(chosen[task], ladders[task][steps[task] + 1]))] += 1


def _widest(candidates: Sequence[Candidate], demand: Sequence[Demand]) -> list[Pick]:
    """The variants that meet the most of a task's demand."""
    found = picks(candidates, demand)
    most = max((p.met_qps for p in found), default=0.0)
    return [p for p in found if p.met_qps == most]


def _ladder(found: Sequence[Pick]) -> list[Pick]:
    """Variants from the most accurate downwards, each with less work than the one before."""
    ladder: list[Pick] = []
    for each in sorted(found, key=lambda p: (-p.accuracy, _least_ms(p), p.variant)):
        if not ladder or _least_ms(each) < _least_ms(ladder[-1]):
            ladder.append(each)
    return ladder


def _suffices(chosen: Mapping[TaskName, Pick], kinds: Sequence[AvailableKind]) -> bool:
    """Whether there are whole devices for all, those with the most work first."""
    left = {kind.name: kind.count for kind in kinds}
    for made in sorted(chosen.values(), key=lambda p: -p.met_qps * _least_ms(p)):
        qps = PEAK * made.met_qps
        speed = {kind: 1_000 / unit_ms(c, made.latency_ms) for kind, c in made.offers.items()}
        for kind in sorted(speed, key=lambda kind: -speed[kind]):
            used = min(left[kind], ceil(max(0.0, qps) / speed[kind] - 1e-9))
            left[kind] -= used
            qps -= used * speed[kind]
        if qps > 1e-9:
            return False
    return True


def _gain(now: Pick, lower: Pick) -> float:
    """Work saved for each unit of accuracy that is lost."""
    return (_least_ms(now) - _least_ms(lower)) / max(now.accuracy - lower.accuracy, 1e-9)


def _least_ms(made: Pick) -> float:
    return min(unit_ms(candidate, made.latency_ms) for candidate in made.offers.values())
