"""Rules of operators, and variants that are unloaded once, over the control API."""

from dataclasses import replace
from datetime import datetime
from time import time
from typing import Any

import httpx
import pytest

from controlplane.residency.orders import most_workers
from controlplane.settings import load_settings
from tests.controlplane.builders import DictLive, register, worker
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    DeviceKindName,
    ModelName,
    Placement,
    Plan,
    Rule,
    RuleKind,
    Stage,
    TaskName,
    VariantName,
    WorkerId,
)

MLP, LINEAR = "mlp-v1-onnx-int8", "linear-v1-onnx-fp32"
KIND = "cpu-4"


@pytest.fixture
def settings(tmp_path: Any) -> Any:
    return load_settings(state_dir=tmp_path, slices=f"2x{KIND}")


async def order(api: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await api.post("/v1/rules", json={"task": "digits", "variant": MLP} | body)


async def test_a_pin_is_given_changed_shown_and_taken_back(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.statuses = [worker("w1", MLP), worker("w2", LINEAR)]
    began_s = time()
    made = await order(api, rule="pin", by="ann@host", why="release")
    assert made.status_code == 201
    row = made.json()
    assert abs(datetime.fromisoformat(row.pop("since")).timestamp() - began_s) < 60
    assert row == {
        "id": 1, "rule": "pin", "task": "digits", "variant": MLP, "device_kind": "",
        "replicas": 1, "until": None, "by": "ann@host", "why": "release", "kept": True,
        "standing": "1 of 1 replica ready.",
    }  # fmt: skip
    more = (await order(api, rule="pin", replicas=2)).json()
    assert (more["id"], more["kept"], more["why"]) == (1, False, "release")  # said before
    assert more["standing"] == "1 of 2 replicas ready, to be loaded."
    assert (await api.get("/v1/rules")).json() == {"rules": [more]}
    plan = (await api.get("/v1/plan")).json()
    assert plan["rules"] == [f"Rule 1 (pin digits/{MLP}): 1 of 2 replicas ready, to be loaded."]
    gone = await api.delete("/v1/rules/1")
    assert (gone.status_code, gone.json()["replicas"]) == (200, 2)
    assert catalog.rules() == ()
    assert (await api.delete("/v1/rules/1")).json()["code"] == "NOT_FOUND"
    assert [(one.kind, one.subject, one.message) for one in catalog.events(9)][::-1] == [
        ("pinned", f"digits/{MLP}", "1 replica, by ann@host: release"),
        ("pinned", f"digits/{MLP}", "2 replicas: release"),
        ("rule_removed", f"digits/{MLP}", "rule 1 was taken back: 2 replicas: release"),
    ]


async def test_a_freeze_says_since_when_until_when_and_why(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    body = {"rule": "freeze", "for_s": 7200, "why": "sale", "by": "ann"}
    made = (await api.post("/v1/rules", json=body)).json()
    lasts = datetime.fromisoformat(made["until"]) - datetime.fromisoformat(made["since"])
    assert lasts.total_seconds() == 7200
    [said] = (await api.get("/v1/plan")).json()["rules"]
    assert said.startswith("The plan is frozen since 20")
    assert said.endswith(" UTC, by ann: sale.")
    again = (await api.post("/v1/rules", json={"rule": "freeze"})).json()
    assert (again["id"], again["until"]) == (made["id"], None)
    await api.delete(f"/v1/rules/{made['id']}")
    assert [one.kind for one in catalog.events(9)] == ["thawed", "frozen", "frozen"]


async def test_a_freeze_that_is_over_is_none(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    catalog.put_rule(Rule(kind=RuleKind.FREEZE, at_s=1.0, until_s=2.0))
    [row] = (await api.get("/v1/rules")).json()["rules"]
    assert (row["kept"], row["standing"]) == (False, "Its time is over.")
    assert (await api.get("/v1/plan")).json()["rules"] == []


async def test_who_forbids_the_last_variant_of_a_task_is_told(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    live = {(v.model, v.version) for v in catalog.snapshot().versions if v.stage is Stage.LIVE}
    *others, last = [
        one.name for one in catalog.snapshot().variants if (one.model, one.version) in live
    ]
    for name in others:
        row = (await order(api, rule="forbid", variant=name)).json()
        assert row["standing"] == "It is loaded nowhere."
    row = (await order(api, rule="forbid", variant=last)).json()
    assert row["standing"] == (
        "It is loaded nowhere. Nothing answers queries of digits that name no variant now."
    )


async def test_what_is_forbidden_is_shown_while_it_is_still_there(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.statuses = [worker("w1", MLP)]
    row = (await order(api, rule="forbid")).json()
    assert (row["kept"], row["standing"]) == (False, "It still leaves w1.")
    live.statuses = [worker("w1")]
    [row] = (await api.get("/v1/rules")).json()["rules"]
    assert (row["kept"], row["standing"]) == (True, "It is loaded nowhere.")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"rule": "pin"}, "a pin is of a variant of a task: 'task' is missing"),
        (
            {"rule": "forbid", "variant": "v1"},
            "a forbid is of a variant of a task: 'task' is missing",
        ),
        (
            {"rule": "pin", "task": "digits"},
            "a pin is of a variant of a task: 'variant' is missing",
        ),
        (
            {"rule": "pin", "task": "a b", "variant": "c"},
            "'a b' cannot be the name of a task: names have up to 128 of a-z, 0-9, '.', '_' and"
            " '-', and begin with a letter or a digit",
        ),
        (
            {"rule": "pin", "task": "x" * 129},
            "body 'task' is wrong: it may have at most 128 characters",
        ),
    ],
)
async def test_a_field_that_is_missing_is_named(
    api: httpx.AsyncClient, body: dict[str, Any], said: str
) -> None:
    reply = await api.post("/v1/rules", json=body)
    assert (reply.status_code, reply.json()["error"]) == (400, said)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"rule": "pin", "task": "nope"}, 404, "there is no task 'nope'"),
        ({"rule": "pin", "variant": "nope"}, 404, "has no variant 'nope'"),
        ({"rule": "pin", "device_kind": "cpu-9"}, 404, "there is no device kind 'cpu-9'"),
        ({"rule": "pin", "replicas": 3}, 409, "on 3 workers, and at most 2 could hold it"),
        ({"rule": "pin", "replicas": 0}, 400, "replicas"),
        ({"rule": "pin", "variant": "old-v1-onnx-fp32"}, 409, "old-v1 is retired"),
        ({"rule": "freeze"}, 400, "names no task"),
        ({"rule": "forbid", "replicas": 2}, 400, "only a pin"),
        ({"rule": "forbid", "for_s": 5.0}, 400, "only a freeze ends"),
        ({"rule": "pin", "why": "x" * 201}, 400, "200"),
        ({"rule": "thaw"}, 400, "rule"),
        ({"rule": "pin", "more": 1}, 400, "more"),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog, body: dict[str, Any], status: int, said: str
) -> None:
    register(catalog, "old", (0.9, 1.0), stage=Stage.RETIRED)
    reply = await order(api, **body)
    assert (reply.status_code, said in reply.json()["error"]) == (status, True), reply.json()
    assert catalog.rules() == ()


async def test_a_pin_and_a_forbid_of_the_same_do_not_meet(api: httpx.AsyncClient) -> None:
    await order(api, rule="pin")
    refused = await order(api, rule="forbid")
    assert refused.status_code == 409
    assert "is pinned by rule 1; `modelless rules remove 1`" in refused.json()["error"]
    await order(api, rule="forbid", variant=LINEAR)
    refused = await order(api, rule="pin", variant=LINEAR)
    assert (refused.status_code, "rule 2 forbids it" in refused.json()["error"]) == (409, True)


async def test_what_has_no_room_beside_other_pins_is_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    snapshot = catalog.snapshot()
    large = {MLP: 3_000.0, LINEAR: 2_000.0}
    profiles = tuple(
        replace(one, memory_mib=large.get(str(one.variant), 10.0)) for one in snapshot.profiles
    )
    catalog.put_profiles(profiles)
    assert (await order(api, rule="pin", replicas=2)).status_code == 201
    refused = await order(api, rule="pin", variant=LINEAR)
    assert refused.json()["error"] == (
        f"digits/{LINEAR} cannot be pinned: beside what else is pinned, 0 of 1 replica have room"
    )
    assert (await order(api, rule="pin", replicas=1)).status_code == 201
    assert (await order(api, rule="pin", variant=LINEAR)).status_code == 201
    refused = await order(api, rule="pin", replicas=2)
    assert refused.json()["error"].endswith("rule 2 could not be held any more")


async def test_an_unknown_room_on_a_cluster_refuses_nothing(
    catalog: MemoryCatalog, settings: Any
) -> None:
    asked = {DeviceKindName(KIND): 5}
    assert most_workers(settings, asked)[0][DeviceKindName(KIND)] == 5
    assert most_workers(settings.model_copy(update={"ray_address": "head:6379"}), asked) == []


# -- evictions -----------------------------------------------------------------------------------


async def evict(api: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await api.post("/v1/evictions", json={"task": "digits", "variant": MLP} | body)


async def test_a_variant_is_unloaded_once_and_the_plan_is_told_of(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.statuses = [worker("w1", MLP), worker("w2", LINEAR), worker("w3", MLP)]
    done = await evict(api, by="ann", why="leaks")
    assert done.status_code == 200
    assert live.unloaded == [("w1", "digits", MLP), ("w3", "digits", MLP)]
    assert done.json()["planned"] == []
    assert "may be loaded again later" in done.json()["sentence"]
    assert [(one.kind, one.subject, one.message) for one in catalog.events(9)][::-1] == [
        ("unloaded", f"digits/{MLP} on w1", "evicted by ann: leaks"),
        ("unloaded", f"digits/{MLP} on w3", "evicted by ann: leaks"),
    ]
    catalog.acquire_leadership("test")
    place = Placement(
        worker=WorkerId("w3"), task=TaskName("digits"), variant=VariantName(MLP), share=0.5
    )
    catalog.put_plan(Plan(version=0, epoch=1, placements=(place,), workers={}))
    done = await evict(api, worker="w3")
    assert (done.json()["workers"], done.json()["planned"]) == (["w3"], ["w3"])
    assert done.json()["sentence"] == "The plan places it on w3, and loads it there again."


async def test_what_is_pinned_or_not_there_is_not_evicted(
    api: httpx.AsyncClient, live: DictLive, catalog: MemoryCatalog
) -> None:
    live.statuses = [worker("w1", MLP)]
    refused = await evict(api, variant=LINEAR)
    assert (refused.status_code, "is not loaded on any worker" in refused.text) == (409, True)
    nobody = await evict(api, worker="w9")
    assert (nobody.status_code, nobody.json()["error"]) == (
        404,
        "there is no worker 'w9'; there are: w1",
    )
    assert (await evict(api, variant="nope")).status_code == 404
    await order(api, rule="pin", device_kind=KIND)
    refused = await evict(api)
    assert (refused.status_code, "is pinned by rule 1" in refused.text) == (409, True)
    assert live.unloaded == []


async def test_a_removed_version_takes_its_rules_along(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    await order(api, rule="pin")
    catalog.set_stage([TaskName("digits")], ModelName("mlp"), 1, Stage.RETIRED)
    [row] = (await api.get("/v1/rules")).json()["rules"]
    assert row["standing"] == "0 of 1 replica ready: its version mlp-v1 is retired."
    await api.delete("/v1/models/digits/mlp/versions/1")
    assert (await api.get("/v1/rules")).json() == {"rules": []}
