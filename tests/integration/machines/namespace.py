"""A namespace of its own for network and processes, in which one machine can stand for several.

Only loopback is there, with all of 127.0.0.0/8. Commands are run in it by ``nsenter``; what they
start sees no other process of this machine, and ends with the namespace.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil
import pytest

WANTED = ("--net", "--pid", "--mount")


class Namespace:
    """Runs commands inside. ``pid`` is the process that keeps the namespace, seen from outside."""

    def __init__(self, pid: int) -> None:
        self._enter = ["nsenter", f"--target={pid}", *WANTED]
        if os.geteuid() != 0:
            self._enter += ["--user", "--preserve-credentials"]

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], output: int | None = None
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._enter, "--", *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            text=True,
        )

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], timeout_s: float = 180.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, whatever that is; its output is of both streams."""
        return subprocess.run(
            [*self._enter, "--", *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def without(what: str) -> None:
    """Skip at home, fail where namespaces have to be available."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and CI=true demands it")
    pytest.skip(what)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A fresh namespace with its loopback up; all that runs in it is killed afterwards."""
    if sys.platform != "linux" or not (shutil.which("unshare") and shutil.which("nsenter")):
        without("namespaces are not available here")
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *WANTED, *mapped, "--mount-proc", "--fork", "--kill-child"]
    keeper = "ip link set lo up && echo up && exec sleep infinity"
    with subprocess.Popen(
        [*command, "sh", "-c", keeper],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if said != "up":
            process.kill()
            without(f"namespaces are not available here ({said})")
        [inside] = _children(process.pid)
        try:
            yield Namespace(inside)
        finally:
            process.kill()


def _children(pid: int) -> list[int]:
    deadline = time.monotonic() + 300
    while not (found := psutil.Process(pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [child.pid for child in found]
