"""How many workers are wanted and running, over the control API."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import Settings, load_settings
from tests.controlplane.builders import DictLive, digits_catalog, worker
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKindName

CPU_4 = DeviceKindName("cpu-4")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two workers ``cpu-3`` by default; the catalog's models were measured on ``cpu-4``."""
    return load_settings(state_dir=tmp_path, workers=2, cores=6)


async def rows(api: httpx.AsyncClient) -> list[tuple[str, int, int]]:
    reply = await api.get("/v1/inventory")
    assert reply.status_code == 200, reply.text
    return [
        (row["device_kind"], row["wanted"], row["running"]) for row in reply.json()["inventory"]
    ]


async def test_the_settings_are_wanted_until_somebody_asks(api: httpx.AsyncClient) -> None:
    assert await rows(api) == [("cpu-3", 2, 0)]


async def test_a_plan_stands_with_the_reason_where_cores_are_short(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.statuses = [replace(worker("w1"), device_kind=DeviceKindName("cpu-3"))]
    short = "the workers that are wanted need 9 cores, and 6 were given to workers at the start"

    for wanted, told in ((2, False), (3, True)):
        await api.put("/v1/inventory/cpu-3", json={"count": wanted})
        standing = (await api.get("/v1/plan")).json()["standing"]
        assert f"1 of {wanted} workers cpu-3 running" in standing["sentence"]
        assert (short in standing["sentence"]) is told


async def test_a_worker_that_a_gateway_does_not_hear_is_told(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    hung = asdict(replace(worker("w1", "mlp-v1-onnx-fp32"), device_kind=DeviceKindName("cpu-3")))
    hung |= {"warnings": ("its disk is full",)}
    live.statuses = [
        replace(worker("w0"), device_kind=DeviceKindName("cpu-3")),
        hung | {"silent_s": 4.4, "slowness": 2.64, "spared": True},
    ]

    [_, row] = (await api.get("/v1/workers")).json()["workers"]
    assert row["warnings"] == [
        "it has not answered for 4 s, and gets no queries until it does",
        "it takes 2.6 times as long as others of its kind: queries go to the others",
        "its disk is full",
    ]
    standing = (await api.get("/v1/plan")).json()["standing"]
    assert "w1 has not answered for 4 s" in standing["sentence"]
    assert standing["kinds"][0]["silent"] == 1
    assert await rows(api) == [("cpu-3", 2, 1)]


async def test_each_kind_of_the_settings_is_wanted(tmp_path: Path) -> None:
    sliced = load_settings(state_dir=tmp_path, slices="2xcpu-1,1xcpu-2-avx2")
    catalog = digits_catalog()
    store = FileArtifactStore(sliced.artifacts_dir)
    app = build_api(ApiContext(catalog=catalog, store=store, settings=sliced, live=DictLive()))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as api:
        changed = await api.put("/v1/inventory/cpu-2-avx2", json={"count": 4})

        assert changed.json()["settings"] == 1
        assert await rows(api) == [("cpu-1", 2, 0), ("cpu-2-avx2", 4, 0)]


async def test_kinds_that_came_later_are_known_while_nobody_can_say_them(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, ray_address="auto", slices="cpu-2:source=found")
    live = DictLive()
    context = ApiContext(
        catalog=digits_catalog(),
        store=FileArtifactStore(settings.artifacts_dir),
        settings=settings,
        live=live,
    )
    live.seen_nodes = {"kinds": {}, "advice": [], "slices": "cpu-2:source=found,cpu-8:source=found"}

    async def names() -> list[str]:
        return [one.name for one in (await context.settings_now()).kinds]

    assert await names() == ["cpu-2", "cpu-8"]
    live.seen_nodes = None  # the control loop has been silent for a minute
    assert await names() == ["cpu-2", "cpu-8"]
    live.gone = True
    assert await names() == ["cpu-2", "cpu-8"]


async def test_what_was_asked_for_wins_over_the_settings(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    catalog.set_inventory(DeviceKindName("cpu-3"), 5)

    assert await rows(api) == [("cpu-3", 5, 0)]


async def test_a_draining_worker_does_not_run_and_one_nobody_wants_does(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    draining: dict[str, Any] = {
        "worker": "b", "device_kind": "cpu-4", "memory_mib": 1.0, "reserved_mib": 0.0,
        "draining": True, "backlog_us": 0, "busy_ratio": 0.0, "replicas": [],
    }  # fmt: skip
    live.statuses = [worker("a"), draining]

    assert await rows(api) == [("cpu-3", 2, 0), ("cpu-4", 0, 1)]


async def test_asking_for_workers_is_kept_answered_and_told(
    api: httpx.AsyncClient, catalog: MemoryCatalog, live: DictLive
) -> None:
    live.statuses = [worker("a")]

    reply = await api.put("/v1/inventory/cpu-4", json={"count": 3})

    assert (reply.status_code, reply.json()) == (
        200,
        {
            "device_kind": "cpu-4",
            "wanted": 3,
            "running": 1,
            "draining": 0,
            "silent": 0,
            "missing": 2,
            "asked": 3,
            "source": "stored",
            "settings": None,
            "lack": "no worker cpu-4 can run on this machine, which is divided into cpu-3",
        },
    )
    assert catalog.inventory() == {CPU_4: 3}
    [event] = catalog.events(10)
    assert (event.kind, event.subject, event.message) == ("inventory", "cpu-4", "0 -> 3 workers")


async def test_asking_for_more_than_the_machine_has_says_so_at_once(
    api: httpx.AsyncClient,
) -> None:
    enough = (await api.put("/v1/inventory/cpu-3", json={"count": 2})).json()
    more = (await api.put("/v1/inventory/cpu-3", json={"count": 4})).json()

    assert enough["lack"] == ""
    assert more["lack"] == (
        "the workers that are wanted need 12 cores, and 6 were given to workers at the start"
    )


async def test_asking_for_more_than_the_nodes_have_says_so(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, ray_address="auto", slices="1xcpu-4")
    live = DictLive()
    there = {"cores": 9, "gpus": 0, "kinds": ["cpu-4"]}
    live.seen_machines = {
        "nodes": [there | {"drains_until_s": None}, there | {"drains_until_s": 5.0}]
    }
    store = FileArtifactStore(settings.artifacts_dir)
    context = ApiContext(catalog=digits_catalog(), store=store, settings=settings, live=live)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(build_api(context)), base_url="http://localhost"
    ) as api:
        asked = [(await api.put("/v1/inventory/cpu-4", json={"count": n})).json() for n in (2, 3)]

    assert [row["lack"] for row in asked] == [
        "",
        "the nodes that are there have room for at most 2 workers cpu-4; the rest waits for others",
    ]


async def test_asking_twice_is_told_once(api: httpx.AsyncClient, catalog: MemoryCatalog) -> None:
    for _ in range(2):
        await api.put("/v1/inventory/cpu-4", json={"count": 3})

    assert len(catalog.events(10)) == 1


async def test_the_settings_own_number_can_be_fixed(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    reply = await api.put("/v1/inventory/cpu-3", json={"count": 2})

    assert reply.status_code == 200
    assert (catalog.inventory(), catalog.events(10)) == ({DeviceKindName("cpu-3"): 2}, ())


@pytest.mark.parametrize(
    ("kind", "body", "status", "error"),
    [
        ("gpu", {"count": 1}, 404, "there is no device kind 'gpu'; there are: cpu-3, cpu-4"),
        ("cpu-4", {}, 400, "body lacks 'count'"),
        ("cpu-4", {"count": "2"}, 400, "body 'count' is wrong: it must be a whole number"),
        ("cpu-4", {"count": True}, 400, "body 'count' is wrong: it must be a whole number"),
        (
            "cpu-4",
            {"count": -1},
            400,
            "body 'count' is wrong: it must be at least 0",
        ),
        (
            "cpu-4",
            {"count": 10_001},
            400,
            "body 'count' is wrong: it must be at most 10000",
        ),
    ],
)
async def test_a_wrong_number_is_refused_and_changes_nothing(
    api: httpx.AsyncClient,
    catalog: MemoryCatalog,
    kind: str,
    body: dict[str, Any],
    status: int,
    error: str,
) -> None:
    reply = await api.put(f"/v1/inventory/{kind}", json=body)

    assert (reply.status_code, reply.json()["error"]) == (status, error)
    assert (catalog.inventory(), catalog.events(10)) == ({}, ())
