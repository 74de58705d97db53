"""The crash ledger, by itself and through worker processes that really die."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.builders import (
    ask,
    config,
    connect,
    echo_spec,
    process,
    row,
    running,
    until,
    vid,
)
from tests.workers.gated import Gates
from variants.errors import Conflict, Internal
from variants.types import ReplicaState
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.process.last_batch import (
    IDLE,
    NOTHING_RAN,
    Evidence,
    query_entry,
    read_last,
    read_running,
)
from workers.process.quarantine import WINDOW_S, CrashLedger, blamed
from workers.types import LoadSpec, ReplyCode, WorkerConfig

pytestmark = pytest.mark.slow

KEY, OTHER = b"variant1", b"variant2"


@pytest.fixture
def worker(tmp_path: Path) -> WorkerConfig:
    return config(tmp_path, quarantine_dir=str(tmp_path / "q"))


def ledger(folder: Path) -> CrashLedger:
    made = CrashLedger(str(folder))
    made.open()
    return made


def test_what_a_living_process_does_is_no_evidence(tmp_path: Path) -> None:
    first = ledger(tmp_path)
    first.suspect(KEY, "task", "v")
    first.enter(KEY)
    second = ledger(tmp_path)
    assert len(second.crashes_s(KEY)) == 0
    first.leave()
    first.clear(KEY)
    first.close()
    second.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".name"]


def test_what_a_living_process_runs_can_be_read(tmp_path: Path) -> None:
    made = ledger(tmp_path)
    query, other = query_entry(b"tag1", 7), query_entry(b"tag1", 8)
    made.enter(KEY, [query])
    running = read_running(made.page)
    assert running is not None
    assert (running.company_of(query), running.company_of(other)) == (1, 0)
    assert read_last(made.page, os.getpid()) is None
    made.leave()
    assert read_running(made.page) == NOTHING_RAN
    made.close()
    assert read_running(str(tmp_path / "none")) is None


def test_without_a_folder_nothing_is_kept() -> None:
    made = CrashLedger("")
    made.open()
    made.suspect(KEY, "task", "v")
    made.enter(KEY)
    made.leave()
    assert (len(made.crashes_s(KEY)), made.quarantined()) == (0, ())
    made.close()


@pytest.mark.parametrize("name", [".0123.name", f"{KEY.hex()}.name"], ids=["draft", "whole"])
def test_a_name_that_was_cut_off_keeps_no_worker_from_starting(tmp_path: Path, name: str) -> None:
    for crash in ("first", "second"):
        (tmp_path / f"{KEY.hex()}.{crash}.crash").touch()
    (tmp_path / name).write_bytes(b"{")
    made = ledger(tmp_path)
    assert (made.quarantined_s(KEY) is not None, made.quarantined()) == (True, ())
    made.close()


def test_what_counts_no_more_goes_when_nobody_else_runs(tmp_path: Path) -> None:
    """Each variant that was ever loaded left a file, and each crash another one."""
    long_ago = time.time() - WINDOW_S - 60.0
    new = {f"{KEY.hex()}.second.crash", f"{KEY.hex()}.name"}
    old = {f"{KEY.hex()}.first.crash", f"{OTHER.hex()}.name"}
    for name in (*new, *old):
        (tmp_path / name).touch()
    for name in (*old, f"{KEY.hex()}.name"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    alive = ledger(tmp_path)  # it was alone
    assert new <= set(os.listdir(tmp_path))
    assert not old & set(os.listdir(tmp_path))
    (tmp_path / f"{OTHER.hex()}.name").touch()
    os.utime(tmp_path / f"{OTHER.hex()}.name", (long_ago, long_ago))
    ledger(tmp_path).close()  # the first one may run it
    assert f"{OTHER.hex()}.name" in os.listdir(tmp_path)
    alive.close()


def test_a_folder_of_many_names_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read for each variant that was ever loaded: seven seconds where these are 3,000."""
    made = ledger(tmp_path)
    for number in range(200):
        (tmp_path / f"{number:016x}.name").write_text('{"task": "t", "variant": "v"}')
    for crash in ("first", "second"):
        (tmp_path / f"{7:016x}.{crash}.crash").touch()
    looks: list[Any] = []

    def counted(reads: Callable[[Any], Any], path: Any) -> Any:
        looks.append(path)
        return reads(path)

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, partial(counted, getattr(os, name)))
    [(task, variant, _)] = made.quarantined()
    assert (task, variant, len(looks)) == ("t", "v", 1)
    made.close()


def page(running: bytes, *suspects: bytes) -> bytes:
    return b"".join((running, *suspects)).ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("slot", "trace", "expected"),
    [
        (page(KEY), "", set()),
        (page(KEY), "Fatal Python error: Segmentation fault", {KEY}),
        (page(KEY), "Fatal Python error: Bus error", set()),
        (page(IDLE), "Fatal Python error: Aborted", set()),
        (page(IDLE, IDLE, OTHER), "", {OTHER}),
        (page(KEY, OTHER), "Fatal Python error: Aborted", {KEY, OTHER}),
        (b"", "Fatal Python error: Aborted", set()),
        (KEY[:5], "Fatal Python error: Aborted", set()),
    ],
    ids=[
        "killed from outside", "its own fault", "the disk's fault", "idle", "suspect", "both",
        "empty slot", "cut off",
    ],
)  # fmt: skip
def test_what_a_dead_process_left_blames(slot: bytes, trace: str, expected: set[bytes]) -> None:
    assert blamed(slot, trace) == expected


def test_a_crash_is_logged_with_the_name_of_what_crashed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{KEY.hex()}.name").write_text('{"task": "digits", "variant": "mlp-v1-onnx-fp32"}')
    (tmp_path / "one.slot").write_bytes(page(IDLE, KEY, OTHER))
    ledger(tmp_path).close()
    assert "a worker crashed on digits/mlp-v1-onnx-fp32: " in caplog.text
    assert f"a worker crashed on variant {OTHER.hex()}: " in caplog.text


def test_who_ran_when_memory_ran_out_is_blamed() -> None:
    assert blamed(page(KEY, OTHER), "", out_of_memory=True) == {KEY, OTHER}
    assert blamed(page(IDLE), "", out_of_memory=True) == set()


async def test_a_variant_that_is_killed_for_memory_is_quarantined(
    worker: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts; here somebody else kills, and the count is raised beside it."""
    spec = echo_spec(options={"latency_ms_per_row": "300"}, latency=((1, 300.0), (64, 19_200.0)))
    key = vid(spec).to_bytes(8, "big")
    for times in (1, 2):
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            await connection.load(spec, 10.0)
            assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
            asked = asyncio.create_task(ask(connection, spec, [np.zeros((64, 4), np.float32)]))
            page = Path(connection.status.page)
            await until(partial(begins, page, key))
            child.kill()
            reply = await asked
            assert (reply.code, reply.batch_size) == (ReplyCode.LOST, 1)
            connection.close()
        monkeypatch.setattr("workers.process.quarantine.memory_kills", lambda: 10**9)
        made = ledger(Path(worker.quarantine_dir))
        assert len(made.crashes_s(key)) == times
        made.close()
        monkeypatch.undo()
    async with running(worker) as (host, _):
        assert host.status().replicas[0].state is ReplicaState.QUARANTINED


async def test_a_batch_that_hangs_is_blamed_also_when_the_worker_leaves_in_good_order(
    worker: WorkerConfig, gates: Gates
) -> None:
    spec = replace(echo_spec(), runtime="gated")
    for times in (1, 2):
        gates.open()
        async with running(worker) as (host, connection):
            await connection.load(spec, 60.0)
            gates.runs.clear()
            asked = asyncio.create_task(ask(connection, spec, row(1)))
            await until(lambda: host._running()._running)
            await host.drain_and_stop(0.1)
            reply = await asked
            assert (reply.code, reply.evidence) == (ReplyCode.LOST, Evidence.HUNG)
            assert reply.batch_size == 1
            gates.open()
        assert crashes(worker) == times
    async with running(worker) as (host, _):
        (shown,) = host.status().replicas
        assert (shown.variant, shown.state) == ("v", ReplicaState.QUARANTINED)


async def test_the_health_check_blames_a_batch_that_hangs(
    worker: WorkerConfig, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.execution.batch_runner.STUCK_S", 0.1)
    spec = replace(echo_spec(), runtime="gated")
    async with running(worker) as (host, connection):
        await connection.load(spec, 60.0)
        gates.runs.clear()
        asked = asyncio.create_task(ask(connection, spec, row(1)))

        def unhealthy() -> bool:
            try:
                host.check()
            except Internal:
                return True
            return False

        await until(unhealthy)
        with pytest.raises(Internal, match="a batch of task/v has been running for"):
            host.check()
        assert crashes(worker) == 1, "once, not each time"
        gates.open()
        assert (await asked).code is ReplyCode.OK


def left(folder: Path) -> list[str]:
    """Files in a folder and below; names in the ledger by their suffix."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return sorted(f"*{path.suffix}" if path.suffix else path.name for path in files)


def begins(page: Path, key: bytes) -> bool:
    """Whether a process' page says that it runs a variant."""
    return page.read_bytes()[:8] == key


def crashes(worker: WorkerConfig) -> int:
    """Records of crashes, of any variant."""
    return len(list(Path(worker.quarantine_dir).glob("*.crash")))


def evidence(worker: WorkerConfig) -> set[bytes]:
    """Variants that the process would be said to have died of if it died now."""
    slots = Path(worker.quarantine_dir).glob("*.slot")
    return {variant for slot in slots for variant in blamed(slot.read_bytes(), "")}


async def crash(worker: WorkerConfig, spec: LoadSpec, *, prove: bool) -> None:
    """Load the variant in a process of its own and make it abort in a batch."""
    async with process(worker) as (child, address):
        connection = await connect(address, worker)
        await connection.load(spec, 10.0)
        if prove:
            assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        assert (await ask(connection, spec, row(13))).code is ReplyCode.LOST
        assert await asyncio.wait_for(child.wait(), 60.0) == -signal.SIGABRT


@pytest.mark.parametrize("prove", [False, True], ids=["on its first run", "once proven"])
async def test_a_variant_that_crashes_twice_is_quarantined(
    worker: WorkerConfig, prove: bool
) -> None:
    spec, good = echo_spec(options={"crash_value": "13"}), echo_spec(variant="good")
    await crash(worker, spec, prove=prove)
    async with running(worker) as (host, connection):
        assert host.status().replicas == ()
        await connection.load(spec, 60.0)
    await crash(worker, spec, prove=prove)
    async with running(worker) as (host, connection):
        (shown,) = connection.status.replicas
        assert (shown.task, shown.variant, shown.state, shown.message) == (
            "task", "v", ReplicaState.QUARANTINED, "it crashed a worker 2 times within a day",
        )  # fmt: skip
        with pytest.raises(Conflict, match="task/v is in quarantine: it crashed a worker 2 times"):
            await connection.load(spec, 60.0)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.QUARANTINED
        await connection.load(good, 60.0)
        await connection.readmit("task", "v", 60.0)
        await connection.load(spec, 60.0)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
    async with running(worker) as (host, _):
        assert host.status().replicas == ()


async def test_a_worker_killed_from_outside_blames_no_proven_variant(worker: WorkerConfig) -> None:
    spec = echo_spec(options={"latency_ms": "300"}, latency=((1, 300.0),))
    for _ in range(2):
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            await connection.load(spec, 10.0)
            assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
            asked = asyncio.create_task(ask(connection, spec, row(1)))
            await asyncio.sleep(0.05)
            child.kill()
            assert (await asked).code is ReplyCode.LOST
            connection.close()
    async with running(worker) as (host, _):
        assert host.status().replicas == ()


async def test_a_worker_that_dies_while_it_loads_blames_the_variant(worker: WorkerConfig) -> None:
    spec = echo_spec(options={"load_s": "60"})
    for _ in range(2):
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            connection_lost = asyncio.create_task(connection.load(spec, 90.0))
            await until(lambda: evidence(worker))
            child.kill()
            with pytest.raises(Exception, match="is lost"):
                await connection_lost
    async with running(worker) as (host, _):
        assert [r.state for r in host.status().replicas] == [ReplicaState.QUARANTINED]


async def test_a_worker_that_leaves_while_it_loads_blames_nobody_and_does_not_wait(
    worker: WorkerConfig,
) -> None:
    slow = echo_spec(options={"load_s": "600"}, load_s=600.0)
    for _ in range(2):
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            load = asyncio.create_task(connection.load(slow, 600.0))
            await until(lambda: evidence(worker))
            child.terminate()
            await until(lambda: not evidence(worker))  # from now on it may be killed
            assert await asyncio.wait_for(child.wait(), 30.0) == 0
            with pytest.raises(Exception, match="is lost"):
                await load
    async with running(worker) as (host, _):
        assert host.status().replicas == ()


async def test_a_load_that_is_given_up_is_no_evidence_and_none_begins_after_it(
    worker: WorkerConfig, gates: Gates
) -> None:
    made = ledger(Path(worker.quarantine_dir))
    loading = Loading(Executor(made), made, 100.0, 1)
    gates.loads.clear()
    first, second = (
        asyncio.create_task(loading.load(replace(echo_spec(variant=name), runtime="gated")))
        for name in ("first", "second")
    )
    await until(lambda: evidence(worker))
    loading.give_up()
    assert not loading.shutdown(0.0)
    gates.open()
    assert (await first).state is ReplicaState.READY
    assert evidence(worker) == set()
    assert loading.shutdown(60.0)
    assert not second.done()
    second.cancel()
    made.close()


async def test_a_load_that_hangs_is_blamed_once_also_when_it_is_given_up(
    worker: WorkerConfig, gates: Gates
) -> None:
    made = ledger(Path(worker.quarantine_dir))
    loading = Loading(Executor(made), made, 100.0, 1, stuck_s=0.0)
    gates.loads.clear()
    load = asyncio.create_task(loading.load(replace(echo_spec(load_s=0.0), runtime="gated")))
    await until(lambda: evidence(worker))
    loading.give_up()
    assert (crashes(worker), evidence(worker)) == (1, set())
    gates.open()
    await load
    loading.shutdown()
    made.close()


async def test_a_batch_that_crashes_a_worker_that_leaves_is_blamed(worker: WorkerConfig) -> None:
    spec = echo_spec(
        options={"latency_ms": "300", "crash_value": "13"}, latency=((1, 300.0),), load_s=60.0
    )
    async with process(worker) as (child, address):
        connection = await connect(address, worker)
        await connection.load(spec, 10.0)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        first, last = (asyncio.create_task(ask(connection, spec, row(n))) for n in (1, 13))
        await until(partial(begins, Path(connection.status.page), vid(spec).to_bytes(8, "big")))
        child.terminate()
        assert (await first).code is ReplyCode.OK
        assert connection.status.draining
        assert (await last).code is ReplyCode.LOST
        assert await asyncio.wait_for(child.wait(), 60.0) == -signal.SIGABRT
        connection.close()
    made = ledger(Path(worker.quarantine_dir))
    assert len(made.crashes_s(vid(spec).to_bytes(8, "big"))) == 1
    made.close()


async def test_a_clean_end_leaves_no_evidence(worker: WorkerConfig, tmp_path: Path) -> None:
    async with process(worker) as (child, address):
        connection = await connect(address, worker)
        await connection.load(echo_spec(), 10.0)
        await ask(connection, echo_spec(), row(1))
        connection.close()
        child.terminate()
        assert await asyncio.wait_for(child.wait(), 60.0) == 0
    assert left(tmp_path) == ["*.name", "secret"]
