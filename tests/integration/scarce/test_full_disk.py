"""The disk of the state directory fills up while everything runs: queries go on."""

import os
import signal

import pytest

from tests.disks import fill
from tests.integration.deployment import BUSY, Deployment, Load, title
from tests.integration.digits import GOOD
from tests.services import missing

pytestmark = [pytest.mark.integration, pytest.mark.campaign]


def serving(running: Deployment, load: Load) -> None:
    """Return once queries are answered again."""
    before = load.snapshot()["200"]
    running.until(lambda: load.snapshot()["200"] > before + 100, "service")


def test_workers_come_back_on_a_full_disk(scarce: Deployment) -> None:
    disk = scarce.state_dir.parent
    if not disk.is_mount():
        missing("a disk in memory", "cannot be mounted (that needs root)")
    before = int(scarce.get("/v1/events?limit=1")["events"][0]["seq"])
    filler = fill(disk)
    with Load(scarce, GOOD, clients=2) as load:
        for _ in range(2):
            serving(scarce, load)
            (worker,) = scarce.workers()
            os.kill(worker["pid"], signal.SIGKILL)
            scarce.until(
                lambda killed=worker["pid"]: [
                    w for w in scarce.workers() if w["pid"] != killed and scarce.ready(w)
                ],
                "a new worker",
            )
        serving(scarce, load)
        for part in ("modelless-controller", "valkey-server"):
            (process,) = [p for p in scarce.processes() if part in title(p)]
            process.kill()
            serving(scarce, load)
    assert load.untyped == []
    assert load.outcomes.keys() <= {"200", "NO_WORKERS", "COLD", "REPLICA_LOST", *BUSY}
    filler.unlink()
    scarce.until(
        lambda: scarce.get("/v1/plan")["standing"]["level"] == "as_planned", "all that is planned"
    )
    told = scarce.get(f"/v1/events?limit=500&after={before}")["events"]
    assert "worker_joined" in {event["kind"] for event in told}
    assert "quarantined" not in {event["kind"] for event in told}
