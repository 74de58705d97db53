"""Workers that do not answer: turns go on without them, and meet them when they do."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from controlplane.cluster.ray_adapter import WorkerAddress
from controlplane.controller.met_workers import worker_pool
from controlplane.controller.met_workers.worker_pool import WorkerPool
from tests.workers.builders import config, process, running, secret_of, until
from variants.errors import DeadlineExceeded
from variants.types import WorkerId
from workers.channel.client import WorkerConnection


def at(address: str, name: str = "stopped") -> WorkerAddress:
    return WorkerAddress(id=name, address=address, device_kind="cpu-1")


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[WorkerAddress]:
    """Its socket is there, and nobody answers."""
    path = tmp_path / "stopped.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        yield at(f"unix:{path}")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    made = WorkerPool(secret_of(config(tmp_path)), lambda: None)
    yield made
    made.close()


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for workers that never answer: on a busy machine others answer later than that."""
    monkeypatch.setattr(worker_pool, "FIRST_WAIT_S", 0.2)


async def turns_s(pool: WorkerPool, *workers: WorkerAddress, turns: int = 3) -> float:
    began_s = monotonic()
    for _ in range(turns):
        await pool.meet(workers)
    return monotonic() - began_s


@pytest.mark.usefixtures("short_wait")
async def test_a_worker_that_does_not_answer_is_waited_for_in_one_turn_only(
    pool: WorkerPool, stopped: WorkerAddress
) -> None:
    assert await turns_s(pool, stopped, turns=1) >= 0.2
    assert await turns_s(pool, stopped, turns=20) < 1.0
    assert pool.statuses() == {}


@pytest.mark.usefixtures("short_wait")
async def test_it_is_tried_again_later_and_no_turn_waits_for_that(
    pool: WorkerPool, stopped: WorkerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    answers = WorkerConnection.open

    async def opened(address: str, *arguments: object, **named: object) -> WorkerConnection:
        tries.append(address)
        return await answers(address, *arguments, timeout_s=0.05, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkerConnection, "open", opened)
    await turns_s(pool, stopped)
    assert len(tries) == 1
    await asyncio.sleep(1.1)
    await turns_s(pool, stopped)
    await until(lambda: len(tries) == 2)


async def test_others_are_met_in_the_turn_in_which_they_are_listed(
    tmp_path: Path, pool: WorkerPool, stopped: WorkerAddress
) -> None:
    async with running(config(tmp_path)) as (_, there):
        await pool.meet([stopped, at(there.address, "w1")])
        assert pool.statuses().keys() == {"w1"}
        pool.close()


async def test_one_that_answers_at_another_address_is_met_there_at_once(
    tmp_path: Path, pool: WorkerPool, stopped: WorkerAddress
) -> None:
    async with running(config(tmp_path)) as (_, there):
        await pool.meet([stopped])
        await pool.meet([at(there.address)])
        assert pool.statuses().keys() == {"stopped"}
        pool.close()


async def test_one_that_says_nothing_is_not_waited_for_to_tell_its_history(
    tmp_path: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(config(tmp_path)) as (_, there):
        await pool.meet([at(there.address, "w1")])
        assert await pool.history("w1", (), 0) == []
        monkeypatch.setattr(worker_pool, "SILENT_S", -1.0)
        began_s = monotonic()
        with pytest.raises(DeadlineExceeded, match="says nothing"):
            await pool.history("w1", (), 0)
        assert monotonic() - began_s < 1.0
        await until(lambda: pool.as_planned_for()[0].draining)
        pool.close()


async def test_of_a_worker_whose_process_crashed_it_is_told_how(
    tmp_path: Path, pool: WorkerPool
) -> None:
    crashing = config(tmp_path, quarantine_dir=str(tmp_path / "quarantine"))
    async with process(crashing, "w1") as (child, address):
        await pool.meet([at(address, "w1")])
        assert pool.statuses().keys() == {"w1"}
        child.send_signal(signal.SIGSEGV)
        await until(lambda: not pool.statuses())
        # By the kernel, from Linux 6.15 on, or by the trace that it left.
        told = (
            "its process was ended by SIGSEGV (Segmentation fault)",
            "its process crashed (Segmentation fault)",
        )
        await until(lambda: pool._departures["w1"].broke in told)
    assert pool.departures()["w1"].broke in told


async def test_a_connection_that_breaks_while_the_process_lives_says_so(
    tmp_path: Path, pool: WorkerPool
) -> None:
    async with running(config(tmp_path)) as (_, there):
        await pool.meet([at(there.address, "w1")])
    await until(lambda: not pool.statuses())
    await asyncio.sleep(0.3)
    assert pool.departures()["w1"].broke == "the worker closed the connection"


async def test_one_that_is_stopped_is_ended_and_its_departure_says_why(
    tmp_path: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(config(tmp_path), "w1") as (child, address):
        await pool.meet([at(address, "w1")])
        assert pool.silent() == {}
        child.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(worker_pool, "SILENT_S", 0.5)
        await until(lambda: pool.silent().keys() == {"w1"})

        assert pool.end(WorkerId("w1"), "it said nothing and was ended")

        await until(lambda: not pool.statuses())
        assert await child.wait() == -signal.SIGKILL
    assert pool.departures()["w1"].broke == "it said nothing and was ended"


async def test_the_process_of_one_on_another_machine_is_left_to_the_cluster(
    tmp_path: Path, pool: WorkerPool
) -> None:
    async with running(config(tmp_path)) as (_, there):
        await pool.meet([at(there.address, "w1")])
        pool._processes.pop(WorkerId("w1")).close()
        assert not pool.end(WorkerId("w1"), "it said nothing and was ended")
        pool.close()


async def test_one_that_has_left_meanwhile_is_ended_already(pool: WorkerPool) -> None:
    assert pool.end(WorkerId("w1"), "it said nothing and was ended")
    assert pool.departures() == {}


async def test_one_that_was_not_ended_and_speaks_again_leaves_for_its_own_reason(
    tmp_path: Path, pool: WorkerPool
) -> None:
    async with running(config(tmp_path)) as (_, there):
        await pool.meet([at(there.address, "w1")])
        pool._processes.pop(WorkerId("w1")).close()
        assert not pool.end(WorkerId("w1"), "it said nothing and was ended")
    await until(lambda: not pool.statuses())
    assert pool.departures()["w1"].broke == "the worker closed the connection"
