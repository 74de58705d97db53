"""A gateway as it runs, without Ray: real HTTP server, real Valkey, real workers, raw sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from controlplane.gateway.gateway import Gateway
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.http.guarded import AsgiApp, Message, Receive, Send
from controlplane.live_state import LiveState
from controlplane.load_specs import Specs
from controlplane.settings import load_settings
from tests.ports import free_port
from tests.workers import builders as workers
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Precision,
    Profile,
    Registration,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    TextInput,
    Variant,
    VariantName,
    WorkerId,
)
from workers.host import WorkerHost

TASK = Task(
    name=TaskName("letters"),
    inputs=(TensorSpec(name="x", dtype="float32", shape=(4,)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(4,)),),
    labels=("a", "b", "c", "d"),
    slo=Slo(latency_ms=60_000.0),
)
"""Its queries have a minute: whether they are answered must not depend on what else keeps the
machine busy. A test of deadlines says its own."""
KIND = DeviceKind(name=DeviceKindName("cpu-1"), cores=1, memory_mib=100.0, usd_per_hour=3.6)

ANSWER_S = 90.0
"""How long a client waits for an answer; more than any query may take."""

FAST = "fast-v1-echo-fp32"
"""Echoes at once; 90 % accurate."""
SLOW = "slow-v1-echo-fp32"
"""Echoes after the time that its profile says, 40 ms; 99 % accurate."""
LATE = "late-v1-echo-fp32"
"""Promises 1 ms and takes 150; 97 % accurate."""
DOUBLE = "double-v1-onnx-fp32"
"""An ONNX model that doubles; 95 % accurate."""

FIELDS = [
    "variant", "model_version", "worker", "batch_size", "queue_ms", "run_ms", "accuracy",
    "cost_usd_per_1k", "slo_met",
]  # fmt: skip
"""What a reply says of how it was made, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A variant of the catalog: one row takes ``p95_ms``, eight take twice as long."""

    name: str
    accuracy: float
    p95_ms: float
    load_s: float = 0.1
    options: Mapping[str, str] = field(default_factory=dict)
    energy_j: float | None = None
    """Of any batch."""
    text: TextInput | None = None
    """How texts become rows of its version, where that has its own tokenizer."""
    tokenizer: bytes | None = None


KNOWN = (
    Known(name=FAST, accuracy=0.90, p95_ms=1.0),
    Known(name=SLOW, accuracy=0.99, p95_ms=40.0, options={"latency_ms": "40"}),
    Known(name=LATE, accuracy=0.97, p95_ms=1.0, options={"latency_ms": "150"}),
    Known(name=DOUBLE, accuracy=0.95, p95_ms=2.0),
)


def filled(
    catalog: MemoryCatalog,
    store: FileArtifactStore,
    model: Path,
    variants: Sequence[Known],
    task: Task = TASK,
) -> None:
    """Register variants, one model each with an artifact of its own."""
    for known in variants:
        name, _, runtime, _ = known.name.split("-")
        artifact = store.put(model) if runtime == "onnx" else store.put_pieces([name.encode()])
        catalog.register(
            Registration(
                task=task,
                version=ModelVersion(
                    task=task.name,
                    model=ModelName(name),
                    version=1,
                    stage=Stage.LIVE,
                    source=artifact,
                    created_at="2026-01-01T00:00:00+00:00",
                    text=known.text,
                ),
                variants=(
                    Variant(
                        task=task.name,
                        name=VariantName(known.name),
                        model=ModelName(name),
                        version=1,
                        runtime=runtime,
                        precision=Precision.FP32,
                        artifact=artifact,
                        size_bytes=1_000,
                        accuracy=known.accuracy,
                        accuracy_rows=100,
                        options=known.options,
                    ),
                ),
                profiles=(
                    Profile(
                        task=task.name,
                        variant=VariantName(known.name),
                        device_kind=KIND.name,
                        points=tuple(
                            LatencyPoint(
                                batch_size=rows,
                                p50_ms=ms,
                                p95_ms=ms,
                                p99_ms=ms,
                                energy_j=known.energy_j,
                            )
                            for rows, ms in ((1, known.p95_ms), (8, 2 * known.p95_ms))
                        ),
                        memory_mib=10.0,
                        load_s=known.load_s,
                    ),
                ),
                device_kinds=(KIND,),
                tokenizer=known.tokenizer,
            )
        )


@dataclass(slots=True, kw_only=True)
class Served:
    """A running gateway and what stands behind it."""

    gateway: Gateway
    folder: Path
    port: int
    addresses: dict[str, str] = field(default_factory=dict)
    task: Task = TASK
    stack: AsyncExitStack

    async def worker(self, name: str, *loaded: str, **config: Any) -> WorkerHost:
        """A worker on this loop that holds some variants and is connected."""
        folder = self.folder / name
        folder.mkdir()
        host = WorkerHost(workers.config(folder, secret_path=str(self.secret), **config), name)
        address = await host.start()
        self.stack.push_async_callback(host.drain_and_stop, 1.0)
        await self.join(name, address, *loaded)
        return host

    async def process(
        self, name: str, *loaded: str, ledger: bool = False
    ) -> asyncio.subprocess.Process:
        """The same in a process of its own; with a ``ledger`` of crashes that all share."""
        folder = self.folder / name
        folder.mkdir()
        kept = {"quarantine_dir": str(self.folder / "quarantine")} if ledger else {}
        config = workers.config(folder, secret_path=str(self.secret), **kept)
        child, address = await self.stack.enter_async_context(workers.process(config, name))
        await self.join(name, address, *loaded)
        return child

    async def join(self, name: str, address: str, *loaded: str) -> None:
        self.addresses[name] = address
        known = [
            {"id": id_, "address": where, "device_kind": KIND.name}
            for id_, where in self.addresses.items()
        ]
        await self.gateway.live.put_workers(1, known)
        await until(lambda: WorkerId(name) in self.gateway.known.workers)
        connected = self.gateway.known.workers[WorkerId(name)]
        specs = Specs(self.gateway.catalog.snapshot(), self.gateway.store)
        for variant in loaded:
            await connected.connection.load(specs.of(self.task.name, variant, KIND.name), 10.0)
        await until(lambda: {(self.task.name, variant) for variant in loaded} <= connected.ready)
        self.gateway.path.renew()  # on a busy machine that may come later

    @property
    def secret(self) -> Path:
        return self.folder / "secret"

    @property
    def in_flight(self) -> int:
        return self.gateway.path.counters.in_flight

    def damage(self, variant: str) -> bytes:
        """Change a byte in the middle of a stored artifact; what was there."""
        path = self.artifact(variant)
        whole = path.read_bytes()
        at = len(whole) // 2
        path.chmod(0o644)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        return whole

    def artifact(self, variant: str) -> Path:
        known = self.gateway.catalog.snapshot().variants
        return self.gateway.store.place(next(v.artifact for v in known if v.name == variant))

    async def client(self) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.stack.callback(writer.close)
        return Client(reader, writer)

    async def ask(self, body: Any = None, **changes: Any) -> "Answer":
        """One ``POST`` on a connection of its own; a body that is not bytes is sent as JSON."""
        return await (await self.client()).ask(body, **changes)

    async def get(self, path: str, **changes: Any) -> "Answer":
        client = await self.client()
        client.send(request("GET", path, None, **changes))
        return await client.answer()


class QuickGateway(Gateway):
    """Makes its control API when somebody asks it something: that takes a tenth of a second, and
    most tests ask queries only."""

    def _application(self, access: Access) -> AsgiApp:
        made: list[AsgiApp] = []

        async def lifespan(scope: Message, receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            if made:  # it ends what it does in the background
                told = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
                await made[0](scope, partial(_next, told), _unheard)
            await send({"type": "lifespan.shutdown.complete"})

        async def application(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await lifespan(scope, receive, send)
                return
            if not made:
                made.append(Gateway._application(self, access))
            await made[0](scope, receive, send)

        return application


async def _next(messages: Iterator[Message]) -> Message:
    return next(messages)


async def _unheard(_: Message) -> None:
    pass


@asynccontextmanager
async def serving(
    folder: Path,
    live_url: str,
    *,
    limits: ClientLimits | None = None,
    known: Sequence[Known] = KNOWN,
    task: Task = TASK,
    **settings: Any,
) -> AsyncIterator[Served]:
    """A gateway over a filled catalog, without workers yet. ``folder`` has a short path."""
    catalog = MemoryCatalog()
    store = FileArtifactStore(folder / "artifacts")
    filled(catalog, store, workers.double_model(folder / "double.onnx"), known, task)
    port = free_port()
    live = LiveState(live_url)
    await live.put_workers(1, [])
    await live.close()
    settings = {"grpc_port": 0, **settings}
    given = load_settings(state_dir=folder, port=port, redis_url=live_url, **settings)
    secret = workers.secret_of(workers.config(folder))
    gateway = QuickGateway(given, catalog, store, secret, limits)
    async with AsyncExitStack() as stack:
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        yield Served(gateway=gateway, folder=folder, port=port, task=task, stack=stack)


until = workers.until


# -- the client's side --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code and text of an error, whose form is checked on the way."""
        assert self.headers["content-type"] == "application/json"
        body = self.json
        assert set(body) >= {"error", "code", "retryable", "request_id"}
        assert body["request_id"]
        return self.status, body["code"], body["error"]


class Client:
    """A connection that says exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, head: bool = False) -> Answer:
        """The next answer; ``head`` says that it has no body whatever its length says."""
        async with asyncio.timeout(ANSWER_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            pairs = [line.split(": ", 1) for line in lines[1:] if line]
            headers = {name.lower(): value for name, value in pairs}
            length = 0 if head else int(headers.get("content-length", 0))
            body = await self.reader.readexactly(length)
        return Answer(status=int(lines[0].split(" ")[1]), headers=headers, body=body)

    async def ended(self) -> bytes:
        """What still comes until the gateway closes the connection."""
        async with asyncio.timeout(ANSWER_S):
            return await self.reader.read()

    async def ask(self, body: Any = None, **changes: Any) -> Answer:
        self.send(post(body, **changes))
        return await self.answer()


def request(
    method: str,
    path: str,
    body: bytes | None,
    *,
    headers: Sequence[tuple[str, str]] = (),
    host: str | None = "localhost",
) -> bytes:
    """A request on the wire."""
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def post(body: Any = None, *, path: str = "/v1/query", **changes: Any) -> bytes:
    if not isinstance(body, bytes):
        body = json.dumps(query() if body is None else body).encode()
    return request("POST", path, body, **changes)


def query(*values: float, **changes: Any) -> dict[str, Any]:
    """A query of one row that begins with the given numbers, pinned to ``FAST``."""
    row = [*values, *[0.0] * (4 - len(values))]
    fields: dict[str, Any] = {"task": "letters", "inputs": [row], "variant": FAST, **changes}
    return {name: value for name, value in fields.items() if value is not None}


def infer(**changes: Any) -> dict[str, Any]:
    """A query of one row of 1 to 4 as the Open Inference Protocol has it."""
    row = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    return {"inputs": [row], **changes}


def chunked(body: bytes, size: int = 1_000) -> bytes:
    """A body in the chunked transfer coding."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
