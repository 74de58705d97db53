"""How processes end that are nobody's child here."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.process import last_batch
from workers.process.ending import WatchedProcess, ending_words, peer_of
from workers.process.last_batch import KILLS, RUNNING
from workers.process.slot import ENTRY_BYTES, PAGE_BYTES

MLP = b"12345678"
SEGV, KILLED, CODE_3 = signal.SIGSEGV, signal.SIGKILL, 3 << 8


@pytest.fixture(autouse=True)
def five_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has killed five processes for want of memory until now."""
    monkeypatch.setattr(last_batch, "memory_kills", lambda: 5)


def left(folder: Path, *, ran: bytes = b"", kills: int = 5, trace: str = "") -> str:
    """What a process left: a page, and a trace where it crashed."""
    page = bytearray(PAGE_BYTES)
    page[KILLS * ENTRY_BYTES : (KILLS + 1) * ENTRY_BYTES] = kills.to_bytes(ENTRY_BYTES, "little")
    page[RUNNING * ENTRY_BYTES : RUNNING * ENTRY_BYTES + len(ran)] = ran
    (folder / "a.slot").write_bytes(page)
    if trace:
        (folder / "a.trace").write_bytes(trace.encode() + bytes(9))
    (folder / f"{MLP.hex()}.name").write_text('{"task": "digits", "variant": "mlp"}')
    return str(folder / "a.slot")


def test_the_status_says_how_it_ended(tmp_path: Path) -> None:
    page = left(tmp_path)
    assert ending_words(KILLED, page) == "its process was ended by SIGKILL"
    assert ending_words(SEGV, page) == "its process was ended by SIGSEGV"
    assert ending_words(CODE_3, page) == "its process ended with exit code 3"
    assert ending_words(0, "") == "its process ended by itself, with exit code 0"
    assert ending_words(signal.SIGRTMAX - 1, "") == "its process was ended by signal 63"


def test_what_it_ran_is_named(tmp_path: Path) -> None:
    trace = "Fatal Python error: Segmentation fault\n\nThread 1"
    page = left(tmp_path, ran=MLP, trace=trace)
    assert ending_words(SEGV, page) == (
        "its process was ended by SIGSEGV (Segmentation fault), while it ran digits/mlp"
    )
    assert ending_words(None, page) == (
        "its process crashed (Segmentation fault), while it ran digits/mlp"
    )
    unknown = left(tmp_path, ran=b"unnamed!", trace=trace)
    assert ending_words(SEGV, unknown) == "its process was ended by SIGSEGV (Segmentation fault)"


def test_that_the_kernel_killed_for_want_of_memory_is_told(tmp_path: Path) -> None:
    page = left(tmp_path, kills=4, ran=MLP)
    why = "; the kernel has just killed one for want of memory, while it ran digits/mlp"
    assert ending_words(KILLED, page) == f"its process was ended by SIGKILL{why}"
    assert ending_words(None, page) == f"its process is gone{why}"
    assert "memory" not in ending_words(CODE_3, page)


def test_of_what_left_nothing_nothing_is_known(tmp_path: Path) -> None:
    assert ending_words(None, "") == ""
    assert ending_words(None, str(tmp_path / "none.slot")) == ""
    assert ending_words(None, left(tmp_path, ran=MLP)) == ""


@pytest.fixture
def orphan() -> Iterator[int]:
    """A process that somebody else has started."""
    code = (
        "import subprocess as s; p = s.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        pid = int(made.stdout.readline())
        yield pid
        made.kill()


async def test_somebody_else_s_process_is_watched(orphan: int) -> None:
    watched = WatchedProcess.of(orphan)
    assert watched is not None
    assert await watched.ending() == (False, None)
    os.kill(orphan, signal.SIGKILL)
    ended, status = await watched.ending()
    watched.close()
    assert ended
    assert status in (signal.SIGKILL, None)  # before Linux 6.15 nobody is told
    assert WatchedProcess.of(orphan) is None
    assert WatchedProcess.of(0) is None


def test_the_other_side_of_a_unix_socket_is_known() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert peer_of(here) == os.getpid()
    with socket.socket(socket.AF_INET) as far:
        assert peer_of(far) == 0
    assert peer_of(None) == 0
