"""What ends a registration over REST before it is done, and who says so."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.registry.over_rest.operations import STALE_S
from controlplane.timestamps import StampAges
from tests.controlplane.registry.over_rest.room import SLEEPS, SUCCEEDS, Room, finished, post
from variants.errors import StateUnavailable

pytestmark = pytest.mark.slow


async def pids_written(room: Room) -> Path:
    """The file in which a child that ``SLEEPS`` has written the numbers of its processes."""
    pids = room.settings.state_dir / "pids"
    async with asyncio.timeout(120):
        while not pids.exists() or not pids.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return pids


PLODS = """
    import json, sys, time
    for done in range(8):
        print(json.dumps({"step": "measure", "done": done}), file=sys.stderr, flush=True)
        time.sleep(0.5)
    print("{}")
"""
REGISTERED = """
    import json, sys, time
    print(json.dumps({"step": "store", "message": "registered"}), file=sys.stderr, flush=True)
    time.sleep(3.0)
    print("{}")
"""
REPEATS = """
    import json, sys, time
    while True:
        print(json.dumps({"step": "measure", "done": 1}), file=sys.stderr, flush=True)
        time.sleep(0.2)
"""


async def test_a_registration_may_take_as_long_as_it_goes_on(room: Room) -> None:
    """One of an hour was given up. This one takes 4 s, and may be silent for 3."""
    async with room.serve(PLODS, silent_s=3.0) as client:
        operation = await finished(client, await post(client))

    assert operation["state"] == "succeeded"
    assert operation["progress"]["done"] == 7


async def test_one_that_tells_of_nothing_new_is_given_up(room: Room) -> None:
    async with room.serve(REPEATS, silent_s=3.0) as client:
        operation = await finished(client, await post(client))

    assert (operation["state"], operation["error"]["code"]) == ("failed", "DEADLINE_EXCEEDED")
    assert operation["error"]["error"].startswith("it told of nothing new for 3 s and was ended;")
    assert room.uploads() == []


async def test_a_live_state_that_is_away_ends_no_registration_and_hears_its_outcome(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its progress is worth nothing beside what was built and measured."""
    monkeypatch.setattr("controlplane.registry.over_rest.operations.AGAIN_S", 0.05)
    stored = room.live.put_operation
    told: list[str] = []

    async def put(id: str, body: Mapping[str, Any], /) -> None:
        told.append(body["state"])
        if len(told) > 1 and told.count("succeeded") < 3:
            raise StateUnavailable("the live state does not answer")
        await stored(id, body)

    monkeypatch.setattr(room.live, "put_operation", put)
    async with room.serve(PLODS) as client:
        operation = await finished(client, await post(client))

    assert operation["state"] == "succeeded"
    assert told.count("running") > 2
    assert room.uploads() == []


async def test_a_gateway_that_stops_waits_for_no_live_state(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = room.live.put_operation
    outcomes = 0

    async def put(id: str, body: Mapping[str, Any], /) -> None:
        nonlocal outcomes
        if body["state"] != "running":
            outcomes += 1
            raise StateUnavailable("the live state does not answer")
        await stored(id, body)

    monkeypatch.setattr(room.live, "put_operation", put)
    async with room.serve(SLEEPS) as client:
        await post(client)
        await pids_written(room)
        assert room.registrations is not None
        async with asyncio.timeout(60):
            await room.registrations.close()

    assert outcomes == 1


async def test_a_registration_is_ended_on_demand(room: Room) -> None:
    async with room.serve(SLEEPS) as client:
        started = await post(client)
        pids = await pids_written(room)
        ended = await client.delete(started.headers["location"])
        operation = await finished(client, started)
        again = await client.delete(started.headers["location"])

    assert (ended.status_code, ended.json()["state"]) == (202, "running")
    assert (operation["state"], operation["error"]["code"]) == ("failed", "CONFLICT")
    assert operation["error"]["error"].startswith("it was ended on demand; what was built")
    assert not any(alive(int(pid)) for pid in pids.read_text().split())
    assert room.uploads() == []
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")


async def test_what_has_been_registered_by_then_is_not_said_to_be_ended(room: Room) -> None:
    """The version was there, and its operation had failed."""
    async with room.serve(REGISTERED) as client:
        started = await post(client)
        progress: dict[str, Any] = {}
        async with asyncio.timeout(120):
            while progress.get("message") != "registered":
                await asyncio.sleep(0.02)
                progress = (await client.get(started.headers["location"])).json()["progress"]
        ended = await client.delete(started.headers["location"])
        operation = await finished(client, started)

    assert (ended.status_code, operation["state"]) == (202, "succeeded")


async def test_the_gateway_that_runs_a_registration_ends_it_for_another_one(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registry.over_rest.operations.BEAT_S", 0.1)
    async with room.serve(SLEEPS) as client:
        started = await post(client)
        running = room.registrations
        async with room.serve(SLEEPS) as other:
            assert (await other.delete(started.headers["location"])).status_code == 202
        operation = await finished(client, started)
        assert running is not None
        await running.close()

    assert (operation["state"], operation["error"]["code"]) == ("failed", "CONFLICT")


async def test_what_no_operation_is_cannot_be_ended_or_read(room: Room) -> None:
    async with room.serve(SUCCEEDS) as client:
        started = await post(client)
        await finished(client, started)
        room.live.operations["a:end"] = {"id": "a"}
        for id in ("none", "a:end"):
            assert (await client.delete(f"/v1/operations/{id}")).status_code == 404
            assert (await client.get(f"/v1/operations/{id}")).status_code == 404


async def test_closing_ends_the_child_and_its_children(room: Room) -> None:
    async with room.serve(SLEEPS) as client:
        started = await post(client)
        pids = await pids_written(room)
        assert room.registrations is not None
        await room.registrations.close()
        operation = (await client.get(started.headers["location"])).json()
        late = await post(client)

    assert operation["state"] == "failed"
    assert operation["error"]["error"] == "the gateway was stopped meanwhile"
    # A child of the child has been killed, and nobody can wait for it.
    async with asyncio.timeout(30):
        while any(alive(int(pid)) for pid in pids.read_text().split()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert room.uploads() == []
    assert late.status_code == 429


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_gateway_that_went_away_fails_its_operations(room: Room) -> None:
    old = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    operation = {"id": "a", "kind": "register", "state": "running", "subject": "digits/mlp"}
    room.live.operations["a"] = operation | {"created_at": old, "updated_at": old}
    async with room.serve(SUCCEEDS) as client:
        body = (await client.get("/v1/operations/a")).json()

    assert (body["state"], body["error"]["code"]) == ("failed", "REPLICA_LOST")


async def test_a_clock_that_is_set_fails_no_operation(room: Room) -> None:
    """An hour ahead, those that run seemed to have lost their gateway until they said more; an hour
    back, those whose gateway was gone seemed to run for an hour."""
    now_s, ahead_s = 0.0, 1_000_000.0
    ages = StampAges(lambda: now_s, lambda: now_s + ahead_s)

    def told() -> dict[str, Any]:
        at = datetime.fromtimestamp(now_s + ahead_s, UTC).isoformat()
        named = {"id": "a", "kind": "register", "subject": "digits/mlp"}
        return {**named, "state": "running", "created_at": at, "updated_at": at}

    async def state() -> str:
        return str((await client.get("/v1/operations/a")).json()["state"])

    async with room.serve(SUCCEEDS, ages=ages) as client:
        for set_s in (3_600.0, -3_600.0):
            room.live.operations["a"] = told()
            assert await state() == "running"
            ahead_s, now_s = ahead_s + set_s, now_s + 4.0
            assert await state() == "running"
            [row] = (await client.get("/v1/operations")).json()["operations"]
            assert row["state"] == "running"
            now_s += STALE_S
            assert await state() == "failed"
