"""The niceness of a replica: raised for who yields, lowered where allowed, and else known."""

import os
import subprocess
import sys
from threading import Event, Thread
from time import sleep

import pytest

from workers.process.niceness import HURRIES_NOT, aside

SCRIPT = """
import os, sys, threading
from workers.process.niceness import take_niceness
os.nice(7)
waits = threading.Event()
thread = threading.Thread(target=waits.wait)
thread.start()
if sys.argv[2:]:
    os.setuid(int(sys.argv[2]))
left = take_niceness(int(sys.argv[1]))
of_thread = os.getpriority(os.PRIO_PROCESS, thread.native_id)
waits.set()
print(left, of_thread)
"""


def run(*arguments: str) -> str:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower a niceness")
def test_a_privileged_process_runs_all_its_threads_at_zero() -> None:
    assert run("0").split() == ["0", "0"]


def test_an_unprivileged_process_learns_what_is_left() -> None:
    arguments = ["65534"] if os.geteuid() == 0 else []
    left = str(min(os.getpriority(os.PRIO_PROCESS, 0) + 7, 19))  # the tests may run niced
    assert run("0", *arguments).split() == [left, left]


def test_who_yields_does_so_with_all_its_threads() -> None:
    assert run("12").split() == ["12", "12"]


ASIDE = """
import os, sys, threading
from workers.process.niceness import aside
if sys.argv[1:]:
    os.setuid(int(sys.argv[1]))
def now():
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
before = now()
print(*before, *aside(now), now() == before)
"""


def aside_of(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", ASIDE, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not take it back")
def test_what_is_done_aside_waits_for_idle_cores_alone() -> None:
    policy, niceness, *aside, same = aside_of()
    assert aside == [str(os.SCHED_IDLE), niceness]
    assert (policy, same) == (str(os.SCHED_OTHER), "True")


def test_where_that_cannot_be_taken_back_it_keeps_a_part_of_a_core() -> None:
    arguments = ["65534"] if os.geteuid() == 0 else []
    policy, niceness, *aside, same = aside_of(*arguments)
    assert aside == [policy, str(max(HURRIES_NOT, int(niceness)))]
    assert same == "True"


@pytest.mark.skipif(os.geteuid() != 0, reason="others never wait for idle cores")
def test_what_waits_too_long_for_idle_cores_computes_as_others_do() -> None:
    waits, begun = Event(), list[Thread]()

    def work() -> list[int]:
        begun.append(Thread(target=waits.wait))
        begun[0].start()
        while os.sched_getscheduler(0) == os.SCHED_IDLE:
            sleep(0.001)
        return [os.sched_getscheduler(thread) for thread in (0, begun[0].native_id or 0)]

    try:
        assert aside(work, patience_s=0.01) == [os.SCHED_OTHER] * 2
    finally:
        waits.set()
        begun[0].join()


@pytest.mark.skipif(os.geteuid() != 0, reason="others never wait for idle cores")
def test_a_thread_that_begins_aside_does_not_stay_there() -> None:
    waits, begun = Event(), list[Thread]()

    def work() -> None:
        begun.append(Thread(target=waits.wait))
        begun[0].start()

    try:
        aside(work)
        assert os.sched_getscheduler(begun[0].native_id or 0) == os.SCHED_OTHER
    finally:
        waits.set()
        begun[0].join()


def test_what_fails_aside_fails_where_it_was_asked_for() -> None:
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        aside(work)


IDLE = """
import os, subprocess, sys, threading
from workers.process.niceness import only_while_idle
waits = threading.Event()
thread = threading.Thread(target=waits.wait)
thread.start()
only_while_idle()
child = "import os; print(os.sched_getscheduler(0))"
print(os.sched_getscheduler(0), os.sched_getscheduler(thread.native_id), flush=True)
subprocess.run([sys.executable, "-c", child], check=True)
waits.set()
"""


def test_who_waits_for_idle_cores_does_so_with_all_its_threads_and_children() -> None:
    command = [sys.executable, "-c", IDLE]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert found == [str(os.SCHED_IDLE)] * 3
