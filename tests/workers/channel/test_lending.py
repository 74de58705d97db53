"""Large tensors in shared memory: over real sockets, with what may go wrong on either side."""

import asyncio
import logging
import random
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.services import SHARED_MEMORY
from tests.workers.builders import (
    ask,
    config,
    connect,
    echo_spec,
    process,
    running,
    secret_of,
    tensor,
    until,
    vid,
)
from tests.workers.gated import Gates
from variants.errors import Conflict
from workers.channel.client import WorkerConnection
from workers.channel.frames import (
    HANDSHAKE_LIMIT,
    VERSION,
    FrameKind,
    infer_lent_frame,
    layout_of,
    signature_of,
    small_frame,
    small_payload,
)
from workers.channel.handshake import NONCE, prove
from workers.channel.messages import encode
from workers.channel.reply import Reply
from workers.channel.shared_memory import LentBlock
from workers.process.last_batch import read_running
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec, ReplyCode, WorkerConfig

pytestmark = SHARED_MEMORY
WIDE = 30_000
NAME = "modelless-tensors"


def wide_spec(**changes: object) -> LoadSpec:
    fields = {"inputs": (tensor("x", WIDE),), "outputs": (tensor("y", WIDE),), **changes}
    return replace(echo_spec(), **fields)  # type: ignore[arg-type]


def wide(value: float) -> list[Tensor]:
    """A row of 120 kB."""
    return [np.full((1, WIDE), value, dtype=np.float32)]


def block_of(connection: WorkerConnection) -> LentBlock:
    assert connection._lending is not None
    assert connection._lending.block is not None
    return connection._lending.block


async def lend(connection: WorkerConnection, spec: LoadSpec) -> LentBlock:
    """Have the worker take a block."""
    assert (await ask(connection, spec, wide(0))).code is ReplyCode.OK
    lending = connection._lending
    assert lending is not None
    await until(lambda: lending.block is not None)
    return block_of(connection)


def runs(connection: WorkerConnection) -> bool:
    """Whether the worker has written down that it runs a batch, as its gateways read it."""
    found = read_running(connection.status.page)
    return found is not None and found.size > 0


def traces() -> list[str]:
    """What this process still has of blocks: mappings and open files."""
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if NAME in line]
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if NAME in str(file.readlink()):
                maps.append(str(file))
    return maps


def open_files() -> list[str]:
    """Of ``traces``, the open files."""
    return [one for one in traces() if "/fd/" in one]


async def test_large_tensors_are_lent_and_small_ones_sent(tmp_path: Path, gates: Gates) -> None:
    spec = wide_spec(runtime="gated")
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)
        block = await lend(connection, spec)
        assert block.taken == 0
        gates.runs.clear()
        asked = [asyncio.create_task(ask(connection, spec, wide(n))) for n in range(5)]
        await until(lambda: block.taken > 5 * 4 * WIDE)
        gates.runs.set()
        replies = await asyncio.gather(*asked)
        assert block.taken == 0
        for number, reply in enumerate(replies):
            np.testing.assert_array_equal(reply.outputs[0], wide(number)[0])


async def test_what_has_no_room_goes_through_the_socket(
    tmp_path: Path, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.channel.lending.BLOCK_BYTES", 2 * 128 * 1024)
    spec = wide_spec(runtime="gated")
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)
        block = await lend(connection, spec)
        gates.runs.clear()
        asked = [asyncio.create_task(ask(connection, spec, wide(n))) for n in range(6)]
        await until(lambda: len(connection._pending) == 6)
        assert 0 < block.taken <= 2 * 128 * 1024
        gates.runs.set()
        replies = await asyncio.gather(*asked)
        assert [reply.outputs[0][0, -1] for reply in replies] == list(range(6))
        assert block.taken == 0


async def test_a_refusal_gives_the_room_back(tmp_path: Path) -> None:
    spec = wide_spec()
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)
        block = await lend(connection, spec)
        late = await ask(connection, spec, wide(1), budget_ms=0.0)
        unlike = await ask(connection, spec, [np.zeros((1, WIDE + 1), dtype=np.float32)])
        assert [late.code, unlike.code] == [ReplyCode.OVERLOADED, ReplyCode.INVALID]
        assert block.taken == 0


async def test_a_query_that_was_given_up_keeps_its_room_until_the_worker_answers(
    tmp_path: Path, gates: Gates
) -> None:
    """It may be read until then, so that another one's bytes must not come there."""
    spec = wide_spec(runtime="gated")
    async with running(config(tmp_path, quarantine_dir=str(tmp_path))) as (host, connection):
        await connection.load(spec, 60.0)
        block = await lend(connection, spec)
        executor = host._executor
        assert executor is not None
        gates.runs.clear()
        running_one = asyncio.create_task(ask(connection, spec, wide(1)))
        await until(lambda: runs(connection))
        waiting = asyncio.create_task(ask(connection, spec, wide(2)))
        await until(lambda: executor.in_flight == 2)
        taken = block.taken
        connection.hand_back()
        assert (await waiting).code is ReplyCode.LOST
        assert block.taken == taken
        gates.runs.set()
        assert (await running_one).outputs[0][0, 0] == 1
        await until(lambda: block.taken == 0)


@pytest.mark.parametrize("why", ["tcp", "another release", "no way there", "no memory"])
async def test_where_nothing_can_be_lent_tensors_are_sent(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise {"no memory": OSError("full"), "no way there": Conflict("it is far")}[why]

    if why == "another release":
        monkeypatch.setattr("workers.host.CAN_SHARE", False)
    elif why == "no memory":
        monkeypatch.setattr("workers.channel.lending.LentBlock", refuse)
    elif why == "no way there":
        monkeypatch.setattr("workers.execution.listening.peer.borrow", refuse)
    worker = config(tmp_path, listen="tcp:127.0.0.1" if why == "tcp" else "unix")
    spec = wide_spec()
    async with running(worker) as (_, connection):
        await connection.load(spec, 60.0)
        for value in range(3):
            reply = await ask(connection, spec, wide(value))
            assert reply.outputs[0][0, 0] == value
            await asyncio.sleep(0.01)
        assert connection._lending is None or connection._lending.block is None
    assert traces() == []


async def test_nothing_is_left_of_a_connection_that_closes_while_its_tensors_are_read(
    tmp_path: Path, gates: Gates
) -> None:
    spec = wide_spec(runtime="gated")
    worker = config(tmp_path)
    async with running(worker) as (host, first):
        await first.load(spec, 60.0)
        second = await connect(first.address, worker)
        await lend(first, spec)
        ours = open_files()
        await lend(second, spec)
        assert len(open_files()) > len(ours)
        gates.runs.clear()
        lost: list[Reply] = []
        for number in range(3):
            second.infer(vid(spec), 1, 60 * 10**6, wide(100 + number), lost.append)
        asked = [asyncio.create_task(ask(first, spec, wide(n))) for n in range(3)]
        assert host._executor is not None
        executor = host._executor
        await until(lambda: executor.in_flight == 6)
        second.close()
        await asyncio.sleep(0.05)
        gates.runs.set()
        replies = await asyncio.gather(*asked)
        assert [reply.outputs[0][0, 0] for reply in replies] == [0, 1, 2]
        await until(lambda: [one.code for one in lost] == [ReplyCode.LOST] * 3)
        assert (await ask(first, spec, wide(7))).outputs[0][0, 0] == 7
        await until(lambda: len(open_files()) == len(ours))
    await until(lambda: traces() == [])


@pytest.mark.slow
async def test_a_killed_worker_takes_nothing_along(tmp_path: Path) -> None:
    spec = wide_spec(options=(("latency_ms", "500"),), latency=((1, 500.0),))
    worker = config(tmp_path)
    async with process(worker) as (child, address):
        connection = await connect(address, worker)
        await connection.load(spec, 60.0)
        await lend(connection, spec)
        replies: list[Reply] = []
        for number in range(4):
            connection.infer(vid(spec), 1, 60 * 10**6, wide(number), replies.append)
        await asyncio.sleep(0.05)
        child.kill()
        await child.wait()
        await until(lambda: len(replies) == 4)
        assert {reply.code for reply in replies} == {ReplyCode.LOST}
        assert traces() == []


GATEWAY = """
import asyncio, sys
from tests.workers.channel.test_lending import lend, vid, wide, wide_spec
from workers.channel.client import WorkerConnection

def nothing(_):
    pass

async def main():
    spec = wide_spec(runtime="gated")
    secret = open(sys.argv[2], "rb").read()
    connection = await WorkerConnection.open(
        sys.argv[1], secret, on_status=nothing, on_lost=nothing
    )
    await lend(connection, spec)
    print("lent", flush=True)
    sys.stdin.readline()
    for number in range(3):
        connection.infer(vid(spec), 1, 60 * 10**6, wide(100 + number), nothing)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_killed_gateway_takes_nothing_along(tmp_path: Path, gates: Gates) -> None:
    """The worker goes on reading what it mapped, then lets go of it; others notice nothing."""
    spec = wide_spec(runtime="gated")
    worker = config(tmp_path)
    async with running(worker) as (host, connection):
        await connection.load(spec, 60.0)
        await lend(connection, spec)
        ours, files = traces(), open_files()
        executor = host._executor
        assert executor is not None
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", GATEWAY, connection.address, worker.secret_path,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdin is not None
        assert await asyncio.wait_for(child.stdout.readline(), 60.0) == b"lent\n"
        assert len(traces()) > len(ours)  # the worker maps the other gateway's
        gates.runs.clear()
        child.stdin.write(b"go\n")
        await until(lambda: executor.in_flight == 3)
        child.kill()
        await child.wait()
        asked = asyncio.create_task(ask(connection, spec, wide(7)))
        await until(lambda: executor.in_flight == 4)
        gates.runs.set()
        assert (await asked).outputs[0][0, 0] == 7
        await executor.quiet()
        await until(lambda: len(open_files()) == len(files))
    await until(lambda: traces() == [])


class RawLender:
    """A connection that proved itself and lends a block, and then writes what it likes."""

    def __init__(self) -> None:
        self.block = LentBlock(2**20)

    async def open(self, address: str, worker: WorkerConfig) -> None:
        where = address.removeprefix("unix:")
        self.reader, self.writer = await asyncio.open_unix_connection(where)
        hello = await self.reader.read(HANDSHAKE_LIMIT)
        told, nonce = small_payload(hello), bytes(NONCE)
        proof = prove(secret_of(worker), b"client", VERSION, told[:NONCE], nonce, told[NONCE:])
        self.writer.write(small_frame(FrameKind.AUTH, nonce + proof, version=VERSION))

    def offer(self) -> None:
        self.writer.write(small_frame(FrameKind.LEND, encode(self.block.offer)))

    async def ended(self) -> None:
        """Return once the worker has closed the connection."""
        with suppress(ConnectionResetError):
            while await asyncio.wait_for(self.reader.read(2**16), 60.0):
                pass

    def close(self) -> None:
        self.writer.close()
        self.block.close()


ROW = signature_of(wide(0))
WRONG = {
    "no block": (False, infer_lent_frame(1, 2, 1, 4, ROW, 0), "no shared memory"),
    "beyond the end": (True, infer_lent_frame(1, 2, 1, 4, ROW, 2**20 - 8), "no shared memory"),
    "far beyond": (True, infer_lent_frame(1, 2, 1, 4, ROW, 2**64 - 8), "no shared memory"),
    "not aligned": (True, infer_lent_frame(1, 2, 1, 4, ROW, 4), "no shared memory"),
    "too long": (
        True,
        (len(infer_lent_frame(1, 2, 1, 4, ROW, 0)) + 8).to_bytes(4, "little")
        + infer_lent_frame(1, 2, 1, 4, ROW, 0)[4:]
        + bytes(8),
        "another length",
    ),
    "a second block": (
        True,
        small_frame(FrameKind.LEND, encode({"handle": 1, "inode": 1, "size": 1})),
        "blocks of shared memory",
    ),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_frame_that_points_elsewhere_ends_its_connection(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lends, frame, reason = WRONG[case]
    worker = config(tmp_path)
    async with running(worker) as (host, connection):
        raw = RawLender()
        await raw.open(connection.address, worker)
        if lends:
            raw.offer()
        raw.writer.write(frame)
        await raw.ended()
        raw.close()
        assert [one.message for one in caplog.records if reason in one.message]
        host.check()
        spec = wide_spec()
        await connection.load(spec, 60.0)
        assert (await ask(connection, spec, wide(3))).outputs[0][0, 0] == 3


async def test_damaged_frames_of_lent_tensors_harm_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One to three bytes of a good frame are others, it may end early, and a good one follows."""
    caplog.set_level(logging.ERROR)  # of all loggers: what is logged keeps what was refused
    chance = random.Random(20)
    worker, spec = config(tmp_path), wide_spec()
    number = vid(spec)
    async with running(worker) as (host, connection):
        await connection.load(spec, 60.0)
        block = await lend(connection, spec)
        for _ in range(150):
            raw = RawLender()
            await raw.open(connection.address, worker)
            raw.offer()
            begin = raw.block.lend(1, layout_of(ROW), wide(9))
            assert begin is not None
            frame = bytearray(infer_lent_frame(1, number, 1, 60 * 10**6, ROW, begin))
            for _ in range(chance.randint(1, 3)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            raw.writer.write(bytes(frame[: chance.choice([len(frame), chance.randrange(60)])]))
            raw.writer.write(infer_lent_frame(2, number, 1, 60 * 10**6, ROW, begin))
            raw.writer.write_eof()
            await raw.ended()
            raw.close()
        host.check()
        for value in range(3):
            assert (await ask(connection, spec, wide(value))).outputs[0][0, -1] == value
        assert block.taken == 0
        assert host._executor is not None
        await host._executor.quiet()
    await until(lambda: traces() == [])
