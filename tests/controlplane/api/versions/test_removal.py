"""Removing tasks and retired versions over the control API."""

import httpx
import pytest

from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable
from variants.types import ModelName, Peak, Stage, TaskName

DIGITS = TaskName("digits")


async def test_a_task_is_removed_and_told(api: httpx.AsyncClient, catalog: MemoryCatalog) -> None:
    catalog.add_peak(Peak(start_s=3e9, end_s=3e9 + 100, task=DIGITS, factor=2.0))
    before = catalog.snapshot()
    reply = await api.delete("/v1/tasks/digits")
    assert reply.status_code == 200
    assert reply.json() == {
        "task": "digits",
        "versions": [version.label for version in before.versions],
        "variants": [variant.name for variant in before.variants],
        "peaks": 1,
        "artifacts": len(catalog.leftovers()),
    }
    assert (await api.get("/v1/tasks")).json() == {"tasks": []}
    versions, variants = len(before.versions), len(before.variants)
    (event,) = catalog.events(9)
    assert (event.kind, event.subject) == ("task_removed", "digits")
    assert event.message == f"{versions} versions, {variants} variants, 1 declared peak"


async def test_a_retired_version_is_removed_and_told(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    path = "/v1/models/digits/mlp/versions/1"
    refused = await api.delete(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert refused.json()["error"] == (
        "mlp-v1 of task 'digits' is live; only a retired version can be removed:"
        " `modelless retire digits mlp 1`"
    )
    catalog.set_stage([DIGITS], ModelName("mlp"), 1, Stage.RETIRED)
    reply = await api.delete(path)
    assert (reply.status_code, reply.json()["versions"]) == (200, ["mlp-v1"])
    assert all(version.label != "mlp-v1" for version in catalog.snapshot().versions)
    (event,) = catalog.events(9)
    assert (event.kind, event.subject) == ("version_removed", "digits/mlp-v1")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/tasks/letters", "TASK_NOT_FOUND"),
        ("/v1/models/letters/mlp/versions/1", "TASK_NOT_FOUND"),
        ("/v1/models/digits/none/versions/1", "NOT_FOUND"),
        ("/v1/models/digits/mlp/versions/9", "NOT_FOUND"),
    ],
)
async def test_what_is_not_there_cannot_be_removed(
    api: httpx.AsyncClient, catalog: MemoryCatalog, path: str, code: str
) -> None:
    before = catalog.snapshot()
    reply = await api.delete(path)
    assert (reply.status_code, reply.json()["code"]) == (404, code)
    assert (catalog.snapshot(), catalog.events(9)) == (before, ())


async def test_a_task_that_somebody_else_removes_meanwhile_is_not_found(
    api: httpx.AsyncClient, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing = catalog.remove_task

    def remove_twice(task: TaskName) -> object:
        removing(task)
        return removing(task)

    monkeypatch.setattr(catalog, "remove_task", remove_twice)
    reply = await api.delete("/v1/tasks/digits")
    assert (reply.status_code, reply.json()["code"]) == (404, "TASK_NOT_FOUND")


async def test_what_is_removed_is_not_asked_again_for_an_event_that_is_lost(
    api: httpx.AsyncClient, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StateUnavailable("the disk is full")

    monkeypatch.setattr(catalog, "add_event", full)
    catalog.set_stage([DIGITS], ModelName("mlp"), 1, Stage.RETIRED)
    reply = await api.delete("/v1/models/digits/mlp/versions/1")
    assert (reply.status_code, reply.json()["versions"]) == (200, ["mlp-v1"])
    reply = await api.delete("/v1/tasks/digits")
    assert (reply.status_code, catalog.snapshot().tasks) == (200, ())
