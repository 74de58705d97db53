"""What a worker holds: one record for each variant, from the begin of its load to its end."""

import asyncio
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from planner.batching.variant_queues import Item, VariantQueue
from planner.eviction.rules import Resident
from planner.eviction.turns import Order, order_of
from planner.latency_table import LatencyTable, latency_table
from planner.live_model import LiveModel
from planner.profile_drift import LiveRatio
from planner.types import ANYBODY, DEFAULT_PRIORITY
from variants.metrics.answered import cells_of
from variants.types import ReplicaState
from workers.channel.frames import Chunk, Layout
from workers.runtimes.protocol import Runtime, Tensor
from workers.types import LoadSpec, ReplicaStatus, variant_id

MAX_LAYOUTS = 1_024
ROWS_MEMORY = 100
"""Queries over which it is counted how many rows one has."""


class Responder(Protocol):
    """Where the answer to a query goes."""

    tag: bytes
    """Four bytes that name the connection."""

    def send(self, frame: bytes) -> None:
        """Send a small frame, together with others of the same moment."""

    def answer(self, chunks: list[Chunk]) -> None:
        """Send the answers of a batch at once, whose frames these are the pieces of."""


class Job(Item):
    """A query on its way through the worker: its tensors and where the answer goes."""

    __slots__ = ("arrived_ms", "base", "data", "layout", "replica", "request_id", "responder")

    def __init__(
        self, replica: "Replica", deadline_ms: float, arrived_ms: float,
        layout: Layout, data: Chunk, base: int, responder: Responder, request_id: int,
    ) -> None:  # fmt: skip
        self.queue = replica.queue
        self.deadline_ms = deadline_ms
        self.rows = layout.rows
        self.priority = DEFAULT_PRIORITY
        self.client = ANYBODY
        self.replica = replica
        self.arrived_ms = arrived_ms
        self.layout = layout
        self.data = data
        self.base = base
        self.responder = responder
        self.request_id = request_id


class LoneJob(Job):
    """A batch that checks a profile (``workers.execution.lone_batches``): nobody asked for it."""

    __slots__ = ("took_ms",)

    took_ms: float
    """What the batch took, once it has run."""


class Replica:
    """A variant on this worker. Changed by the event loop only."""

    __slots__ = (
        "_encoded",
        "_typical",
        "accepted",
        "answered",
        "asked",
        "asked_qps",
        "awaited",
        "checks",
        "displaces",
        "expected_until_s",
        "failures",
        "gone",
        "idle",
        "in_flight",
        "inflation",
        "key",
        "last_used_s",
        "live",
        "load_no",
        "loaded",
        "loaded_s",
        "message",
        "model",
        "outputs",
        "proven",
        "quarantined_s",
        "queue",
        "relaxed_ms",
        "rows_per_query",
        "runtime",
        "signatures",
        "sound",
        "sound_zeros",
        "spec",
        "started_s",
        "state",
        "uses",
        "variant",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        spec: LoadSpec,
        queue: VariantQueue,
        runtime: Runtime | None,
        now_s: float,
        *,
        load_no: int = 0,
        asked: bool = False,
        displaces: bool = False,
    ) -> None:
        self.spec = spec
        self.load_no = load_no
        self.asked = asked
        """A query has asked for it since it was loaded, or was the reason to load it."""
        self.displaces = displaces
        """Others had to leave for it."""
        self.asked_qps: float | None = None
        """Queries per second that ask for it while it waits for its turn to be loaded; None as long
        as none has, or where it keeps its place in line."""
        self.awaited = False
        """A query waits for the load, and is sent here when it is done."""
        self.expected_until_s = 0.0
        """Until then a query that waited for the load may still be on its way here."""
        self.uses = 0
        """Queries since it was loaded."""
        self.rows_per_query = 0.0
        """Lately; 0 before any query."""
        self.inflation = 0.0
        """The worker's clock under the rule ``gdsf`` when it was last used."""
        self.variant = variant_id(spec.task, spec.variant)
        self.outputs = [(np.dtype(t.dtype), t.shape) for t in spec.outputs]
        self.key = self.variant.to_bytes(8, "big")
        self.queue = queue
        self.runtime = runtime
        self.state = ReplicaState.LOADING
        self.message = ""
        self.quarantined_s: float | None = None
        """Unix time since when it is in quarantine."""
        self.in_flight = 0
        """Queries taken and not answered, those that wait for the load included."""
        self.failures = 0
        """Batches that failed, in a row."""
        self.proven = False
        """A batch of it has run cleanly in this process."""
        self.checks = 0
        """Batches that ran to check its profile."""
        self.sound: list[Tensor] = []
        """Inputs of one row that it has answered with finite numbers. The thread that runs batches
        keeps them."""
        self.sound_zeros = False
        """It gave finite numbers for a row of zeros when it was loaded."""
        self.started_s = self.last_used_s = self.loaded_s = now_s
        self.relaxed_ms = now_s * 1000
        """When the model last learned or forgot."""
        self.waiting: dict[Job, asyncio.TimerHandle] = {}
        """Queries that wait until it is loaded, and what refuses them at their deadline."""
        self.answered = _cells(spec)
        """Rows that it has answered by a class of each cell; None where that is not counted."""
        self.accepted: set[Layout] = set()
        self.signatures: dict[int, bytes] = {}
        """Signature of a reply of so many rows, for replicas with one output."""
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.idle: asyncio.Future[None] | None = None
        self.live = LiveRatio()
        self.model = _model(spec)
        """How long its batches take here."""
        self._typical = _typical(spec)
        self._encoded: tuple[object, bytes] = (None, b"")
        """What was learned as JSON, after what it was learned by."""

    @property
    def name(self) -> str:
        return f"{self.spec.task}/{self.spec.variant}"

    @property
    def profiled_ms(self) -> float:
        """The profile's median of a single row."""
        return self._typical[1]

    def typical_ms(self, rows: int) -> float:
        """The profile's median of a batch, at most of the largest one."""
        return self._typical[min(rows, len(self._typical) - 1)]

    def accepts(self, layout: Layout, data: Chunk, base: int) -> bool:
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

    def took(self, rows: int, took_ms: float, now_ms: float) -> None:
        """A batch of so many rows ran cleanly; larger ones than were profiled say nothing."""
        self.relaxed_ms = now_ms
        if self.spec.typical and rows < len(self._typical):
            self.live.seen(took_ms, self._typical[rows])

    def runs_ms(self, rows: int) -> float:
        """What a batch takes in the runtime alone, by the profile and what was seen lately."""
        known = self._typical
        return known[min(rows, len(known) - 1)] * self.live.ratio

    def used(self, now_s: float, queries: int = 1, rows: int = 1) -> None:
        """A batch of it ran."""
        weight = queries / (queries + ROWS_MEMORY) if self.uses else 1.0
        self.rows_per_query += weight * (rows / queries - self.rows_per_query)
        self.last_used_s = now_s
        self.uses += queries
        self.asked = True
        self.expected_until_s = 0.0

    @property
    def planned_qps(self) -> float:
        """Queries per second that the plan brings to it."""
        return self.spec.planned_qps or 0.0

    def resident(
        self, popularity: float, now_s: float, urgent: float = 0.0, load_pace: float = 1.0
    ) -> Resident[int]:
        """The replica as eviction sees it; ``popularity`` in queries per second, or as its rule
        counts."""
        busy = self.in_flight > 0 or now_s < self.expected_until_s
        return Resident(
            key=self.variant,
            memory_mib=self.spec.memory_mib,
            load_s=load_pace * self.spec.load_s,
            popularity=popularity,
            last_used_s=self.last_used_s,
            in_use=busy or self.state is not ReplicaState.READY,
            loaded_s=self.loaded_s,
            inflation=self.inflation,
            asked=self.asked,
            urgent=urgent,
            pinned=self.spec.pinned is True,
        )

    def status(self, now_s: float, rate_qps: float = 0.0, urgent: float = 0.0) -> ReplicaStatus:
        return ReplicaStatus(**self._of_now(now_s, rate_qps, urgent), **self._learned())

    def encoded_status(self, now_s: float, rate_qps: float, urgent: float) -> bytes:
        """The status as JSON. What was learned is written anew only after a batch has run, or
        slowness was forgotten: a worker reports of all its variants each second."""
        model, live = self.model, self.live
        learned_by = (
            model, model.batches, model.sure, live.batches, self.relaxed_ms, self.checks,
            self.rows_per_query,
        )  # fmt: skip
        if self._encoded[0] != learned_by:
            self._encoded = (learned_by, orjson.dumps(self._learned()))
        now = orjson.dumps(self._of_now(now_s, rate_qps, urgent))
        return now[:-1] + b"," + self._encoded[1][1:]

    def _of_now(self, now_s: float, rate_qps: float, urgent: float) -> dict[str, Any]:
        """The part of the status that changes by itself, or with any query."""
        return {
            "state": self.state,
            "memory_mib": self.spec.memory_mib if self.runtime is not None else 0.0,
            "queued": self.in_flight,
            "idle_s": max(0.0, now_s - self.last_used_s) if not self.in_flight else 0.0,
            "message": self.message,
            "quarantined_s": self.quarantined_s,
            "rate_qps": round(rate_qps, 4),
            "urgent": round(urgent, 2),
            "asked": self.asked,
            "load_no": self.load_no,
            "loaded_for_s": max(0.0, now_s - self.loaded_s) if self.loaded.done() else 0.0,
        }

    def _learned(self) -> dict[str, Any]:
        """The part of the status that changes with batches only, and what never does."""
        model, neighbours = self.model, self.model.neighbours()
        return {
            "task": self.spec.task,
            "variant": self.spec.variant,
            "live_ratio": round(self.live.ratio, 3),
            "batches": self.live.batches,
            "checks": self.checks,
            "latency": tuple([(p.rows, _ms(p.mean_ms), _ms(p.p95_ms)) for p in model.points()]),
            "busy": tuple([(b.rows, _ms(b.mean_ms), round(b.error, 3)) for b in model.busy()]),
            "busy_sure": round(model.busy_sure, 4),
            "beside": round(neighbours.times, 3),
            "beside_batches": neighbours.batches,
            "beside_ms": _ms(neighbours.ms),
            "beside_sizes": neighbours.sizes,
            "within": model.within,
            "sure": round(model.sure, 4),
            "rows_per_query": float(f"{self.rows_per_query:.2g}"),
            "answered": () if self.answered is None else tuple(self.answered.tolist()),
        }

    def order(self) -> Order:
        """When the turn of its load comes. Asked by the thread that loads, too."""
        return order_of(self.asked_qps, self.spec.load_s)

    def replan(self, spec: LoadSpec) -> LatencyTable:
        """Take over the share, the pin and the latencies of a newer load spec.

        Returns:
            What the queue is to count with: what was learned, unless the profile is another one.
        """
        if spec.latency != self.spec.latency or spec.typical != self.spec.typical:
            self.model, self._typical = _model(spec), _typical(spec)
        if spec.typical != self.spec.typical:
            self.live.forget()
        qps = self.spec.planned_qps if spec.planned_qps is None else spec.planned_qps
        self.spec = replace(
            self.spec,
            share=spec.share,
            planned_qps=qps,
            pinned=self.spec.pinned if spec.pinned is None else spec.pinned,
            latency=spec.latency,
            typical=spec.typical,
        )
        if self.model.batches:
            return self.model.table(self.queue.between_ms)
        self.queue.between_ms = self.queue.first_ms = 0.0
        return latency_table(spec.latency)


def _ms(value: float) -> float:
    """To five digits, as profiles have."""
    return round(value, 5)


def _model(spec: LoadSpec) -> LiveModel:
    """What is known of its batches before one has run."""
    high = latency_table(spec.latency)
    typical = latency_table(spec.typical) if spec.typical else high
    return LiveModel(typical if typical.max_batch == high.max_batch else high, high)


def _cells(spec: LoadSpec) -> NDArray[np.int64] | None:
    """Nothing was answered yet."""
    shape = spec.outputs[0].shape if spec.counts_answers and spec.outputs else ()
    return np.zeros(cells_of(shape[0]), np.int64) if len(shape) == 1 else None


def _typical(spec: LoadSpec) -> tuple[float, ...]:
    """Median latency in ms by batch size, the 95th percentile where the spec does not say."""
    return LatencyTable(spec.typical or spec.latency).ms
