"""Workers that answer at random, or not, or too late, or twice, and that go and come back.

What a gateway sends to them, and what it is told, are the bytes of the tensor channel.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from random import Random
from typing import Any

import numpy as np

from variants.types import WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.frames import (
    FrameKind,
    Splitter,
    refusal_frame,
    reply_head,
    signature_of,
    small_frame,
    unpack_infer,
    unpack_prefix,
)
from workers.channel.messages import encode
from workers.types import ReplyCode, WorkerStatus

LARGEST = 2**20
REFUSALS = (
    ReplyCode.OVERLOADED, ReplyCode.OVERLOADED, ReplyCode.COLD, ReplyCode.DRAINING,
    ReplyCode.EXPIRED, ReplyCode.FAILED, ReplyCode.INVALID, ReplyCode.QUARANTINED,
)  # fmt: skip
REFUSED, SILENT, TWICE, OTHERS = 0.15, 0.03, 0.05, 0.02
"""Parts of the queries that are refused, never answered, answered twice, and answered behind an
answer to a query that nobody has asked."""
SLOW = 0.1
"""Of answers: so many take up to a second, others up to 30 ms."""


def report(name: str, pid: int) -> bytes:
    """A worker's report as a frame; each of its processes has another number."""
    status = WorkerStatus(
        worker=name, device_kind="cpu-1", pid=pid, memory_mib=100.0, reserved_mib=0.0,
        draining=False, backlog_us=0, busy_ratio=0.0, replicas=(), withdraws=True,
    )  # fmt: skip
    return small_frame(FrameKind.STATUS, encode(asdict(status)))


class _Wire(asyncio.Transport):
    """What the gateway writes arrives at the script at once."""

    def __init__(self, arrived: Callable[[bytes], None]) -> None:
        super().__init__()
        self._arrived = arrived
        self._closed = False

    def write(self, data: Any) -> None:
        if not self._closed:
            self._arrived(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(bytes(piece) for piece in pieces))

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        self._closed = True

    def get_write_buffer_size(self) -> int:
        return 0


class ScriptedWorker:
    """One worker, over the lives of its processes."""

    def __init__(self, name: str, random: Random, moved: Callable[[], None]) -> None:
        """
        Args:
            moved: called when it has gone or come back.
        """
        self.id = WorkerId(name)
        self.random = random
        self._moved = moved
        self._lives = 0
        self._splitter = Splitter(LARGEST)
        self.connection: WorkerConnection | None = None
        self.asked = self.withdrawn = 0
        self.past: list[WorkerConnection] = []
        """Connections that have ended."""

    def begin(self) -> None:
        """A process of it starts, and is connected."""
        self._lives += 1
        self._splitter = Splitter(LARGEST)
        self._splitter.stepwise = False
        life = self._lives
        made = WorkerConnection("unix:/none", b"none", lambda _: None, lambda _: self._gone(), 1)
        made.connection_made(_Wire(lambda data: self._arrived(data, life)))
        made._state = FrameKind.STATUS
        made._splitter.limit, made._splitter.stepwise = LARGEST, False
        made.data_received(report(self.id, life))
        if made._watch is not None:
            made._watch.cancel()  # how long it may say nothing is another matter
        self.connection = made
        self._moved()

    def end(self) -> None:
        """Its process ends: what it has not answered is lost."""
        if self.connection is not None:
            self.connection.connection_lost(None)

    def _gone(self) -> None:
        if self.connection is not None:
            self.past.append(self.connection)
        self.connection = None
        self._moved()

    def _arrived(self, data: bytes, life: int) -> None:
        data, begins = self._splitter.feed(data)
        for at in begins:
            _, kind, _, _, request_id = unpack_prefix(data, at)
            if kind == FrameKind.INFER:
                self.asked += 1
                self._decide(request_id, unpack_infer(data, at)[5], life)
            elif kind == FrameKind.WITHDRAW:
                self.withdrawn += 1
                if self.random.random() < 0.5:
                    self._say(refusal_frame(ReplyCode.EXPIRED, request_id, 0, ""), life)

    def _decide(self, request_id: int, rows: int, life: int) -> None:
        """Answer a query some time, or not."""
        draw, random = self.random.random(), self.random
        backlog_us = random.choice([0, 0, 2_000, 50_000])
        if draw < SILENT:
            return
        if draw < SILENT + REFUSED:
            frame = refusal_frame(random.choice(REFUSALS), request_id, backlog_us, "refused")
        else:
            outputs = np.full((rows, 10), 0.5, np.float32)
            head = reply_head(
                outputs.nbytes, signature_of([outputs]), request_id, rows, 20, 10, backlog_us
            )
            frame = head + outputs.tobytes()
        if random.random() < TWICE:
            frame += frame
        if random.random() < OTHERS:
            frame = refusal_frame(ReplyCode.FAILED, request_id ^ 0x10000, 0, "nobody's") + frame
        self._say(frame, life)

    def _say(self, frame: bytes, life: int) -> None:
        after_s = self.random.random() * (1.0 if self.random.random() < SLOW else 0.03)
        asyncio.get_running_loop().call_later(after_s, self._said, frame, life)

    def _said(self, frame: bytes, life: int) -> None:
        if self.connection is not None and life == self._lives:
            cut = self.random.randrange(len(frame))
            self.connection.data_received(frame[:cut])
            if self.connection is not None:
                self.connection.data_received(frame[cut:])
