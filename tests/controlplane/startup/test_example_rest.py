"""RestOfExample: the child that makes the rest of the example while the first models answer."""

import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from controlplane.settings import load_settings
from controlplane.startup.example_rest import ALL_THERE, FIRST, RestOfExample
from variants.zoo.digits import MODELS

WAIT_S = 20.0
SAYS = """
import json
def say(message):
    print(json.dumps({"step": "store", "done": 1, "total": 1, "message": message}), flush=True)
"""


class Played:
    """A child of the test's own making, and what is said of it."""

    def __init__(self, folder: Path, code: str) -> None:
        self.told: list[str] = []
        self.warned: list[str] = []
        command = (sys.executable, "-c", SAYS + textwrap.dedent(code))
        self.rest = RestOfExample(load_settings(state_dir=folder), command)

    def begin(self) -> None:
        self.rest.begin(self.told.append, self.warned.append)


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_comes_first_begins_the_family() -> None:
    assert MODELS[: len(FIRST)] == FIRST


def test_each_model_is_told_when_it_answers(tmp_path: Path) -> None:
    played = Played(
        tmp_path,
        """
        import os, sys
        print("a library's remark")
        say(os.environ["MODELLESS_STATE_DIR"])
        """,
    )
    played.begin()
    until(lambda: len(played.told) == 2)
    played.rest.end()
    assert (played.told, played.warned) == ([str(tmp_path), ALL_THERE], [])


def test_why_nothing_more_is_made_is_told_with_what_goes_on(tmp_path: Path) -> None:
    played = Played(tmp_path, "import sys; sys.exit('no space left on device')")
    played.begin()
    until(lambda: bool(played.warned))
    (warning,) = played.warned
    assert warning == (
        "the rest of the example models was not made: no space left on device;"
        " the next `modelless up --example digits` goes on"
    )


def test_an_end_ends_it_with_all_that_it_started_and_says_nothing(tmp_path: Path) -> None:
    played = Played(
        tmp_path,
        """
        import os, signal, subprocess, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it does not end by itself
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        say(f"{os.getpid()} {child.pid}")
        child.wait()
        import time; time.sleep(600)
        """,
    )
    played.begin()
    until(lambda: bool(played.told))
    pids = [int(pid) for pid in played.told[0].split()]
    assert all(map(runs, pids))
    played.rest.end()
    until(lambda: not any(map(runs, pids)))
    assert played.warned == []


def test_what_never_began_is_ended_too(tmp_path: Path) -> None:
    Played(tmp_path, "").rest.end()


def test_the_child_ends_with_its_standard_input(tmp_path: Path) -> None:
    """As it is when the process that started it was killed."""
    played = Played(
        tmp_path,
        """
        import os, signal, threading, time
        from controlplane.startup import example_rest
        signal.signal(signal.SIGTERM, example_rest._interrupt)
        threading.Thread(target=example_rest._end_with_input, daemon=True).start()
        say(str(os.getpid()))
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            say("cleaned up")
        """,
    )
    played.begin()
    until(lambda: bool(played.told))
    child = played.rest._child
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()
    until(lambda: len(played.told) == 3)
    assert played.told[1] == "cleaned up"
    assert child.wait(WAIT_S) == 0
    played.rest.end()
