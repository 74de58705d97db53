"""The control loop: observe, decide, apply, record.

It is level-triggered. Each turn looks at what the cluster and the workers report, asks
``planner.reconcile.tick`` what should be, and does what is missing; every step may be repeated. A
restart needs no special path: the successor takes a new epoch and goes on from what it sees.

Without live state nothing changes but that gateways learn of new workers later. Without database
the catalog stays as it was known, events wait, and of a plan that cannot be stored only the loads
are begun, which take free memory only: a worker that replaces another one does not stay empty.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from time import monotonic, time
from typing import Any

from controlplane.cluster.head import notes_of
from controlplane.cluster.processes.control_store import ControlStoreWatch
from controlplane.cluster.protocol import Cluster
from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.accuracy_watch import AccuracyWatch
from controlplane.controller.applying.plan_applier import PlanApplier
from controlplane.controller.arrivals import Arrivals
from controlplane.controller.canaries.canary_watch import CanaryWatch
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.loop_report import LoopReport
from controlplane.controller.events.recorder import StatusRecorder
from controlplane.controller.events.status_events import Target, damaged, in_quarantine
from controlplane.controller.fleet_targets import FleetTargets
from controlplane.controller.forecaster_training import ForecasterTraining
from controlplane.controller.gateway_scaling import GatewayScaler
from controlplane.controller.headroom_watch import HeadroomWatch
from controlplane.controller.known_catalog import KnownCatalog
from controlplane.controller.leader_writes import LeaderWrites
from controlplane.controller.learned_state import LearnedState
from controlplane.controller.met_workers.roster import Roster
from controlplane.controller.met_workers.silent_workers import SilentWorkers
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.controller.met_workers.worker_reports import Reports
from controlplane.controller.nodes.kinds_now import Applications
from controlplane.controller.nodes.node_counts import NodeAutoscaler, NodeCounts
from controlplane.controller.nodes.node_watch import NodeWatch
from controlplane.controller.other_installations import (
    cluster_of,
    led_by_another_cluster,
    may_be_behind_s,
    until_alone,
)
from controlplane.controller.peak_calendar import PeakCalendar
from controlplane.controller.profiles.profile_checks import ProfileChecks
from controlplane.controller.profiles.reprofiling import MeasuringOf, Reprofiling
from controlplane.controller.watched_answers.answer_watch import AnswerWatch
from controlplane.controller.zone_counts import KindZones, ZoneCounts
from controlplane.live_latency import LiveLatency
from controlplane.live_state import LiveState
from controlplane.live_state.seldom import Seldom
from controlplane.machine import rooms_here
from controlplane.registry.leftover_artifacts import (
    AbandonedArtifacts,
    LeftoverArtifacts,
    without_removed,
)
from controlplane.registry.rebuilds import Rebuilds
from controlplane.settings import Settings
from controlplane.timestamps import timestamp
from planner.energy import HourlyCarbon
from planner.layouts import words
from planner.reconcile.by_layout.change_limits import ChangeLimits
from planner.reconcile.tick import tick
from planner.residency.frozen_plan import frozen_by
from planner.solver.solve import within
from planner.types import Action, Decision, Load, Observation
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.errors import ClusterUnavailable, StaleEpoch, StateUnavailable
from variants.types import DeviceKindName
from workers.types import WorkerStatus

log = logging.getLogger(__name__)

SHORTEST_PAUSE_S = 0.05


class ControlLoop:
    """One controller. There may be two for a moment: the one with the older epoch gives up."""

    def __init__(
        self,
        *,
        settings: Settings,
        catalog: Catalog,
        store: ArtifactStore,
        live: LiveState,
        cluster: Cluster,
        secret: bytes,
        owner: str,
        clock_s: Callable[[], float] = monotonic,
        wall_s: Callable[[], float] = time,
        pool_of: Callable[[bytes, Callable[[], None]], WorkerPool] = WorkerPool,
        measuring_of: MeasuringOf | None = None,
        kind_applications: Applications | None = None,
        autoscaler: NodeAutoscaler | None = None,
        control_store: ControlStoreWatch | None = None,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._live = live
        self._cluster = cluster
        self._owner = owner
        self._clock_s, self._wall_s = clock_s, wall_s
        self._decision: Decision | None = None
        """The latest one, for the next tick to take what did not change from."""
        self._live_latency = LiveLatency()
        self._hourly = HourlyCarbon()
        self._corrected = False
        """Whether what the plan was made by has changed: latency, the hour's carbon, zones."""
        self._turned_at_s = float("-inf")
        self._wake = asyncio.Event()
        self._pool = pool_of(secret, self._wake.set)
        self._workers: dict[str, WorkerStatus] = {}
        self._reports = Reports()
        self._training: ForecasterTraining | None = None
        self._arrivals = Arrivals()
        self._zones = ZoneCounts()
        self._kind_zones = KindZones()
        self._journal = Journal(catalog)
        self._silent = SilentWorkers(self._pool, cluster, self._journal)
        self._learned = LearnedState(catalog, self._journal, clock_s, wall_s)
        self._change_limits = ChangeLimits()
        self._calendar = PeakCalendar(self._journal, wall_s)
        self._canaries = CanaryWatch(catalog, live, self._journal, clock_s, wall_s)
        self._accuracy = AccuracyWatch(catalog, self._journal, wall_s, settings.trust_feedback)
        self._answers = AnswerWatch(catalog, self._journal, wall_s, settings.answers_span_s)
        self._roster = Roster(cluster, live, self._journal)
        here = cluster_of(owner)
        self._recorder = StatusRecorder(catalog, self._journal, clock_s, here)
        self._leftovers = LeftoverArtifacts(catalog, store, self._journal.tell, notes_of(settings))
        self._abandoned = AbandonedArtifacts(
            catalog, store, notes_of(settings), self._journal.tell, clock_s
        )
        self._leader = LeaderWrites(owner, catalog, live, self._journal, self._recorder)
        self._report = LoopReport(
            live, self._journal, lambda: rooms_here(settings), clock_s, wall_s, control_store
        )
        self._known = KnownCatalog(catalog, store, self._report, clock_s)
        self._counted: Seldom[dict[str, dict[str, Any]]] = Seldom(clock_s)
        self._targets = FleetTargets(cluster, live, self._journal, self._report, clock_s)
        self._applier = PlanApplier(
            cluster, self._pool, self._journal, clock_s, self._targets.scaled
        )
        checks = ProfileChecks(self._pool, self._journal, clock_s)
        self._reprofiling = Reprofiling(timestamp, catalog, self._journal, measuring_of, checks)
        self._rebuilds = Rebuilds(settings, self._journal.tell)
        self._gateways = GatewayScaler(cluster, self._journal, settings, here)
        self._headroom = HeadroomWatch(self._journal, shares_cores=not settings.ray_address)
        self._nodes = NodeWatch(cluster, live, self._journal, settings, kind_applications)
        self._node_counts = NodeCounts(autoscaler, live, self._journal, lambda: self.settings)

    async def run(self) -> None:
        """Take leadership and turn until cancelled.

        Raises:
            StaleEpoch: a newer controller has taken over.
        """
        try:
            await self._lead()
            while True:
                began_s = self._clock_s()
                await self._turn_safely()
                await self._pause(self._settings.tick_s - (self._clock_s() - began_s))
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):  # first, before a successor may lead
                await self._node_counts.withdraw()
            with contextlib.suppress(StateUnavailable):
                await self._recorder.stop(self._pool)
            with contextlib.suppress(StateUnavailable):
                await self._live.give_up(self._owner)
            raise
        finally:
            with contextlib.suppress(Exception):
                await self._node_counts.close()
            if self._training is not None:
                self._training.close()
            await self._learned.close(self._leader.epoch, self._arrivals.estimator, self._calendar)
            await self._rebuilds.close()
            await self._nodes.close()
            await self._gateways.close()
            await self._headroom.close()
            await self._reprofiling.close()
            await self._silent.close()
            await self._applier.close()

    @property
    def settings(self) -> Settings:
        """Those of the start, with the device kinds of now."""
        return self._nodes.settings

    def check(self) -> None:
        """Raise when no turn has come to its end for long."""
        silent_s = self._clock_s() - self._turned_at_s
        if self._leader.epoch and silent_s > 30 + 5 * self._settings.tick_s:
            raise RuntimeError(f"no turn of the control loop for {silent_s:,.0f} s")

    async def turn(self) -> Decision:
        """One tick: observe, decide, apply, record."""
        observation = await self._observe()
        # Beside the event loop: a search for a better plan may take its time.
        planner = within(self._settings.plan_limit_s, monotonic)
        decision = await asyncio.to_thread(tick, observation, planner, self._decision)
        self._decision = decision
        stored = await self._leader.may_act(decision)
        self._applier.know(decision, self._known.now.state, self._known.specs, self._workers)
        actions = [each for each in decision.actions if stored or isinstance(each, Load)]
        begun = self._applier.apply(actions, self._targets.running)
        reasons, usual_s = self._applier.reasons, self._calendar.orders.usual_s
        wanted = self._node_counts.within(decision.plan.workers, self._targets.asked)
        self._node_counts.follow(wanted, self._workers, reasons, usual_s, self._clock_s())
        if stored:
            self._corrected = False
            self._applier.tell_targets()
            self._rebuilds.look(damaged(self._workers.values()))
        if any(map(in_quarantine, self._workers.values())):
            with contextlib.suppress(StateUnavailable):
                lifts = await asyncio.to_thread(self._catalog.quarantine_lifts)
                self._applier.readmit(lifts, self._workers)
        if self._answers.changed:
            with contextlib.suppress(StateUnavailable):
                self._answers.accept(await asyncio.to_thread(self._catalog.accepted_answers))
        await self._record(observation, decision, begun)
        dispersion = self._arrivals.dispersion.of_tasks
        self._headroom.look(observation, dispersion, self._clock_s())
        self._report.headroom = self._headroom.told
        self._report.unmeasurable = self._reprofiling.unmeasurable
        self._report.accuracies = self._accuracy.counted
        self._report.contradicted = self._accuracy.contradicted
        self._report.answers = self._answers.told
        return decision

    async def _lead(self) -> None:
        while True:
            try:
                await until_alone(
                    self._owner,
                    self._catalog,
                    self._live,
                    self._journal,
                    self._wall_s,
                    may_be_behind_s(self._settings.catalog_url),
                )
                before = await asyncio.to_thread(self._catalog.leader)
                epoch = await asyncio.to_thread(self._catalog.acquire_leadership, self._owner)
                # From now on silence counts, whatever the first turn waits for.
                self._turned_at_s = self._clock_s()
                self._leader.epoch = epoch
                self._leader.plan = await asyncio.to_thread(self._catalog.latest_plan)
                elsewhere = led_by_another_cluster(self._owner, before)
                await self._recorder.lead(epoch, self._leader.plan, elsewhere=elsewhere)
                await self._canaries.recall()
                await self._accuracy.recall()
                await self._answers.recall()
                recalled = await self._learned.recall(self._settings, self._calendar)
                self._arrivals.estimator, self._training = recalled
                break
            except StateUnavailable as error:
                self._journal.trouble("catalog", error)
                await asyncio.sleep(1)
        self._journal.over("catalog")
        self._turned_at_s = self._clock_s()

    async def _turn_safely(self) -> None:
        try:
            await self.turn()
        except StaleEpoch:
            raise
        except (StateUnavailable, ClusterUnavailable) as error:
            self._journal.trouble("turn", error)
        except Exception as error:
            self._journal.unexpected("turn", error)
        else:
            self._journal.over("turn")
        self._turned_at_s = self._clock_s()
        await self._report.turned(self._leader.plan)

    async def _pause(self, seconds: float) -> None:
        """Wait, but hardly when a worker is lost: gateways learn of its successor from us."""
        await asyncio.sleep(SHORTEST_PAUSE_S)
        # Not wait_for: it loses a cancellation that comes together with the event (Python 3.11).
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds - SHORTEST_PAUSE_S, 0)):
                await self._wake.wait()
        self._wake.clear()

    # -- observe --------------------------------------------------------------------------------

    async def _observe(self) -> Observation:
        """All that the decision of this turn is made by."""
        absent = await self._look_around()
        fleet, planning = self._targets, self._settings.planning
        estimator = self._arrivals.estimator
        least = fleet.least(self._settings)
        self._calendar.see(fleet.running, self._workers.values(), self._clock_s())
        foreseen = self._calendar.foresee(
            estimator.expected,
            estimator.envelope,
            [kind for kind, most in fleet.inventory.items() if least[kind] < most],
            self._settings.tick_s,
        )
        statuses = self._workers.values()
        self._corrected |= self._accuracy.judge(self._known.now)
        self._answers.look(statuses)
        self._answers.judge(self._known.now)
        known = self._accuracy.at(self._known.now)
        self._corrected |= self._live_latency.look(self._clock_s(), known, statuses)
        self._corrected |= self._hourly.moved(self._wall_s())
        catalog = self._hourly.at(self._live_latency.alone(known), self._wall_s())
        canaries = self._canaries.demand(catalog, fleet.inventory, planning.objective)
        return Observation(
            catalog=catalog,
            workers=self._reports.of(self._node_counts.staying(self._pool.as_planned_for())),
            demand=canaries.divided(self._arrivals.demand),
            inventory=fleet.inventory,
            sized_by=fleet.sized_by,
            running=dict(fleet.running),  # which changes when a kind was scaled
            plan=self._leader.plan,
            now_s=self._clock_s(),
            objective=planning.objective,
            eviction=planning.eviction,
            expected=canaries.divided((*foreseen.expected, *self._arrivals.pinned)),
            envelope=canaries.divided((*foreseen.envelope, *self._arrivals.pinned)),
            room=estimator.room,
            dispersion=self._arrivals.dispersion.of_tasks(),
            watched=estimator.watched,
            steady=estimator.steady,
            declared=foreseen.declared,
            elastic=planning.elastic,
            least=least,
            layouts=self._settings.layouts,
            measured=known if self._settings.layouts else None,
            refused=self._change_limits.refused(self._clock_s()),
            rests=self._change_limits.rests(self._clock_s(), planning.linger_s),
            horizon_s=planning.linger_s,
            absent=absent,
            frozen=frozen_by(self._known.now.rules, self._wall_s()),
            corrected=self._corrected,
            interference=self._live_latency.interference,
            swaps_s=self._settings.tick_s,
            zones=self._zones.known,
            zones_settled=self._zones.settled,
            kind_zones=self._kind_zones.of(self._settings.kinds, statuses, self._clock_s())
            if planning.elastic
            else {},
        )

    async def _look_around(self) -> frozenset[DeviceKindName]:
        """See catalog, workers, nodes and demand as they are now; which kinds have no node."""
        fleet = self._targets
        await self._nodes.recall()
        if self._settings is not self.settings:
            self._settings = self.settings
            fleet.doubt()
        await self._refresh_catalog()
        await fleet.refresh()
        speaking = self._pool.speaking()
        await self._meet(await self._roster.workers(fleet.running, fleet.running, speaking))
        self._silent.look(self._clock_s())
        self._recorder.ask_on_demand(self._pool)
        absent = await self._node_counts.absent()
        autoscaled = self._node_counts.autoscaled
        self._nodes.follow(fleet.asked, fleet.running, self._clock_s(), autoscaled=autoscaled)
        if self._arrivals.due(self._clock_s()):
            await self._count()
        if self._settings.layouts and self._leader.plan is not None:
            limits, workers = self._change_limits, self._leader.plan.workers
            if why := limits.look(self._clock_s(), workers, fleet.running):
                self._journal.tell("layout_given_up", words(workers), why)
        return absent

    async def _refresh_catalog(self) -> None:
        """Go on with the catalog as it was while the database is away."""
        try:
            said = await self._known.look()
            self._targets.asked = said.marks.inventory
            self._leader.look(said.marks)
            await self._journal.end_freeze(self._known.now.rules, self._wall_s())
        except StateUnavailable as error:
            self._journal.trouble("catalog", error)
            self._recorder.catalog_away(error)
            if not self._known.is_read:
                raise
        else:
            self._journal.over("catalog")
            self._recorder.catalog_answered()
            there = Counter(DeviceKindName(one.device_kind) for one in self._workers.values())
            await self._targets.want(self._settings, there)
            self._calendar.know(said.peaks, self._known.now)

    async def _meet(self, workers: list[WorkerAddress]) -> None:
        """Connect to the workers that are there, forget those that are not, and tell gateways."""
        await self._pool.meet(workers)
        staying = self._node_counts.staying(self._pool.statuses().values())
        statuses = without_removed(staying, self._known.now)
        self._workers = {status.worker: status for status in statuses}
        await self._leader.publish([asdict(worker) for worker in workers])
        await self._targets.look_at_starts(
            {status.device_kind for status in self._workers.values()}
        )
        bound = {kind.name: str(kind.nodes or "") for kind in self._settings.kinds}
        why = self._applier.reasons
        targets = {
            str(kind): Target(count=count, why=why.get(kind, ""), nodes=bound.get(kind, ""))
            for kind, count in self._targets.running.items()
        }
        self._recorder.workers(self._workers, self._pool, targets)
        self._report.workers(self._workers.values())

    async def _count(self) -> None:
        with contextlib.suppress(StateUnavailable):
            reports = await self._counted.answer(self._live.gateways)
            if reports is None:
                return
            if self._live.refused:  # what gateways write is not there: nobody knows the demand
                return
            self._recorder.gateways(reports)
            self._report.gateways(reports.values())
            self._headroom.gateways(reports.values())
            self._canaries.count(reports)
            self._accuracy.count(reports)
            known = self._accuracy.at(self._known.now)
            self._arrivals.count(reports, known, self._clock_s())
            self._corrected |= self._zones.count(reports, known, self._clock_s())
            if self._training is not None:
                self._training.go_on()
            self._learned.keep_on(self._leader.epoch, self._arrivals.estimator, self._calendar)
            replacing = "gateways" in self._targets.replacing
            frozen = frozen_by(self._known.now.rules, self._wall_s()) is not None
            now_s = self._clock_s()
            self._gateways.follow(reports, now_s, replacing=replacing, frozen=frozen)

    # -- record ---------------------------------------------------------------------------------

    async def _record(
        self, observation: Observation, decision: Decision, begun: list[Action]
    ) -> None:
        """Store what was decided, what was begun and the events of this turn."""
        if self._journal.troubled("catalog"):
            return
        self._recorder.on_demand()
        version = self._leader.plan.version if self._leader.plan else 0
        try:
            known = self._known.now
            await self._reprofiling.follow(self._clock_s(), known, observation, self._workers)
            await self._canaries.follow(known, self._leader.epoch)
            await self._accuracy.keep(self._leader.epoch)
            await self._answers.keep(self._leader.epoch)
            await self._journal.store(
                observation, decision, begun, epoch=self._leader.epoch, version=version
            )
            await self._leftovers.free(known, self._workers.values())
            await self._abandoned.free()
        except StateUnavailable as error:
            self._journal.trouble("writing", error)
        else:
            self._journal.over("writing")
            self._recorder.stored(self._pool)
