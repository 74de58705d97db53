"""Nodes that join and leave a running installation, on raylets of one machine, under queries.

It begins with a node of two cores, and one of a single core, which is cheaper, joins. The tests
build on each other.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.changing_nodes import ChangingNodes, changing_nodes
from tests.integration.deployment import BUSY, Deployment, Load, deployed, short_directory
from tests.integration.digits import GOOD
from tests.integration.machines.lab import register

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

FIRST, SMALLER, SAME, OTHER = "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"
ANSWERED = {"200", *BUSY}
LOST = {"REPLICA_LOST", "NO_WORKERS", "COLD"}
"""What a query may be told besides when the node that it was on is killed."""


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    with short_directory() as made:
        yield made


@pytest.fixture(scope="module")
def nodes(state: Path) -> Iterator[ChangingNodes]:
    with changing_nodes(state) as made:
        made.add(FIRST, 2)
        yield made


@pytest.fixture(scope="module")
def digits(state: Path, nodes: ChangingNodes, family: Path) -> Iterator[Deployment]:
    with deployed(
        state,
        ray_address=nodes.address,
        nodes=1,
        gateways=1,
        worker_memory_mib=512,
        listen_channel="tcp:0.0.0.0",
    ) as made:
        operation = register(made, family, "mlp-small")
        assert operation["state"] == "succeeded", operation
        made.until(lambda: _ready(made), "the task is ready")
        yield made


def _workers(digits: Deployment) -> dict[str, str]:
    """The device kind of each worker, by its name."""
    return {one["worker"]: one["device_kind"] for one in digits.workers()}


def _ready(digits: Deployment) -> set[str]:
    """The device kinds of workers that have loaded something."""
    return {one["device_kind"] for one in digits.workers() if digits.ready(one)}


def _answering(digits: Deployment) -> str:
    """The worker of an answer."""
    answer = digits.query(GOOD["inputs"])
    return str(answer.body["worker"]) if answer.status == 200 else ""


def _events(digits: Deployment) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = digits.get("/v1/events?limit=500")["events"]
    return found


def _more(digits: Deployment, load: Load, count: int = 100) -> None:
    before = load.snapshot()["200"]
    digits.until(lambda: load.snapshot()["200"] >= before + count, "answers go on")


def test_a_node_of_a_new_kind_answers_and_no_query_is_lost_meanwhile(
    digits: Deployment, nodes: ChangingNodes
) -> None:
    before = _workers(digits)
    assert set(before.values()) == {"cpu-2"}
    with Load(digits, GOOD, clients=2, pause_s=0.05) as load:
        _more(digits, load)
        nodes.add(SMALLER, 1)
        digits.until(lambda: "cpu-1" in _workers(digits).values(), "a worker of the new kind")
        digits.until(lambda: "cpu-1" in _ready(digits), "it was measured there, and is loaded")
        digits.until(lambda: _answering(digits).startswith("cpu-1-"), "it answers")
        _more(digits, load)

    assert load.outcomes.keys() <= ANSWERED, load.outcomes
    assert before.keys() < _workers(digits).keys()  # the first one was not started anew
    profiles = digits.get("/v1/profiles")["profiles"]
    assert {one["device_kind"] for one in profiles if SMALLER in one["measured_on"]} == {"cpu-1"}
    assert digits.get("/v1/plan")["workers"] == {"cpu-2": 1, "cpu-1": 1}
    devices = {one["name"]: one for one in digits.get("/v1/devices")["devices"]}
    assert devices["cpu-1"]["source"] == "found"
    assert SMALLER in devices["cpu-1"]["nodes"][0]


def test_a_control_loop_that_takes_over_keeps_its_worker(
    digits: Deployment, nodes: ChangingNodes
) -> None:
    before, told = _workers(digits), len(_takeovers(digits))
    with Load(digits, GOOD, clients=2, pause_s=0.05) as load:
        [controller] = nodes.replicas("modelless-controller")
        controller.kill()
        digits.until(lambda: len(_takeovers(digits)) > told, "another one leads")
        _more(digits, load)
        digits.until(lambda: "cpu-1" in digits.get("/v1/plan")["workers"], "it plans with both")

    assert load.outcomes.keys() <= ANSWERED, load.outcomes
    assert _workers(digits) == before


def _takeovers(digits: Deployment) -> list[dict[str, Any]]:
    return [one for one in _events(digits) if one["kind"].startswith("controller_")]


def test_workers_that_are_bound_to_nodes_by_name_are_started_anew_for_one_more(
    digits: Deployment, nodes: ChangingNodes
) -> None:
    """Nothing but its id tells this node from the larger one."""
    before = _workers(digits)
    with Load(digits, GOOD, clients=2, pause_s=0.05) as load:
        nodes.add(OTHER, 1)
        digits.until(
            lambda: (
                sorted((_workers(digits) | before).values()) == ["cpu-1"] * 3 + ["cpu-2"]
                and len(_workers(digits)) == 3
            ),
            "two workers of the kind, both new",
        )
        digits.until(lambda: all(digits.ready(one) for one in digits.workers()), "all loaded")
        _more(digits, load)

    assert load.outcomes.keys() <= ANSWERED, load.outcomes


def test_its_kind_ends_when_its_nodes_leave_and_the_others_go_on(
    digits: Deployment, nodes: ChangingNodes
) -> None:
    with Load(digits, GOOD, clients=2, pause_s=0.05) as load:
        _more(digits, load)
        nodes.remove(SMALLER)
        nodes.remove(OTHER)
        digits.until(
            lambda: any("have left" in one["message"] for one in _events(digits)), "it ends"
        )
        digits.until(lambda: set(_workers(digits).values()) == {"cpu-2"}, "one kind is left")
        _more(digits, load)

    assert load.untyped == []
    assert load.outcomes.keys() <= ANSWERED | LOST, load.outcomes
    inventory = {one["device_kind"]: one for one in digits.get("/v1/inventory")["inventory"]}
    assert set(inventory) == {"cpu-2"}
    assert [one for one in _events(digits) if one["kind"] == "scale_failed"] == []


def test_one_more_node_of_a_known_kind_is_one_more_worker(
    digits: Deployment, nodes: ChangingNodes
) -> None:
    before = _workers(digits)
    with Load(digits, GOOD, clients=2, pause_s=0.05) as load:
        nodes.add(SAME, 2)
        digits.until(lambda: list(_workers(digits).values()) == ["cpu-2"] * 2, "two workers")
        digits.until(lambda: all(digits.ready(one) for one in digits.workers()), "both loaded")
        _more(digits, load)

    assert load.outcomes.keys() <= ANSWERED, load.outcomes
    assert before.keys() < _workers(digits).keys()


def test_an_installation_begins_without_kinds_and_has_those_of_its_nodes() -> None:
    with (
        short_directory() as state,
        changing_nodes(state) as nodes,
        deployed(
            state,
            ray_address=nodes.address,
            slices="found",
            gateways=1,
            worker_memory_mib=512,
            listen_channel="tcp:0.0.0.0",
        ) as made,
    ):
        assert "no node has joined yet" in made.log
        nodes.add(FIRST, 1)
        made.until(lambda: list(_workers(made).values()) == ["cpu-1"], "a worker")
        rows = made.get("/v1/inventory")["inventory"]
        assert [(one["device_kind"], one["asked"]) for one in rows] == [("cpu-1", 1)]
