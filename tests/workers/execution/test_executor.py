"""The executor behind a real socket: batches, and what is refused at once."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.builders import (
    ask,
    double_model,
    echo_spec,
    onnx_spec,
    row,
    running,
    tensor,
    vid,
)
from tests.workers.execution.asking import CONTROL_S, SLOW, ask_all
from variants.types import TaskName
from workers.execution import outcomes
from workers.execution.running import Group, run_batch
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode, WorkerConfig


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
