"""The thread that has a variant's session on a GPU."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from variants.errors import RuntimeFailed
from workers.runtimes.gpu_thread import RECORDING, GpuThread


def test_all_of_a_variant_runs_in_one_thread() -> None:
    thread = GpuThread()
    with ThreadPoolExecutor(2) as others:
        asked = [others.submit(thread.call, threading.get_ident) for _ in range(4)]
        found = {one.result() for one in asked} | {thread.call_alone(threading.get_ident)}
    thread.end()

    assert len(found) == 1
    assert threading.get_ident() not in found


def test_two_variants_run_beside_each_other() -> None:
    """One is made ready while the other one answers."""
    one, other = GpuThread(), GpuThread()
    meet = threading.Barrier(2, timeout=10)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.call, meet.wait)
        other.call(meet.wait)
        first.result()
    one.end()
    other.end()


def test_what_runs_alone_waits_for_a_recording() -> None:
    thread = GpuThread()
    with ThreadPoolExecutor(1) as pool:
        with RECORDING:
            waiting = pool.submit(thread.call_alone, lambda: "done")
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.05)
        assert waiting.result(timeout=10) == "done"
    thread.end()


def test_what_fails_there_fails_here_and_leaves_the_lock() -> None:
    def fail() -> None:
        raise RuntimeFailed("no room")

    thread = GpuThread()
    for call in (thread.call, thread.call_alone):
        with pytest.raises(RuntimeFailed, match="no room"):
            call(fail)
    assert not RECORDING.locked()
    thread.end()


def test_an_ended_thread_takes_no_more() -> None:
    thread = GpuThread()
    assert thread.call(lambda: 1) == 1
    thread.end()

    with pytest.raises(RuntimeError):
        thread.call(lambda: 1)
