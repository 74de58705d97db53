"""The route table: the targets of every SLO class of a plan, looked up by what a query asks for.

What the targets are: ``planner.selection.route_targets``.
"""

from collections.abc import Mapping, Sequence
from math import inf

from planner.forecasting.demand import SloClass
from planner.selection.route_targets import (
    ReadyVariants,
    RouteTargets,
    SpareWorkers,
    route_targets,
)
from planner.selection.snapshot import same_catalog
from planner.types import Query, Snapshot
from variants.types import Prefer, Route, TaskName

MOST_KNOWN = 4_096
"""Most distinct SLOs whose targets are remembered; clients may ask for any number of them."""


class RouteTable:
    """The routes of a plan, resolved against what is ready."""

    __slots__ = ("_by_class", "_by_task", "_known", "_made_of", "prefer", "used")

    def __init__(
        self,
        by_class: Mapping[TaskName, Mapping[SloClass, RouteTargets]],
        prefer: Prefer = Prefer.COST,
        made_of: tuple[Sequence[Route], Snapshot, SpareWorkers] | None = None,
    ) -> None:
        """``made_of`` are the routes, the snapshot and the spare workers, for the next table."""
        self._made_of = made_of
        self.prefer = prefer
        """What the plan optimised; queries that prefer something else do not follow it."""
        self.used = bool(by_class)
        """Whether there is any route at all."""
        self._by_task = by_class
        self._known: dict[tuple[TaskName, float, float | None], RouteTargets] = {}
        self._by_class = {
            task: sorted(classes, key=lambda slo: (slo[0], slo[1] or -inf))
            for task, classes in by_class.items()
        }

    def targets(self, query: Query) -> RouteTargets:
        """The targets for a query: of its class, or of the least demanding class that is at least
        as demanding; none where the plan has no such class."""
        asked = (query.task, query.latency_ms, query.accuracy)
        found = self._known.get(asked)
        if found is None:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            found = self._known[asked] = self._search(*asked)
        return found

    def kept(
        self, routes: Sequence[Route], snapshot: Snapshot, prefer: Prefer, spare: SpareWorkers
    ) -> dict[TaskName, Mapping[SloClass, RouteTargets]]:
        """The targets of this table that are the same for other routes and another snapshot.

        These are the targets of tasks whose view is the same object, as long as the same workers
        are spare and backlogs may be as long: a view is replaced whenever the workers of its kinds
        come, go or hold something else.
        """
        if self._made_of is None or self.prefer is not prefer or self._made_of[0] is not routes:
            return {}
        known = self._made_of[2]
        if known is not spare and (known.ids, known.room_ms) != (spare.ids, spare.room_ms):
            return {}
        views = self._made_of[1].tasks
        return {
            task: classes
            for task, classes in self._by_task.items()
            if task in views and views[task] is snapshot.tasks.get(task)
        }

    def spare(self, routes: Sequence[Route], snapshot: Snapshot) -> SpareWorkers:
        """The spare workers of a plan: those of this table where they are the same."""
        if self._made_of is not None and self._made_of[0] is routes:
            before, known = self._made_of[1], self._made_of[2]
            if same_catalog(before, snapshot) and before.workers.keys() == snapshot.workers.keys():
                return known
        return SpareWorkers(routes, snapshot)

    def _search(self, task: TaskName, latency_ms: float, accuracy: float | None) -> RouteTargets:
        best: SloClass | None = None
        floor = -inf if accuracy is None else accuracy
        for slo in self._by_class.get(task, ()):
            if slo[0] <= latency_ms and (floor == -inf or (slo[1] or -inf) >= floor):
                better = best is None or (slo[0], -(slo[1] or -inf)) > (best[0], -(best[1] or -inf))
                if better:
                    best = slo
        return () if best is None else self._by_task[task][best]


EMPTY = RouteTable({})


def resolve(
    routes: Sequence[Route], snapshot: Snapshot, prefer: Prefer, before: RouteTable = EMPTY
) -> RouteTable:
    """The targets of a plan's routes: the replicas that are ready, of those it names.

    Args:
        prefer: what the plan optimised: the most accurate target comes first, or the cheapest, or
            the one of the least footprint.
        before: an earlier table; what did not change since is taken from it, with the same result.
    """
    ready = ReadyVariants(snapshot)
    spare = before.spare(routes, snapshot)
    planned: dict[TaskName, dict[SloClass, list[Route]]] = {}
    by_class: dict[TaskName, Mapping[SloClass, RouteTargets]] = dict(
        before.kept(routes, snapshot, prefer, spare)
    )
    for route in routes:
        if route.pinned or route.task in by_class:
            continue
        slo = (route.latency_ms, route.accuracy)
        planned.setdefault(route.task, {}).setdefault(slo, []).append(route)
    for task, classes in planned.items():
        made = {
            slo: route_targets(ready, spare, task, slo, parts, prefer)
            for slo, parts in classes.items()
        }
        if any(made.values()):
            by_class[task] = {slo: targets for slo, targets in made.items() if targets}
    return RouteTable(by_class, prefer, (routes, snapshot, spare))
