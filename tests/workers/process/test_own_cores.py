"""Cores of a worker's own: disjoint among processes, and free again when a process is killed."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.workers.builders import config, connect, process
from workers.process.core_choice import Topology
from workers.process.own_cores import OwnCores

HOLDER = """
import sys
import workers.process.own_cores as module
module._keep_to = lambda cores: None  # this machine may have fewer
own = module.OwnCores(int(sys.argv[1]), prefix=PREFIX, allowed=range(4), quota=lambda: None)
print(own.take(), *own.cores, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def prefix() -> str:
    return f"\0modelless-test-{uuid4().hex}"


@pytest.fixture
def every_core() -> Iterator[set[int]]:
    """Those of this process, which has them again after the test."""
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


def held(prefix: str, count: int) -> tuple[subprocess.Popen[str], list[str]]:
    # An argument cannot hold the zero byte that abstract names begin with.
    command = [sys.executable, "-c", HOLDER.replace("PREFIX", repr(prefix)), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()


def test_two_processes_have_cores_of_their_own_and_a_replacement_those_of_the_killed(
    prefix: str,
) -> None:
    first, second = held(prefix, 2), held(prefix, 2)
    try:
        assert (first[1], second[1]) == (["True", "0", "1"], ["True", "2", "3"])
        third, said = held(prefix, 1)
        third.kill()
        third.wait()
        assert said == ["False"]
        first[0].kill()
        first[0].wait()
        successor, said = held(prefix, 2)
        successor.kill()
        successor.wait()
        assert said == ["True", "0", "1"]
    finally:
        for process in (first[0], second[0]):
            process.kill()
            process.wait()


def test_every_thread_keeps_to_them_and_those_that_begin_later(
    prefix: str, every_core: set[int]
) -> None:
    waits = threading.Event()
    before = threading.Thread(target=waits.wait)
    before.start()
    own = OwnCores(1, prefix=prefix, of_machine=lambda: Topology({}, {}), quota=lambda: None)
    try:
        assert own.take()
        later = threading.Thread(target=waits.wait)
        later.start()
        for thread in (before, later, threading.main_thread()):
            assert os.sched_getaffinity(thread.native_id or 0) == set(own.cores)
        assert own.cores == (min(every_core),)
        own.release()
        assert os.sched_getaffinity(before.native_id or 0) == every_core
        assert not own.cores
    finally:
        own.release()
        waits.set()


def test_it_waits_for_those_that_others_have(prefix: str, every_core: set[int]) -> None:
    machine = len(every_core)
    one = OwnCores(machine, prefix=prefix, quota=lambda: None)
    other = OwnCores(1, prefix=prefix, quota=lambda: None)
    assert one.take()
    try:
        assert not other.take()
        assert other.problem == (
            "its cores are not pinned: other workers of the machine leave 0 of "
            f"{machine} cores free, fewer than its 1"
        )
        one.release()
        assert other.take()
        assert other.problem == ""
    finally:
        one.release()
        other.release()


def test_nothing_is_held_where_cores_are_shared_by_a_quota(
    prefix: str, every_core: set[int]
) -> None:
    own = OwnCores(
        1, prefix=prefix, allowed=range(8), of_machine=lambda: Topology({}, {}), quota=lambda: 2
    )
    assert not own.take()
    assert "quota" in own.problem
    assert own.cores == ()
    assert os.sched_getaffinity(0) == every_core


def test_where_the_system_refuses_it_is_a_warning_and_nothing_is_held(
    prefix: str, every_core: set[int]
) -> None:
    """A core that the machine does not have stands for one that was taken offline."""
    gone = 1_000_000
    own = OwnCores(
        1, prefix=prefix, allowed=[gone], of_machine=lambda: Topology({}, {}), quota=lambda: None
    )
    assert not own.take()
    assert own.problem.startswith("its cores are not pinned: ")
    assert own.cores == ()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as free_again:
        free_again.bind(f"{prefix}-{gone}")
    assert os.sched_getaffinity(0) == every_core


async def test_a_worker_says_which_cores_it_keeps_to(tmp_path: Path) -> None:
    worker = config(tmp_path, pin_cores=True)
    async with process(worker) as (child, address):
        connection = await connect(address, worker)
        own = connection.status.cores
        every = os.sched_getaffinity(0)
        if own:  # another installation here may have them all
            assert len(own) == 1
            assert os.sched_getaffinity(child.pid) == set(own)
        else:
            assert os.sched_getaffinity(child.pid) == every
            assert "not pinned" in connection.status.warnings[0]
        connection.close()
