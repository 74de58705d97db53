"""Keeps what the control loop saw last, and writes in the journal what has changed since.

What counts as an event is decided from values, in ``status_events``, ``succession``, ``sightings``,
``load_events`` and ``plan_events``; this module keeps those values from one look to the next.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from controlplane.backoff import Backoff
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.load_events import LoadEvents
from controlplane.controller.events.plan_events import PlanEvents
from controlplane.controller.events.sightings import (
    CatalogWatch,
    Gateways,
    LiveWatch,
    of_cluster,
)
from controlplane.controller.events.status_events import ENDED, StatusEvent, Target, status_events
from controlplane.controller.events.succession import (
    EVENTS_READ,
    PATIENCE_S,
    TELLING,
    Past,
    missed,
    remembered,
    took_over,
)
from controlplane.controller.met_workers.worker_pool import WorkerPool
from variants.catalog.protocol import Catalog
from variants.errors import ModellessError
from variants.types import Plan
from workers.types import WorkerStatus

log = logging.getLogger(__name__)

ASK_AGAIN_S = 30.0
"""The longest wait before a worker that did not answer is asked again: it keeps the last of what it
loaded and evicted only."""


class StatusRecorder:
    """Journals the events around a control loop. Times are on the loop's clock."""

    def __init__(
        self, catalog: Catalog, journal: Journal, clock_s: Callable[[], float], cluster: str = ""
    ) -> None:
        """
        Args:
            cluster: the Ray cluster of this control loop, as gateways report theirs.
        """
        self._catalog = catalog
        self._cluster = cluster
        self._journal = journal
        self._clock_s = clock_s
        self._past: Past | None = None
        """Until its workers are met, or given up."""
        self._met: set[str] = set()
        self._led_at_s = 0.0
        self._epoch = 0
        self._workers: dict[str, WorkerStatus] = {}
        self._bound: dict[str, str] = {}
        """Which nodes each kind is bound to."""
        self._renewed: set[str] = set()
        """Workers from before their kind was bound to others: Ray Serve replaces them."""
        self._ended: list[StatusEvent] = []
        """Told with the next look: when everything is stopped, workers may end first."""
        self._ended_workers: dict[str, WorkerStatus] = {}
        """What these said last: one that is back with the next look was never lost."""
        self._gateways = Gateways()
        self._live = LiveWatch(expected=False)
        self._database = CatalogWatch()
        self._on_demand = LoadEvents()
        self._asking: dict[str, asyncio.Task[None]] = {}
        """Workers that are being asked what they loaded and evicted for queries."""
        self._unanswered: Backoff[str] = Backoff(longest_s=ASK_AGAIN_S)
        self._plans = PlanEvents()

    async def lead(self, epoch: int, plan: Plan | None, *, elsewhere: bool = False) -> None:
        """Begin to lead: read what was there before.

        Args:
            elsewhere: who led before ran on another Ray cluster.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        ticks = await asyncio.to_thread(self._catalog.ticks, 1)
        events = await asyncio.to_thread(self._catalog.events, EVENTS_READ, TELLING)
        past = self._past = remembered(epoch, plan, ticks, events, elsewhere=elsewhere)
        self._epoch, self._led_at_s = epoch, self._clock_s()
        self._gateways = Gateways(past.gateways, elsewhere=elsewhere)
        self._live = LiveWatch(expected=past.epoch > 0 and not past.stopped)
        self._tell([took_over(past, epoch, plan)])

    async def stop(self, pool: WorkerPool) -> None:
        """Tell that the control loop was told to stop, if that can be stored at once."""
        if self._epoch:
            self._tell(self._plans.due(self._clock_s(), ending=True))
            self._tell([("controller_stopped", f"epoch {self._epoch}", "it was told to stop")])
            await self._journal.store_events()
            await self._answered()
            self.stored(pool)
            await self._answered()

    def workers(
        self, after: Mapping[str, WorkerStatus], pool: WorkerPool, targets: Mapping[str, Target]
    ) -> None:
        """The workers that are connected now."""
        self._tell(self._plans.due(self._clock_s()))
        before, self._workers = self._workers, dict(after)
        self._note_renewed(before, targets)
        if self._past is not None:
            # Those that were there before did not join now.
            known = after.keys() & self._past.workers.keys()
            before = {id_: after[id_] for id_ in known} | before
            self._met |= known
            if self._clock_s() - self._led_at_s > PATIENCE_S:
                self._tell(missed(self._past, self._met, targets))
                self._past = None
        self._unanswered.forget(lambda worker: worker not in after)
        back = {id_: old for id_, old in self._ended_workers.items() if id_ in after}
        self._tell(event for event in self._ended if event[1] not in back)
        before = back | before
        found = list(status_events(before, after, pool.departures(), targets, self._renewed))
        self._renewed &= after.keys()
        self._ended = [event for event in found if event[2].endswith(ENDED)]
        self._ended_workers = {id_: before[id_] for _, id_, _ in self._ended}
        self._tell(event for event in found if event not in self._ended)

    def _note_renewed(
        self, there: Mapping[str, WorkerStatus], targets: Mapping[str, Target]
    ) -> None:
        for kind, target in targets.items():
            if self._bound.get(kind, target.nodes) != target.nodes:
                self._renewed |= {id_ for id_, one in there.items() if one.device_kind == kind}
            self._bound[kind] = target.nodes

    def planned(self, before: Plan | None, plan: Plan) -> None:
        """A plan that was stored, after another one or none; without a worker it says nothing."""
        self._plans.planned(before, plan, self._clock_s())
        self._tell(self._plans.due(self._clock_s()))

    def gateways(self, reports: Mapping[str, Mapping[str, Any]]) -> None:
        """What gateways report in the live state."""
        leaving = [id_ for id_, report in reports.items() if report.get("leaving")]
        elsewhere = reports.keys() - of_cluster(reports, self._cluster).keys()
        self._tell(self._gateways.look(reports.keys(), leaving, self._clock_s(), elsewhere))

    def catalog_answered(self) -> None:
        self._tell(self._database.answered(self._clock_s()))

    def catalog_away(self, error: ModellessError) -> None:
        self._tell(self._database.away(error.message, self._clock_s()))

    def live_state_answered(self, *, empty: bool) -> None:
        self._tell(self._live.answered(empty=empty, now_s=self._clock_s()))

    def live_state_away(self, error: ModellessError) -> None:
        now_s = self._clock_s()
        self._gateways.blind(now_s)
        self._tell(self._live.away(error.message, now_s))

    def ask_on_demand(self, pool: WorkerPool) -> None:
        """Ask workers what they loaded and evicted for queries, where there is something new.

        They answer beside the turn. One that does not is asked again later and later.
        """
        for id_, status in self._workers.items():
            if status.occurrences > self._on_demand.after(id_) or self._on_demand.told(id_):
                self._ask(pool, id_)

    def on_demand(self) -> None:
        """What workers have answered by now."""
        self._tell(self._on_demand.due(self._workers.keys(), self._clock_s()))

    def stored(self, pool: WorkerPool) -> None:
        """All that was told so far is stored for good: workers may forget it, at once.

        What is stored here and not forgotten there, a successor would tell again.
        """
        self._on_demand.stored()
        for id_ in self._workers:
            if self._on_demand.told(id_):
                self._ask(pool, id_)

    def _ask(self, pool: WorkerPool, worker: str) -> None:
        if worker not in self._asking and not self._unanswered.waits(worker, self._clock_s()):
            self._asking[worker] = asyncio.create_task(self._take_history(pool, worker))

    async def _take_history(self, pool: WorkerPool, worker: str) -> None:
        told: Collection[int] = self._on_demand.told(worker)
        began_s = self._clock_s()
        try:
            found = await pool.history(worker, told, self._on_demand.after(worker))
        except Exception as error:
            now_s = self._clock_s()
            news = self._unanswered.failed(worker, str(error), now_s, now_s - began_s)
            if news and not isinstance(error, ModellessError):
                log.exception("worker %s could not be asked what it loaded", worker)
        else:
            self._unanswered.succeeded(worker)
            self._on_demand.take(worker, found, told, self._clock_s())
        finally:
            del self._asking[worker]

    async def _answered(self) -> None:
        """Wait for all that workers are being asked, which ends soon."""
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _tell(self, events: Iterable[StatusEvent]) -> None:
        for kind, subject, message in events:
            self._journal.tell(kind, subject, message)
