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
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from controlplane.access.client_keys import TOKEN, KeysOfHead
from controlplane.access.exposure import own_addresses
from controlplane.access.tls import FollowedCertificate
from controlplane.api.context import ApiContext
from controlplane.gateway.background import Background, in_turns
from controlplane.gateway.canaries.diversions import Diversions
from controlplane.gateway.canaries.feedback import Feedback
from controlplane.gateway.changes import Changes
from controlplane.gateway.counting.client_counters import OldKeyUse
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.asgi import LiveReads, build_asgi
from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.followed_keys import FollowedKeys
from controlplane.gateway.http.guarded import AsgiApp
from controlplane.gateway.knowledge import Knowledge
from controlplane.gateway.looks import Looks
from controlplane.gateway.neighbours.neighbourhood import Neighbourhood
from controlplane.gateway.neighbours.siblings import Siblings
from controlplane.gateway.on_demand_loads import OnDemandLoads
from controlplane.gateway.open_inference.protocol_views import ProtocolViews
from controlplane.gateway.open_inference.repository import Repository
from controlplane.gateway.protection.body_reader import BodyReader
from controlplane.gateway.protection.text_reader import TextReader
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.reports.control_loop import HeardOfLoop, loop_seen
from controlplane.gateway.reports.demand_report import DemandReport
from controlplane.gateway.reports.fleet_metrics import FleetSeen
from controlplane.gateway.reports.metrics import GatewayCollector, GatewaySeen
from controlplane.gateway.reports.process_metrics import process_metrics
from controlplane.gateway.reports.unanswered_tasks import unanswered_tasks
from controlplane.gateway.servers import Prepared, Servers
from controlplane.gateway.sharing.shares import Shares
from controlplane.gateway.tracing.watched import Traces
from controlplane.live_state import ENDING, LiveState
from controlplane.machine import rooms_here
from controlplane.settings import Settings
from controlplane.timestamps import timestamp
from controlplane.views.machines.core_shortage import reading
from controlplane.views.machines.keys_file import KeysStatus, keys_status
from planner.types import Candidate
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.core_time import CoreTime
from variants.errors import StateUnavailable
from variants.types import Event, WorkerId
from workers.host import settle_memory
from workers.process.release import release
from workers.types import WorkerStatus

if TYPE_CHECKING:
    from controlplane.gateway.grpc.service import Service
    from controlplane.gateway.tracing.sending import Sending

log = logging.getLogger(__name__)

POLL_S = 0.5
REPORT_S = 1.0
THREADS = 64
"""For what would hold up the event loop, made as they are needed. Readers of the control API wait
in them for a database that hangs: asyncio's own six, on two cores, were all taken by that, and
neither metrics nor keys were read. No more than fifteen reach the database at a time."""
FLUSH_S = 1.0
"""What sending the last traces may take when a gateway stops."""
PREPARE_S, PREPARE_TEXTS_S = 5.0, 1.0
"""How often it is seen to that the processes are there that read pictures and texts, where a task
takes any. Texts are seen to first: nobody can be answered without."""


class Gateway:
    """Answers queries on ``settings.host:port`` until ``stop``."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        store: ArtifactStore,
        secret: bytes,
        limits: ClientLimits | None = None,
        keys_of_head: Callable[[], KeysOfHead] | None = None,
        cluster: str = "",
    ) -> None:
        """
        Args:
            cluster: the session of the Ray cluster that it runs on, by which control loops know
                their own gateways.
        """
        self.id = uuid4().hex[:12]
        self.settings = settings
        self.catalog = catalog
        self.store = store
        self.live = LiveState(settings.live_url)
        self.path = QueryPath(loader=self.load)
        self.known = Knowledge(settings, catalog, store, secret, self.path, self._worker_left)
        self.shares = Shares(self.path)
        self.path.share = self.shares.take
        self._diversions = Diversions(self.path)
        self._loads = OnDemandLoads(self.known)
        self._report = DemandReport(self.id, self.path, self.known, cluster)
        self._siblings = Siblings(settings.run_dir, self.id, self.path.counters, self._forget_gone)
        self._feedback = Feedback(
            settings.run_dir, self.id, self.path.answers, self.path.counters, self.path.clock_ms,
            self.live if settings.ray_address else None,
        )  # fmt: skip
        self._neighbours: Neighbourhood | None = None
        self._certificate: FollowedCertificate | None = None
        self._keys: FollowedKeys | None = None
        self._keys_of_head = keys_of_head
        self._answering = {"catalog": True, "live_state": True}
        """As they did when they were last asked."""
        self._loop = HeardOfLoop()
        self._background = Background()
        self.servers = Servers(settings, self.path, limits)
        self._looks = Looks(self._refresh)
        self._changes = Changes(
            self.live, self._looks.look, self._may_have_others, self._background, self._feedback
        )
        self._starting = asyncio.Lock()
        self._stopped = False
        self.path.reader = self._reader = BodyReader()
        self.path.text_reader = self._texts = TextReader()
        self._prepares_texts = False
        """Whether what reads texts is to be there before the first text."""
        self.path.compresses = settings.compress_answers
        self._prepared: Prepared | None = None
        self._sending: Sending | None = None
        """Sends traces of queries, where a collector is named."""
        self.views = ProtocolViews(self.known, self.path, self.ready, self._siblings.total)
        self.path.variant_of = self.views.variant_of
        self._repository = Repository(self.views, self.path, self.known, catalog, settings)

    # -- life -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Do what takes ``start`` the longest, once and in any thread: the routes of the API, what
        answers gRPC, settled memory."""
        access = Access(self.settings, own_addresses())
        service = self._grpc_service(access) if self.settings.grpc_port else None
        self._prepared = Prepared(access, self._application(access), service)
        if self.settings.traces_url:
            self._trace()
        settle_memory()

    def _trace(self) -> None:
        """Have queries traced. Only here is OpenTelemetry imported."""
        from controlplane.gateway.tracing.sending import Sending

        settings, traces = self.settings, self.path.counters.traces
        try:
            sending = Sending(settings.traces_url, self.id, release(), traces)
        except Exception as error:  # of any kind: it reads variables of its own
            log.warning("no traces are made: OpenTelemetry refuses its settings: %s", error)
            return
        self._sending = sending
        share, clock_ms = settings.traces_share, self.path.clock_ms
        self.path.traces = Traces(share, clock_ms, sending.take, sending.dropped)

    async def start(self) -> None:
        """Listen, and return when queries are taken, or when ``stop`` was called.

        Raises:
            OSError: the address cannot be bound.
            InvalidInput: the certificate cannot be used.
            StateUnavailable: the catalog cannot be read.
        """
        async with self._starting:
            if not self._stopped:  # else what it needs may have ended with the loop's threads
                await self._start()

    async def _start(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "gateway"))
        certificate = None
        if self.settings.tls_cert:
            certificate = FollowedCertificate(self.settings.tls_cert, self.settings.tls_key)
            self._certificate = certificate
        listening = self.servers.bind()
        try:
            await self._looks.look()
        except StateUnavailable:
            listening.close()
            raise
        if self._stopped:
            listening.close()
            return
        self.known.meeting.begin()
        for work in (
            self._follow_catalog, self._follow_workers, self._follow_changes,
            self._changes.follow_questions, self._prepare_reader,
        ):  # fmt: skip
            self._background.repeat(work)
        if self._prepared is None:
            self.prepare()
        assert self._prepared is not None
        keys = FollowedKeys(
            self.settings.client_keys_path, self._prepared.access, self.path,
            head=self._keys_of_head,
        )  # fmt: skip
        await keys.look()
        self._keys = self._changes.keys = keys
        self._background.repeat(keys.follow)
        if certificate is not None:
            self._background.repeat(certificate.follow)
        server = await self.servers.start(self._prepared, certificate, listening)
        self._neighbours = Neighbourhood(
            self.settings.run_dir,
            self.id,
            server,
            self.path.counters,
            lambda: self.path.counters.busy.get(self.id, 0.0),
        )
        await self.servers.start_grpc()
        await self._siblings.start()
        await self._feedback.start()
        await self._neighbours.start()
        # Not before it listens: one that is ended until then would be missed.
        self._background.repeat(self._report_demand)
        self._background.repeat(self._pass_on)
        where = f"{self.settings.host}:{self.settings.port}"
        if self.settings.grpc_port:
            where += f", for gRPC on port {self.settings.grpc_port}"
        started = f"it listens on {where} (process {os.getpid()})"
        self._background.spawn(self._tell("gateway_started", started))

    def _grpc_service(self, access: Access) -> "Service":
        """What answers gRPC, where it is asked for. Only then is its library imported."""
        from controlplane.gateway.grpc.answers import Answers
        from controlplane.gateway.grpc.service import Service

        answers = Answers(self.views, self._repository).table()
        return Service(self.path, access, answers, self.servers.inflater)

    def check(self) -> None:
        """Raise when this gateway cannot answer any more."""
        self.servers.check()

    async def stop(self, *, others_stay: bool = True) -> None:
        """Answer what is in flight, then close everything.

        Args:
            others_stay: False where all gateways stop: no socket is handed over then.
        """
        if not others_stay:
            self.known.meeting.end()
        self._stopped = True
        async with self._starting:  # whoever has connected meanwhile is handed over as well
            await self._stop(others_stay)

    async def _stop(self, others_stay: bool) -> None:
        http = self.servers.http
        if self._neighbours is not None and http is not None and http.started:
            http.leaving = True
            await self._neighbours.leave()
            if others_stay:
                await http.leave(self._neighbours.give)
        await self.servers.stop()
        if self._sending is not None:
            await asyncio.to_thread(self._sending.close, FLUSH_S)
        await self._background.cancel(self._loads.under_way())
        await self._feedback.stop()
        await self._siblings.stop()
        self._reader.close()
        self._texts.close()
        self.servers.inflater.close()
        self.known.workers.close()
        await self._say_farewell()
        await self.live.close()
        await asyncio.to_thread(self.catalog.close)

    def _application(self, access: Access) -> AsgiApp:
        """The ASGI application for everything but queries."""
        context = ApiContext(
            catalog=self.catalog,
            store=self.store,
            settings=self.settings,
            live=LiveReads(
                self.live,
                self.known.seen_workers,
                self._siblings.total,
                access,
                own=lambda: {self.id: self._report.outcomes()},
                whole=self.statuses,
                unload=self.known.workers.unload,
                drain=self.known.workers.drain,
                core_times=self.core_times,
            ),
            certificate_ends_s=self._certificate_ends_s,
            keys_status=self._keys_status,
            unanswered=lambda: unanswered_tasks(
                self.path.tasks, self.path.foreseen, self.path.clock_ms()
            ),
        )
        return build_asgi(
            context, self.path, self.views, self._repository, access, self._collector,
            self.servers.max_body, self.servers.inflater, self._feedback,
            self._changes.known_everywhere,
        )  # fmt: skip

    async def _collector(self) -> GatewayCollector:
        """The metrics of all gateways that share the port, to be read in any thread."""
        total = await self._siblings.total()
        self._forget_gone(total)
        known, statuses = self.known, self.statuses()
        fleet = FleetSeen(
            workers=statuses,
            wanted=known.wanted_workers,
            slow=known.slow.slow,
            silent_s=known.workers.silent_s(),
            round_trips_ms={id_: one.view.round_trip_ms for id_, one in known.workers.items()},
        )
        seen = GatewaySeen(
            revision=self.path.snapshot.revision,
            tasks=tuple(known.tasks),
            answering=dict(self._answering),
            fleet=fleet,
            certificate_ends_s=self._certificate_ends_s(),
            old_keys=self._old_keys(total),
            core_times=await self.core_times(),
            loop=await loop_seen(self._loop, known.catalog, statuses, frozen=known.frozen),
            rooms=await asyncio.to_thread(rooms_here, self.settings),
            processes=await asyncio.to_thread(process_metrics, self.id),
        )
        return GatewayCollector(total, seen)

    def _forget_gone(self, total: Counters) -> None:
        """Leave out what has left the catalog, and is not counted here either: what gateways that
        stopped have left speaks of all that they ever knew."""
        own = self.path.counters.tasks
        total.forget_tasks({*self.known.tasks, *own})
        for name, task in total.tasks.items():
            counted = own[name].variants if name in own else ()
            there = (one for one in task.variants if (name, one) in self.known.variants)
            task.forget_variants({*there, *counted})

    def _old_keys(self, total: Counters) -> dict[str, OldKeyUse]:
        """How the older key of each client that has two is used, and the operator's older token, by
        the gateways of this machine."""
        assert self._prepared is not None
        clients = self._prepared.access.clients
        found = {
            name: total.client(name).old_keys.uses.get(digest)
            for name, digest in clients.old_keys.items()
        }
        if clients.old_token:
            found[TOKEN] = total.old_tokens.uses.get(clients.old_token)
        return {name: use for name, use in found.items() if use is not None}

    def _keys_status(self) -> KeysStatus:
        """Whether the file of clients' keys can be read."""
        return keys_status("", known=True) if self._keys is None else self._keys.status

    def _certificate_ends_s(self) -> float | None:
        """When the certificate ends that clients are shown now, as Unix time; None without TLS."""
        return None if self._certificate is None else self._certificate.ends_s

    # -- what others ask ------------------------------------------------------------------------

    def statuses(self) -> list[WorkerStatus]:
        """What the workers last said, over this gateway's own connections."""
        return self.known.workers.statuses()

    async def core_times(self) -> list[CoreTime]:
        """How the time of cores was used lately, as this gateway, the others and the workers say;
        without the live state, the others do not."""
        found = [self._report.cores.look(), *(status.core_time for status in self.statuses())]
        with contextlib.suppress(StateUnavailable):
            others = await self.live.gateways()
            found += [
                reading(one.get("core_time")) for id_, one in others.items() if id_ != self.id
            ]
        return [one for one in found if one is not None]

    def ready(self) -> bool:
        """Whether requests are taken: the catalog was read, and nothing is being stopped.

        Whether a task can be answered is another question: on an empty catalog the first model is
        registered through a gateway that is ready and has no task.
        """
        stopping = self.servers.stopping or self.known.meeting.ending
        return self.known.catalog.revision >= 0 and not stopping

    def load(
        self,
        candidate: Candidate,
        worker: WorkerId,
        slack_ms: float | None,
        need: str = "",
    ) -> "asyncio.Future[None]":
        """Load a variant on a worker for queries that ask for it (``OnDemandLoads.load``)."""
        return self._loads.load(candidate, worker, slack_ms, need)

    # -- what it follows ------------------------------------------------------------------------

    async def _follow_catalog(self) -> None:
        self.known.refresh_hour(time())
        await in_turns(self.known.refresh_latencies(monotonic()))
        with self._noted("catalog"):
            await self._looks.look()
            if self._prepares_texts:
                self._texts.prepare(self.path.tasks)
        await self._background.pause(POLL_S)

    async def _prepare_reader(self) -> None:
        """Some time after the start, which has the processor for itself; of texts soon."""
        await asyncio.sleep(PREPARE_TEXTS_S)
        self._prepares_texts = True
        self._texts.prepare(self.path.tasks)
        await asyncio.sleep(PREPARE_S - PREPARE_TEXTS_S)
        self._reader.prepare(self.path.tasks)

    async def _refresh(self) -> None:
        marks = await self.known.marks()
        if await self.known.refresh_catalog(marks):
            self._loads.forget_failures()
            self.shares.follow(self.known.catalog)
            self._diversions.follow(self.known.catalog.canaries)
            self.path.canaries = self._diversions if self._diversions else None
        await self.known.refresh_plan(marks)
        self.known.refresh_wanted(marks.inventory, await self._nodes())

    async def _nodes(self) -> Mapping[str, Any] | None:
        """What the control loop tells of a cluster's nodes."""
        with contextlib.suppress(StateUnavailable):
            return await self.live.nodes() if self.settings.ray_address else None
        return None

    async def _follow_workers(self) -> None:
        meeting = self.known.meeting
        try:
            directory = await self.live.workers()
        except StateUnavailable:
            meeting.unreadable()
            raise
        if directory is not None:
            listed = {WorkerId(one["id"]): str(one["address"]) for one in directory["workers"]}
            for worker, address in self.known.workers.listed(listed).items():
                self._background.spawn(self._meet(worker, address))
            meeting.read(listed)
        await self._background.pause(POLL_S)

    async def _meet(self, worker: WorkerId, address: str) -> None:
        try:
            await self.known.workers.connect(worker, address)
        finally:
            self.known.meeting.tried(worker)

    def _worker_left(self, worker: WorkerId) -> None:
        self._loads.forget_failures(worker)

    async def _follow_changes(self) -> None:
        async for what in self.live.changes():
            if what == ENDING:
                self.known.meeting.end()
            self._background.wake()

    def _may_have_others(self) -> bool:
        """Whether other gateways of this installation may run."""
        return bool(self.settings.ray_address) or not self._siblings.alone()

    # -- what it tells --------------------------------------------------------------------------

    async def _report_demand(self) -> None:
        """Tell the control loop, through the live state, what was asked here."""
        self.shares.sweep()
        report = self._report.make()
        with self._noted("live_state"):
            told = await self.live.put_gateway(self.id, report)
            if sample := self._report.sample():
                await self.live.put_history(sample)
            self._loop.hear(told)
        self.known.meeting.hear_of_starts(self._loop.told, self._loop.silent_s())
        self.known.hear_of_measuring(self._loop.told)
        self.known.hear_of_accuracies(self._loop.told)
        await asyncio.sleep(REPORT_S)

    async def _pass_on(self) -> None:
        """Pass connections on where other gateways of the machine have less to do."""
        if self._neighbours is not None:
            await self._neighbours.look()
        await asyncio.sleep(REPORT_S)

    @contextlib.contextmanager
    def _noted(self, of: str) -> Iterator[None]:
        """Note whether what is asked within answers."""
        try:
            yield
        except StateUnavailable:
            self._answering[of] = False
            raise
        self._answering[of] = True

    async def _say_farewell(self) -> None:
        """Tell that this gateway was told to stop: else it would be taken for lost.

        Of one that was stopped before it listened nobody has heard.
        """
        if self.servers.serving is None:
            return
        with contextlib.suppress(StateUnavailable):
            await self.live.put_gateway(self.id, {**self._report.latest, "leaving": True})
            if sample := self._report.sample(last=True):
                await self.live.put_history(sample)
        await self._tell("gateway_stopped", "it was told to stop and has answered its last queries")

    async def _tell(self, kind: str, message: str) -> None:
        """Log and store an event about this gateway; without the database it is logged alone."""
        log.info("%s %s: %s", kind, self.id, message)
        event = Event(at=timestamp(), kind=kind, subject=self.id, message=message)
        try:
            await asyncio.to_thread(self.catalog.add_event, event)
        except StateUnavailable as error:
            log.warning("%s cannot be told: %s", kind, error)
