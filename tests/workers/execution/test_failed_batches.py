"""Batches that fail: whose query it is, and when a variant goes into quarantine."""

import asyncio
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

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
    tensor,
    until,
)
from tests.workers.execution.asking import CONTROL_S, SLOW, Ill, ask_all, named, replica
from variants.errors import Conflict
from variants.types import ReplicaState
from workers.execution import batch_runner, outcomes
from workers.types import ReplyCode, WorkerConfig


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


@pytest.mark.parametrize("asked_before", [True, False])
async def test_a_variant_that_gives_nan_for_what_it_had_answered_goes_into_quarantine(
    worker: WorkerConfig, asked_before: bool
) -> None:
    """Where nobody has asked it, what it was asked when it was loaded."""
    spec = echo_spec()
    async with running(worker) as (host, connection):
        await connection.load(spec, CONTROL_S)
        if asked_before:
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
            "its answer of 3 rows has 1,200,000 bytes: too many for one reply"
        )
        assert lost == []
        narrow.close()


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
