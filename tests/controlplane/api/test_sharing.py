"""Sharing of answers over the control API."""

import httpx
import pytest

from variants.catalog.memory import MemoryCatalog
from variants.types import Sharing

PATH = "/v1/tasks/digits/sharing"


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
