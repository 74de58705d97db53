"""What the doctor finds, and a system that runs."""

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.cli import main as cli
from controlplane.settings import Settings
from controlplane.startup.checks.finding import Check, Finding
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import prepare


def found(check: Check, settings: Settings) -> list[Finding]:
    return list(check(settings))


@contextmanager
def up(settings: Settings) -> Iterator[None]:
    """This process has the state directory, as a `modelless up` with these settings has it."""
    prepare(settings)
    with (settings.run_dir / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_state(settings, os.getpid(), set())
        yield


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0), capsys.readouterr().out


@contextmanager
def replica(niceness: int) -> Iterator[int]:
    """A process with the title that Ray gives to a replica of ours."""
    with subprocess.Popen(
        ["ray::ServeReplica:modelless-gateway:gateway", "60"],
        executable="/bin/sleep",
    ) as process:
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        try:
            title = Path(f"/proc/{process.pid}/cmdline")
            while not title.read_bytes().startswith(b"ray::"):  # not yet, on a busy machine
                time.sleep(0.01)
            yield process.pid
        finally:
            process.kill()
