"""Answers of a batch: what leaves together and at once, and what was learned by then."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from planner.batching.variant_queues import VariantQueue
from planner.latency_table import LatencyTable
from tests.workers.builders import ask, config, double_model, onnx_spec, row, running, vid
from workers.channel.frames import (
    Chunk,
    layout_of,
    signature_of,
    unpack_prefix,
    unpack_reply,
)
from workers.channel.outbox import Outbox
from workers.execution.listening.peer import Peer
from workers.execution.replicas import Job, Replica
from workers.execution.replies import send_outputs
from workers.execution.running import Group
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode


class Told:
    """Keeps the ids of the queries that were answered together, and the codes of refusals."""

    tag = b"none"

    def __init__(self) -> None:
        self.answers: list[list[int]] = []
        self.refusals: list[int] = []

    def send(self, frame: bytes) -> None:
        self.refusals.append(unpack_reply(frame)[2])

    def answer(self, chunks: list[Chunk]) -> None:
        data, ids = b"".join(chunks), []
        while data:
            ids.append(unpack_prefix(data)[4])
            data = data[unpack_reply(data)[0] :]
        self.answers.append(ids)


class Written(asyncio.Transport):
    """Keeps what each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize("outputs", [1, 2])
async def test_a_batch_is_answered_once_for_each_connection(tmp_path: Path, outputs: int) -> None:
    spec = onnx_spec(double_model(tmp_path / "m.onnx"))
    replica = Replica(spec, VariantQueue.detached("task", LatencyTable([(8, 1.0)])), None, 0.0)
    one, other = Told(), Told()
    jobs = []
    for number, responder in enumerate((one, other, one, one)):
        layout = layout_of(signature_of(row(number)))
        jobs.append(Job(replica, 100.0, 0.0, layout, b"", 0, responder, number))
    values: list[Tensor] = [np.ones((4, 4), dtype=np.float32)] * outputs
    bad = np.array([False, False, True, False])
    send_outputs(Group(jobs, 4, values, "", bad), 1.0, 1.0, 0, 2**20)
    assert (one.answers, other.answers) == ([[0, 3]], [[1]])
    assert (one.refusals, other.refusals) == ([ReplyCode.FAILED], [])


async def test_what_is_sent_at_once_goes_behind_what_waits_and_nothing_is_sent_twice() -> None:
    transport = Written()
    outbox = Outbox(transport, 2**20, lambda: None)
    outbox.write([b"refusal"])
    outbox.write_now([b"an", b"swer"])
    assert b"".join(transport.writes) == b"refusalanswer"
    outbox.write([b"last"])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"".join(transport.writes) == b"refusalanswerlast"


async def test_who_asked_has_the_answer_before_anything_is_learned_from_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = onnx_spec(double_model(tmp_path / "m.onnx"))
    learned: list[int] = []
    async with running(config(tmp_path)) as (host, connection):
        await connection.load(spec, 60.0)
        replica = host._running().replicas[vid(spec)]
        answer = Peer.answer

        def answered(self: Peer, chunks: list[Chunk]) -> None:
            answer(self, chunks)
            learned.append(replica.uses)

        monkeypatch.setattr(Peer, "answer", cast(Any, answered))
        await ask(connection, spec, row(1))
        await ask(connection, spec, row(1))
        assert (learned, replica.uses) == ([0, 1], 2)
