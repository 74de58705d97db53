"""The executor behind a real socket: batches, refusals, poison, quarantine, loading, leaving."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pytest

from tests.workers.builders import (
    ask,
    config,
    connect,
    double_model,
    echo_spec,
    onnx_spec,
    row,
    running,
    socket_of,
    tensor,
    until,
    vid,
)
from tests.workers.gated import Gates
from variants.errors import Conflict, Overloaded, VariantNotLoadable
from variants.types import ReplicaState, TaskName, VariantName
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.execution import batch_runner, outcomes
from workers.execution.replies import send_outputs
from workers.execution.running import Group, run_batch
from workers.runtimes.protocol import Runtime, Tensor
from workers.types import LoadSpec, ReplicaStatus, ReplyCode, WorkerConfig


@pytest.fixture
def worker(tmp_path: Path) -> WorkerConfig:
    return config(tmp_path)


CONTROL_S = 60.0
"""How long a load, an unload or a drain may take on a machine that others keep busy."""
SLOW = echo_spec(options={"latency_ms": "30"}, latency=((1, 30.0), (8, 30.0)))
"""Every batch of up to eight rows takes 30 ms."""


def named(spec: LoadSpec, variant: str, **changes: object) -> LoadSpec:
    return replace(spec, variant=VariantName(variant), **changes)  # type: ignore[arg-type]


async def ask_all(
    connection: WorkerConnection, spec: LoadSpec, values: list[float], budget_ms: float = 60_000.0
) -> list[Reply]:
    """One query for each value, sent at once."""
    return await asyncio.gather(
        *(ask(connection, spec, row(value), budget_ms=budget_ms) for value in values)
    )


def replica(connection_status: tuple[ReplicaStatus, ...], variant: str) -> ReplicaStatus:
    return next(status for status in connection_status if status.variant == variant)


def sockets(worker: WorkerConfig) -> list[int]:
    """Modes of the sockets in the worker's folder."""
    return [path.stat().st_mode & 0o777 for path in Path(worker.run_dir).glob("*.sock")]


def remove(connection: WorkerConnection) -> None:
    socket_of(connection).unlink()


@pytest.mark.parametrize("inline", [True, False], ids=["on the loop", "in the thread"])
async def test_queries_that_wait_run_as_one_batch_and_each_gets_its_own_rows(
    worker: WorkerConfig, tmp_path: Path, inline: bool
) -> None:
    ms = 0.001 if inline else 1.0
    spec = onnx_spec(double_model(tmp_path / "m.onnx"), latency=((1, ms), (64, ms)))
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        await ask(connection, spec, row(0))  # proves it: the first run is always in the thread
        rows = [np.full((n, 4), n, dtype=np.float32) for n in (1, 2, 3, 1)]
        replies = await asyncio.gather(*(ask(connection, spec, [r]) for r in rows))
        assert [r.outputs[0].tolist() for r in replies] == [(2 * r).tolist() for r in rows]
        assert max(reply.batch_size for reply in replies) > 1
        assert all(reply.batch_size <= 7 for reply in replies)


async def test_several_inputs_and_outputs_keep_their_order_and_types(worker: WorkerConfig) -> None:
    spec = replace(
        echo_spec(options={"latency_ms": "5"}),
        inputs=(tensor("a", 3, "int64"), tensor("b", 1, "bool")),
        outputs=(tensor("p", 2, "float32"), tensor("q", 3, "int32")),
    )
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        queries = [[np.full((1, 3), n), np.ones((1, 1), dtype=bool)] for n in (5, 6, 7)]
        replies = await asyncio.gather(*(ask(connection, spec, q) for q in queries))
        assert [[t.tolist() for t in r.outputs] for r in replies] == [
            [[[n, n]], [[n, n, n]]] for n in (5, 6, 7)
        ]
        assert {str(t.dtype) for t in replies[0].outputs} == {"float32", "int32"}


async def test_a_query_that_cannot_be_in_time_is_refused_at_once(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        await connection.load(SLOW, CONTROL_S)
        reply = await ask(connection, SLOW, row(1), budget_ms=20)
        assert (reply.code, reply.message) == (
            ReplyCode.OVERLOADED, "this query, or one taken before it, would be late",
        )  # fmt: skip


async def test_without_trust_in_profiles_a_query_runs_whatever_its_profile_says(
    worker: WorkerConfig,
) -> None:
    """It takes 1 ms, its profile says 100 s: by the profile no query would ever be admitted."""
    spec = echo_spec(options={"latency_ms": "1"}, latency=((1, 100_000.0), (8, 100_000.0)))
    async with running(replace(worker, batching="aimd")) as (_, connection):
        await connection.load(spec, CONTROL_S)
        replies = await ask_all(connection, spec, list(range(16)))
        assert [reply.outputs[0][0, 0] for reply in replies] == list(range(16))
        assert max(reply.batch_size for reply in replies) > 1


async def test_a_reply_says_how_much_work_is_left(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        await connection.load(SLOW, CONTROL_S)
        replies = await ask_all(connection, SLOW, [1] * 17)
        refused = await ask(connection, SLOW, row(1), budget_ms=0)
        assert refused.backlog_us == 0
        assert max(reply.backlog_us for reply in replies) >= 30_000
        assert all(reply.run_us >= 30_000 for reply in replies)
        assert max(reply.queue_us for reply in replies) >= 30_000


WRONG: dict[str, list[Tensor]] = {
    "width": [np.zeros((1, 5), dtype=np.float32)],
    "type": [np.zeros((1, 4), dtype=np.float64)],
    "number of tensors": [np.zeros((1, 4), dtype=np.float32)] * 2,
    "no rows": [np.zeros((0, 4), dtype=np.float32)],
    "too many rows": [np.zeros((9, 4), dtype=np.float32)],
    "rank": [np.zeros((4,), dtype=np.float32)],
    "no tensor": [],
}


@pytest.mark.parametrize("case", WRONG)
async def test_tensors_without_the_signature_are_refused(worker: WorkerConfig, case: str) -> None:
    async with running(worker) as (_, connection):
        await connection.load(echo_spec(), CONTROL_S)
        tensors = WRONG[case]
        rows = len(tensors[0]) if tensors else 1
        assert (await ask(connection, echo_spec(), tensors, rows=rows)).code is ReplyCode.INVALID


async def test_a_wrong_count_of_rows_is_refused(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        await connection.load(echo_spec(), CONTROL_S)
        assert (await ask(connection, echo_spec(), row(1), rows=2)).code is ReplyCode.INVALID


async def test_a_byte_that_is_no_truth_value_is_refused(worker: WorkerConfig) -> None:
    spec = replace(echo_spec(), inputs=(tensor("x", 4, "bool"),))
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        wrong = np.array([[0, 1, 2, 0]], dtype=np.uint8).view(np.bool_)
        assert (await ask(connection, spec, [wrong])).code is ReplyCode.INVALID


async def test_a_poisonous_query_fails_alone(worker: WorkerConfig) -> None:
    spec = replace(SLOW, options=(("fail_value", "13"), ("latency_ms", "5")))
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        replies = await ask_all(connection, spec, [1, 2, 13, 4])
        assert [r.code for r in replies] == [
            ReplyCode.OK, ReplyCode.OK, ReplyCode.INVALID, ReplyCode.OK,
        ]  # fmt: skip
        assert [r.outputs[0][0, 0] for r in replies if r.outputs] == [1, 2, 4]
        assert "on which it is to fail" in replies[2].message
        assert host.status().replicas[0].state is ReplicaState.READY


async def test_an_output_that_is_not_finite_fails_its_query_only(
    worker: WorkerConfig, tmp_path: Path
) -> None:
    spec = onnx_spec(double_model(tmp_path / "m.onnx"))
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        replies = await ask_all(connection, spec, [1, float("nan"), 3e38, 1e30])
        assert [r.code for r in replies] == [
            ReplyCode.OK, ReplyCode.FAILED, ReplyCode.FAILED, ReplyCode.OK,
        ]  # fmt: skip
        assert replies[1].message == (
            "task/v gave values that are not finite (NaN or infinity) for output 'y'"
        )
        assert [r.for_client for r in replies] == [False, True, True, False]


async def test_inputs_without_a_finite_answer_say_nothing_against_the_variant(
    worker: WorkerConfig, tmp_path: Path
) -> None:
    spec = onnx_spec(double_model(tmp_path / "m.onnx"))
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        values = (float("inf"), 3e38, 1, 3e38, float("nan"), 3e38, 2)
        codes = [(await ask(connection, spec, row(value))).code for value in values]
        assert codes == [
            ReplyCode.FAILED, ReplyCode.FAILED, ReplyCode.OK, ReplyCode.FAILED, ReplyCode.FAILED,
            ReplyCode.FAILED, ReplyCode.OK,
        ]  # fmt: skip
        assert host.status().replicas[0].state is ReplicaState.READY


class Ill:
    """A runtime whose numbers are not finite any more."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [np.full_like(output, np.nan) for output in self.runtime.run(inputs)]

    def __getattr__(self, name: str) -> object:
        return getattr(self.runtime, name)


async def test_a_variant_that_gives_nan_for_what_it_had_answered_goes_into_quarantine(
    worker: WorkerConfig,
) -> None:
    spec = echo_spec()
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        assert host._executor is not None
        (loaded,) = host._executor.replicas.values()
        assert loaded.runtime is not None
        loaded.runtime = Ill(loaded.runtime)  # type: ignore[assignment]
        codes = [(await ask(connection, spec, row(value))).code for value in (2, 3, 4)]
        assert codes == [ReplyCode.FAILED, ReplyCode.FAILED, ReplyCode.QUARANTINED]
        shown = replica(host.status().replicas, "v")
        assert shown.message == (
            "2 batches failed in a row; the last: task/v gives no finite numbers any more"
        )


@pytest.mark.parametrize("first", [1, 13])
async def test_queries_that_cannot_be_run_say_nothing_against_the_variant(
    worker: WorkerConfig, first: float
) -> None:
    spec = echo_spec(options={"fail_value": "13"})
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        codes = [(await ask(connection, spec, row(one))).code for one in (first, 13, 13, 13, 1)]
        asked = ReplyCode.OK if first == 1 else ReplyCode.INVALID
        assert codes == [asked, *([ReplyCode.INVALID] * 3), ReplyCode.OK]
        assert host.status().replicas[0].state is ReplicaState.READY


async def test_two_failed_batches_in_a_row_put_a_variant_into_quarantine(
    worker: WorkerConfig,
) -> None:
    spec = echo_spec(options={"fail_after": "3"})
    other = named(echo_spec(), "other")
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        await connection.load(other, CONTROL_S)
        codes = [(await ask(connection, spec, row(value))).code for value in range(5)]
        assert codes == [
            ReplyCode.OK, ReplyCode.OK, ReplyCode.FAILED, ReplyCode.FAILED, ReplyCode.QUARANTINED,
        ]  # fmt: skip
        await until(lambda: host.status().reserved_mib == 10)
        shown = replica(host.status().replicas, "v")
        assert shown.state is ReplicaState.QUARANTINED
        assert shown.message.startswith("2 batches failed in a row; the last: task/v has run")
        with pytest.raises(Conflict, match="is in quarantine"):
            await connection.load(spec, CONTROL_S)
        await connection.unload("task", "v", CONTROL_S)
        assert (await ask(connection, other, row(1))).code is ReplyCode.OK
        await connection.readmit("task", "v", CONTROL_S)
        await connection.load(spec, CONTROL_S)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK


async def test_a_variant_that_fails_while_it_is_unloaded_is_just_unloaded(
    worker: WorkerConfig,
) -> None:
    failing = replace(SLOW, options=(("fail_value", "13"),), latency=((1, 30.0),))
    async with running(worker) as (host, connection):
        await connection.load(SLOW, CONTROL_S)
        other = named(failing, "failing")
        await connection.load(other, CONTROL_S)
        busy = asyncio.create_task(ask(connection, SLOW, row(1)))
        asked = asyncio.create_task(ask_all(connection, other, [13] * 3))
        await until(lambda: any(one.queued for one in host.status().replicas))
        await connection.unload("task", "failing", CONTROL_S)
        assert [reply.code for reply in await asked] == [ReplyCode.INVALID] * 3
        assert (await busy).code is ReplyCode.OK
        assert [status.variant for status in host.status().replicas] == ["v"]
        assert (await ask(connection, SLOW, row(1))).code is ReplyCode.OK
        host.check()


async def test_batches_that_fail_teach_nothing_about_latency(worker: WorkerConfig) -> None:
    spec = replace(SLOW, options=(("fail_value", "13"), ("latency_ms", "30")))
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        for value in (13, 1) * 4:
            await ask(connection, spec, row(value))
        assert (await ask(connection, spec, row(1), budget_ms=29.9)).code is ReplyCode.OVERLOADED


async def test_a_crash_ledger_that_cannot_be_written_costs_no_answer(
    worker: WorkerConfig, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with running(replace(worker, quarantine_dir=str(ledger))) as (host, connection):
        await connection.load(echo_spec(), CONTROL_S)
        rmtree(ledger)
        assert (await ask(connection, echo_spec(), row(1))).code is ReplyCode.OK
        host.check()


async def test_a_crash_ledger_that_cannot_be_written_costs_no_load(
    worker: WorkerConfig, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with running(replace(worker, quarantine_dir=str(ledger))) as (host, connection):
        rmtree(ledger)
        await connection.load(echo_spec(), CONTROL_S)
        assert (await ask(connection, echo_spec(), row(1))).code is ReplyCode.OK
        host.check()


async def test_an_answer_too_large_for_a_frame_breaks_no_connection(tmp_path: Path) -> None:
    worker = config(tmp_path, max_frame_mib=1)
    wide = replace(echo_spec(), outputs=(tensor("y", 100_000),))
    lost: list[str] = []
    async with running(worker) as (_, connection):
        await connection.load(wide, CONTROL_S)
        address = connection.address
        narrow = await connect(address, worker, max_frame_mib=1, on_lost=lost.append)
        queries = [[np.zeros((rows, 4), dtype=np.float32)] for rows in (1, 3, 1)]
        replies = [await ask(narrow, wide, query) for query in queries]
        assert [reply.code for reply in replies] == [
            ReplyCode.OK, ReplyCode.INVALID, ReplyCode.OK,
        ]  # fmt: skip
        assert replies[1].message == (
            "its answer of 3 rows has 1200000 bytes: too many for one reply"
        )
        assert lost == []
        narrow.close()


async def test_a_variant_that_is_not_loaded_is_cold(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        assert (await ask(connection, SLOW, row(1))).code is ReplyCode.COLD


async def test_a_query_waits_for_a_load_that_ends_in_time_only(
    worker: WorkerConfig, gates: Gates
) -> None:
    """The load is expected to take half a minute."""
    spec = replace(echo_spec(load_s=30.0), runtime="gated")
    gates.loads.clear()
    async with running(worker) as (host, connection):
        loading = asyncio.create_task(connection.load(spec, CONTROL_S))
        await until(lambda: host.status().replicas)
        short = await ask(connection, spec, row(1), budget_ms=10_000)
        assert (short.code, short.message) == (ReplyCode.COLD, "it is still loading")
        long = asyncio.create_task(ask(connection, spec, row(2)))
        await until(lambda: host.status().replicas[0].queued == 1)
        gates.loads.set()
        assert (await long).code is ReplyCode.OK
        await loading


async def test_a_query_that_waits_for_a_load_expires_when_the_load_is_late(
    worker: WorkerConfig, gates: Gates
) -> None:
    spec = replace(echo_spec(load_s=0.05), runtime="gated")
    gates.loads.clear()
    async with running(worker) as (host, connection):
        loading = asyncio.create_task(connection.load(spec, CONTROL_S))
        await until(lambda: host.status().replicas)
        assert (await ask(connection, spec, row(1), budget_ms=150)).code is ReplyCode.EXPIRED
        gates.loads.set()
        await loading


async def test_a_query_that_nobody_waits_for_does_not_run(worker: WorkerConfig) -> None:
    """Nor does one of another connection with the same number leave for it."""
    full: list[Tensor] = [np.ones((8, 4), dtype=np.float32)]
    async with running(worker) as (host, connection):
        other = await connect(connection.address, worker)
        await connection.load(SLOW, CONTROL_S)
        replies: list[Reply] = []
        theirs: list[Reply] = []
        ids = [connection.infer(vid(SLOW), 8, 60_000_000, full, replies.append) for _ in range(20)]
        for _ in range(ids[-1] - 1):  # the last of these has the number of the last of the others
            other.infer(vid(SLOW), 1, 60_000_000, row(2), theirs.append)
        for request_id in (9_999, *ids):  # there is no query of the first number
            connection.withdraw(request_id)
        await until(lambda: len(replies) == 20 and len(theirs) == ids[-1] - 1)
        codes = [reply.code for reply in replies]
        assert codes.count(ReplyCode.EXPIRED) >= 10, codes
        assert {reply.code for reply in theirs} == {ReplyCode.OK}
        assert host._running().in_flight == 0
        connection.withdraw(ids[0])  # it has its reply
        assert (await ask(connection, SLOW, row(3))).code is ReplyCode.OK
        other.close()


async def test_a_query_that_waits_for_a_load_may_be_withdrawn(
    worker: WorkerConfig, gates: Gates
) -> None:
    spec = replace(echo_spec(load_s=30.0), runtime="gated")
    gates.loads.clear()
    async with running(worker) as (host, connection):
        loading = asyncio.create_task(connection.load(spec, CONTROL_S))
        await until(lambda: host.status().replicas)
        replies: list[Reply] = []
        number = connection.infer(vid(spec), 1, 60_000_000, row(1), replies.append)
        await until(lambda: host.status().replicas[0].queued == 1)
        connection.withdraw(number)
        await until(lambda: replies)
        assert replies[0].code is ReplyCode.EXPIRED
        gates.loads.set()
        await loading


async def test_a_worker_of_a_release_that_lets_nothing_go_is_told_of_nothing(
    worker: WorkerConfig,
) -> None:
    """It would end the connection for a frame that it does not know."""
    async with running(worker) as (host, connection):
        await connection.load(SLOW, CONTROL_S)
        connection.status = replace(connection.status, withdraws=False)
        replies: list[Reply] = []
        number = connection.infer(vid(SLOW), 1, 60_000_000, row(1), replies.append)
        connection.withdraw(number)
        await until(lambda: replies)
        assert replies[0].code is ReplyCode.OK
        assert not host._running()._withdrawn


async def test_others_serve_while_one_loads(worker: WorkerConfig, gates: Gates) -> None:
    slow = named(echo_spec(), "slow", runtime="gated")
    gates.loads.clear()
    async with running(worker) as (host, connection):
        await connection.load(echo_spec(), CONTROL_S)
        loading = asyncio.create_task(connection.load(slow, CONTROL_S))
        await until(lambda: len(host.status().replicas) == 2)
        assert (await ask(connection, echo_spec(), row(1))).code is ReplyCode.OK
        assert not loading.done()
        gates.loads.set()
        await loading


async def test_loading_twice_takes_over_the_share_and_loads_once(worker: WorkerConfig) -> None:
    """A profile says 100 s, the next one 1 ms; it takes no time."""
    spec = echo_spec(latency=((1, 100_000.0), (8, 100_000.0)))
    async with running(worker) as (host, connection):
        first, second = await asyncio.gather(*(connection.load(spec, CONTROL_S) for _ in range(2)))
        assert first.state is second.state is ReplicaState.READY
        assert host.status().reserved_mib == 10.0
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OVERLOADED
        await connection.load(replace(spec, latency=((1, 1.0), (2, 1.0)), share=0.5), CONTROL_S)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        wide = [np.zeros((3, 4), dtype=np.float32)]
        assert (await ask(connection, spec, wide)).code is ReplyCode.INVALID


async def test_unloading_waits_for_what_is_in_flight(worker: WorkerConfig, gates: Gates) -> None:
    spec = replace(SLOW, runtime="gated")
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        gates.runs.clear()
        asked = asyncio.create_task(ask_all(connection, spec, [1] * 12))
        await until(lambda: host.status().replicas[0].queued == 12)
        unloading = asyncio.create_task(connection.unload("task", "v", CONTROL_S))
        await until(lambda: host.status().replicas[0].state is ReplicaState.UNLOADING)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.COLD
        assert not unloading.done()
        gates.runs.set()
        assert [reply.code for reply in await asked] == [ReplyCode.OK] * 12
        await unloading
        assert host.status().replicas == ()
        await connection.unload("task", "v", CONTROL_S)
        await connection.load(SLOW, CONTROL_S)
        assert (await ask(connection, SLOW, row(1))).code is ReplyCode.OK


async def test_a_load_without_room_is_refused(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        await connection.load(replace(SLOW, memory_mib=60.0), CONTROL_S)
        with pytest.raises(Overloaded, match=r"task/w needs 60\.0 MiB, 40\.0 MiB are free here"):
            await connection.load(named(SLOW, "w", memory_mib=60.0), CONTROL_S)
        # No query has asked for what is there: it leaves for what one asks for.
        asked = named(SLOW, "w", memory_mib=60.0)
        await connection.load(asked, CONTROL_S, make_room=True, waiting=True)
        assert [one.variant for one in (await connection.load(asked, CONTROL_S),)] == ["w"]


async def test_memory_is_reserved_from_the_start_of_a_load(worker: WorkerConfig) -> None:
    slow = replace(echo_spec(options={"load_s": "0.2"}), memory_mib=60.0)
    async with running(worker) as (host, connection):
        found = await asyncio.gather(
            *(connection.load(named(slow, f"v{i}"), CONTROL_S) for i in range(3)),
            return_exceptions=True,
        )
        assert [isinstance(each, Overloaded) for each in found] == [False, True, True]
        assert host.status().reserved_mib == 60.0


async def test_a_failed_load_leaves_its_reason_and_nothing_else(
    worker: WorkerConfig, tmp_path: Path
) -> None:
    async with running(worker) as (host, connection):
        spec = onnx_spec(tmp_path / "none.onnx")
        with pytest.raises(Exception, match="cannot be loaded"):
            await connection.load(spec, CONTROL_S)
        [failed] = host.status().replicas
        assert (failed.state, failed.message) == (
            ReplicaState.DAMAGED,
            "its artifact 000000000000 is missing",
        )
        assert (failed.memory_mib, host.status().reserved_mib) == (0.0, 0.0)


async def test_outputs_that_are_not_the_task_s_fail_the_load(
    worker: WorkerConfig, tmp_path: Path
) -> None:
    spec = onnx_spec(double_model(tmp_path / "m.onnx"), outputs=(tensor("y", 3),))
    async with running(worker) as (_, connection):
        with pytest.raises(Exception, match=r"gives float32 \[1, 4\] for one row, the task has"):
            await connection.load(spec, CONTROL_S)


async def test_without_trust_in_profiles_a_worker_leaves_in_order_whatever_failed(
    worker: WorkerConfig,
) -> None:
    wrong = named(echo_spec(options={"latency_ms": "soon"}), "wrong")
    async with running(replace(worker, batching="aimd")) as (host, connection):
        await connection.load(echo_spec(), CONTROL_S)
        with pytest.raises(VariantNotLoadable):
            await connection.load(wrong, CONTROL_S)
        assert replica(host.status().replicas, "wrong").state is ReplicaState.FAILED
    assert sockets(worker) == []


async def test_draining_refuses_new_queries_and_answers_the_others(
    worker: WorkerConfig, gates: Gates
) -> None:
    spec = replace(SLOW, runtime="gated")
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        gates.runs.clear()
        asked = asyncio.create_task(ask_all(connection, spec, [1] * 12))
        await until(lambda: host.status().replicas[0].queued == 12)
        draining = asyncio.create_task(connection.drain(CONTROL_S))
        await until(lambda: connection.status.draining)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.DRAINING
        gates.runs.set()
        assert [reply.code for reply in await asked] == [ReplyCode.OK] * 12
        await draining
        assert host.status().draining
        assert host.told_to_leave


async def test_a_worker_that_stops_by_itself_was_not_told_to_leave(worker: WorkerConfig) -> None:
    async with running(worker) as (host, connection):
        await host.drain_and_stop(CONTROL_S)  # its gateway says that it has heard
        assert connection.status.draining
        assert not host.told_to_leave


async def test_stopping_answers_what_was_admitted_and_removes_the_socket(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        lost: list[str] = []
        other = await connect(connection.address, worker, on_lost=lost.append)
        await connection.load(SLOW, CONTROL_S)
        asked = asyncio.create_task(ask_all(other, SLOW, [1] * 12))
        await until(lambda: host.status().replicas[0].queued)
        await host.drain_and_stop(CONTROL_S)
        assert [reply.code for reply in await asked] == [ReplyCode.OK] * 12
        await until(lambda: lost)
        assert sockets(worker) == []


async def test_a_query_on_its_way_to_a_worker_that_leaves_is_refused_and_not_lost(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        await connection.load(SLOW, CONTROL_S)
        transport = connection._transport
        assert transport is not None
        transport.pause_reading()  # this side is busy with other things, and hears of it late
        stopping = asyncio.create_task(host.drain_and_stop(CONTROL_S))
        await asyncio.sleep(0.1)  # enough to close everything, if it did not wait
        asked = asyncio.create_task(ask(connection, SLOW, row(1)))
        await asyncio.sleep(0)
        transport.resume_reading()
        assert (await asked).code is ReplyCode.DRAINING
        assert (await ask(connection, SLOW, row(1))).code in (
            ReplyCode.DRAINING,
            ReplyCode.LOST,  # once all have heard of it
        )
        await stopping


async def test_a_worker_that_leaves_does_not_wait_for_who_never_hears_of_it(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        assert connection._transport is not None
        connection._transport.pause_reading()
        await host.drain_and_stop(0.05)
        assert sockets(worker) == []


async def test_the_correction_follows_what_is_observed(worker: WorkerConfig) -> None:
    """A variant that takes 30 ms and says 10 is refused a budget of 20 once it has been seen."""
    optimist = replace(SLOW, latency=((1, 10.0),))
    async with running(worker) as (_, connection):
        await connection.load(optimist, CONTROL_S)
        for _ in range(10):
            assert (await ask(connection, optimist, row(1))).code is ReplyCode.OK
        reply = await ask(connection, optimist, row(1), budget_ms=20)
        assert reply.code is ReplyCode.OVERLOADED


async def test_live_latency_is_told_as_a_multiple_of_the_profile(worker: WorkerConfig) -> None:
    pessimist = replace(SLOW, typical=((1, 300.0), (8, 300.0)))
    async with running(worker) as (_, connection):
        await connection.load(pessimist, CONTROL_S)
        for _ in range(10):
            await ask(connection, pessimist, row(1))
        await until(lambda: told(connection).batches >= 10)
        assert told(connection).live_ratio < 1.0
        await connection.load(replace(pessimist, typical=((1, 30.0),)), CONTROL_S)
        await until(lambda: told(connection).batches == 0)
        assert told(connection).live_ratio == 1.0


async def test_what_batches_take_that_follow_on_one_another_is_told(worker: WorkerConfig) -> None:
    """Seven lone queries leave open what a pause costs; twenty that wait for one another do not."""
    spec = replace(SLOW, typical=((1, 30.0),), latency=((1, 30.0),))
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        for _ in range(7):
            await ask(connection, spec, row(1), budget_ms=5_000)
            await asyncio.sleep(0.01)
        await until(lambda: told(connection).batches >= 7)
        [(rows, _, unsure)] = told(connection).busy
        assert rows == 1
        for _ in range(4):
            await asyncio.gather(
                *(ask(connection, spec, row(1), budget_ms=5_000) for _ in range(5))
            )
        await until(lambda: told(connection).busy[0][2] < unsure)
        assert told(connection).busy_sure > 1.0


async def test_where_a_batch_runs_follows_from_what_the_runtime_takes(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is predicted has the waking and the hand-over in it, which say nothing of that."""
    threads: list[threading.Thread] = []

    def run(*args: Any) -> list[Group]:
        threads.append(threading.current_thread())
        return run_batch(*args)

    monkeypatch.setattr(outcomes, "run_batch", run)
    profile = ((1, 0.05), (8, 0.05))
    spec = echo_spec(latency=profile, typical=profile)
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        await ask(connection, spec, row(0))
        running_here = host._executor
        assert running_here is not None
        replica = running_here.replicas[vid(spec)]
        for taken_ms, inline in ((0.05, True), (0.9, False), (0.05, True)):
            for _ in range(300):
                replica.took(1, taken_ms, outcomes.now_ms())
            for at_ms in range(0, 60_000, 1_000):  # in the runtime's thread, and after idling
                running_here.costs.ran(replica.queue, replica.model, 1, at_ms, taken_ms + 0.6)
            await ask(connection, spec, row(0))
            assert (threads[-1] is threading.main_thread()) == inline


@pytest.mark.parametrize("inline_ms", [1_000.0, 0.0], ids=["on the event loop", "in the thread"])
async def test_a_mistake_while_a_batch_runs_is_an_answer(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch, inline_ms: float
) -> None:
    spec = echo_spec()
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        here = host._executor
        assert here is not None
        [replica] = here.replicas.values()
        while not replica.proven:
            await ask(connection, spec, row(0))
        here._inline_ms = inline_ms
        with monkeypatch.context() as patch:
            patch.setattr(outcomes, "run_batch", lambda *_: 1 // 0)
            reply = await ask(connection, spec, row(1))
        assert reply.code is ReplyCode.FAILED
        assert "ZeroDivisionError" in reply.message
        assert here.in_flight == 0
        assert (await ask(connection, spec, row(2))).code is ReplyCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(here._ledger, "leave", lambda: 1 // 0)
            reply = await ask(connection, spec, row(3))
        assert reply.code is ReplyCode.FAILED
        assert "ZeroDivisionError" in reply.message
        assert (await ask(connection, spec, row(4))).code is ReplyCode.OK


@pytest.mark.parametrize("inline_ms", [1_000.0, 0.0], ids=["on the event loop", "in the thread"])
@pytest.mark.parametrize(
    ("where", "is_answered"), [("send_outputs", False), ("finished", False), ("_learn", True)]
)
async def test_a_mistake_after_a_batch_leaves_nobody_without_an_answer(
    worker: WorkerConfig,
    monkeypatch: pytest.MonkeyPatch,
    inline_ms: float,
    where: str,
    is_answered: bool,
) -> None:
    spec = echo_spec()
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        here = host._executor
        assert here is not None
        [replica] = here.replicas.values()
        while not replica.proven:
            await ask(connection, spec, row(0))
        here._inline_ms = inline_ms
        owner = {"send_outputs": batch_runner, "finished": here.queue, "_learn": here}[where]
        with monkeypatch.context() as patch:
            patch.setattr(owner, where, lambda *_: 1 // 0)
            reply = await ask(connection, spec, row(1))
            await until(lambda: here.in_flight == 0)
        if is_answered:
            assert reply.code is ReplyCode.OK
        else:
            assert reply.code is ReplyCode.FAILED
            assert "ZeroDivisionError" in reply.message
        assert (await ask(connection, spec, row(2))).code is ReplyCode.OK
        assert here.in_flight == 0


async def test_what_passes_between_batches_is_part_of_what_a_queue_is_predicted_to_take(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answering a batch takes 20 ms here."""

    def send(*args: Any) -> None:
        time.sleep(0.02)
        send_outputs(*args)

    monkeypatch.setattr(batch_runner, "send_outputs", send)
    profile = ((1, 10.0),)
    spec = echo_spec(options={"latency_ms": "10"}, latency=profile, typical=profile)
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        await asyncio.gather(*[ask(connection, spec, row(0)) for _ in range(30)])
        here = host._executor
        assert here is not None
        [replica] = here.replicas.values()
        assert replica.queue.between_ms > 10.0


async def test_a_worker_tells_what_batches_take_and_how_often_it_was_right(
    worker: WorkerConfig,
) -> None:
    spec = replace(SLOW, typical=SLOW.latency)
    async with running(worker) as (_, connection):
        await connection.load(spec, CONTROL_S)
        assert (told(connection).latency, told(connection).within) == ((), None)
        for _ in range(6):
            await ask(connection, spec, row(1))
        await until(lambda: told(connection).batches >= 6)
        ((rows, mean_ms, p95_ms),) = told(connection).latency
        assert rows == 1
        assert 30.0 <= mean_ms <= p95_ms
        within = told(connection).within
        assert within is not None
        assert 0.0 <= within <= 1.0


def told(connection: WorkerConnection) -> ReplicaStatus:
    (only,) = connection.status.replicas
    return only


async def test_a_task_above_its_share_leaves_room_once_the_other_was_refused(
    worker: WorkerConfig,
) -> None:
    greedy = echo_spec(
        task=TaskName("greedy"), options={"latency_ms": "40"}, latency=((1, 40.0),), share=0.5
    )
    modest = echo_spec(
        task=TaskName("modest"), options={"latency_ms": "120"}, latency=((1, 120.0),), share=0.5
    )
    async with running(worker) as (_, connection):
        await connection.load(greedy, CONTROL_S)
        await connection.load(modest, CONTROL_S)

        async def beside_a_flood() -> tuple[ReplyCode, int]:
            """What becomes of a modest query, and how many greedy ones are answered."""
            flood = asyncio.create_task(ask_all(connection, greedy, [1] * 60, budget_ms=800))
            await asyncio.sleep(0.02)
            reply = await ask(connection, modest, row(1), budget_ms=600)
            return reply.code, sum(each.code is ReplyCode.OK for each in await flood)

        code, many = await beside_a_flood()
        assert code is ReplyCode.OVERLOADED
        code, fewer = await beside_a_flood()
        assert code is ReplyCode.OK
        assert 0 < fewer < many


async def test_a_worker_whose_socket_was_removed_listens_again(worker: WorkerConfig) -> None:
    """It left, and so did all others of its machine: for seconds nothing answered."""
    async with running(worker) as (host, connection):
        before = socket_of(connection)
        remove(connection)
        await until(before.exists)
        host.check()
        assert sockets(worker) == [0o600]
        another = await connect(f"unix:{before}", worker)
        assert another.status.worker == connection.status.worker
        another.close()


async def test_the_health_check_sees_a_socket_that_was_removed(worker: WorkerConfig) -> None:
    from variants.errors import Internal

    async with running(worker) as (host, connection):
        host.check()
        assert sockets(worker) == [0o600]
        remove(connection)
        with pytest.raises(Internal, match="was removed"):
            host.check()
