"""Routes: where the plan wants the queries of an SLO class to go.

The plan splits each class over replicas so that the fleet serves most, at the best accuracy or the
least cost. A query follows it leg by leg, the preferred variant first, as long as the queue there
is short; what a leg has no room for overflows to the next. So the split of the plan comes about by
itself, and when more arrives than was planned for, the cheaper legs take it: accuracy gives way
before anybody is refused (as in SuperServe, NSDI'25, where slack decides which model runs).
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from planner.demand import SloClass
from planner.selection import select
from planner.types import Candidate, Choice, Query, Reason, Refusal, Snapshot, WorkerView
from variants.types import Prefer, Route, TaskName

PATIENCE = 0.5
"""Part of the deadline that a query may be predicted to take on any leg but its last."""


class Leg(NamedTuple):
    """A variant on the workers that the plan gives to a class."""

    candidate: Candidate
    workers: tuple[WorkerView, ...]
    bounds: tuple[float, ...]
    """Cumulative planned rates of the workers; the last is the sum."""


Legs = tuple[Leg, ...]


class RouteTable:
    """The routes of a plan, resolved against what is ready."""

    __slots__ = ("_by_class", "_by_task", "_known", "prefer")

    def __init__(
        self, by_class: Mapping[TaskName, Mapping[SloClass, Legs]], prefer: Prefer = Prefer.COST
    ) -> None:
        self.prefer = prefer
        """What the plan optimised; queries that ask for something else do not follow it."""
        self._by_task = by_class
        self._known: dict[tuple[TaskName, float, float | None], Legs] = {}
        self._by_class = {
            task: sorted(classes, key=lambda slo: (slo[0], slo[1] or -inf))
            for task, classes in by_class.items()
        }

    def legs(self, query: Query) -> Legs:
        """The legs for a query: of its class, or of the least demanding class that is at least as
        demanding; none where the plan has no such class."""
        asked = (query.task, query.latency_ms, query.accuracy)
        found = self._known.get(asked)
        if found is None:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            found = self._known[asked] = self._search(*asked)
        return found

    def _search(self, task: TaskName, latency_ms: float, accuracy: float | None) -> Legs:
        best: SloClass | None = None
        floor = -inf if accuracy is None else accuracy
        for slo in self._by_class.get(task, ()):
            if slo[0] <= latency_ms and (floor == -inf or (slo[1] or -inf) >= floor):
                better = best is None or (slo[0], -(slo[1] or -inf)) > (best[0], -(best[1] or -inf))
                if better:
                    best = slo
        return () if best is None else self._by_task[task][best]


MOST_KNOWN = 4_096
"""Distinct SLOs whose legs are remembered; clients may ask for anything."""

EMPTY = RouteTable({})


def choose(snapshot: Snapshot, routes: RouteTable, query: Query, now_ms: float) -> Choice | Refusal:
    """The variant and worker that answer a query, or why none does: by the plan, if it can.

    What finds no room on its legs, or was refused there, takes the cheapest ready variant that
    fits: the least load.
    """
    if query.variant is None and query.prefer is routes.prefer:
        legs = routes.legs(query)
        if legs:
            if query.avoid is None:
                found = follow(legs, query, now_ms, snapshot.transport_ms)
                if found is not None:
                    return found
            if query.prefer is not Prefer.COST:
                query = query._replace(prefer=Prefer.COST)
    return select(snapshot, query, now_ms)


def resolve(routes: Iterable[Route], snapshot: Snapshot, prefer: Prefer) -> RouteTable:
    """The legs of a plan's routes: the replicas that are ready, of those it names.

    Args:
        prefer: what the plan optimised: the most accurate leg comes first, or the cheapest.
    """
    found: dict[TaskName, dict[SloClass, dict[int, tuple[Candidate, dict[str, float]]]]] = {}
    for route in routes:
        view = snapshot.tasks.get(route.task)
        worker = snapshot.workers.get(route.worker)
        if view is None or worker is None:
            continue
        for candidate in view.by_variant.get(route.variant, ()):
            if candidate.device_kind == worker.device_kind and worker in candidate.ready:
                slo = (route.latency_ms, route.accuracy)
                legs = found.setdefault(route.task, {}).setdefault(slo, {})
                _, rates = legs.setdefault(id(candidate), (candidate, {}))
                rates[route.worker] = rates.get(route.worker, 0.0) + route.qps
    by_class: dict[TaskName, dict[SloClass, Legs]] = {}
    for task, classes in found.items():
        for slo, legs in classes.items():
            made = [_leg(candidate, rates, snapshot) for candidate, rates in legs.values()]
            made.sort(key=_by_accuracy if prefer is Prefer.ACCURACY else _by_price)
            by_class.setdefault(task, {})[slo] = tuple(made)
    return RouteTable(by_class, prefer)


def follow(legs: Legs, query: Query, now_ms: float, transport_ms: float) -> Choice | None:
    """The first leg with room for a query, on the less busy of two of its workers.

    Workers are drawn in proportion to their planned rates. On the last leg the whole deadline may
    be used. None when no leg has room.
    """
    budget_ms = query.latency_ms
    spent_ms = now_ms - query.received_ms
    rows, draw, avoid = query.rows, query.draw, query.avoid
    last = len(legs) - 1
    for index, (candidate, workers, bounds) in enumerate(legs):
        table = candidate.table
        if rows > table.max_batch:
            continue
        if query.cost is not None and candidate.price_usd_per_1k > query.cost:
            continue
        if query.accuracy is not None and candidate.accuracy < query.accuracy:
            continue
        worker = workers[0]
        if len(workers) > 1:
            total = bounds[-1]
            first = bisect_right(bounds, (draw & 0xFFFFFFF) / 0x10000000 * total)
            second = bisect_right(bounds, (draw >> 28 & 0xFFFFFFF) / 0x10000000 * total)
            if second == first:
                second = (first + 1) % len(workers)
            worker, other = workers[first], workers[second]
            if other.busy_until_ms < worker.busy_until_ms and worker.busy_until_ms > now_ms:
                worker, other = other, worker
            if worker.id == avoid:
                worker = other
        if worker.id == avoid or worker.draining:
            continue
        busy_ms = worker.busy_until_ms
        predicted_ms = table.ms[rows] + transport_ms
        if busy_ms > now_ms:
            predicted_ms += busy_ms - now_ms
        limit_ms = (budget_ms if index == last else PATIENCE * budget_ms) - spent_ms
        if predicted_ms <= limit_ms:
            return Choice(candidate, worker, predicted_ms, False, Reason.PLANNED, True)
    return None


def _leg(candidate: Candidate, rates: Mapping[str, float], snapshot: Snapshot) -> Leg:
    names = sorted(rates)
    bounds: list[float] = []
    total = 0.0
    for name in names:
        total += max(rates[name], 1e-9)
        bounds.append(total)
    by_name = {worker.id: worker for worker in candidate.ready}
    workers = tuple(by_name[name] for name in names)  # type: ignore[index]
    return Leg(candidate, workers, tuple(bounds))


def _by_accuracy(leg: Leg) -> tuple[float, float, str]:
    return (-leg.candidate.accuracy, leg.candidate.price_usd_per_1k, leg.candidate.variant)


def _by_price(leg: Leg) -> tuple[float, float, str]:
    return (leg.candidate.price_usd_per_1k, leg.candidate.table.ms[1], leg.candidate.variant)
