"""The planning model solved by trying everything, to compare planners with.

Every physical device is closed or has a longest batch and a set of variants; every combination is
one linear program of the loads, solved by scipy's HiGHS. Written from the definitions, sharing no
code with the planners.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, combinations_with_replacement, product
from math import inf

import numpy as np
from scipy.optimize import linprog

from planner.solver.problem import AvailableKind, Problem
from planner.types import Objective

SAME = 1e-7
"""Relative: as much served, as accurate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    served_qps: float
    accuracy: float
    usd_per_hour: float

    def objective(self, objective: Objective) -> float:
        return self.usd_per_hour if objective is Objective.COST else self.accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What one device can be: the time in s that one query of a class takes by a variant."""

    usd_per_hour: float
    times: tuple[tuple[int, int, float], ...]
    """(class, offer, time), only what is in time."""


def brute_force(problem: Problem, objective: Objective) -> Best:
    """The best plan: most served, then the objective, then the least cost."""
    best = Best(served_qps=0.0, accuracy=0.0, usd_per_hour=0.0)
    for states in _combinations(problem):
        cost = sum(state.usd_per_hour for state in states)
        served = _most(problem, states, None)
        if served < best.served_qps * (1 - SAME):
            continue
        accuracy = 0.0
        if served > 0 and objective is Objective.ACCURACY:
            accuracy = _most(problem, states, served) / served
        found = Best(served_qps=served, accuracy=accuracy, usd_per_hour=cost)
        if _beats(found, best):
            best = found
    return best


def _beats(one: Best, other: Best) -> bool:
    if one.served_qps > other.served_qps * (1 + SAME):
        return True
    if one.accuracy != other.accuracy and abs(one.accuracy - other.accuracy) > SAME:
        return one.accuracy > other.accuracy
    return one.usd_per_hour < other.usd_per_hour - 1e-9


def _combinations(problem: Problem) -> Iterator[tuple[State, ...]]:
    states = [_states(problem, kind) for kind in problem.kinds]
    for numbers in product(*(range(kind.count + 1) for kind in problem.kinds)):
        if any(
            sum(pool.uses.get(k.name, 0.0) * n for k, n in zip(problem.kinds, numbers, strict=True))
            > pool.capacity
            for pool in problem.pools
        ):
            continue
        choices = (
            combinations_with_replacement(found, n)
            for found, n in zip(states, numbers, strict=True)
        )
        for chosen in product(*choices):
            yield tuple(chain.from_iterable(chosen))


def _states(problem: Problem, kind: AvailableKind) -> list[State]:
    offers = [i for i, o in enumerate(problem.offers) if o.device_kind == kind.name]
    longest = {
        problem.offers[i].curve.latency_ms(size)
        for i in offers
        for size in range(1, problem.offers[i].curve.max_batch + 1)
    }
    sets = [
        chosen
        for count in range(1, len(offers) + 1)
        for chosen in combinations(offers, count)
        if sum(problem.offers[i].memory_mib for i in chosen) <= kind.memory_mib
    ]
    # One variant alone is not slowed down, so it is no part of a larger set.
    largest = [s for s in sets if len(s) == 1 or not any(set(s) < set(o) for o in sets)]
    found = {
        times: State(usd_per_hour=kind.usd_per_hour, times=times)
        for longest_ms in longest
        for chosen in largest
        if (times := _times(problem, chosen, longest_ms, kind.interference))
    }
    return [s for s in found.values() if not any(_covers(o, s) for o in found.values())]


def _covers(one: State, other: State) -> bool:
    """Whether a device in state ``one`` can do all that it can in ``other``, and more."""
    able = {(demand, offer): time for demand, offer, time in one.times}
    return one is not other and all(
        able.get((demand, offer), inf) <= time for demand, offer, time in other.times
    )


def _times(
    problem: Problem, offers: tuple[int, ...], longest_ms: float, interference: float
) -> tuple[tuple[int, int, float], ...]:
    slower = 1 + interference if len(offers) > 1 else 1.0
    made = []
    for number, demand in enumerate(problem.demand):
        for index in offers:
            offer = problem.offers[index]
            if offer.task != demand.task or offer.accuracy < (demand.accuracy or 0.0):
                continue
            if offer.variant != demand.variant if demand.variant else offer.canary:
                continue
            largest = offer.curve.max_batch
            if problem.most:
                largest = min(largest, max(1, problem.most[number]))
            in_time = [
                offer.curve.latency_ms(size) * slower / size / 1000
                for size in range(1, largest + 1)
                if (ms := offer.curve.latency_ms(size)) <= longest_ms
                and (longest_ms + ms) * slower + problem.overhead_ms <= demand.latency_ms
            ]
            if in_time:
                made.append((number, index, min(in_time)))
    return tuple(made)


def _most(problem: Problem, states: tuple[State, ...], at_least: float | None) -> float:
    """The most that these devices serve; given that, the largest sum of rate x accuracy."""
    columns = [(d, *entry) for d, state in enumerate(states) for entry in state.times]
    if not columns:
        return 0.0
    rows = np.zeros((len(states) + len(problem.demand), len(columns)))
    for at, (device, demand, _, time) in enumerate(columns):
        rows[device, at] = time
        rows[len(states) + demand, at] = 1.0
    limits = [problem.load] * len(states) + [demand.qps for demand in problem.demand]
    worth = np.ones(len(columns))
    if at_least is not None:
        worth = np.array([problem.offers[offer].accuracy for _, _, offer, _ in columns])
        rows = np.vstack([rows, -np.ones(len(columns))])
        limits.append(-at_least * (1 - 1e-9))
    found = linprog(-worth, A_ub=rows, b_ub=limits, method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)
