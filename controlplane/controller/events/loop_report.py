"""LoopReport: what the control loop tells of itself once a turn, through the live state.

Gateways show it: whoever looks at an installation looks at a gateway. It stays there when the
control loop does not, so that its age tells.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from controlplane.cluster.processes.control_store import ControlStoreWatch
from controlplane.controller.events.answer_pace import AnswerPace
from controlplane.controller.events.clock_watch import ClockWatch
from controlplane.controller.events.core_watch import CoreWatch
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.slo_watch import SloWatch
from controlplane.controller.events.storage_watch import StorageWatch
from controlplane.live_state import LiveState
from controlplane.live_state.seldom import Seldom
from controlplane.views.machines.core_shortage import reading
from controlplane.views.storage_status import full, plain
from planner.feedback.accuracies import Counted
from planner.feedback.accuracies import plain as told_of
from planner.types import ProfileKey
from variants.core_time import CoreTime
from variants.disk import DiskRoom
from variants.errors import StateUnavailable
from variants.types import Plan
from workers.types import WorkerStatus


class LoopReport:
    """Told after each turn, whether that came to its end or not."""

    def __init__(
        self,
        live: LiveState,
        journal: Journal,
        rooms: Callable[[], tuple[DiskRoom, ...]],
        clock_s: Callable[[], float],
        wall_s: Callable[[], float],
        control_store: ControlStoreWatch | None = None,
    ) -> None:
        """
        Args:
            rooms: the disks of this machine that are written.
            control_store: eyes on Ray's, without which no turn starts or stops anything.
        """
        self._live = live
        self._journal = journal
        self._telling: Seldom[None] = Seldom(clock_s)
        self._rooms = rooms
        self._clock_s, self._wall_s = clock_s, wall_s
        self._control_store = control_store
        self._control_store_news: str | None = None
        self._seen: tuple[DiskRoom, ...] | None = None
        """What ``look_at_disks`` saw since the last turn ended."""
        self._turned_s: float | None = None
        self._storage = StorageWatch()
        self._clock = ClockWatch()
        self._cores = CoreWatch()
        self._slo = SloWatch()
        self._core_times: tuple[tuple[CoreTime, ...], tuple[CoreTime, ...]] = ((), ())
        """Of workers, and of gateways."""
        self.catalog_pace = AnswerPace()
        """Told of each look at the catalog."""
        self.failed_starts: dict[str, str] = {}
        """Why workers do not start, by kind, where none of that kind runs."""
        self.headroom: Mapping[str, Any] | None = None
        """How much more could be asked (``controlplane.controller.headroom_watch``)."""
        self.unmeasurable: Mapping[ProfileKey, str] = {}
        """What could not be measured, and why (``controlplane.controller.profiles.measuring``)."""
        self.accuracies: Counted = {}
        """What counts in place of measured ones (``controlplane.controller.accuracy_watch``)."""
        self.contradicted: Counted = {}
        """What clients say of each variant where it is something else than was measured."""
        self.answers: list[dict[str, Any]] = []
        """How the answers of variants are divided among the classes
        (``controlplane.controller.watched_answers``)."""
        self.live_pace = AnswerPace()
        """Told of each look at the live state."""

    def workers(self, statuses: Iterable[WorkerStatus]) -> None:
        """What workers say of their machines."""
        told = tuple(one.core_time for one in statuses if one.core_time is not None)
        self._core_times = told, self._core_times[1]

    def gateways(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """What gateways report of theirs, and of how queries end."""
        reports = list(reports)
        for kind, subject, message in self._slo.look(reports, self._clock_s()):
            self._journal.tell(kind, subject, message)
        read = (reading(report.get("core_time")) for report in reports)
        self._core_times = self._core_times[0], tuple(one for one in read if one is not None)

    def look_at_disks(self) -> None:
        """For a thread that the turn waits for anyway: a disk may take long to answer, and so may
        Ray's control store."""
        self._seen = self._looked()

    def _looked(self) -> tuple[DiskRoom, ...]:
        if self._control_store is not None:
            self._control_store_news = self._control_store.look() or self._control_store_news
        return self._rooms()

    async def turned(self, plan: Plan | None) -> None:
        """Tell events of disks, of clock and cores and of the catalog, and gateways how things are.

        They are told ``turned_s``, when the last turn that did not fail ended (Unix time; null
        before any), ``control_store``, what is to be said where Ray's does not answer, ``plan_at``,
        when the newest plan was made, ``events``, how many of each kind were told by this control
        loop, ``rooms``, the disks of its machine, ``unwritable``, why the catalog cannot be
        written, and ``slow_ms`` and ``live_slow_ms``, what the catalog and the live state take to
        answer where that is long; and ``failed_starts``, why workers do not start, by kind, where
        none of that kind runs; ``headroom``, how much more could be asked, where that is known;
        ``unmeasurable``, what could not be measured: task, variant, kind and why; ``accuracies``,
        what counts in place of what was measured: task, variant, share and rows; ``contradicted``,
        the same of all where clients say something else; ``answers``, how those of variants are
        divided among the classes; and ``cores_short`` and ``slo_missed``, the machines and tasks of
        which that is so, or was and hovers at a threshold.
        """
        seen, self._seen = self._seen, None
        rooms = await asyncio.to_thread(self._looked) if seen is None else seen
        lost = self._control_store.sentence if self._control_store is not None else ""
        if not lost and not self._journal.troubled("turn"):
            self._turned_s = self._wall_s()
        if news := self._control_store_news:
            if lost:
                self._journal.tell("control_store_lost", "Ray", news)
            else:
                self._journal.tell("control_store_back", "Ray", news)
            self._control_store_news = None
        self._journal.doubtful = any(map(full, rooms))
        unwritable = self._why("writing")
        slow_ms, live_slow_ms = self.catalog_pace.slow_ms(), self.live_pace.slow_ms()
        now_s = self._clock_s()
        found = list(self._storage.rooms(rooms))
        found += self._clock.look(self._wall_s())
        found += self._cores.look(chain(*self._core_times), now_s)
        found += self._storage.live_state_answered(live_slow_ms, now_s)
        if self._journal.troubled("catalog"):  # nothing was written: `catalog_lost` tells of it
            unwritable = self._why("catalog")
        else:
            found += self._storage.written(unwritable, now_s)
            found += self._storage.answered(slow_ms, now_s)
        for kind, subject, message in found:
            self._journal.tell(kind, subject, message)
        told = {
            "turned_s": self._turned_s,
            "control_store": lost,
            "plan_at": plan.created_at if plan is not None else "",
            "events": dict(self._journal.told),
            "rooms": plain(rooms),
            "unwritable": unwritable,
            "slow_ms": slow_ms,
            "live_slow_ms": live_slow_ms,
            "failed_starts": self.failed_starts,
            "headroom": self.headroom,
            "unmeasurable": [[*key, why] for key, why in self.unmeasurable.items()],
            "accuracies": told_of(self.accuracies),
            "contradicted": told_of(self.contradicted),
            "answers": self.answers,
            "cores_short": sorted(self._cores.short),
            "slo_missed": sorted(self._slo.missing),
        }
        with suppress(StateUnavailable):
            await self._telling.answer(lambda: self._live.put_controller(told))

    def _why(self, what: str) -> str:
        """What the trouble is. Which catalog is known where this is read, and that it is not
        available is a part of it."""
        return self._journal.why(what).rpartition(" is not available: ")[2]
