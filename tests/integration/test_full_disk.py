"""The disk of the state directory fills up while everything runs: queries go on."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.disks import fill, small_disk
from tests.integration.conftest import Registered
from tests.integration.deployment import BUSY, Deployment, Load, deployed
from tests.integration.digits import GOOD

pytestmark = pytest.mark.integration


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk(96 * 1024) as folder:
        yield folder


def command_line(process: psutil.Process) -> str:
    """Empty of a process that has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one as well
        return ""


def serving(running: Deployment, load: Load) -> None:
    """Return once queries are answered again."""
    before = load.snapshot()["200"]
    running.until(lambda: load.snapshot()["200"] > before + 100, "service")


def test_workers_come_back_on_a_full_disk(registered: Registered, disk: Path) -> None:
    shutil.copytree(registered.home, disk / "s")
    with deployed(disk / "s") as running:
        filler = fill(disk)
        with Load(running, GOOD, clients=2) as load:
            for _ in range(2):
                serving(running, load)
                (worker,) = running.workers()
                os.kill(worker["pid"], signal.SIGKILL)
                running.until(
                    lambda killed=worker["pid"]: [
                        w for w in running.workers() if w["pid"] != killed and running.ready(w)
                    ],
                    "a new worker",
                )
            serving(running, load)
            for part in ("modelless-controller", "valkey-server"):
                (process,) = [p for p in running.processes() if part in command_line(p)]
                process.kill()
                serving(running, load)
        assert load.untyped == []
        assert load.outcomes.keys() <= {"200", "NO_WORKERS", "COLD", "REPLICA_LOST", *BUSY}
        filler.unlink()
        everything = {variant["name"] for variant in running.variants()}
        running.until(lambda: running.ready(running.workers()[0]) == everything, "all variants")
        told = running.get("/v1/events?limit=500")["events"]
        assert "worker_joined" in {event["kind"] for event in told}
        assert "quarantined" not in {event["kind"] for event in told}
