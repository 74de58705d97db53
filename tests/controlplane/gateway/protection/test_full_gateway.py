"""What one gateway has in flight is bounded in queries, in bytes and by task."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane.serving import SLOW, TASK, Served, post, query, serving, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url) as running:
        await running.worker("w1", SLOW)
        yield running


async def sent(served: Served, count: int) -> list[str]:
    """Queries that are sent one after another, before the first is answered; how each ended."""
    clients = [await served.client() for _ in range(count)]
    for client in clients:
        client.send(post(query(variant=SLOW, slo={"latency_ms": 60_000})))
    answers = [await client.answer() for client in clients]
    return ["" if answer.status == 200 else answer.json["error"] for answer in answers]


async def test_a_task_leaves_room_for_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.gateway.query.query_path.MAX_IN_FLIGHT", 8)
    monkeypatch.setattr("controlplane.gateway.query.query_path.CROWDED", 4)
    found = await sent(served, 7)
    too_many = "5 queries are in flight through this gateway, too many of them of this task"
    assert sorted(found) == [""] * 5 + [too_many] * 2
    path = served.gateway.path
    await until(lambda: served.in_flight == 0)
    assert (path.held, path.held_bytes) == ({TASK.name: 0}, 0)
    path.held[TASK.name] = 0
    path.counters.in_flight = 5  # of other tasks
    assert await sent(served, 1) == [""]


async def test_bytes_in_flight_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.gateway.query.query_path.MAX_IN_FLIGHT_BYTES", 40)
    found = await sent(served, 3)
    too_many = "queries of 0 MiB are in flight through this gateway"
    assert sorted(found) == ["", "", too_many]
    assert await sent(served, 1) == [""]
