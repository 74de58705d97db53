"""What no division of a demand can beat, by what plans are for, without making any.

A row takes at least what it takes in the best batch of its class: the largest that the demand fills
and that, behind another one as long, is within the SLO, by the best variant that answers the class
on any kind that is here. That is the relaxation of ``planner.solver`` without its workers, whose
time and memory make what can be had only worse. Where not even that gains enough, no division has
to be made to know that the one that is there stays.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import fsum, inf
from typing import NamedTuple

from planner.reconcile.kept.routes import slo_of
from planner.reconcile.kept.worth import Worth
from planner.reconcile.problem_builder import largest_batch
from planner.selection.eligibility import answers
from planner.solver.capacity import SLACK, limit_ms
from planner.types import Candidate, Demand, Objective
from variants.types import Route


def may_gain(worth: Worth, demand: Iterable[Demand], there: Sequence[Route]) -> bool:
    """Whether any routes for a demand might gain enough to replace those that are there."""
    if worth.objective is Objective.ENERGY and worth.unmeasured_qps(there):
        return True
    return worth.gains_at(best(worth, demand), there)


def best(worth: Worth, demand: Iterable[Demand]) -> float:
    """The least USD per hour, or watts or grams, that any routes for a demand take; under
    ``accuracy`` the most that they are worth."""
    each = {
        Objective.COST: _least_usd,
        Objective.ENERGY: _least_draw,
        Objective.ACCURACY: _most_accuracy,
    }[worth.objective]
    asked = list(demand)
    total = fsum(one.qps * each(worth, one) for one in asked)
    if worth.objective is Objective.ACCURACY:
        return total / max(fsum(one.qps for one in asked), 1e-9)
    return total


class _Able(NamedTuple):
    """A candidate that may answer a class."""

    candidate: Candidate
    largest: int
    """The largest batch that the demand fills and that is in time."""
    unit_ms: float
    """The least time of a row in batches up to it."""


def _able(worth: Worth, asked: Demand) -> Iterator[_Able]:
    snapshot = worth.snapshot
    slo_ms = slo_of(asked, snapshot)
    longest_ms = limit_ms(slo_ms, overhead_ms=snapshot.transport_ms)
    most = largest_batch(asked.qps, slo_ms - snapshot.transport_ms)
    floor = -inf if asked.accuracy is None else asked.accuracy
    here = {kind.name for kind in worth.here}
    for each in snapshot.tasks[asked.task].by_cost:
        if each.device_kind in here and each.accuracy >= floor and answers(each, asked.variant):
            if each.table.ms[1] + snapshot.transport_ms > slo_ms * (1 + SLACK):
                continue
            curve = each.busy_table.curve
            batch = curve.cheapest(longest_ms, most)
            if batch is not None:
                yield _Able(each, min(most, curve.largest(longest_ms)), batch.unit_ms)


def _least_usd(worth: Worth, asked: Demand) -> float:
    """Of a row per second."""
    prices = worth.prices
    found = [
        prices.get(each.candidate.device_kind, 0.0) * each.unit_ms / 1_000
        for each in _able(worth, asked)
    ]
    return min(found, default=0.0)


def _least_draw(worth: Worth, asked: Demand) -> float:
    """Of a row per second; nothing where what some variant takes is not known."""
    found = [_least_joules(worth, each) for each in _able(worth, asked)]
    return min(found, default=0.0)


def _least_joules(worth: Worth, each: _Able) -> float:
    candidate = each.candidate
    if candidate.energy is None:
        return 0.0
    # Joules and latency are both linear in between.
    points = (*candidate.energy.points, *candidate.busy_table.points)
    sizes = {1, each.largest, *(size for size, _ in points if size < each.largest)}
    return min(worth.beyond_idle(candidate, size) / size for size in sizes)


def _most_accuracy(worth: Worth, asked: Demand) -> float:
    found = [each.candidate.accuracy for each in _able(worth, asked)]
    return max(found, default=0.0)
