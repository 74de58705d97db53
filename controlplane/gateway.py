"""The gateway: one process that answers queries and keeps itself informed.

It owns a query path, a connection to every worker, and the control API. What it knows comes from
three places, none of them on the query path: the catalog and the plan in it (polled by revision and
version), the directory of workers in the live state (announced and polled), and the workers
themselves, which say on their connections what they hold. When catalog or live state are gone, it
goes on with what it has.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any
from uuid import uuid4

import uvicorn

from controlplane.access import Access
from controlplane.arrivals import accuracies_of, counter
from controlplane.backoff import Backoff
from controlplane.front import front_factory
from controlplane.live import LiveState
from controlplane.metrics import GatewayCollector
from controlplane.path import QueryPath
from controlplane.settings import Settings
from controlplane.specs import Specs
from controlplane.surface import build_surface
from planner.expectation import Least
from planner.routes import resolve
from planner.snapshot import build_snapshot, keeping
from planner.types import Candidate, Objective, WorkerView
from variants.artifacts import ArtifactStore
from variants.catalog import Catalog
from variants.errors import ModellessError, Overloaded, ReplicaLost, StateUnavailable
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Prefer,
    ReplicaState,
    Route,
    TaskName,
    WorkerId,
)
from workers.channel import WorkerConnection
from workers.host import settle_memory
from workers.types import WorkerStatus

log = logging.getLogger(__name__)

POLL_S = 0.5
REPORT_S = 1.0
TIGHT_S = 5.0
"""How long the tightest SLO of a class is reported, and up to twice as long: a report may be missed
by who reads them, but what is seen for long is remembered there."""
LOAD_TIMEOUT_S = 120.0
LOADS_PER_WORKER = 16
"""Loads under way at one worker; it refuses a connection with more than 64."""


class Link:
    """One worker as this gateway sees it: its view, its connection, what it holds."""

    __slots__ = ("connection", "ready", "status", "view")

    def __init__(self, view: WorkerView) -> None:
        self.view = view
        self.connection: WorkerConnection | None = None
        self.status: WorkerStatus | None = None
        self.ready: frozenset[tuple[Any, Any]] = frozenset()

    def learn(self, status: WorkerStatus) -> bool:
        """Take a status in; return whether it changes what can be chosen."""
        ready = frozenset(
            (replica.task, replica.variant)
            for replica in status.replicas
            if replica.state is ReplicaState.READY
        )
        changed = ready != self.ready or status.draining != self.view.draining
        self.status = status
        self.ready = ready
        self.view.draining = status.draining
        self.view.free_mib = status.memory_mib - status.reserved_mib
        return changed


class Gateway:
    """Answers queries on ``settings.host:port`` until ``stop``."""

    def __init__(
        self, settings: Settings, catalog: Catalog, store: ArtifactStore, secret: bytes
    ) -> None:
        self.id = uuid4().hex[:12]
        self.settings = settings
        self.catalog = catalog
        self.store = store
        self.live = LiveState(settings.live_url)
        self.path = QueryPath(loader=self.load)
        self.links: dict[WorkerId, Link] = {}
        self._secret = secret
        self.known = CatalogSnapshot(revision=-1)
        self._specs = Specs(self.known, store)
        self._accuracies: dict[TaskName, list[float]] = {}
        self._loads: dict[tuple[str, str, str], asyncio.Future[None]] = {}
        self._failures: Backoff[tuple[str, str, str]] = Backoff()
        self._opening: set[WorkerId] = set()
        self._silent: set[WorkerId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._demand: dict[str, int] = {}
        self._tightest: Least[str] = Least(TIGHT_S)
        self._plan_version = 0
        self._routes: tuple[Route, ...] = ()
        accurate = settings.objective == Objective.ACCURACY
        self._prefer = Prefer.ACCURACY if accurate else Prefer.COST
        # A plan for cost buys few workers. Where their number is given, it has nothing to save, and
        # the cheapest variant that fits each query is what its client asked for.
        self._follows_plan = accurate or settings.elastic

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and return when queries are taken.

        Raises:
            OSError: the address cannot be bound.
            StateUnavailable: the catalog cannot be read.
        """
        listening = bind(self.settings)
        try:
            await self._refresh_catalog()
            await self._refresh_plan()
        except StateUnavailable:
            listening.close()
            raise
        for work in (self._follow_catalog, self._follow_workers, self._follow_changes):
            self._spawn(self._forever(work))
        self._spawn(self._forever(self._report))
        access = Access(self.settings)
        collector = GatewayCollector(
            self.path.counters, self.statuses, lambda: self.path.snapshot.revision
        )
        max_body = int(self.settings.max_body_mib * 2**20)
        surface = build_surface(self, access, collector, max_body)
        config = uvicorn.Config(
            surface,
            http=front_factory(self.path, access, max_body),
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=10,
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._serve(self._server, listening))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the HTTP server ended at once")
            await asyncio.sleep(0.005)
        settle_memory()

    async def _serve(self, server: uvicorn.Server, listening: socket.socket) -> None:
        # Signals belong to the process around us, which is a Serve replica.
        await server._serve([listening])

    def check(self) -> None:
        """Raise when this gateway cannot answer any more."""
        if self._serving is None or self._serving.done():
            raise RuntimeError("the HTTP server has ended")

    async def stop(self) -> None:
        """Answer what is in flight, then close everything."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._serving, 15)
        under_way: set[asyncio.Future[None]] = {*self._tasks, *self._loads.values()}
        while under_way:
            for task in under_way:
                task.cancel()
            # Again, should a library have lost the cancellation: the Redis client does.
            _, under_way = await asyncio.wait(under_way, timeout=1)
        for id_ in tuple(self.links):
            self._drop(id_)
        await self.live.close()
        await asyncio.to_thread(self.catalog.close)

    # -- what others ask ------------------------------------------------------------------------

    def statuses(self) -> list[WorkerStatus]:
        """What the workers last said, over this gateway's own connections."""
        return [link.status for link in self.links.values() if link.status is not None]

    def ready(self) -> bool:
        """Whether some variant could answer now."""
        return any(link.ready and not link.view.draining for link in self.links.values())

    def load(self, candidate: Candidate, worker: WorkerId) -> "asyncio.Future[None]":
        """Load a variant on a worker for queries that ask for it now; one load for all of them."""
        key = (str(worker), str(candidate.task), str(candidate.variant))
        running = self._loads.get(key)
        if running is None:
            running = asyncio.ensure_future(self._load(candidate, worker, key))
            self._loads[key] = running
            running.add_done_callback(lambda _: self._loads.pop(key, None))
            # Looked at, so that a failure nobody waits for is not reported as forgotten.
            running.add_done_callback(lambda load: load.cancelled() or load.exception())
        return running

    async def _load(
        self, candidate: Candidate, worker: WorkerId, key: tuple[str, str, str]
    ) -> None:
        link = self.links.get(worker)
        if link is None or link.connection is None:
            raise ReplicaLost(f"worker {worker} is gone")
        if (reason := self._failures.waits(key, monotonic())) is not None:
            raise Overloaded(f"{candidate.task}/{candidate.variant} could not be loaded: {reason}")
        if sum(other[0] == worker for other in self._loads) > LOADS_PER_WORKER:
            raise Overloaded(f"worker {worker} is loading {LOADS_PER_WORKER} variants already")
        try:
            spec = self._specs.of_candidate(candidate)
            await link.connection.load(spec, LOAD_TIMEOUT_S, make_room=True)
        except (ReplicaLost, Overloaded):
            raise  # nothing is wrong with the variant
        except ModellessError as error:
            self._failures.failed(key, error.message, monotonic())
            raise
        self._failures.succeeded(key)

    # -- what it follows ------------------------------------------------------------------------

    async def _follow_catalog(self) -> None:
        await self._refresh_catalog()
        await self._refresh_plan()
        await self._pause(POLL_S)

    async def _refresh_catalog(self) -> None:
        revision = await asyncio.to_thread(self.catalog.revision)
        if revision != self.known.revision:
            self.known = await asyncio.to_thread(self._read_catalog)
            self._specs = Specs(self.known, self.store)
            self._accuracies = accuracies_of(self.known)
            self._failures.forget()
            self.path.tasks = {task.name: task for task in self.known.tasks}
            self._rebuild()

    async def _refresh_plan(self) -> None:
        """Follow a new plan's routes; while there is none to read, the last one's."""
        if not self._follows_plan:
            return
        version = await asyncio.to_thread(self.catalog.plan_version)
        if version != self._plan_version:
            plan = await asyncio.to_thread(self.catalog.latest_plan)
            if plan is not None:
                self._plan_version = plan.version
                if plan.routes != self._routes:
                    self._routes = plan.routes
                    self._resolve()

    def _read_catalog(self) -> CatalogSnapshot:
        """The catalog as it is now, in another thread than queries are answered in."""
        return keeping(self.catalog.snapshot(), self.known)

    async def _follow_workers(self) -> None:
        directory = await self.live.workers()
        if directory is not None:
            self._connect({WorkerId(worker["id"]): worker for worker in directory["workers"]})
        await self._pause(POLL_S)

    async def _follow_changes(self) -> None:
        async for _ in self.live.changes():
            self._wake.set()

    def _connect(self, directory: dict[WorkerId, dict[str, str]]) -> None:
        """Begin to connect to workers that are new, or that came back somewhere else."""
        self._silent &= directory.keys()
        for id_, worker in directory.items():
            link = self.links.get(id_)
            if link is not None and link.connection is not None:
                if link.connection.address == worker["address"]:
                    continue
                self._drop(id_)
            if id_ not in self._opening:
                self._opening.add(id_)
                self._spawn(self._open(id_, worker))

    def _drop(self, id_: WorkerId) -> None:
        """Choose this worker no more; its queries in flight are answered with a lost connection."""
        link = self.links.pop(id_)
        self.path.connections.pop(id_, None)
        self._failures.forget(lambda key: key[0] == id_)
        self._rebuild()
        if link.connection is not None:
            link.connection.close()

    async def _open(self, id_: WorkerId, worker: dict[str, str]) -> None:
        link = Link(WorkerView(id=id_, device_kind=DeviceKindName(worker["device_kind"])))
        lost = False

        def on_status(status: WorkerStatus) -> None:
            if link.learn(status) and self.links.get(id_) is link:
                self._rebuild()

        def on_lost(reason: str) -> None:
            nonlocal lost
            lost = True
            if self.links.get(id_) is link:
                log.warning("worker %s is gone: %s", id_, reason)
                self._drop(id_)

        try:
            connection = await WorkerConnection.open(
                worker["address"],
                self._secret,
                on_status=on_status,
                on_lost=on_lost,
                max_frame_mib=self.settings.max_frame_mib,
            )
        except ModellessError as error:
            # Normal for a moment after a worker died: the directory is a tick old.
            if id_ not in self._silent:
                log.info("worker %s cannot be reached: %s", id_, error)
            self._silent.add(id_)
            return
        finally:
            self._opening.discard(id_)
        self._silent.discard(id_)
        if lost:
            return  # it broke between its first status and here
        link.connection = connection
        link.learn(connection.status)
        self.links[id_] = link
        self.path.connections[id_] = connection
        self._rebuild()

    def _rebuild(self) -> None:
        """Make the snapshot that the next query is chosen from."""
        self.path.snapshot = build_snapshot(
            self.known,
            [(link.view, link.ready) for link in self.links.values()],
            before=self.path.snapshot,
        )
        self._resolve()

    def _resolve(self) -> None:
        """Make the routes that the next query follows."""
        self.path.routes = resolve(self._routes, self.path.snapshot, self._prefer)

    async def _report(self) -> None:
        """Tell the control loop, through the live state, what was asked here."""
        tightest: dict[str, float] = {}
        for (task, latency_ms, accuracy), rows in self.path.take_demand().items():
            key = counter(task, latency_ms, accuracy, self._accuracies.get(task, ()))
            self._demand[key] = self._demand.get(key, 0) + rows
            tightest[key] = min(latency_ms, tightest.get(key, latency_ms))
        self._tightest.saw(monotonic(), tightest)
        counters = self.path.counters
        tasks = {
            name: {
                "met": sum(v.met for v in task.variants.values()),
                "missed": sum(v.missed for v in task.variants.values()),
                "errors": dict(task.errors),
            }
            for name, task in counters.tasks.items()
            if name
        }
        report = {
            "demand": self._demand,
            "tightest": self._tightest.items(),
            "tasks": tasks,
            "in_flight": counters.in_flight,
        }
        await self.live.put_gateway(self.id, report)
        await asyncio.sleep(REPORT_S)

    # -- tasks ----------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until something is announced."""
        # Not wait_for: it loses a cancellation that comes together with the event (Python 3.11).
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat; a state that is gone is waited for, anything else is logged and survived."""
        said = ""
        while True:
            try:
                await work()
                said = ""
                continue
            except StateUnavailable as error:
                if said != "gone":
                    log.warning("going on with what is known: %s", error)
                said = "gone"
            except Exception as error:
                if said != repr(error):
                    log.exception("%s failed", getattr(work, "__name__", work))
                said = repr(error)
            await asyncio.sleep(POLL_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def bind(settings: Settings, *, alone: bool = False) -> socket.socket:
    """A listening socket for the gateway; with ``alone``, one that shares the port with nobody.

    Raises:
        OSError: the address is taken or is not ours.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not alone:
            # Also a single gateway: while one that hangs is being stopped, its successor answers.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(2048)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
