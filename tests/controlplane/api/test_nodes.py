"""Nodes over the control API, and the notice that one goes."""

import time
from typing import Any

import httpx
import pytest

from controlplane.settings import Settings, load_settings
from tests.controlplane.builders import DictLive

CLUSTER = {"ray_address": "auto", "cores": 4}


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    return load_settings(state_dir=settings.state_dir, **getattr(request, "param", CLUSTER))


def node(id_: str, **said: Any) -> dict[str, Any]:
    plain = {"host": f"host-{id_[0]}", "address": "10.0.0.1", "is_head": False, "cores": 4}
    rest = {"gpus": 0, "kinds": ["cpu-4"], "drains_until_s": None}
    return {"id": id_, **plain, **rest, **said}


def seen(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"autoscaler": "an autoscaler", "missing": {}, "remarks": [], "nodes": list(nodes)}


@pytest.mark.parametrize("settings", [{"cores": 4}], indirect=True)
async def test_one_machine_has_no_nodes_to_ask_for(api: httpx.AsyncClient) -> None:
    told = (await api.get("/v1/nodes")).json()
    assert (told["autoscaler"], told["nodes"]) == ("nothing starts nodes for a single machine", [])
    refused = await api.post("/v1/nodes/any/drain", json={})
    assert (refused.status_code, refused.json()["error"]) == (
        404,
        "there is no node 'any'; there are none",
    )


async def test_nodes_are_those_that_the_control_loop_saw(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    assert (await api.get("/v1/nodes")).json()["nodes"] == []

    live.seen_machines = seen(node("a" * 8), node("b" * 8, drains_until_s=0.0))
    rows = (await api.get("/v1/nodes")).json()["nodes"]
    assert [(row["host"], row["draining"], row["drains_until"]) for row in rows] == [
        ("host-a", False, None), ("host-b", True, None),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["b" * 8, "host-b", "bbbb"])
async def test_a_notice_waits_for_the_control_loop(
    api: httpx.AsyncClient, live: DictLive, name: str
) -> None:
    live.seen_machines = seen(node("a" * 8), node("b" * 8))
    before_s = time.time()

    reply = await api.post(f"/v1/nodes/{name}/drain", json={"why": "spot", "deadline_s": 30})

    assert reply.status_code == 200, reply.text
    assert (reply.json()["host"], reply.json()["draining"]) == ("host-b", True)
    [said] = live.said
    assert (said["node"], said["why"]) == ("b" * 8, "spot")
    assert 30 <= said["until_s"] - before_s <= 60


async def test_a_node_without_a_deadline_goes_when_it_is_done(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.seen_machines = seen(node("a" * 8))
    assert (await api.post("/v1/nodes/host-a/drain", json={})).json()["drains_until"] is None
    assert live.said[0]["until_s"] == 0.0


@pytest.mark.parametrize("name", ["c", "10.0.0.1", "a"])
async def test_a_name_of_no_node_or_of_several_is_refused(
    api: httpx.AsyncClient, live: DictLive, name: str
) -> None:
    live.seen_machines = seen(node("a" * 8), node("b" * 8))
    reply = await api.post(f"/v1/nodes/{name}/drain", json={})
    assert (reply.status_code, reply.json()["code"]) == (404, "NOT_FOUND")
    assert "aaaaaaaa (host-a, 10.0.0.1)" in reply.json()["error"]


async def test_the_head_does_not_go(api: httpx.AsyncClient, live: DictLive) -> None:
    live.seen_machines = seen(node("a" * 8, is_head=True))
    reply = await api.post("/v1/nodes/host-a/drain", json={})
    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert live.said == []
