"""Each part of a running system is killed: queries go on, and one event tells of each.

Parts are killed by their process ids.
"""

import os
import signal
import subprocess
from typing import Any

import psutil
import pytest

from tests.integration.deployment import BUSY, CLI, Deployment, Load, environment, title
from tests.integration.digits import GOOD, check_killed_worker

pytestmark = pytest.mark.integration

PATIENCE_S = 600.0


def events(running: Deployment, kind: str, after: int) -> list[dict[str, Any]]:
    """Events of a kind since a number, oldest first."""
    found = running.get(f"/v1/events?limit=1000&after={after}")["events"]
    return [event for event in reversed(found) if event["kind"] == kind]


def newest(running: Deployment) -> int:
    return int(running.get("/v1/events?limit=1")["events"][0]["seq"])


def until_told(running: Deployment, kind: str, after: int) -> dict[str, Any]:
    """The one event of a kind since a number."""
    running.until(lambda: events(running, kind, after), kind, PATIENCE_S)
    (event,) = events(running, kind, after)
    return event


def replica_of(running: Deployment, application: str) -> psutil.Process:
    (found,) = [p for p in running.processes() if f"modelless-{application}" in title(p)]
    return found


def live_state_of(running: Deployment) -> psutil.Process:
    (found,) = [p for p in running.processes() if "valkey-server" in title(p)]
    return found


@pytest.fixture
def settled(digits: Deployment) -> Deployment:
    """All that is planned is there, and told."""

    def as_planned() -> bool:
        return bool(digits.get("/v1/plan")["standing"]["level"] == "as_planned")

    digits.until(as_planned, "all as planned", PATIENCE_S)
    return digits


def test_a_killed_worker_loses_nothing_and_comes_back(digits: Deployment) -> None:
    check_killed_worker(digits)


def test_a_killed_gateway_comes_back_and_is_told(settled: Deployment) -> None:
    after = newest(settled)
    *_, before = events(settled, "gateway_started", 0)
    replica_of(settled, "gateway").kill()
    settled.until(lambda: settled.query([[0.0] * 64]).status == 200, "the gateway", PATIENCE_S)
    started = until_told(settled, "gateway_started", after)
    assert f"127.0.0.1:{settled.port}" in started["message"]
    lost = until_told(settled, "gateway_lost", after)
    assert lost["subject"] == before["subject"] != started["subject"]


def test_without_controller_and_live_state_queries_go_on_and_the_successor_tells(
    settled: Deployment,
) -> None:
    after = newest(settled)
    before = settled.get("/v1/ticks?limit=1")["ticks"][0]["body"]["epoch"]
    with Load(settled, GOOD, clients=2, pause_s=0.01) as load:
        settled.until(lambda: load.snapshot()["200"] > 100, "load", PATIENCE_S)
        replica_of(settled, "controller").kill()
        live_state_of(settled).kill()
        started = until_told(settled, "controller_started", after)
        count = load.snapshot()["200"]
        settled.until(lambda: load.snapshot()["200"] > count + 100, "service", PATIENCE_S)
    assert load.outcomes.keys() <= {"200", *BUSY}
    assert load.untyped == []
    assert started["subject"] == f"epoch {before + 1}"
    assert f"took over from epoch {before}, which ended without a word" in started["message"]
    assert events(settled, "controller_stopped", after) == []
    until_told(settled, "live_state_restarted", after)


def test_a_killed_live_state_is_told(settled: Deployment) -> None:
    after = newest(settled)
    live_state_of(settled).kill()
    restarted = until_told(settled, "live_state_restarted", after)
    assert "it came back empty and was filled again" in restarted["message"]
    assert len(events(settled, "live_state_lost", after)) <= 1  # it may be back too soon
    assert events(settled, "gateway_lost", after) == []


def test_a_worker_that_is_killed_with_the_controller_is_told_by_the_successor(
    settled: Deployment,
) -> None:
    after = newest(settled)
    (worker,) = settled.workers()
    controller = replica_of(settled, "controller")
    controller.kill()
    os.kill(worker["pid"], signal.SIGKILL)
    lost = until_told(settled, "worker_lost", after)
    assert lost["subject"] == worker["worker"]
    assert "it was lost while no control loop was running" in lost["message"]
    joined = until_told(settled, "worker_joined", after)
    assert joined["subject"] != worker["worker"]


def test_what_runs_stands_against_what_is_wanted(settled: Deployment) -> None:
    standing = settled.get("/v1/plan")["standing"]
    (row,) = standing["kinds"]
    assert (row["wanted"], row["running"], row["missing"]) == (1, 1, 0)
    assert standing["replicas"]["wanted"] == standing["replicas"]["ready"] > 0
    assert standing["sentence"].startswith("As planned: 1 worker is running, ")
    command = [*CLI, "status"]
    settings = environment(settled.state_dir, settled.port)
    shown = subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=300, check=True
    )
    assert standing["sentence"] in shown.stdout
    assert f"{row['device_kind']}: 1 wanted, 1 running" in shown.stdout
