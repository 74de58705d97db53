"""A small installation without Ray: worker processes, a live state, a catalog of echo variants."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx

from controlplane.cluster.kinds.node import Node
from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.loop import ControlLoop
from controlplane.controller.met_workers.worker_pool import WorkerPool
from controlplane.controller.nodes.node_counts import NodeAutoscaler
from controlplane.gateway.gateway import Gateway
from controlplane.live_state import LiveState
from controlplane.settings import Settings, load_settings
from controlplane.startup.valkey import EmbeddedValkey
from planner.types import Decision
from tests.controlplane.builders import DIGITS
from tests.workers import forked
from tests.workers.channel.detour import Detour
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Catalog
from variants.errors import StateUnavailable
from variants.types import (
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Precision,
    Profile,
    Registration,
    ReplicaState,
    Stage,
    Variant,
    VariantName,
)
from workers.channel.secret import ensure_secret, read_secret
from workers.types import WorkerConfig, WorkerStatus

KIND = DeviceKindName("cpu-1")
CPU = DeviceKind(name=KIND, cores=1, memory_mib=100.0, usd_per_hour=0.04)
TICK_S = 0.1


async def eventually(
    condition: Callable[[], object], what: str = "", *, timeout_s: float = 120.0
) -> None:
    """Return once a condition, which may be asynchronous, is true."""
    deadline_s = monotonic() + timeout_s
    while True:
        found = condition()
        if await found if isinstance(found, Awaitable) else found:
            return
        assert monotonic() < deadline_s, f"not within {timeout_s} s: {what or condition}"
        await asyncio.sleep(0.02)


def register_echo(
    catalog: Catalog,
    store: FileArtifactStore,
    folder: Path,
    model: str,
    *,
    memory_mib: float = 10.0,
    profiled_ms: float = 1.0,
    **options: str,
) -> VariantName:
    """Register a live model of ``digits`` with one echo variant; the variant's name."""
    point = LatencyPoint(batch_size=1, p50_ms=profiled_ms, p95_ms=profiled_ms, p99_ms=profiled_ms)
    source = folder / f"{model}.txt"
    source.write_text(model)
    artifact = store.put(source)
    name = VariantName(f"{model}-v1-echo-fp32")
    variant = Variant(
        task=DIGITS.name,
        name=name,
        model=ModelName(model),
        version=1,
        runtime="echo",
        precision=Precision.FP32,
        artifact=artifact,
        size_bytes=len(model),
        accuracy=0.9,
        accuracy_rows=100,
        options=options,
    )
    catalog.register(
        Registration(
            task=DIGITS,
            version=ModelVersion(
                task=DIGITS.name,
                model=ModelName(model),
                version=1,
                stage=Stage.LIVE,
                source=artifact,
            ),
            variants=(variant,),
            profiles=(
                Profile(
                    task=DIGITS.name,
                    variant=name,
                    device_kind=KIND,
                    points=(point,),
                    memory_mib=memory_mib,
                    load_s=0.1,
                ),
            ),
            device_kinds=(CPU,),
        )
    )
    return name


class FailingCatalog:
    """A catalog whose every method raises while ``away``."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        self.catalog = catalog
        self.away = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.catalog, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if self.away and name != "close":
                raise StateUnavailable("the catalog is away")
            return method(*arguments, **named)

        return call


class CountingCatalog(FailingCatalog):
    """Counts how often each of its methods is asked for."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        super().__init__(catalog)
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return super().__getattr__(name)


@dataclass(slots=True)
class _Worker:
    id: str
    process: forked.Forked
    address: str = ""
    leaving: bool = False


class LocalCluster:
    """Worker processes on this machine, kept at a number as Ray Serve keeps replicas."""

    def __init__(
        self,
        folder: Path,
        secret_path: Path,
        count: int,
        *,
        kind: DeviceKindName = KIND,
        names: str = "w",
    ) -> None:
        """``names`` is what those of the workers begin with."""
        self._kind, self._names = kind, names
        self._config = WorkerConfig(
            device_kind=kind,
            cores=1,
            memory_mib=CPU.memory_mib,
            run_dir=str(folder),
            secret_path=str(secret_path),
            quarantine_dir=str(folder / "quarantine"),
        )
        self._workers: list[_Worker] = []
        self._reading: set[asyncio.Task[None]] = set()
        self._started = 0
        self._spawning = asyncio.Lock()
        self.count = count
        self.scaled: list[int] = []
        self.kept: list[int] = []
        """Cores that were kept for one more, each time that changed."""
        self.failed_start = ""
        """Why no worker starts any more; empty where they do."""
        self.gateways = 1
        self.zones: dict[str, str] = {}
        """By worker; set before it is started."""
        self.detours: dict[str, Detour] = {}
        """By worker, the way on which all others reach it."""

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        if self._kind not in set(kinds):
            return []
        await self._keep()
        return [
            WorkerAddress(id=worker.id, address=self._reached(worker), device_kind=self._kind)
            for worker in self._workers
            if worker.address and not worker.leaving and worker.process.returncode is None
        ]

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]:
        return {self._kind: self.count} if self._kind in set(kinds) else {}

    async def failed_starts(self, kinds: Iterable[str]) -> dict[str, str]:
        return {self._kind: self.failed_start} if self.failed_start else {}

    async def lend_room(self, cores: int, given: int) -> None:
        self.kept.append(cores)

    async def scale(self, kind: str, count: int) -> None:
        assert kind == self._kind
        self.scaled.append(count)
        self.count = count

    async def nodes(self) -> tuple[Node, ...]:
        return ()

    async def end_worker(self, worker: str, kind: str) -> None:
        assert kind == self._kind
        self.kill(worker)

    async def scale_gateways(self, count: int) -> None:
        self.gateways = count

    def kill(self, worker: str) -> None:
        """End a worker at once, without a word. It is listed no more."""
        killed = next(w for w in self._workers if w.id == worker)
        killed.leaving = True
        killed.process.kill()

    def signal(self, worker: str, number: int) -> None:
        """Send a signal to a worker, which stays listed."""
        next(w for w in self._workers if w.id == worker).process.send_signal(number)

    async def close(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()
            await worker.process.wait()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _reached(self, worker: _Worker) -> str:
        detour = self.detours.get(worker.id)
        return worker.address if detour is None else detour.to(worker.address)

    async def _keep(self) -> None:
        async with self._spawning:
            self._workers = [w for w in self._workers if w.process.returncode is None]
            staying = [w for w in self._workers if not w.leaving]
            for worker in staying[self.count :]:
                worker.leaving = True
                worker.process.terminate()
            for _ in range(0 if self.failed_start else self.count - len(staying)):
                await self._spawn()

    async def _spawn(self) -> None:
        self._started += 1
        id_ = f"{self._names}{self._started}"
        config = replace(self._config, zone=self.zones.get(id_, ""))
        process = await forked.worker(
            "--id", id_, "--drain-s", "1", "--config", json.dumps(asdict(config))
        )
        worker = _Worker(id_, process)
        self._workers.append(worker)
        task = asyncio.create_task(self._read(worker))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, worker: _Worker) -> None:
        worker.address = (await worker.process.stdout.readline()).decode().strip()
        await worker.process.stdout.read()


class SeenLoop(ControlLoop):
    """A control loop that shows what a turn saw, once that is over and gateways know it too."""

    def __init__(self, fleet: "Fleet", **arguments: Any) -> None:
        super().__init__(**arguments)
        self._fleet = fleet

    async def turn(self) -> Decision:
        decision = await super().turn()
        if not self._journal.troubled("live state"):
            self._fleet.seen = tuple(self._workers.values())
        self._fleet.turns += 1
        return decision


class Controller:
    """A control loop that runs in a task."""

    def __init__(
        self,
        fleet: "Fleet",
        *,
        live: LiveState | None = None,
        catalog: Catalog | None = None,
        pool_of: Callable[[bytes, Callable[[], None]], WorkerPool] = WorkerPool,
        autoscaler: NodeAutoscaler | None = None,
    ) -> None:
        self.loop = SeenLoop(
            fleet,
            settings=fleet.settings,
            catalog=catalog or fleet.catalog,
            store=fleet.store,
            live=live or fleet.live,
            cluster=fleet.cluster,
            secret=fleet.secret,
            owner="test",
            pool_of=pool_of,
            autoscaler=autoscaler,
        )
        self.task = asyncio.create_task(self.loop.run())

    async def stop(self) -> None:
        """Cancel it, once; it has to end."""
        self.task.cancel()
        _, alive = await asyncio.wait([self.task], timeout=60)
        assert not alive, self.task.get_stack()


@dataclass
class Fleet:
    """All that a control loop and a gateway need."""

    settings: Settings
    catalog: Catalog
    store: FileArtifactStore
    valkey: EmbeddedValkey
    live: LiveState
    cluster: LocalCluster
    secret: bytes
    folder: Path
    controllers: list[Controller] = field(default_factory=list)
    seen: tuple[WorkerStatus, ...] = ()
    """What workers said in the latest turn of any control loop."""
    turns: int = 0
    """How many turns of control loops have ended."""

    def register(
        self, model: str, *, memory_mib: float = 10.0, profiled_ms: float = 1.0, **options: str
    ) -> VariantName:
        """Register a live model of ``digits`` with one echo variant; the variant's name."""
        return register_echo(
            self.catalog,
            self.store,
            self.folder,
            model,
            memory_mib=memory_mib,
            profiled_ms=profiled_ms,
            **options,
        )

    def control(self, **changes: Any) -> Controller:
        controller = Controller(self, **changes)
        self.controllers.append(controller)
        return controller

    async def directory(self) -> list[str]:
        """Ids of the workers that are published; empty when nothing is."""
        found = await self.live.workers()
        return sorted(worker["id"] for worker in found["workers"]) if found else []

    def ready(self) -> dict[str, list[str]]:
        """Variants that are ready, by worker, as a control loop last saw it."""
        return {
            status.worker: sorted(
                str(one.variant) for one in status.replicas if one.state is ReplicaState.READY
            )
            for status in self.seen
        }

    async def until_ready(self, **wanted: Sequence[str]) -> None:
        held = {id_: list(names) for id_, names in wanted.items()}
        await eventually(lambda: self.ready() == held, f"workers hold {wanted}")

    def kinds_of_events(self) -> list[str]:
        """Kinds of all events but new plans, of which each may have one; oldest first."""
        kinds = [event.kind for event in reversed(self.catalog.events(1_000))]
        return [kind for kind in kinds if kind != "planned"]


@asynccontextmanager
async def fleet(
    folder: Path,
    *,
    workers: int = 1,
    catalog: Catalog | None = None,
    port: int = 8000,
    **changes: Any,
) -> AsyncIterator[Fleet]:
    """An installation with nothing registered and no controller; afterwards nothing is left."""
    settings = load_settings(
        grpc_port=0,
        state_dir=folder,
        redis_url=f"unix://{folder / 'run' / 'valkey.sock'}",
        host="127.0.0.1",
        port=port,
        cores=workers,
        workers=workers,
        tick_s=TICK_S,
        **changes,
    )
    settings.run_dir.mkdir(mode=0o700)
    ensure_secret(settings.secret_path)
    valkey = EmbeddedValkey(settings.run_dir)
    valkey.start()
    cluster = LocalCluster(settings.run_dir, settings.secret_path, workers)
    made = Fleet(
        settings=settings,
        catalog=catalog or MemoryCatalog(),
        store=FileArtifactStore(settings.artifacts_dir),
        valkey=valkey,
        live=LiveState(valkey.url),
        cluster=cluster,
        secret=read_secret(settings.secret_path),
        folder=folder,
    )
    try:
        yield made
    finally:
        try:
            for controller in made.controllers:
                await controller.stop()
        finally:
            await made.cluster.close()
            await made.live.close()
            valkey.stop()


@asynccontextmanager
async def gateway(
    it: Fleet, timeout_s: float = 60
) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    """A gateway in front of a fleet, and a client of it that waits so long for an answer."""
    made = Gateway(it.settings, it.catalog, it.store, it.secret)
    await made.start()
    url = f"http://127.0.0.1:{it.settings.port}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=timeout_s) as client:
            yield made, client
    finally:
        await made.stop()
