"""Two workers, a gateway and the control loop are replaced while clients ask.

Two releases cannot be had in one test: what is new differs by a setting, which workers and plans
show.
"""

import subprocess
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.integration.deployment import BUSY, CLI, Deployment, Load, environment, title
from tests.integration.digits import GOOD

pytestmark = pytest.mark.integration

UPGRADE_S = 550.0


def upgrade(two: Deployment, *arguments: str, **settings: object) -> "subprocess.Popen[str]":
    told = environment(two.state_dir, two.port, workers=2, gateways=1, grpc_port=two.grpc_port)
    changed = {f"MODELLESS_{name.upper()}": str(value) for name, value in settings.items()}
    return subprocess.Popen(
        [*CLI, "upgrade", "--patience", "240", *arguments],
        env=told | changed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def named(two: Deployment) -> tuple[set[str], str, str]:
    """Workers, and the gateway and control loop that were started last."""
    events: list[dict[str, Any]] = two.get("/v1/events?limit=1000")["events"]
    newest = [
        next(event["subject"] for event in events if event["kind"] == kind)
        for kind in ("gateway_started", "controller_started")
    ]
    return {worker["worker"] for worker in two.workers()}, newest[0], newest[1]


def listens(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        found = process.net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)
    return False


def test_everything_is_replaced_and_every_query_is_answered(two: Deployment) -> None:
    workers, gateway, controller = named(two)
    assert {worker["eviction"] for worker in two.workers()} == {"modelless"}
    held = {variant for worker in two.workers() for variant in two.ready(worker)}
    with Load(two, GOOD, clients=4, pause_s=0.02) as load:
        two.until(lambda: load.snapshot()["200"] > 100, "load")
        with upgrade(two, eviction="lru") as command:
            said, _ = command.communicate(timeout=UPGRADE_S)
        assert command.returncode == 0, said
        before = load.snapshot()["200"]
        two.until(lambda: load.snapshot()["200"] > before + 100, "service")
    assert load.untyped == [], said
    assert load.outcomes.keys() <= {"200", *BUSY}, said
    assert "4 replaced" in said
    for each in ("workers cpu-1: one more is started first", "gateways: one more is started first"):
        assert each in said, "they have the same cores for a moment"
    now = named(two)
    assert not workers & now[0]
    assert (len(now[0]), now[1] != gateway, now[2] != controller) == (2, True, True)
    # Of several processes that listen, the kernel gives each a part of all new connections.
    two.until(lambda: any("read_bodies" in title(one) for one in two.processes()), "its reader")
    assert ["gateway" in title(one) for one in two.processes() if listens(one, two.port)] == [True]
    assert {worker["eviction"] for worker in two.workers()} == {"lru"}
    assert {worker["release"] for worker in two.workers()} != {""}
    for worker in two.workers():
        assert two.ready(worker) == held


@pytest.mark.campaign
def test_what_is_new_already_stays(two: Deployment) -> None:
    with upgrade(two, eviction="lru") as command:  # where this test is the first one
        said, _ = command.communicate(timeout=UPGRADE_S)
    assert command.returncode == 0, said
    before = named(two)
    with upgrade(two, eviction="lru") as command:
        said, _ = command.communicate(timeout=UPGRADE_S)
    assert (command.returncode, "0 replaced" in said) == (0, True), said
    assert named(two) == before


@pytest.mark.campaign
def test_a_worker_that_cannot_start_ends_it_and_the_other_one_answers_on(two: Deployment) -> None:
    """No setting that an upgrade takes keeps a worker from starting, so the file goes that it reads
    first; put back, the same upgrade goes on."""
    secret, away = two.state_dir / "channel.secret", two.state_dir / "channel.away"
    with upgrade(two, "--patience", "5", "--all", eviction="lru") as command:
        assert command.stdout is not None
        before = ""
        while "workers cpu-1: one more is started first" not in before:
            line = command.stdout.readline()
            assert line, before
            before += line
        secret.rename(away)
        try:
            said, _ = command.communicate(timeout=UPGRADE_S)
        finally:
            away.rename(secret)
    assert command.returncode == 1, said
    assert "no new one of the workers" in said
    assert "run `modelless upgrade` again" in said
    assert two.query([[0.0] * 64]).status == 200
    with upgrade(two, eviction="lru") as command:
        said, _ = command.communicate(timeout=UPGRADE_S)
    assert command.returncode == 0, said
    assert len(two.workers()) == 2
    assert all(two.ready(worker) for worker in two.workers())
