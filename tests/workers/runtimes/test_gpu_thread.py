"""The thread that has a variant's session on a GPU, and what is done there in idle moments."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from math import inf

import pytest

from variants.errors import RuntimeFailed
from workers.runtimes import idle_work
from workers.runtimes.gpu_thread import LOADING, RECORDING, GpuThread
from workers.runtimes.idle_work import IdleWork

PATIENCE = 60.0


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


class Pieces:
    """Work of some pieces, of which each is noted with the thread that did it."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.threads: list[str] = []
        self.done = threading.Event()

    def __call__(self) -> bool:
        self.threads.append(threading.current_thread().name)
        self.left -= 1
        if not self.left:
            self.done.set()
        return self.left > 0


@pytest.fixture
def gpu() -> Iterator[GpuThread]:
    made = GpuThread()
    yield made
    made.end()


def test_what_a_load_has_left_is_done_in_the_thread_of_the_variant(gpu: GpuThread) -> None:
    pieces = Pieces(3)
    work = IdleWork("t/v", gpu, pieces, lambda: inf)
    work.begin()

    assert pieces.done.wait(PATIENCE)
    work.end()
    assert len(pieces.threads) == 3
    assert all(name.startswith("gpu") for name in pieces.threads)


@pytest.mark.usefixtures("impatient")
def test_pieces_are_done_some_time_even_if_batches_never_stop(gpu: GpuThread) -> None:
    pieces = Pieces(2)
    work = IdleWork("t/v", gpu, pieces, lambda: 0.0)
    work.begin()

    assert pieces.done.wait(PATIENCE)
    work.end()


@pytest.mark.usefixtures("impatient")
def test_what_no_batch_lacks_waits_for_an_idle_moment_but_for_the_first_piece(
    gpu: GpuThread,
) -> None:
    pieces, looks = Pieces(3), threading.Semaphore(0)

    def lacked() -> bool:
        looks.release()
        return False

    work = IdleWork("t/v", gpu, pieces, lambda: 0.0, lacked)
    work.begin()
    for _ in range(3):
        assert looks.acquire(timeout=PATIENCE)
    work.end()

    assert len(pieces.threads) == 1


@pytest.mark.parametrize("loads", [False, True])
def test_no_piece_begins_while_batches_come_or_something_loads(gpu: GpuThread, loads: bool) -> None:
    """But for the first, which only waits for loads."""
    pieces, looks = Pieces(2), threading.Semaphore(0)

    def idle_s() -> float:
        looks.release()
        return inf if loads else 0.0

    first = threading.Event()

    def piece() -> bool:
        first.set()
        return pieces()

    work = IdleWork("t/v", gpu, piece, idle_s)
    work.begin()
    assert first.wait(PATIENCE)
    with LOADING if loads else nullcontext():
        done = len(pieces.threads)
        for _ in range(3):
            assert looks.acquire(timeout=PATIENCE)
        assert len(pieces.threads) == done
        work.end()
    assert len(pieces.threads) == done


def test_what_is_left_can_be_done_at_once(gpu: GpuThread) -> None:
    pieces = Pieces(4)
    work = IdleWork("t/v", gpu, pieces, lambda: 0.0)

    work.finish()

    assert len(pieces.threads) == 4
    work.end()


def test_a_piece_that_fails_is_the_last_one_and_says_so(
    gpu: GpuThread, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Event()

    def fail() -> bool:
        tried.set()
        raise MemoryError("no room")

    work = IdleWork("t/v", gpu, fail, lambda: inf)
    work.begin()

    assert tried.wait(PATIENCE)
    work.end()
    assert "t/v goes without what was left to do: no room" in caplog.text
    assert LOADING.acquire(timeout=PATIENCE)  # given back
    LOADING.release()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_work, "PATIENCE_S", 0.0)
