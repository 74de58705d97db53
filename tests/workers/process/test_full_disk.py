"""The crash ledger on a disk that is really full: workers go on, no variant is blamed for it."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import fill, small_disk
from tests.workers.builders import ask, config, connect, echo_spec, process, row
from variants.types import ReplicaState
from workers.process.quarantine import CrashLedger
from workers.process.slot import Slot
from workers.types import LoadSpec, ReplyCode, WorkerConfig

pytestmark = pytest.mark.slow

KEY, OTHER = b"variant1", b"variant2"
BAD = echo_spec(variant="bad", options={"crash_value": "13"})


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk(256) as folder:
        yield folder


@pytest.fixture
def worker(tmp_path: Path, disk: Path) -> WorkerConfig:
    """Its ledger is on the small disk, everything else is not."""
    return config(tmp_path, quarantine_dir=str(disk / "q"))


def ledger(folder: Path) -> CrashLedger:
    made = CrashLedger(str(folder), retry_s=0.0)
    made.open()
    return made


def evidence(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir() if path.suffix != ".name")


async def test_a_worker_that_starts_on_a_full_disk_answers(
    worker: WorkerConfig, disk: Path
) -> None:
    filler = fill(disk)
    spec = echo_spec()
    async with process(worker) as (_, address):
        connection = await connect(address, worker)
        await connection.load(spec, 60.0)
        assert [(await ask(connection, spec, row(1))).code for _ in range(3)] == [ReplyCode.OK] * 3
        (warning,) = connection.status.warnings
        assert "cannot be written: No space left on device" in warning
        assert warning.count("\n") == 0
        connection.close()
    filler.unlink()
    after = ledger(disk / "q")
    assert evidence(disk / "q") == [".slot", ".trace"]
    assert after.quarantined() == ()
    after.close()


async def test_workers_killed_on_a_full_disk_leave_no_mark(
    worker: WorkerConfig, disk: Path
) -> None:
    filler = fill(disk)
    spec = echo_spec()
    for _ in range(3):
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            await connection.load(spec, 60.0)
            child.kill()
            await child.wait()
            connection.close()
    filler.unlink()
    async with process(worker) as (_, address):
        connection = await connect(address, worker)
        await connection.load(spec, 60.0)
        assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
        assert connection.status.warnings == ()
        connection.close()


async def test_a_disk_that_fills_up_later_costs_neither_answers_nor_evidence(
    worker: WorkerConfig, disk: Path
) -> None:
    good = echo_spec()
    for _ in range(2):
        async with process(worker) as (child, address):
            connection = await connect(address, worker)
            for spec in (BAD, good):
                await connection.load(spec, 60.0)
                assert (await ask(connection, spec, row(1))).code is ReplyCode.OK
            filler = fill(disk)
            assert (await ask(connection, good, row(2))).code is ReplyCode.OK
            assert (await ask(connection, BAD, row(13))).code is ReplyCode.LOST
            assert await asyncio.wait_for(child.wait(), 60.0) == -signal.SIGABRT
            connection.close()
        filler.unlink()
    async with process(worker) as (_, address):
        connection = await connect(address, worker)
        assert [(r.variant, r.state) for r in connection.status.replicas] == [
            ("bad", ReplicaState.QUARANTINED)
        ]
        await connection.load(good, 10.0)
        connection.close()


async def test_a_ledger_opens_once_there_is_room(worker: WorkerConfig, disk: Path) -> None:
    filler = fill(disk)
    made = ledger(disk / "q")
    made.suspect(KEY, "task", "v")
    made.enter(KEY)
    made.retry()
    assert made.problem
    assert evidence(disk / "q") == []
    filler.unlink()
    made.retry()
    assert made.problem == ""
    assert evidence(disk / "q") == [".slot", ".trace"]
    made.leave()
    made.clear(KEY)
    made.close()
    assert evidence(disk / "q") == []


def die(folder: Path, spec: LoadSpec) -> None:
    """Leave what a process leaves that was killed while it loaded the variant."""
    made = ledger(folder)
    made.suspect(KEY, spec.task, spec.variant)
    (slot,) = folder.glob("*.slot")
    page, trace = slot.read_bytes(), slot.with_suffix(".trace").read_bytes()
    made.close()
    slot.with_suffix(".trace").write_bytes(trace)
    slot.write_bytes(page)


def test_evidence_is_settled_on_a_full_disk(disk: Path) -> None:
    for _ in range(2):
        die(disk / "q", echo_spec())
        filler = fill(disk)
        successor = ledger(disk / "q")
        successor.close()
        filler.unlink()
    assert [named[:2] for named in ledger(disk / "q").quarantined()] == [("task", "v")]


def test_evidence_waits_until_a_record_can_be_made() -> None:
    with small_disk(256, inodes=9) as disk:
        die(disk / "q", echo_spec())
        taken = []
        for number in range(9):
            try:
                (disk / f"{number}").touch()
            except OSError:
                break
            taken.append(disk / f"{number}")
        made = ledger(disk / "q")
        assert made.problem
        assert len(made.crashes_s(KEY)) == 0
        for path in taken:
            path.unlink()
        made.retry()
        assert (made.problem, len(made.crashes_s(KEY))) == ("", 1)
        made.close()


@pytest.mark.parametrize("mapped", [True, False])
def test_a_slot_has_its_room_before_the_disk_is_full(disk: Path, mapped: bool) -> None:
    slot = Slot(disk / "slot", mapped=mapped)
    fill(disk)
    slot.write(0, KEY)
    slot.write(63, OTHER)
    page = (disk / "slot").read_bytes()
    assert (page[:8], page[504:512]) == (KEY, OTHER)
    slot.remove()
    assert not (disk / "slot").exists()


@pytest.mark.parametrize("mapped", [True, False])
def test_a_slot_is_not_made_on_a_full_disk(disk: Path, mapped: bool) -> None:
    fill(disk)
    with pytest.raises(OSError, match="No space left"):
        Slot(disk / "slot", mapped=mapped)
    assert not (disk / "slot").exists()
