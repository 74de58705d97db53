"""What the control API shows of workers, the plan, turns and events."""

import asyncio
from collections.abc import Mapping, Sequence
from time import time
from typing import Any

import httpx
import pytest

from controlplane.api.reading.event_kinds import EVENT_KINDS
from controlplane.views.history import STEP_S, slot_of
from controlplane.views.service_status import slo_report
from tests.controlplane.api.routes.made_api import get
from tests.controlplane.builders import DictLive, worker
from variants.catalog.memory import MemoryCatalog
from variants.core_time import CoreTime
from variants.types import (
    Event,
    Placement,
    Plan,
    Route,
    TaskName,
    TickRecord,
    VariantName,
    WorkerId,
)


async def test_workers_come_in_order_with_what_they_have_loaded(api: httpx.AsyncClient) -> None:
    workers = (await get(api, "/v1/workers"))["workers"]

    assert [(one["worker"], one["replicas"][0]["variant"]) for one in workers] == [
        ("cpu-4-a", "linear-v1-onnx-fp32"),
        ("cpu-4-b", "mlp-v1-onnx-int8"),
    ]


async def test_a_plan_asks_the_live_state_for_all_that_it_shows_at_once(
    api: httpx.AsyncClient, live: DictLive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes a second for each answer kept a page waiting for four."""
    both = asyncio.Barrier(2)
    cores, controller = live.core_times, live.controller
    waits = iter([True])

    async def core_times() -> Sequence[CoreTime]:
        await both.wait()
        return await cores()

    async def told() -> Mapping[str, Any] | None:
        if next(waits, False):
            await both.wait()
        return await controller()

    monkeypatch.setattr(live, "core_times", core_times)
    monkeypatch.setattr(live, "controller", told)
    async with asyncio.timeout(30):
        plan = await get(api, "/v1/plan")
    assert plan["cores"]["level"]


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
            "there is no kind of event 'lost'; there are: catalog_lost, control_store_lost,"
            " gateway_lost, live_state_lost, worker_lost and ",
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


async def test_what_hovers_at_a_threshold_stands_as_the_control_loop_has_it(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    """So that each gateway says the same, at each look."""
    lately = {"met": 399, "missed": 0, "errors": {"REPLICA_LOST": 3}}
    report = {"tasks": {"digits": lately}, "lately": {"seconds": 60.0, "tasks": {"digits": lately}}}
    live.slo = slo_report([report])
    live.core_readings = [CoreTime(host="h1", cores=2, used=1.0, busy=1.9, waited=0.45)]

    async def levels() -> list[str]:
        plan, slo = await get(api, "/v1/plan"), await get(api, "/v1/slo")
        [row] = slo["tasks"]
        missed = "digits is marked" if row["lately"]["slo_missed"] else ""
        return [plan["cores"]["level"], slo["standing"]["level"], missed]

    assert await levels() == ["cores_there", "met", ""]
    live.told = {"cores_short": ["h1"], "slo_missed": ["digits"]}
    assert await levels() == ["cores_short", "missed", "digits is marked"]


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


async def test_what_was_asked_over_the_last_hour(api: httpx.AsyncClient, live: DictLive) -> None:
    slot = slot_of(time()) - 3
    live.samples = [{"slot": slot, "tasks": {}, "asked": {"digits|50.0|0.9": 7, "old|1.0|": 3}}]

    body = (await api.get("/v1/demand", params={"task": "digits", "seconds": 60})).json()

    (row,) = body["classes"]
    asked = {name: row[name] for name in ("task", "latency_ms", "accuracy", "variant")}
    assert asked == {"task": "digits", "latency_ms": 50.0, "accuracy": 0.9, "variant": None}
    at = row["rows"].index(7)
    assert body["begins_s"] + at * body["step_s"] == slot * STEP_S
    assert len((await get(api, "/v1/demand"))["classes"]) == 2
    unknown = await api.get("/v1/demand", params={"task": "nothing"})
    assert unknown.json()["code"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("seconds", ["0", "3601", "-1", "nan", "x"])
async def test_a_time_out_of_range_is_one_sentence(api: httpx.AsyncClient, seconds: str) -> None:
    answer = await api.get("/v1/history", params={"seconds": seconds})

    assert answer.status_code == 400
    assert answer.json()["code"] == "INVALID_INPUT"
    assert "seconds" in answer.json()["error"]


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


async def test_one_worker_is_shown(api: httpx.AsyncClient, live: DictLive) -> None:
    listed = (await api.get("/v1/workers")).json()["workers"]
    for one in listed:
        reply = await api.get(f"/v1/workers/{one['worker']}")
        assert (reply.status_code, reply.json()) == (200, one)
    assert listed
