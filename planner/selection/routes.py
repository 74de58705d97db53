"""The route table: what a plan says to a query, looked up by what the query asks for.

Where the plan saves cost, these are the targets of the query's SLO class
(``planner.selection.route_targets``); where it is for accuracy, what all workers can do for the
query's task, and the prices and rooms that follow from the plan (``planner.selection.prices``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from planner.forecasting.demand import SloClass
from planner.selection.load_balancing import FirstFree, WorkerSet
from planner.selection.menus import (
    KnownGains,
    Menus,
    PriceRange,
    menu_groups,
    price_range,
)
from planner.selection.prices import Offers
from planner.selection.route_targets import (
    ROOM,
    ReadyVariants,
    RouteTargets,
    batching,
    planned_kinds,
    rooms_ms,
    route_targets,
)
from planner.selection.snapshot import same_catalog
from planner.types import Query, Snapshot, TaskView
from variants.types import DeviceKindName, Prefer, Route, TaskName, WorkerId

MOST_KNOWN = 4_096
"""Most distinct SLOs whose targets are remembered; clients may ask for any number of them."""


class _Basis(NamedTuple):
    """What a route table was made of, for the next one."""

    routes: Sequence[Route]
    snapshot: Snapshot
    rooms_ms: Mapping[WorkerId, float]
    prices: PriceRange | None
    """Where the plan is for accuracy."""
    kinds: Mapping[tuple[TaskName, SloClass], Collection[DeviceKindName]]
    """The kinds that the plan has each class on, likewise."""
    tightest_ms: Mapping[tuple[TaskName, SloClass], float]
    """The tightest SLO of each class that the plan was made for, likewise."""
    gains: KnownGains
    """Of the tasks of plans for the same catalog, likewise."""
    batching: frozenset[WorkerId] = frozenset()
    """The workers whose planned batches others keep out of, where the plan is not for accuracy."""

    def same_but_ready(self, other: "_Basis") -> bool:
        """Whether nothing but what is ready where may be other than in another one."""
        return (
            self.prices is other.prices
            and self.rooms_ms is other.rooms_ms
            and self.kinds is other.kinds
            and self.tightest_ms is other.tightest_ms
        )


class RouteTable:
    """The routes of a plan, resolved against what is ready."""

    __slots__ = (
        "_basis", "_by_class", "_by_task", "_first_free", "_known", "_menus", "_offers",
        "_offers_before", "_workers", "prefer", "used",
    )  # fmt: skip

    def __init__(
        self,
        by_class: Mapping[TaskName, Mapping[SloClass, RouteTargets]],
        prefer: Prefer = Prefer.COST,
        basis: _Basis | None = None,
    ) -> None:
        """``basis`` is what it is made of. Under ``Prefer.ACCURACY`` targets are not looked at,
        only for which classes there are any."""
        self._basis = basis
        self.prefer = prefer
        """What the plan optimised; queries that prefer something else do not follow it."""
        self.used = any(by_class.values())
        """Whether there is any route at all."""
        self._by_task = by_class
        self._known: dict[tuple[TaskName, float, float | None], RouteTargets] = {}
        self._workers: dict[int, frozenset[WorkerId]] = {}
        """By the identity of a class's targets, which are kept for as long as this is."""
        self._offers: dict[tuple[TaskName, float, float | None], Offers | None] = {}
        self._offers_before: dict[
            tuple[TaskName, float, float | None], tuple[TaskView, Offers]
        ] = {}
        """Those of all tables with the same routes, prices and rooms; they hold while the view of
        their task is the same."""
        self._menus: dict[TaskName, tuple[TaskView, Menus]] = {}
        """Valid where the view is the one of the snapshot."""
        self._first_free: dict[WorkerSet, FirstFree] = {}
        """Of the sets of workers of all menus."""
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
            slo = self._class(*asked)
            found = self._known[asked] = () if slo is None else self._by_task[query.task][slo]
        return found

    def offers(self, query: Query) -> Offers | None:
        """What workers can do for a query, where the plan is for accuracy; None where the task is
        unknown or nothing of it is ready."""
        asked = (query.task, query.latency_ms, query.accuracy)
        try:
            return self._offers[asked]
        except KeyError:
            pass
        if len(self._offers) > MOST_KNOWN:
            self._offers.clear()
        found = self._offers[asked] = self._offers_of(query, asked)
        return found

    def _offers_of(
        self, query: Query, asked: tuple[TaskName, float, float | None]
    ) -> Offers | None:
        found = None
        basis = self._basis
        view = None if basis is None else basis.snapshot.tasks.get(query.task)
        known = self._offers_before.get(asked)
        if known is not None and known[0] is view:
            return known[1]
        menus = self._menus_of(query.task)
        if menus is not None and basis is not None and basis.prices is not None:
            slo = self._class(*asked)
            looseness = 1.0
            if slo is not None:
                looseness = query.latency_ms / basis.tightest_ms.get((query.task, slo), slo[0])
            planned = None if slo is None else basis.kinds.get((query.task, slo))
            found = Offers(menus, basis.prices, basis.rooms_ms, looseness, query.accuracy, planned)
            if view is not None:
                if len(self._offers_before) > MOST_KNOWN:
                    self._offers_before.clear()
                self._offers_before[asked] = (view, found)
        return found

    def longest_ms(self, worker: WorkerId, latency_ms: float) -> float:
        """How long a batch may take on a worker: as its room, but not less of it; half of a
        query's SLO where the plan says nothing."""
        room_ms = None if self._basis is None else self._basis.rooms_ms.get(worker)
        return latency_ms / 2 if room_ms is None else room_ms / ROOM[self.prefer]

    @property
    def planned(self) -> Collection[WorkerId]:
        """Workers that the plan gives something to do."""
        return () if self._basis is None else self._basis.rooms_ms.keys()

    @property
    def batching(self) -> frozenset[WorkerId]:
        """Workers that are planned to answer so many rows at once that others keep off while they
        are busy (``planner.selection.route_targets.batching``)."""
        return frozenset() if self._basis is None else self._basis.batching

    def workers_of(self, targets: RouteTargets) -> frozenset[WorkerId]:
        """The workers of the targets of a class of this table."""
        found = self._workers.get(id(targets))
        if found is None:
            there = [worker.id for target in targets for worker in target.workers]
            found = self._workers[id(targets)] = frozenset(there)
        return found

    def kept(
        self, basis: _Basis, prefer: Prefer
    ) -> dict[TaskName, Mapping[SloClass, RouteTargets]]:
        """The targets of this table that are the same for another basis.

        These are the targets of tasks whose view is the same object, as long as backlogs may be as
        long: a view is replaced whenever the workers of its kinds come, go or hold something else.
        """
        known = self._basis
        if known is None or prefer is not self.prefer or known.routes is not basis.routes:
            return {}
        if prefer is Prefer.ACCURACY:
            return {}
        if known.rooms_ms is not basis.rooms_ms and known.rooms_ms != basis.rooms_ms:
            return {}
        views = known.snapshot.tasks
        return {
            task: classes
            for task, classes in self._by_task.items()
            if task in views and views[task] is basis.snapshot.tasks.get(task)
        }

    def moved(self, basis: _Basis) -> "RouteTable | None":
        """This table on another basis, where the plan is for accuracy; None if its routes are
        others."""
        known = self._basis
        accurate = self.prefer is Prefer.ACCURACY
        if known is None or not accurate or known.routes is not basis.routes:
            return None
        table = RouteTable({}, self.prefer, basis)
        table.used, table._by_task, table._by_class = self.used, self._by_task, self._by_class
        if known.same_but_ready(basis):
            table._offers_before = self._offers_before
            if not self._first_free:
                table._menus = self._menus  # each says which view it is of
                return table
        table.keep_menus(self)
        return table

    def keep_menus(self, before: "RouteTable") -> None:
        """Take over what an earlier table has found out of tasks; what changed is left there."""
        if self._basis is not None:
            tasks = self._basis.snapshot.tasks
            self._menus.update(
                {task: made for task, made in before._menus.items() if tasks.get(task) is made[0]}
            )
        for _, menus in self._menus.values():
            if menus.first_free:
                self._first_free.update(menus.shared())

    def basis(self, routes: Sequence[Route], snapshot: Snapshot, prefer: Prefer) -> _Basis:
        """What a table of these is made of; parts of this one's where they are the same."""
        known = self._basis
        if known is not None and known.routes is routes and self.prefer is prefer:
            before = known.snapshot
            same = before.workers is snapshot.workers or (
                before.workers.keys() == snapshot.workers.keys()
            )
            if same and same_catalog(before, snapshot):
                return known._replace(snapshot=snapshot)
        if prefer is not Prefer.ACCURACY:
            rooms = rooms_ms(routes, snapshot, prefer)
            full = batching(routes, snapshot)
            return _Basis(routes, snapshot, rooms, None, {}, {}, {}, full)
        tasks = _tasks(routes)
        same = known is not None and same_catalog(known.snapshot, snapshot)
        gains = known.gains if known is not None and same else {}
        prices = self._same_prices(tasks, snapshot) or price_range(snapshot, tasks, gains)
        kinds = planned_kinds(routes, snapshot)
        tightest_ms = {
            (each.task, (each.latency_ms, each.accuracy)): each.tightest_ms
            for each in routes
            if not each.pinned
        }
        rooms = rooms_ms(routes, snapshot, prefer)
        return _Basis(routes, snapshot, rooms, prices, kinds, tightest_ms, gains)

    def _same_prices(self, tasks: Sequence[TaskName], snapshot: Snapshot) -> PriceRange | None:
        """The prices of this table, if they are those of these tasks in a snapshot: they depend on
        the catalog, not on what is ready."""
        known = self._basis
        if known is None or not same_catalog(known.snapshot, snapshot):
            return None
        return known.prices if _tasks(known.routes) == tasks else None

    def _menus_of(self, task: TaskName) -> Menus | None:
        """The menus of a task, made when it is first asked for; None where nothing is ready."""
        view = None if self._basis is None else self._basis.snapshot.tasks.get(task)
        if view is None:
            return None
        known = self._menus.get(task)
        if known is None or known[0] is not view:
            groups = menu_groups(view, () if known is None else known[1].groups)
            known = self._menus[task] = (view, Menus(groups, self._first_free))
        return known[1] if known[1].groups else None

    def _class(self, task: TaskName, latency_ms: float, accuracy: float | None) -> SloClass | None:
        """The least demanding class with routes that is at least as demanding."""
        best: SloClass | None = None
        floor = -inf if accuracy is None else accuracy
        for slo in self._by_class.get(task, ()):
            if slo[0] <= latency_ms and (floor == -inf or (slo[1] or -inf) >= floor):
                better = best is None or (slo[0], -(slo[1] or -inf)) > (best[0], -(best[1] or -inf))
                if better:
                    best = slo
        return best


EMPTY = RouteTable({})


def resolve(
    routes: Sequence[Route], snapshot: Snapshot, prefer: Prefer, before: RouteTable = EMPTY
) -> RouteTable:
    """What a plan says, of the replicas that are ready.

    Args:
        prefer: what the plan optimised: under cost the cheapest target comes first, under energy
            the one of the least footprint.
        before: an earlier table; what did not change since is taken from it, with the same result.
    """
    basis = before.basis(routes, snapshot, prefer)
    if prefer is Prefer.ACCURACY and (same := before.moved(basis)) is not None:
        return same
    by_class: dict[TaskName, Mapping[SloClass, RouteTargets]] = dict(before.kept(basis, prefer))
    planned: dict[TaskName, dict[SloClass, list[Route]]] = {}
    for route in routes:
        if not route.pinned and route.task not in by_class:
            slo = (route.latency_ms, route.accuracy)
            planned.setdefault(route.task, {}).setdefault(slo, []).append(route)
    if prefer is Prefer.ACCURACY:
        table = RouteTable(
            {task: dict.fromkeys(classes, ()) for task, classes in planned.items()}, prefer, basis
        )
        table.keep_menus(before)
        return table
    ready = ReadyVariants(snapshot)
    for task, classes in planned.items():
        made = {
            slo: route_targets(ready, basis.rooms_ms, task, slo, parts, prefer)
            for slo, parts in classes.items()
        }
        # Of a task of which nothing is ready there are none, until its view is another.
        by_class[task] = {slo: targets for slo, targets in made.items() if targets}
    return RouteTable(by_class, prefer, basis)


def _tasks(routes: Iterable[Route]) -> list[TaskName]:
    return sorted({route.task for route in routes})
