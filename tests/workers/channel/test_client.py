"""The tensor channel over real sockets: handshake, queries, control, garbage, loss."""

import asyncio
import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.workers.builders import (
    ask,
    config,
    connect,
    double_model,
    echo_spec,
    onnx_spec,
    process,
    row,
    running,
    secret_of,
    tensor,
    until,
    vid,
)
from tests.workers.gated import Gates
from variants.errors import DeadlineExceeded, ReplicaLost, Unauthenticated, VariantNotLoadable
from variants.types import ReplicaState
from workers.channel.client import WorkerConnection
from workers.channel.frames import (
    HANDSHAKE_LIMIT,
    VERSION,
    FrameKind,
    Splitter,
    infer_frame,
    small_frame,
    small_payload,
)
from workers.channel.handshake import NONCE, prove
from workers.channel.reply import Reply
from workers.types import ReplyCode, WorkerConfig, WorkerStatus


@pytest.fixture(params=["unix", "tcp:127.0.0.1"])
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> WorkerConfig:
    return config(tmp_path, listen=request.param, max_frame_mib=8)


async def test_a_query_is_answered(worker: WorkerConfig, tmp_path: Path) -> None:
    spec = onnx_spec(double_model(tmp_path / "double.onnx"))
    async with running(worker) as (_, connection):
        status = await connection.load(spec, 60.0)
        assert (status.state, status.memory_mib) == (ReplicaState.READY, 10.0)
        reply = await ask(connection, spec, row(1, 2, 3))
        assert (reply.code, reply.batch_size, reply.message) == (ReplyCode.OK, 1, "")
        assert reply.outputs[0].tolist() == [[2, 4, 6, 0]]


async def test_any_number_of_counts_may_come_at_once(worker: WorkerConfig) -> None:
    """They are no requests, of which only some may be under way."""
    spec = echo_spec()
    async with running(worker) as (host, connection):
        for _ in range(500):
            connection.joined(spec.task, spec.variant, 2, waits=False)
        await connection.load(spec, 60.0)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        assert host._executor is not None
        assert host._executor.usage.urgency.share(vid(spec)) == pytest.approx(1.0, abs=0.1)


async def test_the_first_status_is_there_when_open_returns(worker: WorkerConfig) -> None:
    seen: list[WorkerStatus] = []
    async with running(worker) as (host, first):
        assert first.status.worker == "w1"
        second = await connect(first.address, worker, on_status=seen.append)
        assert seen[0] == second.status
        await first.load(echo_spec(), 60.0)
        await until(lambda: second.status.replicas)
        assert second.status.replicas[0].variant == "v"
        assert second.status.reserved_mib == 10.0
        second.close()
        assert host.status().pid == os.getpid()


async def test_a_large_tensor_arrives_whole(worker: WorkerConfig) -> None:
    wide = 500_000
    spec = replace(echo_spec(), inputs=(tensor("x", wide),), outputs=(tensor("y", wide),))
    async with running(worker) as (_, connection):
        await connection.load(spec, 60.0)
        sent = np.random.default_rng(0).random((2, wide), dtype=np.float32)
        reply = await ask(connection, spec, [sent])
        np.testing.assert_array_equal(reply.outputs[0], sent)


async def test_a_wrong_secret_is_refused(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        with pytest.raises(Unauthenticated):
            await WorkerConnection.open(
                connection.address, bytes(32), on_status=print, on_lost=print
            )


async def test_a_worker_without_the_secret_is_refused(tmp_path: Path) -> None:
    """It plays its part with a proof that it cannot make."""

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(small_frame(FrameKind.HELLO, bytes(32) + b"w1", version=VERSION))
        await reader.read(1_000)
        writer.write(small_frame(FrameKind.AUTH_OK, bytes(32), version=VERSION))
        await reader.read()
        writer.close()

    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(impostor, path)
    with pytest.raises(Unauthenticated):
        await WorkerConnection.open(f"unix:{path}", bytes(32), on_status=print, on_lost=print)
    server.close()


async def test_nobody_there(tmp_path: Path) -> None:
    for address in (f"unix:{tmp_path}/none", "tcp:127.0.0.1:1", "nonsense", "tcp:x:y"):
        with pytest.raises(ReplicaLost, match="cannot be reached"):
            await WorkerConnection.open(address, bytes(32), on_status=print, on_lost=print)


async def test_a_silent_worker_times_out(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    server = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, path)
    with pytest.raises(ReplicaLost, match=r"did not answer within 0\.05 s"):
        await WorkerConnection.open(
            f"unix:{path}", bytes(32), on_status=print, on_lost=print, timeout_s=0.05
        )
    server.close()


async def raw(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, where = address.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(where)
    host, _, port = where.rpartition(":")
    return await asyncio.open_connection(host, int(port))


AUTH = small_frame(FrameKind.AUTH, bytes(64), version=VERSION)
GARBAGE = {
    "another protocol": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "frame too large"),
    "a query before the handshake": (
        b"".join(infer_frame(1, 2, 1, 4, [np.zeros((1, 1), dtype=np.float32)])),
        "unexpected kind of frame",
    ),
    "a load before the handshake": (small_frame(FrameKind.LOAD, b"{}"), "unexpected kind of frame"),
    "a wrong proof": (AUTH, "the secret does not match"),
    "a short proof": (
        small_frame(FrameKind.AUTH, b"x", version=VERSION),
        "the secret does not match",
    ),
    "another version": (
        small_frame(FrameKind.AUTH, bytes(64), version=7),
        "another version of the channel: the other end speaks 7, this worker versions 1 to 2",
    ),
    "a large frame before the handshake": (
        (HANDSHAKE_LIMIT + 8).to_bytes(4, "little"),
        "frame too large",
    ),
    "zeros": (bytes(64), "malformed frame"),
}


async def test_connections_without_proof_fill_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, _ = next(iter(GARBAGE.values()))
    async with running(config(tmp_path)) as (_, connection):
        for _ in range(1_000):
            reader, writer = await raw(connection.address)
            writer.write(data)
            with suppress(ConnectionResetError):
                while await asyncio.wait_for(reader.read(1_000), 60.0):
                    pass
            writer.close()
        assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) <= 2


@pytest.mark.parametrize("case", GARBAGE)
async def test_a_connection_without_proof_is_turned_away_with_a_reason_and_others_go_on(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, reason = GARBAGE[case]
    async with running(config(tmp_path)) as (host, connection):
        reader, writer = await raw(connection.address)
        splitter = Splitter(HANDSHAKE_LIMIT)
        assert splitter.feed(await reader.read(1_000))[1] == [0]
        with caplog.at_level(logging.WARNING, "workers.execution.listening.peer"):
            writer.write(data)
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 60.0) == b""
        writer.close()
        assert [r.message for r in caplog.records if reason in r.message]
        host.check()
        await connection.load(echo_spec(), 60.0)
        assert (await ask(connection, echo_spec(), row(1))).code is ReplyCode.OK


async def test_connections_without_proof_are_few(tmp_path: Path) -> None:
    from workers.execution.listening.server import MAX_UNPROVEN

    async with running(config(tmp_path)) as (_, connection):
        opened = [await raw(connection.address) for _ in range(MAX_UNPROVEN + 1)]
        answers = [await asyncio.wait_for(r.read(1), 60.0) for r, _ in opened[:-1]]
        assert all(answers)
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(opened[-1][0].read(1), 60.0) == b""
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("listen", ["unix", "tcp:127.0.0.1"])
async def test_a_turn_that_takes_long_sends_and_hears_meanwhile(
    tmp_path: Path, listen: str
) -> None:
    worker, spec = config(tmp_path, listen=listen), echo_spec()
    async with process(worker) as (_, address):
        connection = await connect(address, worker)
        await connection.load(spec, 60.0)
        replies: list[Reply] = []
        for number in range(3):
            connection.infer(vid(spec), 1, 60_000_000, row(number), replies.append)
        end_s = time.monotonic() + 60.0
        while len(replies) < 3 and time.monotonic() < end_s:  # in one turn of the event loop
            connection.catch_up()
            time.sleep(0.001)  # noqa: ASYNC251 -- that is the point
        assert {float(reply.outputs[0][0, 0]) for reply in replies} == {0.0, 1.0, 2.0}
        connection.catch_up()  # nobody waits for anything
        assert (await ask(connection, spec, row(4))).outputs[0][0, 0] == 4  # as ever
        connection.close()
        connection.catch_up()
        connection.hear()


async def test_a_closed_connection_answers_everything_once(tmp_path: Path) -> None:
    spec = echo_spec(options={"latency_ms": "50"}, latency=((1, 50.0),))
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)
        replies: list[Reply] = []
        for _ in range(3):
            connection.infer(vid(spec), 1, 60_000_000, row(1), replies.append)
        connection.close()
        connection.infer(vid(spec), 1, 60_000_000, row(1), replies.append)
        assert len(replies) == 3
        await asyncio.sleep(0)
        assert [reply.code for reply in replies] == [ReplyCode.LOST] * 4
        with pytest.raises(ReplicaLost):
            await connection.unload("task", "v", 1.0)


async def test_a_killed_worker_is_noticed_at_once(tmp_path: Path) -> None:
    spec = echo_spec(options={"latency_ms": "200"}, latency=((1, 200.0),))
    worker = config(tmp_path)
    lost: list[str] = []
    async with process(worker) as (child, address):
        connection = await connect(address, worker, on_lost=lost.append)
        await connection.load(spec, 60.0)
        replies: list[Reply] = []
        for _ in range(4):
            connection.infer(vid(spec), 1, 60_000_000, row(1), replies.append)
        loading = asyncio.create_task(
            connection.load(echo_spec(variant="w", options={"load_s": "60"}), 90.0)
        )
        await asyncio.sleep(0.05)
        child.kill()
        await child.wait()
        await until(lambda: len(replies) == 4)
        assert [reply.code for reply in replies] == [ReplyCode.LOST] * 4
        assert len(lost) == 1
        with pytest.raises(ReplicaLost):
            await loading


async def test_control_errors_come_back_typed(tmp_path: Path, gates: Gates) -> None:
    async with running(config(tmp_path)) as (_, connection):
        with pytest.raises(VariantNotLoadable, match="task/v cannot be loaded"):
            await connection.load(onnx_spec(tmp_path / "none.onnx"), 60.0)
        gates.loads.clear()
        with pytest.raises(DeadlineExceeded, match=r"did not finish LOAD within 0\.01 s"):
            await connection.load(echo_spec(runtime="gated"), 0.01)
        await until(
            lambda: [one.state for one in connection.status.replicas] == [ReplicaState.LOADING]
        )
        gates.loads.set()
        with pytest.raises(VariantNotLoadable, match="wrong option"):
            await connection.load(echo_spec(variant="w", options={"latency_ms": "x"}), 60.0)


async def test_a_callback_that_raises_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = echo_spec()
    async with running(config(tmp_path)) as (_, connection):
        await connection.load(spec, 60.0)

        def wrong(_: Reply) -> None:
            raise ZeroDivisionError

        connection.infer(vid(spec), 1, 60_000_000, row(1), wrong)
        assert (await ask(connection, spec, row(2))).code is ReplyCode.OK
        assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [ZeroDivisionError]


async def test_a_handshake_takes_no_longer_than_two_seconds(tmp_path: Path) -> None:
    async with running(config(tmp_path)) as (_, connection):
        reader, writer = await raw(connection.address)
        with suppress(ConnectionResetError):
            assert len(await asyncio.wait_for(reader.read(), 60.0)) < HANDSHAKE_LIMIT
        writer.close()


async def test_a_peer_that_does_not_read_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its unread replies stay below two of the largest frames; others are served meanwhile."""
    wide = 200_000
    spec = replace(echo_spec(), inputs=(tensor("x", 4),), outputs=(tensor("y", wide),))
    worker = config(tmp_path, max_frame_mib=1)
    async with running(worker) as (_, connection):
        await connection.load(spec, 60.0)
        reader, writer = await raw(connection.address)
        hello = await reader.read(HANDSHAKE_LIMIT)
        secret, nonce = secret_of(worker), bytes(32)
        told = small_payload(hello)
        proof = prove(secret, b"client", VERSION, told[:NONCE], nonce, told[NONCE:])
        writer.write(small_frame(FrameKind.AUTH, nonce + proof, version=VERSION))
        for number in range(12):
            writer.write(b"".join(infer_frame(number, vid(spec), 1, 60 * 10**6, row(1))))
        await until(lambda: [r for r in caplog.records if "does not read" in r.message])
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        writer.close()


async def test_two_connections_share_one_worker(worker: WorkerConfig) -> None:
    spec = echo_spec(options={"latency_ms": "10"}, latency=((1, 10.0), (8, 10.0)))
    async with running(worker) as (_, first):
        await first.load(spec, 60.0)
        second = await connect(first.address, worker)
        replies = await asyncio.gather(
            *(ask(each, spec, row(n)) for n in range(6) for each in (first, second))
        )
        assert [r.outputs[0][0, 0] for r in replies] == [n for n in range(6) for _ in "ab"]
        assert max(reply.batch_size for reply in replies) == 8
        second.close()
