"""What a worker holds: one record for each variant, from the begin of its load to its end."""

import asyncio
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from planner.drift import LiveRatio
from planner.eviction import Resident
from planner.lanes import Item, Lane
from planner.types import LatencyTable
from variants.errors import RuntimeFailed
from variants.types import ReplicaState
from workers.frames import Chunk, Layout
from workers.runtime import Runtime
from workers.types import LoadSpec, ReplicaStatus, ReplyCode, variant_id

MAX_LAYOUTS = 1_024


class Responder(Protocol):
    """Where the answer to a query goes."""

    def send(self, frame: bytes) -> None:
        """Send a small frame, together with others of the same moment."""

    def send_large(self, chunks: list[Chunk]) -> None:
        """Send a frame in pieces that are not copied again."""


class Job(Item):
    """A query on its way through the worker: its tensors and where the answer goes."""

    __slots__ = ("arrived_ms", "base", "data", "layout", "replica", "request_id", "responder")

    def __init__(
        self, replica: "Replica", deadline_ms: float, arrived_ms: float,
        layout: Layout, data: bytes, base: int, responder: Responder, request_id: int,
    ) -> None:  # fmt: skip
        self.lane = replica.lane
        self.deadline_ms = deadline_ms
        self.rows = layout.rows
        self.replica = replica
        self.arrived_ms = arrived_ms
        self.layout = layout
        self.data = data
        self.base = base
        self.responder = responder
        self.request_id = request_id


class Replica:
    """A variant on this worker. Changed by the event loop only."""

    __slots__ = (
        "_typical", "accepted", "failures", "gone", "idle", "in_flight", "key", "lane",
        "last_used_s", "live", "loaded", "loaded_s", "message", "outputs", "proven", "relaxed_ms",
        "runtime", "signatures", "spec", "started_s", "state", "variant", "waiting",
    )  # fmt: skip

    def __init__(self, spec: LoadSpec, lane: Lane, runtime: Runtime | None, now_s: float) -> None:
        self.spec = spec
        self.variant = variant_id(spec.task, spec.variant)
        self.outputs = [(np.dtype(t.dtype), t.shape) for t in spec.outputs]
        self.key = self.variant.to_bytes(8, "big")
        self.lane = lane
        self.runtime = runtime
        self.state = ReplicaState.LOADING
        self.message = ""
        self.in_flight = 0
        """Queries taken and not answered, those that wait for the load included."""
        self.failures = 0
        """Batches that failed, in a row."""
        self.proven = False
        """A batch of it has run cleanly in this process."""
        self.started_s = self.last_used_s = self.loaded_s = now_s
        self.relaxed_ms = now_s * 1000
        """When the correction was last brought up to date."""
        self.waiting: dict[Job, asyncio.TimerHandle] = {}
        """Queries that wait until it is loaded, and what refuses them at their deadline."""
        self.accepted: set[Layout] = set()
        self.signatures: dict[int, bytes] = {}
        """Signature of a reply of so many rows, for replicas with one output."""
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.idle: asyncio.Future[None] | None = None
        self.live = LiveRatio()
        self._typical = _typical(spec)

    @property
    def name(self) -> str:
        return f"{self.spec.task}/{self.spec.variant}"

    def accepts(self, layout: Layout, data: bytes, base: int) -> bool:
        """Whether tensors have the variant's signature and at least one row."""
        if layout not in self.accepted:
            wants = [(np.dtype(t.dtype), t.shape) for t in self.spec.inputs]
            has = [(d, s[1:]) for d, s in zip(layout.types, layout.shapes, strict=True)]
            if layout.rows < 1 or has != wants or not all(layout.shapes):
                return False
            if len(self.accepted) >= MAX_LAYOUTS:
                self.accepted.clear()
            self.accepted.add(layout)
        if layout.has_bool:  # a byte that is neither 0 nor 1 is undefined behaviour in a runtime
            for dtype, (begin, end) in zip(layout.types, layout.spans, strict=True):
                if dtype == np.bool_ and max(data[base + begin : base + end], default=0) > 1:
                    return False
        return True

    def stop_waiting(self) -> list[Job]:
        """Take out the queries that wait for the load. Their timers would keep their tensors."""
        waiting, self.waiting = self.waiting, {}
        for timer in waiting.values():
            timer.cancel()
        return list(waiting)

    def took(self, rows: int, took_ms: float) -> None:
        """A batch of so many rows ran cleanly; larger ones than were profiled say nothing."""
        if rows < len(self._typical):
            self.live.seen(took_ms, self._typical[rows])

    def used(self, now_s: float) -> None:
        """A batch of it ran."""
        self.last_used_s = now_s

    def resident(self, popularity: float) -> Resident[int]:
        """The replica as eviction sees it; ``popularity`` in queries per second."""
        return Resident(
            key=self.variant,
            memory_mib=self.spec.memory_mib,
            load_s=self.spec.load_s,
            popularity=popularity,
            last_used_s=self.last_used_s,
            in_use=self.in_flight > 0 or self.state is not ReplicaState.READY,
            loaded_s=self.loaded_s,
        )

    def status(self, now_s: float) -> ReplicaStatus:
        return ReplicaStatus(
            task=self.spec.task,
            variant=self.spec.variant,
            state=self.state,
            memory_mib=self.spec.memory_mib if self.runtime is not None else 0.0,
            queued=self.in_flight,
            idle_s=max(0.0, now_s - self.last_used_s) if not self.in_flight else 0.0,
            message=self.message,
            live_ratio=round(self.live.ratio, 3),
            batches=self.live.batches,
        )

    def replan(self, spec: LoadSpec) -> None:
        """Take over the share and the latencies of a newer load spec."""
        if spec.typical != self.spec.typical:
            self._typical = _typical(spec)
            self.live.forget()
        self.spec = replace(self.spec, share=spec.share, latency=spec.latency, typical=spec.typical)


def _typical(spec: LoadSpec) -> tuple[float, ...]:
    """Median latency in ms by batch size; empty when the spec does not say."""
    return LatencyTable(spec.typical).ms if spec.typical else ()


def assemble(jobs: list[Job], rows: int) -> list[np.ndarray[Any, Any]]:
    """The batch's inputs. One query is used where it arrived; several are copied once."""
    first = jobs[0]
    layout = first.layout
    if len(jobs) == 1:
        return layout.tensors(first.data, first.base)
    inputs = []
    for index, dtype in enumerate(layout.types):
        pieces: list[Chunk] = []
        for job in jobs:
            begin, end = job.layout.spans[index]
            data, base = job.data, job.base
            if end - begin <= 4096:
                pieces.append(data[base + begin : base + end])
            else:
                pieces.append(memoryview(data)[base + begin : base + end])
        shape = (rows, *layout.shapes[index][1:])
        inputs.append(np.ndarray(shape, dtype, b"".join(pieces)))
    return inputs


def verify(runtime: Runtime, spec: LoadSpec) -> None:
    """Run one row of zeros and compare what comes with the task's outputs.

    Raises:
        RuntimeFailed: number, type or shape of the outputs differ.
    """
    row = [np.zeros((1, *t.shape), dtype=t.dtype) for t in spec.inputs]
    has = [(str(t.dtype), t.shape) for t in runtime.run(row)]
    wants = [(t.dtype, (1, *t.shape)) for t in spec.outputs]
    if has != wants:
        raise RuntimeFailed(f"{spec.task}/{spec.variant} gives {has}, the task has {wants}")


REFUSALS = {
    ReplyCode.COLD: "the variant is not loaded on this worker",
    ReplyCode.DRAINING: "the worker is leaving",
    ReplyCode.EXPIRED: "the deadline passed before it could run",
}
