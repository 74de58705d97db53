"""Whatever frames come: a connection is refused or goes on, and nothing is left of it.

A slice of it runs always. ``make campaign`` sends half a million frames each way; ``pytest -s -m
campaign`` with this file prints what came of them, and ``MODELLESS_TEST_SEED`` sends others.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.ledger import SEED, footprint, unheard
from tests.workers.builders import config, connect, echo_spec, row, running, until, vid
from tests.workers.mutations.frames import (
    IDS,
    KIND,
    LEAVES,
    TO_GATEWAYS,
    TO_WORKERS,
    control,
    infer,
    mutated,
)
from variants.errors import InvalidInput, ModellessError
from workers.channel.client import WorkerConnection
from workers.channel.frames import FrameKind
from workers.channel.reply import Reply
from workers.host import WorkerHost
from workers.types import ReplyCode, WorkerConfig

SLICE = 4_000
CAMPAIGN = 500_000
MORE_OBJECTS, MORE_MIB = 2_000, 8.0
"""That the second half of a campaign may leave."""
LARGEST = 2**20
"""Bytes of a frame that a gateway takes in these tests."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each refusal is a warning: of half a million nobody reads them."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
async def worker() -> AsyncIterator[tuple[WorkerConfig, WorkerHost, WorkerConnection]]:
    """A worker that holds an echo, and a connection to it that nobody disturbs."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        given = config(Path(folder))
        async with running(given) as (host, steady):
            await steady.load(echo_spec(), 60.0)
            yield given, host, steady


# -- to workers -----------------------------------------------------------------------------------


async def send_to_worker(
    given: WorkerConfig, steady: WorkerConnection, frames: int, random: Random
) -> Counter[str]:
    """Send frames over one connection after the other; how many there were of what."""
    told: Counter[str] = Counter()
    connection: WorkerConnection | None = None
    while told["frames"] < frames:
        if connection is None or connection._lost:
            connection = await connect(steady.address, given)
            told["connections"] += 1
        burst = []
        for _ in range(random.choice([1, 2, 8, 32])):
            whole = (
                infer(random, vid(echo_spec()))
                if random.random() < 0.5
                else control(random, TO_WORKERS)
            )
            frame = mutated(whole, random)
            if len(frame) > KIND and frame[KIND] != LEAVES:
                burst.append(frame)
        told["frames"] += len(burst)
        for request_id in IDS:
            connection._pending.setdefault(request_id, lambda _: None)
        assert connection._transport is not None
        connection._transport.write(b"".join(burst))
        await asyncio.sleep(0.0005 if random.random() < 0.3 else 0.0)
        if random.random() < 0.02:
            connection.close()
    if connection is not None:
        connection.close()
    return told


async def nothing_is_left(host: WorkerHost, steady: WorkerConnection) -> None:
    """The worker is well, holds nothing of others, and answers."""
    executor = host._running()
    await until(lambda: not executor.in_flight and not executor._withdrawn)
    host.check()
    with suppress(ModellessError):
        await steady.readmit("task", "v", 60.0)
    await steady.load(echo_spec(), 60.0)  # what was unloaded
    assert await asked(steady) is ReplyCode.OK
    assert (executor._held_bytes, executor.queue.count) == (0, 0)
    await until(lambda: len(host._server.peers) == 1)


async def asked(steady: WorkerConnection) -> ReplyCode:
    """What comes of a query."""
    found: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    steady.infer(vid(echo_spec()), 1, 60_000_000, row(1), found.set_result)
    async with asyncio.timeout(90.0):
        return (await found).code


@pytest.mark.slow
async def test_a_worker_refuses_or_answers_whatever_frames_come(
    worker: tuple[WorkerConfig, WorkerHost, WorkerConnection],
) -> None:
    given, host, steady = worker
    with unheard() as failures:
        await send_to_worker(given, steady, SLICE, Random(f"{SEED} worker"))
        await nothing_is_left(host, steady)
    assert failures == []


WRONG: list[tuple[FrameKind, dict[str, Any]]] = [
    *((FrameKind.UNLOAD, {"seen": wrong}) for wrong in (1, "x", [1], ["x", 1])),
    *((FrameKind.LOAD, {"make_room": True, "patience_s": wrong}) for wrong in ("x", None, "1")),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG)
async def test_a_control_message_with_a_wrong_field_is_told_so(
    worker: tuple[WorkerConfig, WorkerHost, WorkerConnection],
    kind: FrameKind,
    wrong: dict[str, Any],
) -> None:
    """It is no failure of the worker, which would log it as one."""
    _, _, steady = worker
    message = {"task": "task", "variant": "v", "spec": asdict(echo_spec()), **wrong}
    with unheard() as failures, pytest.raises(InvalidInput):
        await steady._ask(kind, json.dumps(message).encode(), 60.0)
    assert failures == []


@pytest.mark.campaign
@pytest.mark.slow
async def test_the_whole_campaign_leaves_a_worker_as_its_first_half_did(
    worker: tuple[WorkerConfig, WorkerHost, WorkerConnection],
) -> None:
    given, host, steady = worker
    held = []
    with unheard() as failures:
        for part in (1, 2):
            random = Random(f"{SEED} worker {part}")
            told = await send_to_worker(given, steady, CAMPAIGN // 2, random)
            await nothing_is_left(host, steady)
            held.append(footprint())
            print(
                f"to a worker: {told['frames']:,} frames over {told['connections']:,} connections"
            )
    print(f"the second half has left {held[1].over(held[0])}")
    assert failures == []
    assert held[1].objects - held[0].objects < MORE_OBJECTS
    assert held[1].resident_mib - held[0].resident_mib < MORE_MIB


# -- to gateways ----------------------------------------------------------------------------------


class Written(asyncio.Transport):
    """Keeps nothing of what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        pass

    def writelines(self, _: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


async def said_by(worker: WorkerConfig, steady: WorkerConnection) -> list[bytes]:
    """What a worker says: a report, replies, a refusal, an answer, news of its queue."""
    heard: list[bytes] = []
    listening = await connect(steady.address, worker)
    read = listening._on_small

    def small(frame: bytes) -> None:
        heard.append(frame)
        read(frame)

    replied = listening._on_reply

    def reply(data: bytes, at: int) -> None:
        heard.append(data[at : at + int.from_bytes(data[at : at + 4], "little")])
        replied(data, at)

    listening._on_small, listening._on_reply = small, reply  # type: ignore[method-assign]
    try:
        await listening.history([], 0, 60.0)
        assert await asked(listening) is ReplyCode.OK
        gone: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        listening.infer(1, 1, 60_000_000, row(1), gone.set_result)
        await gone
        await until(lambda: any(frame[KIND] == FrameKind.STATUS for frame in heard))
    finally:
        listening.close()
    return heard


class Sessions:
    """Sessions of a gateway, one after the other, each with queries that wait."""

    def __init__(self, report: bytes) -> None:
        self._report = report
        self.opened = self.waited = self.answered = self.lost = 0

    def open(self) -> WorkerConnection:
        """A session whose handshake is over, as its worker has reported for the first time."""
        made = WorkerConnection("unix:/none", b"none", lambda _: None, self._left, 1)
        made.connection_made(Written())
        made._state = FrameKind.STATUS
        made._splitter.limit, made._splitter.stepwise = LARGEST, False
        made.data_received(self._report)
        self.opened += 1
        for request_id in IDS:
            self.wait(made, request_id)
        return made

    def wait(self, on: WorkerConnection, request_id: int) -> None:
        if request_id not in on._pending:
            self.waited += 1
            on._pending[request_id] = self._replied

    def _replied(self, _: Reply) -> None:
        self.answered += 1

    def _left(self, _: str) -> None:
        self.lost += 1


def feed_gateway(sessions: Sessions, said: list[bytes], frames: int, random: Random) -> None:
    """Feed frames into one session after the other."""
    fed, session = 0, sessions.open()
    while fed < frames:
        if session._lost:
            session = sessions.open()
        count = random.choice([1, 2, 8, 32])
        whole = [
            random.choice(said) if random.random() < 0.7 else control(random, TO_GATEWAYS)
            for _ in range(count)
        ]
        data = b"".join(mutated(one, random) for one in whole)
        cut = random.randrange(len(data) + 1)
        session.data_received(data[:cut])
        session.data_received(data[cut:])
        fed += count
        if not session._lost:
            sessions.wait(session, random.choice(IDS))
        if random.random() < 0.02:
            session.connection_lost(None)
    session.connection_lost(None)


@pytest.mark.slow
async def test_a_gateway_answers_every_query_once_whatever_its_worker_says(
    worker: tuple[WorkerConfig, WorkerHost, WorkerConnection],
) -> None:
    given, _, steady = worker
    said = await said_by(given, steady)
    assert {frame[KIND] for frame in said} >= {FrameKind.STATUS, FrameKind.REPLY, FrameKind.ANSWER}
    sessions = Sessions(next(frame for frame in said if frame[KIND] == FrameKind.STATUS))
    with unheard() as failures:
        feed_gateway(sessions, said, SLICE, Random(f"{SEED} gateway"))
        await asyncio.sleep(0)
    assert failures == []
    assert sessions.answered == sessions.waited > sessions.opened == sessions.lost > 10


@pytest.mark.campaign
@pytest.mark.slow
async def test_the_whole_campaign_leaves_a_gateway_as_its_first_half_did(
    worker: tuple[WorkerConfig, WorkerHost, WorkerConnection],
) -> None:
    given, _, steady = worker
    said = await said_by(given, steady)
    sessions = Sessions(next(frame for frame in said if frame[KIND] == FrameKind.STATUS))
    held = []
    with unheard() as failures:
        for part in range(10):
            feed_gateway(sessions, said, CAMPAIGN // 10, Random(f"{SEED} gateway {part}"))
            await asyncio.sleep(0.01)
            held.append(footprint())
        print(
            f"to a gateway: {CAMPAIGN:,} frames over {sessions.opened:,} sessions with"
            f" {sessions.waited:,} queries, each of which was answered once;"
            f" the second half has left {held[-1].over(held[4])}"
        )
    assert failures == []
    assert sessions.answered == sessions.waited > sessions.opened == sessions.lost
    assert held[-1].objects - held[4].objects < MORE_OBJECTS
    assert held[-1].resident_mib - held[4].resident_mib < MORE_MIB
