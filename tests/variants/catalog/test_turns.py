"""Whose turn it is to write, of the threads of one process, and of several processes."""

import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from variants.catalog.sql import open_catalog
from variants.catalog.turns import Turns
from variants.errors import StateUnavailable

PATIENCE_S = 60.0


def waiting(turns: Turns) -> int:
    return len(turns._waiting)


def until(turns: Turns, count: int) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while waiting(turns) < count:
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    turns, order = Turns(), []

    def write(number: int) -> None:
        with turns.turn(PATIENCE_S):
            order.append(number)

    with ThreadPoolExecutor(5) as threads:
        with turns.turn(PATIENCE_S):
            asked = []
            for number in range(5):
                asked.append(threads.submit(write, number))
                until(turns, number + 1)
        for one in asked:
            one.result()
    assert order == list(range(5))


def test_one_at_a_time_has_it() -> None:
    turns, inside, most = Turns(), 0, 0
    counting = threading.Lock()

    def write() -> None:
        nonlocal inside, most
        for _ in range(50):
            with turns.turn(PATIENCE_S):
                with counting:
                    inside += 1
                    most = max(most, inside)
                with counting:
                    inside -= 1

    with ThreadPoolExecutor(4) as threads:
        for one in [threads.submit(write) for _ in range(4)]:
            one.result()
    assert (most, inside, waiting(turns)) == (1, 0, 0)


def test_who_loses_patience_is_told_and_holds_up_nobody() -> None:
    turns = Turns()
    with turns.turn(PATIENCE_S), ThreadPoolExecutor(1) as threads:
        late = threads.submit(turns.turn(0.01).__enter__)
        with pytest.raises(StateUnavailable, match=r"others have written for 0\.01 s"):
            late.result()
    with turns.turn(0.01):
        assert waiting(turns) == 0


def test_a_write_that_fails_gives_its_turn_on() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="no"), turns.turn(PATIENCE_S):
        raise ValueError("no")
    with turns.turn(0.01):
        pass


# -- of several processes: each is somebody with locks of its own ----------------------------------


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock of a file, as another process has it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def taken(path: Path) -> bool:
    try:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def next_one(database: Path) -> Path:
    return Path(f"{database}-next")


@pytest.fixture
def turn(database: Path) -> Path:
    return Path(f"{database}-turn")


def test_who_has_just_written_writes_after_the_process_that_waits(
    database: Path, next_one: Path
) -> None:
    """SQLite has whoever looks first write, which is who is at it: others looked in vain."""
    first, second, order = Turns(database), Turns(database), []

    def write(turns: Turns, name: str) -> None:
        with turns.turn(PATIENCE_S):
            order.append(name)

    with ThreadPoolExecutor(2) as threads:
        with first.turn(PATIENCE_S):
            waits = threads.submit(write, second, "second")
            end_s = time.monotonic() + PATIENCE_S
            while not taken(next_one):
                assert time.monotonic() < end_s
                time.sleep(0.001)
        write(first, "first again")
        waits.result()
    assert order == ["second", "first again"]


def test_one_process_at_a_time_has_it(database: Path, turn: Path) -> None:
    with Turns(database).turn(PATIENCE_S):
        assert taken(turn)
    assert not taken(turn)


def test_what_a_killed_process_had_is_free_at_once(database: Path, turn: Path) -> None:
    holds = (
        "import sys; from pathlib import Path; from variants.catalog.turns import Turns\n"
        "with Turns(Path(sys.argv[1])).turn(60):\n"
        "    print(flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holds, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert taken(turn)
        process.kill()
        process.wait()
        assert not taken(turn)


@pytest.mark.parametrize("stopped", ["next", "turn"], ids=["waiting", "writing"])
def test_a_process_that_was_stopped_does_not_keep_others_from_writing(
    database: Path, next_one: Path, turn: Path, stopped: str
) -> None:
    begun = threading.active_count()
    with held(Path(f"{database}-{stopped}")), Turns(database).turn(0.02):
        pass  # SQLite decides
    with Turns(database).turn(PATIENCE_S):
        assert taken(turn)
    assert not taken(next_one)
    end_s = time.monotonic() + PATIENCE_S
    while threading.active_count() > begun:  # who had given up has let go
        assert time.monotonic() < end_s
        time.sleep(0.001)


@pytest.mark.parametrize("stopped", ["next", "turn"], ids=["waiting", "writing"])
def test_however_long_a_process_is_stopped_one_thread_waits_for_it(
    database: Path, turn: Path, stopped: str
) -> None:
    """A control loop writes every second, and a machine may have stopped a process for days."""
    begun, turns = threading.active_count(), Turns(database)
    with held(Path(f"{database}-{stopped}")):
        for _ in range(20):
            with turns.turn(0.02):
                assert threading.active_count() <= begun + 1
    end_s = time.monotonic() + PATIENCE_S
    while threading.active_count() > begun:
        assert time.monotonic() < end_s
        time.sleep(0.001)
    with turns.turn(PATIENCE_S):
        assert taken(turn)


def test_where_no_lock_can_be_made_sqlite_decides(tmp_path: Path) -> None:
    with Turns(tmp_path / "no folder" / "catalog.db").turn(PATIENCE_S):
        pass
    linked = tmp_path / "linked.db"
    Path(f"{linked}-next").symlink_to(tmp_path / "elsewhere")
    with Turns(linked).turn(PATIENCE_S):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_catalog_waits_for_its_turn_to_write_and_not_to_read(database: Path, turn: Path) -> None:
    catalog = open_catalog(f"sqlite:///{database}", 2 * PATIENCE_S)
    with closing(catalog), ThreadPoolExecutor(1) as threads:
        with held(turn):
            writes = threads.submit(catalog.acquire_leadership, "somebody")
            with pytest.raises(TimeoutError):
                writes.result(0.2)
            assert catalog.leader() == ""
        assert writes.result(PATIENCE_S) == 1
