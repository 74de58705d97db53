"""Sharing of answers over the control API."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import load_settings
from tests.controlplane.builders import DictLive, digits_catalog
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import Sharing

PATH = "/v1/tasks/digits/sharing"


@pytest.fixture
def catalog() -> MemoryCatalog:
    return digits_catalog()


@pytest.fixture
async def api(tmp_path: Path, catalog: MemoryCatalog) -> AsyncIterator[httpx.AsyncClient]:
    settings = load_settings(state_dir=tmp_path)
    store = FileArtifactStore(settings.artifacts_dir)
    app = build_api(ApiContext(catalog=catalog, store=store, settings=settings, live=DictLive()))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        yield client


async def test_leave_is_given_read_and_taken_back(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    for _ in range(2):
        reply = await api.put(PATH, json={"ttl_s": 30})
        assert (reply.status_code, reply.json()["sharing"]) == (
            200, {"ttl_s": 30.0, "memory_mib": 64.0},
        )  # fmt: skip
    assert catalog.snapshot().tasks[0].sharing == Sharing(ttl_s=30.0, memory_mib=64.0)
    assert (await api.get("/v1/tasks/digits")).json() == reply.json()
    reply = await api.delete(PATH)
    assert (reply.status_code, reply.json()["sharing"]) == (200, None)
    assert [(event.kind, event.subject, event.message) for event in catalog.events(9)] == [
        ("sharing_changed", "digits", "every query is run"),
        (
            "sharing_changed",
            "digits",
            "equal queries in flight share a run; answers are kept for 30 s, at most 64 MiB",
        ),
    ]


@pytest.mark.parametrize(
    "body", [{}, {"ttl_s": -1}, {"ttl_s": 1, "memory_mib": 0}, {"ttl_s": 1, "memory": 3}]
)
async def test_limits_that_cannot_be_are_refused(
    api: httpx.AsyncClient, catalog: MemoryCatalog, body: dict[str, float]
) -> None:
    reply = await api.put(PATH, json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert catalog.snapshot().tasks[0].sharing is None


async def test_an_unknown_task_has_no_answers(api: httpx.AsyncClient) -> None:
    for reply in (
        await api.put("/v1/tasks/letters/sharing", json={"ttl_s": 1}),
        await api.delete("/v1/tasks/letters/sharing"),
    ):
        assert (reply.status_code, reply.json()["code"]) == (404, "TASK_NOT_FOUND")
