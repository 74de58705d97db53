"""A start of which Ray's own processes crash or hang ends when it is told to, and by itself."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import psutil
import pytest

from tests.integration.deployment import environment, short_directory
from tests.ports import free_port

pytestmark = pytest.mark.integration

CRASH, HANG = "import os; os._exit(1)", "import time; time.sleep(900)"
UP = """
import sys
from controlplane.cli.main import main
from controlplane.cluster import serve_applications
from controlplane.cluster.one_machine.template_process import TemplateProcess

TemplateProcess.command = property(lambda _: ["-c", sys.argv[1]])
serve_applications.SLOW_S, serve_applications.BEGIN_S = map(float, sys.argv[2:])
sys.argv = ["modelless", "up"]
main()
"""
SLOW = "Ray has not started its first process within"
PATIENT_S = 240.0
"""A start that hangs all the same is killed after this, and the test fails."""


@contextmanager
def starting(launcher: str, slow_s: float, begin_s: float) -> Iterator["subprocess.Popen[str]"]:
    """``modelless up`` with a launcher of Ray's workers that is this program instead."""
    with short_directory() as home:
        state = home / "s"
        process = subprocess.Popen(
            [sys.executable, "-c", UP, launcher, str(slow_s), str(begin_s)],
            env=environment(state, free_port(), cores=1),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline = Timer(PATIENT_S, process.kill)
        deadline.start()
        try:
            yield process
            assert not list(of(state))
        finally:
            deadline.cancel()
            process.kill()
            process.wait()
            for one in of(state):
                one.kill()


def of(state: Path) -> Iterator[psutil.Process]:
    """Processes whose arguments name the state directory."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(state) in argument for argument in process.info["cmdline"] or ()):
            yield process


def read_until(words: str, process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without saying {words!r}")


@pytest.mark.parametrize(
    ("launcher", "how"), [(CRASH, signal.SIGINT), (HANG, signal.SIGTERM)], ids=["crash", "hang"]
)
def test_it_ends_when_it_is_told_to(launcher: str, how: signal.Signals) -> None:
    with starting(launcher, 0.5, PATIENT_S) as process:
        read_until(SLOW, process)
        process.send_signal(how)
        said, _ = process.communicate()
        assert "Interrupted" in said
        assert "nothing is left running" in said
        assert process.returncode == 130


def test_it_ends_by_itself_and_says_where_the_reason_is() -> None:
    with starting(CRASH, 0.5, 2.0) as process:
        said, _ = process.communicate()
        assert SLOW in said
        error = said[said.index("error: ") :]
        assert "started its first process within 2 s" in error
        assert "session_latest/logs" in error
        assert process.returncode == 1
