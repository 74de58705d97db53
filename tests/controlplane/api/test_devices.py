"""Device kinds over the control API: where they come from, and which nodes have them."""

import socket
from typing import Any

import httpx
import pytest

from controlplane.settings import Settings, load_settings
from tests.controlplane.builders import DictLive


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    return load_settings(state_dir=settings.state_dir, **getattr(request, "param", {}))


async def rows(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    reply = await api.get("/v1/devices")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["devices"])


@pytest.mark.parametrize("settings", [{"cores": 4}], indirect=True)
async def test_a_kind_that_settings_say_is_on_this_machine(api: httpx.AsyncClient) -> None:
    assert await rows(api) == [
        {
            "name": "cpu-4",
            "cores": 4,
            "memory_mib": 4000.0,
            "usd_per_hour": 3.6,
            "gpu": None,
            "idle_w": None,
            "carbon_g_per_kwh": [],
            "source": "set",
            "measured": True,
            "nodes": [socket.gethostname()],
        }
    ]


@pytest.mark.parametrize("settings", [{"slices": "cpu-3:source=found"}], indirect=True)
async def test_kinds_that_were_found_and_those_of_the_catalog_alone(api: httpx.AsyncClient) -> None:
    told = [(row["name"], row["source"], row["measured"]) for row in await rows(api)]

    assert told == [("cpu-3", "found", False), ("cpu-4", None, True)]


@pytest.mark.parametrize("settings", [{"ray_address": "auto", "cores": 4}], indirect=True)
async def test_nodes_of_a_cluster_are_those_that_the_control_loop_saw(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    assert [row["nodes"] for row in await rows(api)] == [[]]

    live.seen_nodes = {"kinds": {"cpu-4": ["a", "b"]}, "advice": ["look at c"]}
    assert [row["nodes"] for row in await rows(api)] == [["a", "b"]]
    assert (await api.get("/v1/devices")).json()["advice"] == ["look at c"]

    live.gone = True
    assert [row["nodes"] for row in await rows(api)] == [[]]
