"""The gateway: one process that answers queries and keeps itself informed.

It owns a query path, a connection to every worker, and the control API. What it knows comes from
three places, none of them on the query path: the catalog (polled by revision), the directory of
workers in the live state (announced and polled), and the workers themselves, which say on their
connections what they hold. When catalog or live state are gone, it goes on with what it has.
"""

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import uuid4

import uvicorn

from controlplane.access import Access
from controlplane.front import front_factory
from controlplane.live import LiveState
from controlplane.metrics import GatewayCollector
from controlplane.path import QueryPath
from controlplane.settings import Settings
from controlplane.specs import Specs
from controlplane.surface import build_surface
from planner.snapshot import build_snapshot
from planner.types import Candidate, WorkerView
from variants.artifacts import ArtifactStore
from variants.catalog import Catalog
from variants.errors import ModellessError, ReplicaLost, StateUnavailable
from variants.types import CatalogSnapshot, DeviceKindName, ReplicaState, WorkerId
from workers.channel import WorkerConnection
from workers.types import WorkerStatus

log = logging.getLogger(__name__)

POLL_S = 0.5
REPORT_S = 1.0
LOAD_TIMEOUT_S = 120.0


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
        self._loads: dict[tuple[str, str, str], asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._demand: dict[str, int] = {}

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and return when queries are taken.

        Raises:
            OSError: the address cannot be bound.
            StateUnavailable: the catalog cannot be read.
        """
        listening = bind(self.settings)
        await self._refresh_catalog()
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
        calm_collector()

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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links.values():
            if link.connection is not None:
                link.connection.close()
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
            running = asyncio.ensure_future(self._load(candidate, worker))
            self._loads[key] = running
            running.add_done_callback(lambda _: self._loads.pop(key, None))
        return running

    async def _load(self, candidate: Candidate, worker: WorkerId) -> None:
        link = self.links.get(worker)
        if link is None or link.connection is None:
            raise ReplicaLost(f"worker {worker} is gone")
        spec = self._specs.of_candidate(candidate)
        await link.connection.load(spec, LOAD_TIMEOUT_S, make_room=True)

    # -- what it follows ------------------------------------------------------------------------

    async def _follow_catalog(self) -> None:
        await self._refresh_catalog()
        await self._pause(POLL_S)

    async def _refresh_catalog(self) -> None:
        revision = await asyncio.to_thread(self.catalog.revision)
        if revision != self.known.revision:
            self.known = await asyncio.to_thread(self.catalog.snapshot)
            self._specs = Specs(self.known, self.store)
            self.path.tasks = {task.name: task for task in self.known.tasks}
            self._rebuild()

    async def _follow_workers(self) -> None:
        directory = await self.live.workers()
        if directory is not None:
            await self._connect({worker["id"]: worker for worker in directory["workers"]})
        await self._pause(POLL_S)

    async def _follow_changes(self) -> None:
        async for _ in self.live.changes():
            self._wake.set()

    async def _connect(self, directory: dict[str, dict[str, str]]) -> None:
        missing = [w for id_, w in directory.items() if WorkerId(id_) not in self.links]
        for worker in missing:
            await self._open(worker)

    async def _open(self, worker: dict[str, str]) -> None:
        id_ = WorkerId(worker["id"])
        link = Link(WorkerView(id=id_, device_kind=DeviceKindName(worker["device_kind"])))

        def on_status(status: WorkerStatus) -> None:
            if link.learn(status) and self.links.get(id_) is link:
                self._rebuild()

        def on_lost(reason: str) -> None:
            if self.links.get(id_) is link:
                log.warning("worker %s is gone: %s", id_, reason)
                del self.links[id_]
                self.path.connections.pop(id_, None)
                self._rebuild()

        try:
            connection = await WorkerConnection.open(
                worker["address"], self._secret, on_status=on_status, on_lost=on_lost
            )
        except ModellessError as error:
            # Normal for a moment after a worker died: the directory is a tick old.
            log.info("worker %s cannot be reached: %s", id_, error)
            return
        link.connection = connection
        link.learn(connection.status)
        self.links[id_] = link
        self.path.connections[id_] = connection
        self._rebuild()

    def _rebuild(self) -> None:
        """Make the snapshot that the next query is chosen from."""
        self.path.snapshot = build_snapshot(
            self.known, [(link.view, link.ready) for link in self.links.values()]
        )

    async def _report(self) -> None:
        """Tell the control loop, through the live state, what was asked here."""
        for (task, latency_ms, accuracy), rows in self.path.take_demand().items():
            key = f"{task}|{latency_ms!r}|{'' if accuracy is None else repr(accuracy)}"
            self._demand[key] = self._demand.get(key, 0) + rows
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
        report = {"demand": self._demand, "tasks": tasks, "in_flight": counters.in_flight}
        await self.live.put_gateway(self.id, report)
        await asyncio.sleep(REPORT_S)

    # -- tasks ----------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until something is announced."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        self._wake.clear()

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat; a state that is gone is waited for, anything else is logged and survived."""
        silent = False
        while True:
            try:
                await work()
                silent = False
            except StateUnavailable as error:
                if not silent:
                    log.warning("going on with what is known: %s", error)
                silent = True
                await asyncio.sleep(POLL_S)
            except Exception:
                log.exception("%s failed", getattr(work, "__name__", work))
                await asyncio.sleep(POLL_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def bind(settings: Settings) -> socket.socket:
    """A listening socket for the gateway.

    Raises:
        OSError: the address is taken or is not ours.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.gateways > 1:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(2048)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def calm_collector() -> None:
    """Take what start-up made out of the garbage collector's sight.

    Full collections over a few hundred thousand long-lived objects are most of the tail of Python
    servers; queries here make almost no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
