"""Knowledge: what a gateway knows of catalog, plan and workers, and tells its query path.

Nothing here is read while a query is answered: whenever something changes, a snapshot is made, and
the next query is chosen from it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from controlplane.demand_counters import accuracies_of
from controlplane.gateway.connected_workers import ConnectedWorkers
from controlplane.gateway.meeting import Meeting
from controlplane.gateway.query.query_context import QueryContext
from controlplane.gateway.renewal import Renewal
from controlplane.gateway.reports.slow_warnings import SlowWarnings
from controlplane.live_latency import LiveLatency, times_of
from controlplane.load_specs import Specs
from controlplane.settings import Settings
from planner.energy import HourlyCarbon
from planner.eviction.query_rates import QueryRates
from planner.feedback.accuracies import Accuracies, read
from planner.residency.frozen_plan import frozen_by
from planner.selection.routes import resolve
from planner.selection.snapshot import build_snapshot
from planner.slow_workers import SlowWorkers, WorkerTimes
from planner.types import TRANSPORT_MS, ProfileKey, Snapshot
from planner.zones.rings import Rings
from variants.artifacts.protocol import ArtifactStore
from variants.buckets import TaskTable, own_texts_of, tasks_of_other_texts
from variants.catalog.known_objects import keeping
from variants.catalog.protocol import Catalog, Marks
from variants.catalog.validity.texts import tokenizers_read
from variants.errors import NotFound, SloInfeasible
from variants.figures import counted
from variants.texts.inputs import packed
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Digest,
    Route,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)
from workers.channel.shared_memory import Budget

log = logging.getLogger(__name__)

MEASURE_S = 1.0
"""How often the round trip to each worker is measured that is in another zone."""


class Knowledge:
    """The catalog as it was last read, the plan's routes and the connected workers.

    What cannot be read stays as it was.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        store: ArtifactStore,
        secret: bytes,
        path: QueryContext,
        worker_left: Callable[[WorkerId], None],
    ) -> None:
        """
        Args:
            path: is told whatever changes what can be chosen.
            worker_left: called with a worker whose connection has ended.
        """
        self.catalog = CatalogSnapshot(revision=-1)
        self.tasks = TaskTable(())
        self.specs = Specs(self.catalog, store)
        self.accuracies: Mapping[TaskName, list[float]] = {}
        """The accuracies of each task's variants, ascending, by which queries are answered."""
        self.variants: frozenset[tuple[str, str]] = frozenset()
        """Task and name of each variant of the catalog."""
        self._renewal = Renewal(self._make)
        path.renew = self._renewal.if_due
        self.workers = ConnectedWorkers(
            secret, settings.max_frame_mib, self._renewal, worker_left,
            prefer=settings.planning.prefer, told=path.told, zone=settings.zone,
            budget=Budget(settings.shared_memory_mib * 2**20),
        )  # fmt: skip
        path.unheard = self.workers.suspect
        self.meeting = Meeting(path, self.rebuild)
        self._settings = settings
        self._settings_now = settings
        """With the device kinds that the control loop told last."""
        self._source = catalog
        self._store = store
        self._path = path
        self._plan_of: tuple[int, str] = (0, "")
        """Version of the plan that is followed, and when it was made."""
        self._planned: Mapping[DeviceKindName, int] = {}
        self.wanted_workers: Mapping[DeviceKindName, int] = {}
        """How many there should be now, by device kind: as asked for, or as the plan has it."""
        self._routes: tuple[Route, ...] = ()
        self._live = LiveLatency()
        self._infeasible: Mapping[TaskName, int] = {}
        """Queries that were refused so, by task."""
        self._unconfirmed: frozenset[ProfileKey] = frozenset()
        self._unmeasurable: Mapping[ProfileKey, str] = {}
        """What could not be measured, and why."""
        self.slow = SlowWorkers()
        self._slow_warnings = SlowWarnings()
        self._hourly = HourlyCarbon()
        self._accuracies = Accuracies()
        self._wall_s = 0.0
        self._prefer = settings.planning.prefer
        self.zone = settings.zone
        self._rings = Rings(settings.zone)
        self._measured_s = -inf

    @property
    def asked(self) -> QueryRates[VariantKey]:
        """What queries ask for, and how urgently."""
        return self._path.asked

    # -- from the catalog -----------------------------------------------------------------------

    async def marks(self) -> Marks:
        """What says whether something is new, in one read by another thread.

        Raises:
            StateUnavailable: the catalog cannot be read.
        """
        return await asyncio.to_thread(self._source.marks)

    async def refresh_catalog(self, marks: Marks) -> bool:
        """Read the catalog if it is another one than is known; return whether it was.

        Raises:
            StateUnavailable: the catalog cannot be read.
        """
        if marks.state == self.catalog.state:
            return False
        known = self.tasks.tokenizers
        self.catalog, tokenizers = await asyncio.to_thread(self._read_catalog, known)
        versions = self.catalog.versions
        self.tasks = TaskTable(
            self.catalog.tasks, tokenizers, own_texts_of(versions), tasks_of_other_texts(versions)
        )
        self.specs = Specs(self.catalog, self._store)
        self.accuracies = accuracies_of(self.counted)
        self.variants = frozenset(variant.key for variant in self.catalog.variants)
        self.rebuild()
        return True

    async def refresh_plan(self, marks: Marks) -> None:
        """Follow a new plan's routes; while there is none to read, those of the last one.

        Raises:
            StateUnavailable: the catalog cannot be read.
        """
        if (marks.plan_version, marks.planned_at) != self._plan_of:
            plan = await asyncio.to_thread(self._source.latest_plan)
            if plan is not None:
                self._plan_of = plan.version, plan.created_at
                self._planned = plan.workers
                if plan.routes != self._routes:
                    self._routes = plan.routes
                    self._tell(self._path.snapshot)

    def refresh_wanted(
        self, stored: Mapping[DeviceKindName, int], seen: Mapping[str, Any] | None
    ) -> None:
        """Know how many workers there should be, for queries that meet none, and of which kinds
        there may be any, for what counts as demand.

        Args:
            stored: how many were asked for, as the catalog has it.
            seen: what the control loop tells of the cluster's nodes; None where it does not, or
                cannot: then what it told last holds.
        """
        if seen is not None:
            self._settings_now = self._settings.as_seen(seen)
        wanted = self._settings_now.wanted(stored)
        self._path.demand.coming = frozenset(kind for kind, count in wanted.items() if count)
        if self._settings_now.layouts:  # of which plans take one, whatever would be better for one
            planned = self._planned or self._settings_now.begins_with
            wanted = {kind: min(count, planned.get(kind, 0)) for kind, count in wanted.items()}
        self.wanted_workers = wanted
        if self._settings_now.plans_decide and self._planned:
            self.wanted_workers = {kind: self._planned.get(kind, 0) for kind in wanted}
        self.meeting.want(wanted)

    def hear_of_measuring(self, told: Mapping[str, Any]) -> None:
        """Know what the control loop could not measure: nothing waits for it."""
        found = {
            (TaskName(task), VariantName(variant), DeviceKindName(kind)): str(why)
            for task, variant, kind, why in told.get("unmeasurable", ())
        }
        if found != self._unmeasurable:
            self._unmeasurable = found
            self.rebuild()

    def hear_of_accuracies(self, told: Mapping[str, Any]) -> None:
        """Go by what the control loop counts in place of measured accuracies; by what it told last
        where it says nothing."""
        if "accuracies" in told and self._accuracies.know(read(told["accuracies"])):
            self.accuracies = accuracies_of(self.counted)
            self.rebuild()

    @property
    def counted(self) -> CatalogSnapshot:
        """The catalog with the accuracies by which queries are answered."""
        return self._accuracies.at(self.catalog)

    def refresh_latencies(self, now_s: float) -> Iterator[None]:
        """Choose by what workers say of their batches, where profiles say otherwise, and notice
        those that say nothing.

        With a thousand workers that takes longer than a query may wait, so it is done in steps,
        between which queries are answered.
        """
        self.workers.suspect_silent()
        refusing = self._refusing()
        moved = yield from self._live.looking(
            now_s, self.counted, self.workers.statuses(), refusing
        )
        if now_s - self._measured_s >= MEASURE_S:
            self._measured_s = now_s
            moved |= self.workers.measure()
        spared = set(self.slow.spared)
        times: list[WorkerTimes] = []
        for one in tuple(self.workers.values()):
            if not one.view.draining:
                times.append(times_of(one.connection.status, one.view))
                yield
        spares = yield from self.slow.looking(now_s, times)
        self._log_slow(now_s)
        if spares:
            for worker in self.slow.spared.keys() - spared:
                if worker in self.workers:  # it has not left between two steps
                    self.workers[worker].view.beyond_ms = 0.0  # what comes then counts anew
            moved = True
        if moved or self._live.unconfirmed(self.workers.statuses()) != self._unconfirmed:
            self.rebuild()

    def _log_slow(self, now_s: float) -> None:
        """Say of each worker that it is slow, as a warning where that is news, and that it is over,
        however often that comes and goes meanwhile."""
        news = self._slow_warnings.news(now_s, self.slow.begun, self.workers)
        for worker, begun in self.slow.begun.items():
            log.log(
                logging.WARNING if worker in news else logging.INFO,
                "%s takes %.1f times as long as others of its kind: queries go elsewhere while "
                "these have time, and it is asked again later and later",
                worker, begun.times,
            )  # fmt: skip
        for worker, over in self.slow.ended.items():
            log.info(
                "%s no longer counts as slower than others of its kind: within %.0f s it took up "
                "to %.1f times as long, and queries were kept from it %s, for %.0f s in all",
                worker, over.lasted_s, over.times, counted(over.pauses, "time"), over.paused_s,
            )  # fmt: skip

    def seen_workers(self) -> list[Mapping[str, Any]]:
        """What the workers last said, and what this gateway finds of each."""
        return self.workers.seen(self.slow.slow, self.slow.spared)

    def _refusing(self) -> set[TaskName]:
        """Tasks of which queries were refused since this was last called because no variant were
        quick enough."""
        before, self._infeasible = (
            self._infeasible,
            {
                TaskName(name): task.errors.get(SloInfeasible.code, 0)
                for name, task in self._path.counters.tasks.items()
            },
        )
        return {task for task, count in self._infeasible.items() if count > before.get(task, 0)}

    def refresh_hour(self, wall_s: float) -> None:
        """Choose by what energy emits in this hour; ``wall_s`` is Unix time."""
        self._wall_s = wall_s
        if self._hourly.moved(wall_s):
            self.rebuild()

    def _read_catalog(
        self, known: Mapping[Digest, bytes]
    ) -> tuple[CatalogSnapshot, Mapping[Digest, bytes]]:
        """The catalog as it is now and the tokenizers by which texts are read, in another thread
        than queries are answered in; ``known`` are those that were read before."""
        catalog = keeping(self._source.snapshot(), self.catalog)
        named = tokenizers_read(catalog.tasks, catalog.versions)
        if named == known.keys():
            return catalog, known
        found = {name: known[name] for name in named & known.keys()}
        for name in named - found.keys():
            with contextlib.suppress(NotFound):  # the task has gone again
                found[name] = packed(self._source.tokenizer(name))
        return catalog, found

    @property
    def frozen(self) -> bool:
        """Whether an operator has the plan stay as it is: loads take free memory only then."""
        return frozen_by(self.catalog.rules, self._wall_s) is not None

    # -- to the query path ----------------------------------------------------------------------

    def rebuild(self) -> None:
        """Make the snapshot that the next query is chosen from, at once."""
        self._renewal.now()

    def _make(self) -> None:
        workers = self.workers
        self._unconfirmed = self._live.unconfirmed(workers.statuses())
        there = {
            worker.view.id: (worker.view, ready)
            for worker, ready in workers.sparing(self.slow.spared)
        }
        catalog = self._hourly.at(self._live.corrected(self.counted), self._wall_s)
        unloadable = {
            id_: worker.unloadable for id_, worker in workers.items() if worker.unloadable
        }
        wanted = self.meeting.wanted(workers.kinds())

        def made(ids: Iterable[WorkerId], transport_ms: float, before: Snapshot) -> Snapshot:
            return build_snapshot(
                catalog,
                [there[id_] for id_ in ids],
                transport_ms=transport_ms,
                unloadable={id_: unloadable[id_] for id_ in ids if id_ in unloadable},
                before=before,
                wanted=wanted,
                asked=self.asked,
                unconfirmed=self._unconfirmed,
                unmeasurable=self._unmeasurable,
                measures=True,
            )

        nearest_ms = self._rings.follow([view for view, _ in there.values()])
        if self._rings:
            self._rings.fill(made)
        self._tell(made(there, TRANSPORT_MS + nearest_ms, self._path.snapshot))
        if self._path.waiting is not None:
            self._path.waiting.try_again()
        self._path.awaiting.try_again()

    def _tell(self, snapshot: Snapshot) -> None:
        rings = self._rings
        if rings:
            rings.route(lambda of, before: resolve(self._routes, of, self._prefer, before))
        self._path.update(
            snapshot=snapshot,
            routes=resolve(self._routes, snapshot, self._prefer, self._path.routes),
            tasks=self.tasks,
            connections=self.workers.connections,
            rings=rings,
        )
