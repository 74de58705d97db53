"""Queries and other loads beside a variant that is loaded or unloaded."""

import asyncio
from dataclasses import replace
from pathlib import Path

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
    until,
)
from tests.workers.execution.asking import CONTROL_S, SLOW, ask_all, named
from tests.workers.gated import Gates
from variants.errors import Overloaded
from variants.types import ReplicaState
from workers.types import ReplyCode, WorkerConfig


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
