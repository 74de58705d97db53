"""The niceness of a replica: raised for who yields, lowered where allowed, and else known."""

import os
import subprocess
import sys

import pytest

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


BEHIND = """
import os, sys
from workers.process.niceness import behind
if sys.argv[1:]:
    os.setuid(int(sys.argv[1]))
def now():
    return os.getpriority(os.PRIO_PROCESS, 0)
before = now()
with behind(15):
    meanwhile = now()
print(before, meanwhile, now())
"""


def behind(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", BEHIND, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower a niceness")
def test_what_need_not_hurry_waits_and_comes_back() -> None:
    own = str(os.getpriority(os.PRIO_PROCESS, 0))
    assert behind() == [own, "15", own]


def test_who_could_not_come_back_does_not_wait() -> None:
    own = str(os.getpriority(os.PRIO_PROCESS, 0))
    arguments = ["65534"] if os.geteuid() == 0 else []
    assert behind(*arguments) == [own, own, own]


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
