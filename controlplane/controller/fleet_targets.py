"""FleetTargets: how many workers of each kind are wanted, and how many Ray Serve is told to run.

What is wanted follows from the settings, what operators asked for, and what `modelless upgrade` has
one more run of for a while. What Serve is told is read from it now and then: an operator or an
older controller may have changed it.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from controlplane.cluster.protocol import Cluster
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.loop_report import LoopReport
from controlplane.controller.nodes.lent_workers import LentWorkers
from controlplane.controller.nodes.startable import startable
from controlplane.live_state import LiveState
from controlplane.live_state.seldom import Seldom
from controlplane.settings import Settings
from planner.types.ticks import INVENTORY
from variants.errors import ClusterUnavailable, StateUnavailable
from variants.types import DeviceKindName

TARGETS_EVERY_S = 10.0
"""How often the cluster is asked how many workers it was told to run."""
STARTS_EVERY_S = 2.0
"""How often it is asked why workers do not start, while a kind has none."""
ONE_MORE = f"{INVENTORY}, and one more while the others are replaced"


class FleetTargets:
    """Known as of the last turn; ``running`` changes when a kind is scaled."""

    def __init__(
        self,
        cluster: Cluster,
        live: LiveState,
        journal: Journal,
        report: LoopReport,
        clock_s: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._live = live
        self._journal = journal
        self._report = report
        self._clock_s = clock_s
        self.asked: Mapping[DeviceKindName, int] = {}
        """The numbers of workers that an operator asked for."""
        self.inventory: dict[DeviceKindName, int] = {}
        """How many of each kind there may be."""
        self.running: dict[DeviceKindName, int] = {}
        """How many Ray Serve is told to run."""
        self.replacing: frozenset[str] = frozenset()
        """Of what `modelless upgrade` has one more run for a while."""
        self._asked_of: Seldom[frozenset[str]] = Seldom(clock_s)
        self._lent_workers = LentWorkers()
        self._lent: bool | None = None
        """Whether it may have the room that is kept for it; None: that is not known."""
        self._targets_at_s = self._starts_at_s = float("-inf")

    @property
    def sized_by(self) -> str:
        """Why so many run where plans do not decide it."""
        return ONE_MORE if self.replacing & self.inventory.keys() else INVENTORY

    def least(self, settings: Settings) -> dict[DeviceKindName, int]:
        """How many of each kind plans leave at least."""
        return self._lent_workers.least(settings.least(self.inventory), self.inventory)

    def scaled(self, kind: DeviceKindName, count: int) -> None:
        """Ray Serve was told to run so many workers of a kind."""
        self.running[kind] = count

    def doubt(self) -> None:
        """Ask Ray Serve at the next turn: the kinds have changed."""
        self._targets_at_s = float("-inf")

    async def want(self, settings: Settings, there: Mapping[DeviceKindName, int]) -> None:
        """Find out how many are wanted, by the settings and by what was ``asked``.

        Args:
            there: how many of each kind are connected.
        """
        wanted = startable(settings.wanted(dict(self.asked)), there, settings)
        with suppress(StateUnavailable):
            if (found := await self._asked_of.answer(self._replacing)) is not None:
                self.replacing = found
        with suppress(ClusterUnavailable):  # then it is tried again
            await self._lend_room(settings, lent=bool(self.replacing & wanted.keys()))
        least = settings.least(wanted)
        self.inventory = self._lent_workers.wanted(wanted, least, self.running, self.replacing)

    async def _replacing(self) -> frozenset[str]:
        began_s = self._clock_s()
        found = await self._live.replacing()
        self._report.live_pace.answered(1_000 * (self._clock_s() - began_s))
        return found

    async def _lend_room(self, settings: Settings, *, lent: bool) -> None:
        """Let one more worker have the room that is kept for it, or keep it again."""
        spare = settings.spare_cores
        if spare and lent is not self._lent:
            await self._cluster.lend_room(0 if lent else spare, settings.all_cores)
            self._lent = lent

    async def refresh(self) -> None:
        """Read from Ray Serve, if it is time, how many it is told to run.

        Raises:
            ClusterUnavailable: it does not say, and nothing is known yet.
        """
        now_s, before = self._clock_s(), dict(self.running)
        if self.running and now_s - self._targets_at_s < TARGETS_EVERY_S:
            return
        try:
            targets = await self._cluster.targets(self.inventory)
        except ClusterUnavailable as error:
            if not self.running:
                raise
            self._journal.trouble("targets", error)
            return
        self._journal.over("targets")
        # What was scaled meanwhile is newer than what was asked before.
        newer = {k: count for k, count in self.running.items() if before.get(k) != count}
        self.running = {DeviceKindName(kind): count for kind, count in targets.items()} | newer
        self._targets_at_s = now_s

    async def look_at_starts(self, there: Collection[str]) -> None:
        """See whether the workers of a kind that has none do not start at all: queries wait.

        Args:
            there: kinds of which workers are connected.
        """
        absent = {kind for kind, n in self.running.items() if n and kind not in there}
        if absent and self._clock_s() - self._starts_at_s >= STARTS_EVERY_S:
            self._starts_at_s = self._clock_s()
            with suppress(ClusterUnavailable):
                found = await self._cluster.failed_starts(absent)
                before, self._report.failed_starts = self._report.failed_starts, found
                for kind in sorted(found.keys() - before.keys()):
                    self._journal.tell("start_failed", kind, f"{found[kind]}; it is tried again")
        elif not absent:
            self._report.failed_starts = {}
