"""The service ``modelless`` of ``deploy/compose.yaml``, on a machine of its own.

Its catalog is in PostgreSQL and its live state in Redis, as in no other test of a whole system.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import documents
from tests.integration.deployment import START_S
from tests.integration.digits import check_infeasible, check_killed_worker
from tests.integration.machines.lab import HOME, PASSWORD, REDIS_PORT, Lab, Reached, lab, register
from tests.integration.machines.network import PATH, Program

pytestmark = pytest.mark.integration

GIVEN = {"POSTGRES_PASSWORD": PASSWORD, "MODELLESS_API_TOKEN": "a-token-that-only-this-test-has"}
"""What the first lines of the file have a user set."""
ADDRESSES = {"@postgres/": "@127.0.0.1/", "valkey:6379": f":{PASSWORD}@127.0.0.1:{REDIS_PORT}"}
PLACE = "/srv/state"


class Composed:
    """The container, started with its command and its environment."""

    def __init__(self, lab: Lab) -> None:
        service: dict[str, Any] = documents("compose.yaml")[0]["services"]["modelless"]
        self._healthcheck = service["healthcheck"]["test"]
        self.state = lab.network.folder / "state"
        self.state.mkdir(mode=0o700)
        self.machine = lab.machine(2, "modelless", {self.state: PLACE})
        self._environment = {
            "PATH": f"{HOME}/modelless-env/bin:{PATH}",  # the image's
            "HOME": HOME,
            **{name: placed(value) for name, value in service["environment"].items()},
        }
        self.program: Program = self.machine.start(service["command"], self._environment)
        published, _, port = service["ports"][0].rpartition(":")
        assert published == "127.0.0.1:8000"
        token = GIVEN["MODELLESS_API_TOKEN"]
        self.gateway = Reached(self.machine, "127.0.0.1", int(port), token=token)

    def is_healthy(self) -> bool:
        """What the healthcheck says."""
        assert self.program.poll() is None, self.program.output
        kind, command = self._healthcheck
        assert kind == "CMD-SHELL"
        return self.machine.shell(placed(command), self._environment).wait(START_S).code == 0

    def kill(self, pid: int) -> None:
        """Kill a process by the number that it has on the machine."""
        self.machine.ask(do="signal", pid=pid, number=signal.SIGKILL)

    def stop(self) -> int:
        """As ``docker compose stop`` does; the exit code."""
        self.machine.ask(do="signal", pid=self.program.pid, number=signal.SIGTERM)
        return self.program.wait(START_S).code


def placed(text: str) -> str:
    """A value as Compose reads it, with this network's addresses."""
    text = re.sub(r"\$\{(\w+):\?\}", lambda name: GIVEN[name[1]], text).replace("$$", "$")
    for ours, theirs in ADDRESSES.items():
        text = text.replace(ours, theirs)
    return PLACE if text == "/state" else text


@pytest.fixture(scope="module")
def composed(family: Path) -> Iterator[Composed]:
    with lab() as made:
        yield Composed(made)


def test_it_becomes_healthy_with_an_empty_catalog(composed: Composed) -> None:
    composed.gateway.until(composed.is_healthy, "healthy", START_S)
    assert composed.gateway.get("/v1/tasks") == {"tasks": []}


def test_the_first_model_is_registered_and_answers(composed: Composed, family: Path) -> None:
    gateway = composed.gateway
    operation = register(gateway, family, "mlp-small")
    assert operation["state"] == "succeeded", operation
    gateway.until(lambda: gateway.get("/v2/models/digits/ready"), "the task is ready")
    assert gateway.query([[0.0] * 64]).status == 200


def test_without_a_variant_that_fits_it_says_what_comes_closest(composed: Composed) -> None:
    check_infeasible(composed.gateway)


@pytest.mark.campaign
def test_a_killed_worker_loses_nothing_and_comes_back(composed: Composed) -> None:
    check_killed_worker(composed.gateway, composed.kill)


def test_nothing_is_kept_in_a_file_that_belongs_into_a_service(composed: Composed) -> None:
    assert "artifacts" in (kept := {path.name for path in composed.state.iterdir()})
    assert "catalog.db" not in kept
    assert [p for p in composed.machine.processes() if "valkey" in p.name()] == []


def test_it_stops_when_it_is_told_to_and_leaves_nothing(composed: Composed) -> None:
    assert composed.stop() in (0, 130)
    assert composed.machine.processes() == []
