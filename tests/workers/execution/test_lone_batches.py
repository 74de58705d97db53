"""Batches that check a profile: what a worker learns from them, and what they leave alone."""

import asyncio
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from planner.live_model import SHIFTED
from planner.reconcile.corrections.correction import ENOUGH
from tests.workers.builders import ask, config, echo_spec, row, running, tensor, until, vid
from tests.workers.gated import Gates
from variants.errors import NotFound, Overloaded, RuntimeFailed
from workers.execution import lone_batches
from workers.execution.lone_batches import MANY
from workers.host import WorkerHost
from workers.process.quarantine import CrashLedger
from workers.types import FEW, LoadSpec, ReplicaStatus, ReplyCode, WorkerConfig

WAIT_S = 60.0
FALSE = echo_spec(latency=((1, 200.0), (8, 400.0)), typical=((1, 200.0), (8, 400.0)))
"""It takes next to nothing, and 200 ms by its profile."""


def told(host: WorkerHost) -> ReplicaStatus:
    return host.status().replicas[0]


async def test_what_is_far_quicker_than_its_profile_is_admitted_after_a_check(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_batches, "MOST_MS", inf)  # a machine that is shared
    async with running(worker) as (host, connection):
        await connection.load(FALSE, WAIT_S)
        refused = await ask(connection, FALSE, row(1.0), budget_ms=150.0)
        assert refused.code is ReplyCode.OVERLOADED
        checked = await connection.check(FALSE.task, FALSE.variant, WAIT_S)
        assert checked.batches == MANY >= 2 * ENOUGH
        assert checked.total == MANY + SHIFTED
        assert checked.took_ms < 200.0
        seen = told(host)
        assert (seen.batches, seen.checks) == (MANY + SHIFTED, MANY + SHIFTED)
        assert seen.latency[0][1] < 150.0
        answered = await ask(connection, FALSE, row(1.0), budget_ms=150.0)
        assert answered.code is ReplyCode.OK


async def test_where_only_a_single_row_was_measured_wrongly_larger_batches_are_run_as_well(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row by its profile takes 200 ms, eight 210. Any batch takes 20."""
    monkeypatch.setattr(lone_batches, "MOST_MS", inf)
    profiled = ((1, 200.0), (8, 210.0))
    spec = echo_spec(options={"latency_ms": "20"}, latency=profiled, typical=profiled)
    async with running(worker) as (host, connection):
        await connection.load(spec, WAIT_S)
        checked = await connection.check(spec.task, spec.variant, WAIT_S)
        assert checked.spent_ms > checked.batches * 20.0
        assert [rows for rows, _, _ in told(host).latency] == [1, 8]


@pytest.mark.parametrize("profiled_ms", [20.0, 1.0], ids=["as profiled", "slower"])
async def test_what_is_not_quicker_costs_a_few_batches(
    worker: WorkerConfig, profiled_ms: float
) -> None:
    spec = echo_spec(
        options={"latency_ms": "20"}, latency=((1, 30.0),), typical=((1, profiled_ms),)
    )
    async with running(worker) as (host, connection):
        await connection.load(spec, WAIT_S)
        checked = await connection.check(spec.task, spec.variant, WAIT_S)
        assert checked.batches == told(host).batches == FEW
        assert checked.took_ms >= 20.0


async def test_one_batch_is_enough_of_what_takes_long(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_batches, "MOST_MS", 10.0)
    slow = ((1, 20.0),)
    spec = echo_spec(options={"latency_ms": "20"}, latency=slow, typical=slow)
    async with running(worker) as (_, connection):
        await connection.load(spec, WAIT_S)
        assert (await connection.check(spec.task, spec.variant, WAIT_S)).batches == 1


async def test_an_answer_that_is_too_large_to_be_sent_has_run_all_the_same(
    tmp_path: Path,
) -> None:
    wide = 300_000
    spec = replace(FALSE, inputs=(tensor("x", wide),), outputs=(tensor("y", wide),))
    async with running(config(tmp_path, max_frame_mib=1)) as (host, connection):
        await connection.load(spec, WAIT_S)
        checked = await connection.check(spec.task, spec.variant, WAIT_S)
        assert checked.batches >= FEW
        assert checked.total == told(host).batches


async def test_a_check_is_no_use_of_the_variant(worker: WorkerConfig) -> None:
    async with running(worker) as (host, connection):
        await connection.load(FALSE, WAIT_S)
        before = told(host)
        await connection.check(FALSE.task, FALSE.variant, WAIT_S)
        after = told(host)
        assert (after.asked, after.rate_qps, after.rows_per_query) == (False, 0.0, 0.0)
        assert after.idle_s >= before.idle_s


async def test_a_row_that_fails_is_held_against_nobody(worker: WorkerConfig) -> None:
    spec = replace(FALSE, inputs=(tensor("x", dtype="bool"),), options=(("fail_value", "1"),))
    async with running(worker) as (host, connection):
        await connection.load(spec, WAIT_S)
        for _ in range(3):
            with pytest.raises(RuntimeFailed):
                await connection.check(spec.task, spec.variant, WAIT_S)
        assert (told(host).state, told(host).checks) == ("ready", 0)


async def test_what_has_crashed_a_worker_is_not_checked_before_a_query_ran_it(
    tmp_path: Path,
) -> None:
    """A check would be the second crash, and the second puts it into quarantine."""
    crashes = tmp_path / "crashes"
    ledger = CrashLedger(str(crashes))
    ledger.open()
    ledger.hung(vid(FALSE).to_bytes(8, "big"), FALSE.task, FALSE.variant, "a batch hung")
    ledger.close()
    async with running(config(tmp_path, quarantine_dir=str(crashes))) as (_, connection):
        await connection.load(FALSE, WAIT_S)
        with pytest.raises(RuntimeFailed, match="crashed"):
            await connection.check(FALSE.task, FALSE.variant, WAIT_S)
        answered = await ask(connection, FALSE, row(1.0), budget_ms=1e3 * WAIT_S)
        assert answered.code is ReplyCode.OK
        assert (await connection.check(FALSE.task, FALSE.variant, WAIT_S)).batches


async def test_what_is_not_there_cannot_be_checked(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        with pytest.raises(NotFound):
            await connection.check(FALSE.task, FALSE.variant, WAIT_S)


async def test_queries_come_first(
    worker: WorkerConfig, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice that is never idle is not checked; as soon as it is, it is."""
    busy: LoadSpec = replace(FALSE, runtime="gated")
    async with running(worker) as (host, connection):
        await connection.load(busy, WAIT_S)
        gates.runs.clear()
        query = asyncio.create_task(ask(connection, busy, row(1.0)))
        await until(lambda: told(host).queued)
        monkeypatch.setattr(lone_batches, "PATIENCE_MS", 20.0)
        with pytest.raises(Overloaded):
            await connection.check(busy.task, busy.variant, WAIT_S)
        monkeypatch.setattr(lone_batches, "PATIENCE_MS", 1e3 * WAIT_S)
        check = asyncio.create_task(connection.check(busy.task, busy.variant, WAIT_S))
        gates.open()
        assert (await query).code is ReplyCode.OK
        assert (await check).batches >= FEW
