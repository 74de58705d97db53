"""The control loop: observe, decide, apply, record.

It is level-triggered. Each turn looks at what the cluster and the workers report, asks
``planner.tick`` what should be, and does what is missing; every step may be repeated. A restart
needs no special path: the successor takes a new epoch and goes on from what it sees.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol

from controlplane.chronicle import happened
from controlplane.cluster import WorkerAddress
from controlplane.live import LiveState
from controlplane.settings import Settings
from controlplane.specs import Specs
from planner.demand import SloClass, demands, slo_class, smoothed
from planner.shares import task_share
from planner.tick import tick
from planner.types import (
    Action,
    Decision,
    Demand,
    Load,
    Observation,
    ReplicaReport,
    Scale,
    Unload,
    WorkerReport,
)
from variants.artifacts import ArtifactStore
from variants.catalog import Catalog
from variants.errors import ClusterUnavailable, ModellessError, StaleEpoch, StateUnavailable
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Event,
    Placement,
    Plan,
    ReplicaState,
    TaskName,
    TickRecord,
    WorkerId,
)
from workers.channel import WorkerConnection
from workers.types import WorkerStatus

log = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
RECORD_EVERY_S = 60.0
DEMAND_WEIGHT = 0.2
"""Of the newest second in the smoothed demand: its memory is about five turns."""


class Cluster(Protocol):
    """What the loop needs of the cluster. ``controlplane.cluster.ServeCluster`` is Ray's."""

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]: ...

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]: ...

    async def scale(self, kind: str, count: int) -> None: ...


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
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._store = store
        self._live = live
        self._cluster = cluster
        self._secret = secret
        self._owner = owner
        self._clock_s = clock_s
        self._epoch = 0
        self._plan: Plan | None = None
        self._known = CatalogSnapshot(revision=-1)
        self._specs = Specs(self._known, store)
        self._inventory: dict[DeviceKindName, int] = {}
        self._running: dict[DeviceKindName, int] = {}
        self._connections: dict[str, WorkerConnection] = {}
        self._statuses: dict[str, WorkerStatus] = {}
        self._busy: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._asked: dict[str, dict[str, int]] = {}
        self._asked_at_s = 0.0
        self._demand: tuple[Demand, ...] = ()
        self._recorded_at_s = float("-inf")
        self._turned_at_s = float("-inf")

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
                left_s = self._settings.tick_s - (self._clock_s() - began_s)
                await asyncio.sleep(max(left_s, 0.05))
        finally:
            for task in self._busy.values():
                task.cancel()
            for connection in self._connections.values():
                connection.close()

    def check(self) -> None:
        """Raise when no turn has come to its end for long."""
        silent_s = self._clock_s() - self._turned_at_s
        if self._epoch and silent_s > 30 + 5 * self._settings.tick_s:
            raise RuntimeError(f"no turn of the control loop for {silent_s:.0f} s")

    async def turn(self) -> Decision:
        """One tick: observe, decide, apply, record."""
        observation = await self._observe()
        decision = tick(observation)
        await self._store_plan(decision)
        for action in decision.actions:
            await self._apply(action)
        if decision.changed:
            self._share_anew(decision.plan.placements)
        await self._record(observation, decision)
        return decision

    async def _lead(self) -> None:
        while True:
            try:
                self._epoch = await asyncio.to_thread(self._catalog.acquire_leadership, self._owner)
                self._plan = await asyncio.to_thread(self._catalog.latest_plan)
                return
            except StateUnavailable as error:
                log.warning("waiting for the catalog: %s", error)
                await asyncio.sleep(1)

    async def _turn_safely(self) -> None:
        try:
            await self.turn()
        except (StateUnavailable, ClusterUnavailable) as error:
            log.warning("this turn is left out: %s", error)
        except StaleEpoch:
            raise
        except Exception:
            log.exception("a turn of the control loop failed")
        self._turned_at_s = self._clock_s()

    # -- observe --------------------------------------------------------------------------------

    async def _observe(self) -> Observation:
        await self._refresh_catalog()
        if not self._running:
            self._running = {
                DeviceKindName(kind): count
                for kind, count in (await self._cluster.targets(self._inventory)).items()
            }
        await self._meet(await self._cluster.workers(self._inventory))
        with contextlib.suppress(StateUnavailable):
            await self._count()
        return Observation(
            catalog=self._known,
            workers=tuple(_report(status) for status in self._statuses.values()),
            demand=self._demand,
            inventory=self._inventory,
            running=self._running,
            plan=self._plan,
            now_s=self._clock_s(),
        )

    async def _refresh_catalog(self) -> None:
        """Go on with the catalog as it was while the database is away."""
        try:
            revision = await asyncio.to_thread(self._catalog.revision)
            if revision != self._known.revision:
                self._known = await asyncio.to_thread(self._catalog.snapshot)
                self._specs = Specs(self._known, self._store)
            wanted = await asyncio.to_thread(self._catalog.inventory)
            kind = DeviceKindName(self._settings.device_kind)
            self._inventory = {kind: self._settings.workers, **wanted}
        except StateUnavailable:
            if self._known.revision < 0:
                raise

    async def _meet(self, workers: list[WorkerAddress]) -> None:
        """Connect to the workers that are there and forget those that are not."""
        here = {worker.id: worker for worker in workers}
        for gone in [id_ for id_ in self._connections if id_ not in here]:
            self._connections.pop(gone).close()
        for id_, worker in here.items():
            if id_ not in self._connections:
                await self._connect(worker)
        before = dict(self._statuses)
        self._statuses = {
            id_: connection.status for id_, connection in sorted(self._connections.items())
        }
        directory = [asdict(worker) for worker in workers]
        with contextlib.suppress(StateUnavailable):
            if not await self._live.put_workers(self._epoch, directory):
                raise StaleEpoch(f"epoch {self._epoch} is over: a newer controller leads")
        for kind, subject, message in happened(before, self._statuses):
            await self._tell(kind, subject, message)

    async def _connect(self, worker: WorkerAddress) -> None:
        def on_lost(reason: str) -> None:
            log.warning("worker %s is gone: %s", worker.id, reason)
            self._connections.pop(worker.id, None)

        try:
            self._connections[worker.id] = await WorkerConnection.open(
                worker.address, self._secret, on_status=lambda _: None, on_lost=on_lost
            )
        except ModellessError as error:
            log.info("worker %s cannot be reached yet: %s", worker.id, error)

    async def _count(self) -> None:
        """Turn the gateways' growing counters into smoothed rates per SLO class."""
        now_s = self._clock_s()
        elapsed_s, self._asked_at_s = now_s - self._asked_at_s, now_s
        asked = {id_: report["demand"] for id_, report in (await self._live.gateways()).items()}
        before, self._asked = self._asked, asked
        if elapsed_s <= 0:
            return
        accuracies = self._accuracies()
        rows: dict[tuple[TaskName, SloClass], float] = {}
        for id_, counters in asked.items():
            known = before.get(id_)
            if known is None:
                continue
            for key, count in counters.items():
                task, latency_ms, floor = key.split("|")
                slo = slo_class(
                    float(latency_ms), float(floor) if floor else None, accuracies.get(task, ())
                )
                new = count - known.get(key, 0)
                rows[TaskName(task), slo] = rows.get((TaskName(task), slo), 0.0) + new
        self._demand = smoothed(self._demand, demands([rows], elapsed_s), DEMAND_WEIGHT)

    def _accuracies(self) -> dict[str, list[float]]:
        found: dict[str, set[float]] = {}
        for variant in self._known.variants:
            found.setdefault(variant.task, set()).add(variant.accuracy)
        return {task: sorted(values) for task, values in found.items()}

    # -- apply ----------------------------------------------------------------------------------

    async def _store_plan(self, decision: Decision) -> None:
        if not decision.changed:
            return
        plan = replace(decision.plan, epoch=self._epoch, created_at=_now())
        self._plan = await asyncio.to_thread(self._catalog.put_plan, plan)
        with contextlib.suppress(StateUnavailable):
            await self._live.notify("plan")

    async def _apply(self, action: Action) -> None:
        if isinstance(action, Scale):
            await self._cluster.scale(action.device_kind, action.count)
            self._running[action.device_kind] = action.count
            await self._tell("scaled", action.device_kind, f"to {action.count}: {action.why}")
        elif isinstance(action, Load):
            self._begin(action, self._load(action))
        else:
            self._begin(action, self._unload(action))

    def _begin(self, action: Load | Unload, work: Coroutine[Any, Any, None]) -> None:
        """Start a load or an unload; one that is under way is left to end."""
        key = (str(action.worker), str(action.task), str(action.variant))
        if key in self._busy:
            work.close()
            return
        task = self._busy[key] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._busy.pop(key, None))

    async def _load(self, action: Load) -> None:
        subject = f"{action.task}/{action.variant} on {action.worker}"
        try:
            connection = self._connections[action.worker]
            await connection.load(self._spec(action.worker, action.task, action.variant),
                                  LOAD_TIMEOUT_S)  # fmt: skip
        except KeyError:
            return  # the worker has just gone; the next turn sees that
        except ModellessError as error:
            log.warning("%s could not be loaded: %s", subject, error)
            await self._tell("load_failed", subject, str(error))
        else:
            await self._tell("loaded", subject, action.why)

    async def _unload(self, action: Unload) -> None:
        subject = f"{action.task}/{action.variant} on {action.worker}"
        try:
            connection = self._connections[action.worker]
            await connection.unload(action.task, action.variant, LOAD_TIMEOUT_S)
        except KeyError:
            return
        except ModellessError as error:
            log.warning("%s could not be unloaded: %s", subject, error)
        else:
            await self._tell("unloaded", subject, action.why)

    def _spec(self, worker: WorkerId, task: str, variant: str) -> Any:
        placements = self._plan.placements if self._plan else ()
        share = task_share(placements, worker, TaskName(task))
        kind = self._statuses[worker].device_kind
        return self._specs.of(task, variant, kind, share=share)

    def _share_anew(self, placements: tuple[Placement, ...]) -> None:
        """Tell workers the new shares of what they hold: loading it again changes nothing else."""
        for placement in placements:
            status = self._statuses.get(placement.worker)
            held = {
                (replica.task, replica.variant)
                for replica in (status.replicas if status else ())
                if replica.state is ReplicaState.READY
            }
            if (placement.task, placement.variant) in held:
                again = Load(
                    worker=placement.worker, task=placement.task, variant=placement.variant
                )
                self._begin(again, self._reshare(again))

    async def _reshare(self, action: Load) -> None:
        with contextlib.suppress(KeyError, ModellessError):
            connection = self._connections[action.worker]
            await connection.load(self._spec(action.worker, action.task, action.variant), 5.0)

    # -- record ---------------------------------------------------------------------------------

    async def _record(self, observation: Observation, decision: Decision) -> None:
        with contextlib.suppress(StateUnavailable):
            await self._live.put_worker_status([asdict(s) for s in self._statuses.values()])
        due = self._clock_s() - self._recorded_at_s >= RECORD_EVERY_S
        if not (decision.changed or decision.actions or due):
            return
        self._recorded_at_s = self._clock_s()
        body = {
            "epoch": self._epoch,
            "catalog_revision": observation.catalog.revision,
            "workers": [asdict(worker) for worker in observation.workers],
            "demand": [asdict(demand) for demand in observation.demand],
            "inventory": dict(observation.inventory),
            "running": dict(observation.running),
            "actions": [
                {"action": type(action).__name__.lower(), **asdict(action)}
                for action in decision.actions
            ],
            "explanation": list(decision.plan.explanation),
        }
        version = self._plan.version if self._plan else 0
        record = TickRecord(plan_version=version, at=_now(), body=body)
        await asyncio.to_thread(self._catalog.add_tick, record)

    async def _tell(self, kind: str, subject: str, message: str) -> None:
        log.info("%s %s: %s", kind, subject, message)
        event = Event(at=_now(), kind=kind, subject=subject, message=message)
        with contextlib.suppress(StateUnavailable):
            await asyncio.to_thread(self._catalog.add_event, event)


def _report(status: WorkerStatus) -> WorkerReport:
    return WorkerReport(
        id=WorkerId(status.worker),
        device_kind=DeviceKindName(status.device_kind),
        memory_mib=status.memory_mib,
        reserved_mib=status.reserved_mib,
        draining=status.draining,
        replicas=tuple(
            ReplicaReport(
                task=replica.task,
                variant=replica.variant,
                state=replica.state,
                memory_mib=replica.memory_mib,
                in_flight=replica.queued,
                idle_s=replica.idle_s,
            )
            for replica in status.replicas
        ),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
