"""The control API over a catalog in memory."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from controlplane.api.context import ApiContext
from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.api.routes import build_api
from controlplane.dashboard.pages import ICONS, PAGES
from controlplane.registry.uploads import FIELDS, ROWS, SWITCHES, TOKENIZER
from controlplane.settings import Settings, load_settings
from controlplane.views.history import STEP_S, slot_of
from tests.controlplane.builders import CPU, DictLive, digest, digits_catalog, register, worker
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Catalog
from variants.errors import NotFound, StateUnavailable
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Digest,
    Event,
    ModelName,
    Placement,
    Plan,
    Route,
    Stage,
    TaskName,
    TickRecord,
    VariantName,
    WorkerId,
)


class OneFileStore:
    """Has the source of ``linear`` version 1 and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, source: Path) -> Digest:
        raise NotImplementedError

    def path(self, digest: Digest) -> Path:
        raise NotImplementedError

    def look(self, digest: Digest) -> Any:
        raise NotImplementedError

    def size_bytes(self, digest: Digest) -> int:
        if digest != LINEAR:
            raise NotFound("it is not in the store")
        return self._path.stat().st_size

    def place(self, digest: Digest) -> Path:
        raise NotImplementedError

    def sound(self, digest: Digest) -> Path:
        raise NotImplementedError

    def check(self, digest: Digest) -> None:
        raise NotImplementedError

    def put_back(self, digest: Digest) -> bool:
        raise NotImplementedError

    def delete(self, digest: Digest) -> None:
        raise NotImplementedError

    def digests(self) -> Any:
        raise NotImplementedError


LINEAR = digest("linear-v1")
SVG_NAMESPACE = "http://www.w3.org/2000/svg"
LIVE = {"stage": "live"}


class GoneCatalog(MemoryCatalog):
    """A catalog whose database is gone."""

    def revision(self) -> int:
        raise StateUnavailable("the database does not answer")

    def snapshot(self) -> CatalogSnapshot:
        raise StateUnavailable("the database does not answer")


class BrokenCatalog(MemoryCatalog):
    def revision(self) -> int:
        raise ValueError("secret: /srv/password")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(state_dir=tmp_path / "state")


def make_api(
    tmp_path: Path, settings: Settings, catalog: Catalog, live: DictLive | None = None
) -> FastAPI:
    source = tmp_path / "linear.onnx"
    source.write_bytes(b"x" * 123)
    store: ArtifactStore = OneFileStore(source)
    return build_api(
        ApiContext(catalog=catalog, store=store, settings=settings, live=live or DictLive())
    )


def client_of(api: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost")


@pytest.fixture
def catalog() -> MemoryCatalog:
    return digits_catalog()


@pytest.fixture
def live() -> DictLive:
    return DictLive(worker("cpu-4-b", "mlp-v1-onnx-int8"), worker("cpu-4-a", "linear-v1-onnx-fp32"))


@pytest.fixture
async def api(
    tmp_path: Path, settings: Settings, catalog: MemoryCatalog, live: DictLive
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_api(tmp_path, settings, catalog, live)) as client:
        yield client


async def get(api: httpx.AsyncClient, path: str) -> Any:
    reply = await api.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()


# -- the catalog --------------------------------------------------------------------------------


async def test_a_task_shows_its_signature_and_what_stands_behind_it(api: httpx.AsyncClient) -> None:
    assert await get(api, "/v1/tasks/digits") == {
        "name": "digits",
        "inputs": [{"name": "pixels", "dtype": "float32", "shape": [64]}],
        "outputs": [{"name": "scores", "dtype": "float32", "shape": [10]}],
        "image": {"channels": 1, "height": 8, "mean": [0.0], "std": [1.0], "width": 8},
        "labels": list("0123456789"),
        "metric": "top1",
        "accuracy_means": "share of the rows whose highest score is that of the right class",
        "slo": {"latency_ms": 1000.0, "accuracy": None, "cost": None, "prefer": "cost"},
        "models": 3,
        "variants": 4,
        "live_variants": 4,
        "best_accuracy": 0.98,
        "unanswered": "",
        "sharing": None,
        "text": None,
        "lengths": None,
        "bucket": None,
    }


async def test_a_canary_is_a_variant_that_no_query_gets_by_its_accuracy(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    for version in catalog.snapshot().versions:
        if version.model != "linear":
            catalog.set_stage([version.task], version.model, version.version, Stage.CANARY)
    task = await get(api, "/v1/tasks/digits")
    linear = [one for one in catalog.snapshot().variants if one.model == "linear"]
    assert (task["variants"], task["live_variants"]) == (4, len(linear))
    assert task["best_accuracy"] == max(one.accuracy for one in linear)


async def test_the_list_of_tasks_has_the_same(api: httpx.AsyncClient) -> None:
    assert await get(api, "/v1/tasks") == {"tasks": [await get(api, "/v1/tasks/digits")]}


async def test_an_unknown_task_is_named_beside_the_known_ones(api: httpx.AsyncClient) -> None:
    for path in ("/v1/tasks/faces", "/v1/tasks/faces/models", "/v1/tasks/faces/variants"):
        reply = await api.get(path)

        assert reply.status_code == 404
        assert reply.json()["code"] == "TASK_NOT_FOUND"
        assert reply.json()["error"] == "there is no task 'faces'; there are: digits"


async def test_models_come_with_their_versions_and_stages(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    register(catalog, "linear", (0.91, 1.0), version=2, stage=Stage.CANARY)

    models = (await get(api, "/v1/tasks/digits/models"))["models"]

    assert [
        (model["model"], model["live"], [(v["version"], v["stage"]) for v in model["versions"]])
        for model in models
    ] == [
        ("linear", 1, [(1, "live"), (2, "canary")]),
        ("mlp", 1, [(1, "live")]),
        ("slow", 1, [(1, "live")]),
    ]
    assert (await get(api, "/v1/models"))["models"] == models


async def test_one_model_shows_the_size_of_its_source_where_it_is_stored(
    api: httpx.AsyncClient,
) -> None:
    linear = await get(api, "/v1/models/digits/linear")
    mlp = await get(api, "/v1/models/digits/mlp")

    assert [version["source_bytes"] for version in linear["versions"]] == [123]
    assert [version["source_bytes"] for version in mlp["versions"]] == [None]
    assert mlp["versions"][0]["variants"] == ["mlp-v1-onnx-fp32", "mlp-v1-onnx-int8"]


async def test_variants_come_fastest_first_with_the_frontier_marked(api: httpx.AsyncClient) -> None:
    rows = (await get(api, "/v1/tasks/digits/variants"))["variants"]

    assert [(row["name"], row["dominated"]) for row in rows] == [
        ("linear-v1-onnx-fp32", False),
        ("mlp-v1-onnx-int8", False),
        ("mlp-v1-onnx-fp32", False),
        ("slow-v1-onnx-fp32", True),
    ]


async def test_what_was_measured_on_kinds_that_are_gone_says_nothing_of_the_frontier(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    """As after a machine was divided anew: here the slowest was the quickest before."""
    catalog.set_inventory(CPU.name, 1)
    before = (await get(api, "/v1/tasks/digits/variants"))["variants"]
    gone = replace(CPU, name=DeviceKindName("cpu-9"))
    quick = [one for one in catalog.snapshot().profiles if one.variant == "linear-v1-onnx-fp32"]
    slow = VariantName("slow-v1-onnx-fp32")
    catalog.put_profiles((replace(quick[0], variant=slow, device_kind=gone.name),), (gone,))

    after = (await get(api, "/v1/tasks/digits/variants"))["variants"]

    assert [(row["name"], row["dominated"]) for row in after] == [
        (row["name"], row["dominated"]) for row in before
    ]
    shown = {(one["device_kind"], one["gone"]) for row in after for one in row["devices"]}
    assert shown == {(CPU.name, False), ("cpu-9", True)}
    row = await get(api, f"/v1/variants/digits/{slow}")
    assert {one["device_kind"]: one["gone"] for one in row["devices"]} == dict(shown)


async def test_a_variant_says_what_it_does_on_a_device(api: httpx.AsyncClient) -> None:
    row = await get(api, "/v1/variants/digits/mlp-v1-onnx-int8")

    assert row["model_version"] == "mlp-v1"
    assert (row["runtime"], row["precision"], row["accuracy"]) == ("onnx", "int8", 0.97)
    assert row["devices"] == [
        {
            "device_kind": "cpu-4",
            "p50_ms": 2.5,
            "p95_ms": 5.0,
            "live_ms": None,
            "live_p95_ms": None,
            "unconfirmed": True,
            "best_rows_per_s": 800.0,
            "best_batch_size": 8,
            "max_batch_size": 8,
            "price_usd_per_1k": 0.0025,
            "energy_j": None,
            "memory_mib": 10.0,
            "load_s": 0.5,
            "source": "measured",
            "dominated": False,
            "stale": None,
            "gone": False,
        }
    ]


async def test_what_workers_see_stands_beside_the_profile(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    """Of two workers the one with more batches counts more; a size that never ran has nothing."""
    name = "mlp-v1-onnx-int8"
    seen = ((30, ((1, 4.0, 6.0),)), (10, ((1, 8.0, 10.0), (16, 20.0, 30.0))))
    live.statuses = [
        replace(
            status := worker(f"cpu-4-{number}", name),
            replicas=(replace(status.replicas[0], batches=batches, latency=latency),),
        )
        for number, (batches, latency) in enumerate(seen)
    ]
    (device,) = (await get(api, f"/v1/variants/digits/{name}"))["devices"]
    assert (device["live_ms"], device["live_p95_ms"]) == (5.0, 7.0)
    rows = (await get(api, "/v1/tasks/digits/variants"))["variants"]
    assert [row["name"] for row in rows if row["devices"][0]["live_ms"] is not None] == [name]
    (profile,) = (await get(api, f"/v1/profiles?variant={name}"))["profiles"]
    assert [(p["batch_size"], p["live_ms"]) for p in profile["points"]] == [(1, 5.0), (8, None)]


async def test_what_a_busy_worker_takes_stands_beside_what_is_taken_now(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    name = "mlp-v1-onnx-int8"
    status = worker("cpu-4-1", name)
    told = replace(status.replicas[0], batches=10, latency=((1, 9.0, 12.0),), busy=((1, 3.0, 0.2),))
    older = replace(told, busy=())
    for replica, busy in ((told, (3.0, 0.2)), (older, (None, None))):
        live.statuses = [replace(status, replicas=(replica,))]
        (profile,) = (await get(api, f"/v1/profiles?variant={name}"))["profiles"]
        point = profile["points"][0]
        assert (point["live_ms"], (point["busy_ms"], point["busy_error"])) == (9.0, busy)


async def test_profiles_are_shown_while_the_live_state_is_away(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.gone = True
    (device,) = (await get(api, "/v1/variants/digits/mlp-v1-onnx-int8"))["devices"]
    assert (device["p50_ms"], device["live_ms"]) == (2.5, None)


async def test_profiles_can_be_narrowed(api: httpx.AsyncClient) -> None:
    every = (await get(api, "/v1/profiles"))["profiles"]
    some = (await get(api, "/v1/profiles?variant=slow-v1-onnx-fp32"))["profiles"]

    assert len(every) == 4
    assert some == [one for one in every if one["variant"] == "slow-v1-onnx-fp32"]
    assert [point["batch_size"] for point in some[0]["points"]] == [1, 8]
    assert (await get(api, "/v1/profiles?device_kind=cpu-2"))["profiles"] == []


async def test_a_registration_is_seen_at_once(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    before = await get(api, "/v1/tasks/digits")
    register(catalog, "new", (0.99, 50.0))

    assert (before["models"], (await get(api, "/v1/tasks/digits"))["models"]) == (3, 4)


# -- what runs ----------------------------------------------------------------------------------


async def test_workers_come_in_order_with_what_they_have_loaded(api: httpx.AsyncClient) -> None:
    workers = (await get(api, "/v1/workers"))["workers"]

    assert [(one["worker"], one["replicas"][0]["variant"]) for one in workers] == [
        ("cpu-4-a", "linear-v1-onnx-fp32"),
        ("cpu-4-b", "mlp-v1-onnx-int8"),
    ]


async def test_workers_come_in_parts_to_who_asks_for_parts(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    there = [worker(name) for name in ("w3", "w1", "w5", "w2", "w4")]
    live.statuses = list(there)
    parts = list[list[str]]()
    after: str | None = ""
    while after is not None:
        part = await get(api, f"/v1/workers?limit=2&after={after}")
        parts.append([one["worker"] for one in part["workers"]])
        after = part["next"]
        # One that goes meanwhile leaves no gap, and nobody comes twice.
        live.statuses = [one for one in there if one.worker != "w2"]

    assert parts == [["w1", "w2"], ["w3", "w4"], ["w5"]]
    whole = await get(api, "/v1/workers")
    assert ([one["worker"] for one in whole["workers"]], whole["next"]) == (
        ["w1", "w3", "w4", "w5"], None,
    )  # fmt: skip
    last = await get(api, "/v1/workers?limit=1&after=w4")
    assert (len(last["workers"]), last["next"]) == (1, None)
    assert (await get(api, "/v1/workers?after=w5"))["workers"] == []
    for wrong in ("limit=0", "limit=1001", "limit=two"):
        assert (await api.get(f"/v1/workers?{wrong}")).status_code == 400


async def test_a_worker_may_be_reported_as_plain_fields(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    [first, _] = (await get(api, "/v1/workers"))["workers"]
    live.statuses = [{**first, "newer_field": 1}]

    assert (await get(api, "/v1/workers"))["workers"] == [first]


async def test_before_the_first_plan_there_is_version_0(api: httpx.AsyncClient) -> None:
    plan = await get(api, "/v1/plan")

    assert (plan["version"], plan["placements"]) == (0, [])


async def test_the_plan_comes_with_its_reasons(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    placement = Placement(
        worker=WorkerId("cpu-4-a"),
        task=TaskName("digits"),
        variant=VariantName("linear-v1-onnx-fp32"),
        share=0.5,
    )
    epoch = catalog.acquire_leadership("here")
    catalog.put_plan(
        Plan(
            version=0,
            epoch=epoch,
            placements=(placement,),
            workers={},
            explanation=("everything fits",),
        )
    )

    plan = await get(api, "/v1/plan")

    assert (plan["version"], plan["epoch"]) == (1, epoch)
    assert plan["explanation"] == ["everything fits"]
    assert [(one["worker"], one["share"]) for one in plan["placements"]] == [("cpu-4-a", 0.5)]


async def test_a_plan_with_room_says_what_is_late_all_the_same(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.told = {"turned_s": time(), "headroom": {"factor": 10.0, "tasks": []}}
    assert (await get(api, "/v1/plan"))["headroom"]["sentence"].endswith("is asked now, or more.")
    lately = dict(live.slo["tasks"][0], refusals={"OVERLOADED": 1})
    live.slo = {**live.slo, "lately_s": 60.0, "tasks": [{**lately, "lately": lately}]}
    assert (await get(api, "/v1/plan"))["headroom"]["sentence"].endswith(
        "or more. All the same, 2 of 10 queries in the last 60 s missed their SLO."
    )


async def test_ticks_come_newest_first_and_limited(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    for number in (1, 2, 3):
        catalog.add_tick(TickRecord(plan_version=number, at="", body={"demand": [number]}))

    ticks = (await get(api, "/v1/ticks?limit=2"))["ticks"]

    assert [(one["plan_version"], one["body"]) for one in ticks] == [
        (3, {"demand": [3]}),
        (2, {"demand": [2]}),
    ]


async def test_ticks_that_changed_something(api: httpx.AsyncClient, catalog: MemoryCatalog) -> None:
    for version, actions in ((1, []), (1, []), (1, [{"action": "load"}]), (2, []), (2, [])):
        catalog.add_tick(TickRecord(plan_version=version, at="", body={"actions": actions}))

    ticks = (await get(api, "/v1/ticks?changes=true"))["ticks"]

    assert [(one["plan_version"], len(one["body"]["actions"])) for one in ticks] == [
        (2, 0), (1, 1), (1, 0),
    ]  # fmt: skip


async def test_events_after_a_number(api: httpx.AsyncClient, catalog: MemoryCatalog) -> None:
    for kind in ("loaded", "unloaded", "worker_lost"):
        catalog.add_event(
            Event(at="2026-01-01T00:00:00+00:00", kind=kind, subject="x", message="y")
        )
    every = (await get(api, "/v1/events"))["events"]

    newer = (await get(api, f"/v1/events?after={every[-1]['seq']}"))["events"]

    assert [one["kind"] for one in every] == ["worker_lost", "unloaded", "loaded"]
    assert [one["kind"] for one in newer] == ["worker_lost", "unloaded"]


async def test_events_that_are_asked_for(api: httpx.AsyncClient, catalog: MemoryCatalog) -> None:
    for second, (kind, subject) in enumerate(
        (("loaded", "digits/a on w1"), ("worker_lost", "w1"), ("worker_lost", "w2"))
    ):
        at = f"2026-01-01T00:00:0{second}.123+00:00"
        catalog.add_event(Event(at=at, kind=kind, subject=subject, message="y"))

    async def subjects(query: str) -> list[str]:
        found = (await get(api, f"/v1/events?{query}"))["events"]
        return [one["subject"] for one in found]

    assert await subjects("kind=worker_lost") == ["w2", "w1"]
    assert await subjects("kind=worker_lost&kind=loaded&limit=2") == ["w2", "w1"]
    assert await subjects("worker=w1") == ["w1", "digits/a on w1"]
    assert await subjects("task=digits") == ["digits/a on w1"]
    assert await subjects("since=2026-01-01T01:00:01.5%2B01:00") == ["w2", "w1"]
    assert await subjects("kind=unloaded") == []
    for wrong in ("since=yesterday", "since=2026-01-01T00:00:00", "task=" + "x" * 200):
        assert (await api.get(f"/v1/events?{wrong}")).status_code == 400


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        (
            "kind=loaded&kind=lost",
            "INVALID_INPUT",
            "there is no kind of event 'lost'; there are: catalog_lost, gateway_lost,"
            " live_state_lost, worker_lost and ",
        ),
        ("kind=worker_lots", "INVALID_INPUT", "'worker_lots'; there are: worker_lost, "),
        ("kind=zzzzz", "INVALID_INPUT", ", worker_told_to_leave, worker_warning"),
        # Too unlike any: all are named, so that who asks can choose.
        ("kind=nope", "INVALID_INPUT", "'nope'; there are: abandoned_artifacts_freed, "),
        (
            "kind=Catalog-Lots",
            "INVALID_INPUT",
            f"'Catalog-Lots'; there are: catalog_lost, catalog_slow and {len(EVENT_KINDS) - 2}"
            " others, which /docs lists under GET /v1/events",
        ),
        (
            "kind=disk_full",
            "INVALID_INPUT",
            "'disk_full'; there are: disk_has_room, disk_nearly_full and ",
        ),
        ("task=digitz", "TASK_NOT_FOUND", "there is no task 'digitz'; there are: "),
        (
            "worker=cpu-4-q",
            "NOT_FOUND",
            "there is no worker 'cpu-4-q', and no event tells of one; there are: cpu-4-a",
        ),
    ],
)
async def test_events_of_what_there_is_not_are_refused(
    api: httpx.AsyncClient, query: str, code: str, said: str
) -> None:
    answer = (await api.get(f"/v1/events?{query}")).json()

    assert answer["code"] == code
    assert said in answer["error"]


async def test_events_of_what_is_no_more_are_told(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    for kind, subject in (("task_removed", "old"), ("worker_lost", "w9"), ("of_old", "x")):
        catalog.add_event(
            Event(at="2026-01-01T00:00:00+00:00", kind=kind, subject=subject, message="")
        )

    for query in ("task=old", "worker=w9", "kind=of_old"):
        assert len((await get(api, f"/v1/events?{query}"))["events"]) == 1
        assert (await get(api, f"/v1/events?{query}&after=3"))["events"] == []


async def test_the_slo_report(api: httpx.AsyncClient) -> None:
    report = await get(api, "/v1/slo")

    assert report["window_s"] == 60.0
    assert report["tasks"][0]["attainment"] == 0.8


# -- stages -------------------------------------------------------------------------------------


async def test_the_last_hour_of_a_task(api: httpx.AsyncClient, live: DictLive) -> None:
    sample = {"met": 3, "missed": 1, "infeasible_answered": 0, "errors": {"OVERLOADED": 2}}
    times = {"latencies": [[1.0, 2.0, 4]], "accuracy": [3.6, 4]}
    slot = slot_of(time()) - 3
    live.samples = [{"slot": slot, "tasks": {"digits": sample | times}}]

    body = (await api.get("/v1/history", params={"task": "digits", "seconds": 60})).json()

    (row,) = body["tasks"]
    at = row["met"].index(3)
    assert body["begins_s"] + at * body["step_s"] == slot * STEP_S
    assert [row[name][at] for name in ("late", "refused", "infeasible")] == [1, 2, 0]
    assert (row["p50_ms"][at], row["p95_ms"][at]) == (1.5, pytest.approx(1.95))
    assert row["accuracy"][at] == pytest.approx(0.9)
    assert len(row["met"]) == 6
    assert row["met"].count(None) == 5


@pytest.mark.parametrize("seconds", ["0", "3601", "-1", "nan", "x"])
async def test_a_time_out_of_range_is_one_sentence(api: httpx.AsyncClient, seconds: str) -> None:
    answer = await api.get("/v1/history", params={"seconds": seconds})

    assert answer.status_code == 400
    assert answer.json()["code"] == "INVALID_INPUT"
    assert "seconds" in answer.json()["error"]


async def test_a_body_that_curl_calls_a_form_is_read_as_json(api: httpx.AsyncClient) -> None:
    reply = await api.post(
        "/v1/models/digits/mlp/versions/1/stage",
        content=b'{"stage": "retired"}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )

    assert (reply.status_code, reply.json()["stage"]) == (200, "retired")


async def test_retiring_takes_a_version_out_of_service(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    reply = await api.post("/v1/models/digits/mlp/versions/1/stage", json={"stage": "retired"})

    assert (reply.status_code, reply.json()["stage"]) == (200, "retired")
    stages = {version.model: version.stage for version in catalog.snapshot().versions}
    assert stages[ModelName("mlp")] is Stage.RETIRED
    assert (await get(api, "/v1/tasks/digits"))["variants"] == 2
    [event] = catalog.events(10)
    assert (event.kind, event.subject, event.message) == (
        "stage_changed",
        "digits/mlp-v1",
        "live -> retired",
    )


async def test_the_only_live_version_of_a_task_goes_only_where_that_is_said(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    register(catalog, "linear", (0.91, 1.0), version=2, stage=Stage.CANARY)
    for model in ("mlp", "slow"):
        catalog.set_stage([TaskName("digits")], ModelName(model), 1, Stage.RETIRED)
    path, before = "/v1/models/digits/linear/versions/1/stage", catalog.revision()

    for stage in ("retired", "canary", "candidate"):
        reply = await api.post(path, json={"stage": stage})
        assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
        assert reply.json()["error"] == (
            "linear-v1 is the only live version of digits: without it, queries that name no variant"
            " are refused; `--yes` (`allow_gap`) accepts that"
        )
    assert (catalog.revision(), catalog.events(10)) == (before, ())

    reply = await api.post(path, json={"stage": "retired", "allow_gap": True})
    assert (reply.status_code, reply.json()["stage"]) == (200, "retired")
    again = await api.post(path, json={"stage": "retired"})
    assert again.status_code == 200


async def test_a_retired_variant_dominates_nothing(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    await api.post("/v1/models/digits/mlp/versions/1/stage", json={"stage": "retired"})

    row = await get(api, "/v1/variants/digits/slow-v1-onnx-fp32")

    assert row["dominated"] is False


async def test_moving_to_the_same_stage_changes_nothing(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    revision = catalog.revision()

    reply = await api.post("/v1/models/digits/mlp/versions/1/stage", json={"stage": "live"})

    assert reply.status_code == 200
    assert (catalog.revision(), catalog.events(10)) == (revision, ())


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        (
            "digits/mlp/versions/7",
            LIVE,
            404,
            "model 'mlp' of task 'digits' has no version 7; there are: 1",
        ),
        (
            "digits/none/versions/1",
            LIVE,
            404,
            "task 'digits' has no model 'none'; there are: linear, mlp, slow",
        ),
        ("faces/mlp/versions/1", LIVE, 404, "there is no task 'faces'; there are: digits"),
        (
            "digits/mlp/versions/0",
            LIVE,
            400,
            "path 'version' is wrong: it must be at least 1",
        ),
        ("digits/mlp/versions/1", {}, 400, "body lacks 'stage'"),
        ("digits/mlp/versions/1", [], 400, "the body is wrong: it must be an object"),
        ("digits/mlp/versions/1", "live", 400, "the body is wrong: it must be an object"),
        (
            "digits/mlp/versions/1",
            {"stage": "best"},
            400,
            "body 'stage' is wrong: input should be 'candidate', 'canary', 'live' or 'retired'",
        ),
        (
            "digits/mlp/versions/1",
            LIVE | {"x": 1},
            400,
            "body has no field 'x'",
        ),
    ],
)
async def test_a_wrong_stage_change_is_refused_with_its_reason(
    api: httpx.AsyncClient, path: str, body: object, status: int, error: str
) -> None:
    reply = await api.post(f"/v1/models/{path}/stage", json=body)

    assert (reply.status_code, reply.json()["error"]) == (status, error)


async def test_a_plan_can_be_read_of_one_task_alone(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    variant = VariantName("mlp-v1-onnx-int8")
    catalog.put_plan(
        Plan(
            version=0,
            epoch=catalog.acquire_leadership("test"),
            placements=tuple(
                Placement(worker=WorkerId("w1"), task=TaskName(task), variant=variant, share=0.25)
                for task in ("digits", "other")
            ),
            routes=tuple(
                Route(
                    task=TaskName("other"),
                    latency_ms=50.0,
                    accuracy=None,
                    variant=variant,
                    worker=WorkerId("w1"),
                    batch_size=1,
                    qps=2.0,
                    pinned=pinned,
                )
                for pinned in (False, True)
            ),
            workers={},
            explanation=(),
        )
    )
    told = (await api.get("/v1/plan")).json()["routes"]
    assert [(one["qps"], one["pinned"]) for one in told] == [(2.0, False), (2.0, True)]
    for task, shown in ((None, ["digits", "other"]), ("other", ["other"])):
        plan = (await api.get("/v1/plan", params={"task": task} if task else {})).json()
        assert [one["task"] for one in plan["placements"]] == shown
        assert plan["standing"]["replicas"]["wanted"] == 2


# -- errors -------------------------------------------------------------------------------------


async def test_an_unknown_path_is_a_typed_404(api: httpx.AsyncClient) -> None:
    reply = await api.get("/v1/nothing")

    assert reply.status_code == 404
    assert reply.json() == {
        "error": "there is nothing at GET /v1/nothing",
        "code": "NOT_FOUND",
        "retryable": False,
        "request_id": reply.headers["x-request-id"],
    }


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/tasks/", "/v1/tasks"),
        ("/v1/task", "/v1/tasks"),
        ("/tasks", "/v1/tasks"),
        ("/tasks/digits/variants", "/v1/tasks/digits/variants"),
        ("/v1/quarantines", "/v1/quarantine"),
    ],
)
async def test_a_path_that_is_nearly_known_is_told(
    api: httpx.AsyncClient, path: str, near: str
) -> None:
    reply = await api.get(path)
    assert (reply.status_code, reply.json()["error"]) == (
        404,
        f"there is nothing at GET {path}; did you mean {near}?",
    )


async def test_a_wrong_time_is_told_in_plain_words(api: httpx.AsyncClient) -> None:
    for since in ("yesterday", "2027-11-26T08:00:00"):
        reply = await api.get("/v1/events", params={"since": since})
        assert (reply.status_code, reply.json()["error"]) == (
            400,
            "query 'since' is wrong: it must be a time in ISO 8601 with its timezone, such as"
            " 2027-11-26T08:00:00Z",
        )


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("path", "top"), [("/dashbord", "./"), ("/ui/", "../"), ("/v1/nothing", "../")]
)
async def test_a_person_at_an_unknown_path_is_told_what_there_is(
    api: httpx.AsyncClient, path: str, top: str
) -> None:
    reply = await api.get(path, headers=BROWSER)

    assert (reply.status_code, reply.headers["vary"]) == (404, "Accept")
    assert reply.headers["content-type"].startswith("text/html")
    assert f"There is nothing at GET {path}." in reply.text
    assert re.findall(r'<a href="([^"]*)"', reply.text) == [top, f"{top}docs", f"{top}metrics"]
    assert reply.headers["x-request-id"] in reply.text
    assert "default-src 'none'; script-src 'none'" in reply.headers["content-security-policy"]


async def test_the_page_of_an_error_holds_what_was_asked_as_text(api: httpx.AsyncClient) -> None:
    reply = await api.get("/<script>alert(1)</script>", headers=BROWSER)

    assert "<script>" not in reply.text
    assert "&lt;script&gt;" in reply.text


async def test_programs_get_json_whatever_they_ask_by(api: httpx.AsyncClient) -> None:
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert (await api.get("/foo", headers=headers)).json()["code"] == "NOT_FOUND"
    assert (await api.post("/foo", headers=BROWSER)).json()["code"] == "NOT_FOUND"
    reply = await api.get("/v1/tasks/nothing", headers=BROWSER)  # the path is right
    assert reply.json()["code"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("path", ICONS)
async def test_the_icon_is_kept_for_a_day(api: httpx.AsyncClient, path: str) -> None:
    reply = await api.get(path)

    assert (reply.status_code, reply.headers["content-type"]) == (200, "image/svg+xml")
    assert reply.headers["cache-control"] == "public, max-age=86400"
    assert reply.text.startswith("<svg")


@pytest.mark.parametrize("path", [*PAGES, *ICONS])
async def test_what_a_browser_has_is_not_sent_again(api: httpx.AsyncClient, path: str) -> None:
    tag = (await api.get(path)).headers["etag"]

    reply = await api.get(path, headers={"If-None-Match": tag})

    assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)


async def test_a_wrong_method_is_a_typed_405(api: httpx.AsyncClient) -> None:
    reply = await api.delete("/v1/plan")

    assert (reply.status_code, reply.headers["allow"]) == (405, "GET")
    assert reply.json()["error"] == "DELETE /v1/plan is not possible; allowed: GET"
    # Each of these methods has a route of its own.
    reply = await api.request("OPTIONS", "/v1/peaks")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, POST")


async def test_broken_json_is_one_sentence(api: httpx.AsyncClient) -> None:
    reply = await api.post(
        "/v1/models/digits/mlp/versions/1/stage",
        content=b"{",
        headers={"content-type": "application/json"},
    )

    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert reply.json()["error"] == "the body is not JSON"


async def test_a_limit_out_of_range_is_one_sentence(api: httpx.AsyncClient) -> None:
    reply = await api.get("/v1/events?limit=0")

    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert reply.json()["error"] == ("query 'limit' is wrong: it must be at least 1")


@pytest.mark.parametrize("after", [-1, 2**53 + 1, 2**63, 10**30])
async def test_a_number_that_no_event_has_is_refused(api: httpx.AsyncClient, after: int) -> None:
    reply = await api.get(f"/v1/events?after={after}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")


async def test_a_plain_request_id_is_kept_and_another_is_replaced(api: httpx.AsyncClient) -> None:
    kept = await api.get("/v1/tasks", headers={"X-Request-Id": "trace-7"})
    replaced = await api.get("/v1/tasks", headers={"X-Request-Id": "<script>"})

    assert kept.headers["x-request-id"] == "trace-7"
    assert len(replaced.headers["x-request-id"]) == 16


async def test_a_database_that_is_gone_is_a_typed_503(tmp_path: Path, settings: Settings) -> None:
    async with client_of(make_api(tmp_path, settings, GoneCatalog())) as api:
        reply = await api.get("/v1/tasks")

    assert (reply.status_code, reply.json()["code"]) == (503, "STATE_UNAVAILABLE")
    assert reply.json()["retryable"] is True


async def test_a_bug_shows_a_request_id_and_nothing_else(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(make_api(tmp_path, settings, BrokenCatalog())) as api:
        reply = await api.get("/v1/tasks")

    assert reply.status_code == 500
    assert reply.json() == {
        "error": "internal error",
        "code": "INTERNAL",
        "retryable": False,
        "request_id": reply.headers["x-request-id"],
    }
    assert reply.headers["x-request-id"] in caplog.text
    assert "secret: /srv/password" in caplog.text


# -- documentation and page ---------------------------------------------------------------------


async def test_openapi_describes_every_route_with_typed_bodies(api: httpx.AsyncClient) -> None:
    document = await get(api, "/openapi.json")

    assert set(document["paths"]) >= {
        "/v1/tasks", "/v1/tasks/{task}", "/v1/tasks/{task}/models", "/v1/tasks/{task}/variants",
        "/v1/models", "/v1/models/{task}/{model}",
        "/v1/models/{task}/{model}/versions/{version}/stage",
        "/v1/variants/{task}/{variant}", "/v1/profiles", "/v1/devices", "/v1/workers", "/v1/plan",
        "/v1/ticks", "/v1/events", "/v1/slo", "/v1/operations/{id}",
        "/v1/inventory", "/v1/inventory/{device_kind}",
    }  # fmt: skip
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            done = next(reply for status, reply in route["responses"].items() if status[0] == "2")
            assert "$ref" in done["content"]["application/json"]["schema"], (method, path)
            refused = route["responses"]["400"]["content"]["application/json"]["schema"]
            assert refused["$ref"].endswith("/ErrorBody")
            assert route["summary"]


async def test_all_that_the_description_refers_to_is_in_it(api: httpx.AsyncClient) -> None:
    document = await get(api, "/openapi.json")

    named = document["components"]["schemas"]
    assert set(re.findall(r"'#/components/schemas/([^']+)'", str(document))) <= set(named)
    assert list(named) == sorted(named)
    assert set(named["ErrorBody"]["properties"]) == {
        "error", "code", "retryable", "request_id", "reasons", "alternatives", "retry_after_s",
        "choices",
    }  # fmt: skip


async def test_all_that_a_registration_takes_is_described(api: httpx.AsyncClient) -> None:
    document = await get(api, "/openapi.json")
    form = document["paths"]["/v1/models"]["post"]["requestBody"]["content"]["multipart/form-data"]
    taken = {"task", "name", "model", TOKENIZER, *ROWS, *FIELDS, *SWITCHES}
    assert set(form["schema"]["properties"]) == taken


async def test_how_a_token_is_shown_and_when_to_come_back_is_described(
    api: httpx.AsyncClient,
) -> None:
    document = await get(api, "/openapi.json")
    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{}, {"token": []}]
    for route in document["paths"].values():
        for method in route.values():
            assert "Retry-After" in method["responses"]["429"]["headers"]
            is_readiness = "ErrorBody" not in str(method["responses"]["503"])
            assert is_readiness or "Retry-After" in method["responses"]["503"]["headers"]


def test_no_route_has_validators_of_its_errors(
    tmp_path: Path, settings: Settings, catalog: MemoryCatalog
) -> None:
    """They would be nearly a thousand, and three quarters of what an application takes to build."""
    routes = iter_route_contexts(make_api(tmp_path, settings, catalog).routes)
    described = [one for one in routes if hasattr(one, "responses")]

    assert len(described) > 30
    assert [one.path for one in described if one.response_fields] == []


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_self_contained_and_may_run_only_its_own_script(
    api: httpx.AsyncClient, path: str
) -> None:
    reply = await api.get(path)

    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert ("innerHTML" in reply.text, "insertAdjacent" in reply.text) == (False, False)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_names_no_other_host(api: httpx.AsyncClient, path: str) -> None:
    page = (await api.get(path)).text

    # The name of a namespace is no address: nothing is fetched from it.
    found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[\w./-]*", page)) - {SVG_NAMESPACE}
    fetched = re.findall(
        r"(?:src|srcset|action)=|<link[^>]* href=\"(?!data:)|@import|\burl\(", page
    )

    assert (found, fetched) == (set(), [])


async def test_the_description_is_made_once_and_not_on_the_event_loop(
    tmp_path: Path,
    settings: Settings,
    catalog: MemoryCatalog,
    live: DictLive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = make_api(tmp_path, settings, catalog, live)
    made_by: list[threading.Thread] = []
    described = application.openapi

    def noted() -> dict[str, Any]:
        made_by.append(threading.current_thread())
        return described()

    monkeypatch.setattr(application, "openapi", noted)
    async with client_of(application) as client:
        first, second = await asyncio.gather(*(client.get("/openapi.json") for _ in range(2)))
        tag = first.headers["etag"]
        same = await client.get("/openapi.json", headers={"If-None-Match": tag})

    assert first.json() == second.json()
    assert (same.status_code, same.content) == (304, b"")
    assert len(made_by) == 1
    assert made_by[0] is not threading.current_thread()


async def test_there_are_no_other_pages(api: httpx.AsyncClient) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert (await api.get(path)).status_code == 404


async def test_a_slow_catalog_does_not_hold_up_others(
    tmp_path: Path, settings: Settings, catalog: MemoryCatalog
) -> None:
    release = threading.Event()

    class SlowCatalog(MemoryCatalog):
        def revision(self) -> int:
            release.wait(60)
            return super().revision()

    async with client_of(make_api(tmp_path, settings, SlowCatalog())) as api:
        slow = asyncio.create_task(api.get("/v1/tasks"))
        quick = await api.get("/v1/workers")
        waiting = not slow.done()
        release.set()
        assert (quick.status_code, waiting, (await slow).status_code) == (200, True, 200)


# -- what is asked for and is not there ------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/v1/profiles?tasks=digits", "did you mean 'task'? Known are: device_kind, task, variant"),
        ("/v1/plan?limit=5", "GET /v1/plan has no parameter 'limit'; known are: task"),
        ("/v1/workers?lmit=5", "did you mean 'limit'? Known are: after, limit"),
        ("/v1/events?kinds=loaded", "did you mean 'kind'?"),
        ("/v1/history?second=60", "did you mean 'seconds'?"),
        ("/v1/slo?task=digits", "GET /v1/slo has no parameter 'task', and none at all"),
        ("/v1/tasks?name=digits", "GET /v1/tasks has no parameter 'name', and none at all"),
        ("/v1/tasks/digits/variants?limit=1", "has no parameter 'limit', and none at all"),
    ],
)
async def test_a_parameter_that_nobody_reads_is_refused(
    api: httpx.AsyncClient, path: str, why: str
) -> None:
    reply = await api.get(path)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert why in reply.json()["error"]


async def test_known_parameters_are_read_as_before(api: httpx.AsyncClient) -> None:
    for path in (
        "/v1/profiles?task=digits&variant=mlp-v1-onnx-int8&device_kind=cpu-4",
        "/v1/ticks?limit=5&changes=false",
        "/v1/plan?task=digits",
        "/v1/workers?limit=5&after=a",
        "/v1/events?kind=loaded&kind=unloaded&limit=5&task=digits",
        "/v1/history?task=digits&seconds=60",
        "/v1/ticks?limit=5",
    ):
        reply = await api.get(path)
        assert reply.status_code == 200, (path, reply.text)


@pytest.mark.parametrize(
    ("path", "code", "why"),
    [
        ("/v1/profiles?task=nope", "TASK_NOT_FOUND", "there is no task 'nope'"),
        ("/v1/plan?task=nope", "TASK_NOT_FOUND", "there is no task 'nope'"),
        ("/v1/history?task=nope", "TASK_NOT_FOUND", "there is no task 'nope'"),
        (
            "/v1/profiles?task=digits&variant=nope",
            "NOT_FOUND",
            "task 'digits' has no variant 'nope'; there are: ",
        ),
        ("/v1/profiles?variant=nope", "NOT_FOUND", "there is no variant 'nope'; there are: "),
        (
            "/v1/profiles?device_kind=cpu-99",
            "NOT_FOUND",
            "there is no device kind 'cpu-99'; there are: cpu-2, cpu-4",
        ),
        ("/v1/workers/nope", "NOT_FOUND", "there is no worker 'nope'"),
    ],
)
async def test_what_is_not_there_is_said(
    api: httpx.AsyncClient, path: str, code: str, why: str
) -> None:
    reply = await api.get(path)
    assert (reply.status_code, reply.json()["code"]) == (404, code)
    assert why in reply.json()["error"]


async def test_one_worker_is_shown(api: httpx.AsyncClient, live: DictLive) -> None:
    listed = (await api.get("/v1/workers")).json()["workers"]
    for one in listed:
        reply = await api.get(f"/v1/workers/{one['worker']}")
        assert (reply.status_code, reply.json()) == (200, one)
    assert listed
