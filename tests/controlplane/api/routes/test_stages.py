"""Stages of versions, changed by the control API."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.controlplane.api.routes.made_api import get
from tests.controlplane.builders import CPU, register
from variants.catalog.memory import MemoryCatalog
from variants.types import ModelName, Stage, TaskName

LIVE = {"stage": "live"}


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


async def test_of_two_who_retire_the_last_live_versions_at_once_one_is_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sees the other version live before."""
    catalog.set_stage([TaskName("digits")], ModelName("slow"), 1, Stage.RETIRED)
    retire = catalog.set_stage
    others = iter(["linear"])

    def set_stage(*asked: Any, **said: Any) -> bool:
        for other in others:
            retire([TaskName("digits")], ModelName(other), 1, Stage.RETIRED)
        return retire(*asked, **said)

    monkeypatch.setattr(catalog, "set_stage", set_stage)
    reply = await api.post("/v1/models/digits/mlp/versions/1/stage", json={"stage": "retired"})

    assert (reply.status_code, reply.json()["code"]) == (409, "CONFLICT")
    assert "mlp-v1 is the only live version of digits" in reply.json()["error"]
    live = [one.model for one in catalog.snapshot().versions if one.stage is Stage.LIVE]
    assert live == ["mlp"]


async def test_what_changes_meanwhile_elsewhere_holds_up_no_stage(
    api: httpx.AsyncClient, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where profiles are measured: each advances the revision."""
    retire = catalog.set_stage
    prices = iter([0.5, 0.6])

    def set_stage(*asked: Any, **said: Any) -> bool:
        if (price := next(prices, None)) is not None:
            catalog.put_profiles((), (replace(CPU, usd_per_hour=price),))
        return retire(*asked, **said)

    monkeypatch.setattr(catalog, "set_stage", set_stage)
    reply = await api.post("/v1/models/digits/mlp/versions/1/stage", json={"stage": "retired"})

    assert (reply.status_code, reply.json()["stage"]) == (200, "retired")


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
