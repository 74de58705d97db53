"""A gateway that has just started: what comes before it knows its workers waits, for a while."""

import asyncio
import os
import signal
import socket
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.gateway.gateway import Gateway
from controlplane.gateway.meeting import Meeting
from controlplane.gateway.query.query_path import QueryPath
from controlplane.live_state import ENDING
from planner.types import Candidate
from tests.controlplane.fleet import KIND, Fleet, eventually, fleet, gateway
from variants.types import WorkerId

pytestmark = pytest.mark.slow

A, B = "a-v1-echo-fp32", "b-v1-echo-fp32"
ROW = {"task": "digits", "inputs": [[0.0] * 64]}


BRIEF_MS = 3_000.0
"""Less than a worker takes to start: who has longer waits for one that is being started."""


def ask(client: httpx.AsyncClient, latency_ms: float = 30_000.0) -> asyncio.Task[httpx.Response]:
    body = {**ROW, "slo": {"latency_ms": latency_ms}}
    return asyncio.create_task(client.post("/v1/query", json=body))


def held(of: Gateway) -> int | None:
    """Queries that wait; None once nothing is held any more."""
    return None if of.path.waiting is None else len(of.path.waiting)


async def loaded(it: Fleet, *models: str) -> dict[str, Any]:
    """A worker that holds these models; its entry in the directory, from which it is removed."""
    for model in models:
        it.register(model)
    controller = it.control()
    await it.until_ready(w1=[f"{model}-v1-echo-fp32" for model in models])
    await controller.stop()
    (entry,) = await it.cluster.workers([KIND])
    it.valkey.stop()
    it.valkey.start()
    assert await it.live.workers() is None
    return asdict(entry)


def silent(it: Fleet, stack: list[socket.socket]) -> dict[str, str]:
    """The entry of a worker that accepts connections and says nothing for two seconds."""
    path = it.settings.run_dir / f"silent{len(stack)}.sock"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    stack.append(listening)
    return {"id": f"s{len(stack)}", "address": f"unix:{path}", "device_kind": KIND}


async def test_queries_wait_for_the_directory_and_are_then_answered(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it:
        entry = await loaded(it, "a")
        async with gateway(it) as (of, client):
            asked = [ask(client) for _ in range(5)]
            await eventually(lambda: held(of) == 5)
            await it.live.put_workers(1, [entry])
            replies = [(r.status_code, r.json()["variant"]) for r in await asyncio.gather(*asked)]
            assert replies == [(200, A)] * 5
            assert held(of) is None
            assert of.path.counters.in_flight == 0


async def test_a_deadline_that_passes_meanwhile_is_kept(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        async with gateway(it) as (of, client):
            reply = await ask(client, 60.0)
            assert (reply.status_code, reply.json()["code"]) == (504, "DEADLINE_EXCEEDED")
            assert reply.json()["error"] == (
                "not answered within 60 ms: the gateway has just started and was still connecting "
                "to its workers"
            )
            assert (held(of), of.path.counters.in_flight) == (0, 0)


async def test_what_no_worker_could_answer_does_not_wait(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        async with gateway(it) as (of, client):
            body = {**ROW, "slo": {"accuracy": 0.99}}
            assert (await client.post("/v1/query", json=body)).status_code == 422
            assert (await client.post("/v1/query", json={**ROW, "task": "x"})).status_code == 404
            assert held(of) == 0


async def test_a_directory_that_is_empty_is_known(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        await it.live.put_workers(1, [])
        async with gateway(it) as (_, client):
            reply = await ask(client, BRIEF_MS)
            assert (reply.status_code, reply.json()["code"]) == (503, "NO_WORKERS")
            assert "1 of cpu-1 is wanted and being started" in reply.json()["error"]
            assert int(reply.headers["retry-after"]) == 6


async def test_who_waits_is_told_when_it_is_known_that_no_worker_can_be_started(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told at its deadline, a minute later."""
    monkeypatch.setattr("controlplane.controller.fleet_targets.STARTS_EVERY_S", 0.1)
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        async with gateway(it) as (of, client):
            await eventually(lambda: held(of) is None)
            it.cluster.failed_start = "disk full"
            it.cluster.kill("w1")
            await eventually(lambda: not of.known.workers)  # else it is lost with its worker
            reply = await ask(client, 100_000.0)

    assert (reply.status_code, reply.json()["code"]) == (503, "NO_WORKERS")
    assert "1 of cpu-1 is wanted and cannot be started" in reply.json()["error"]
    assert "retry-after" not in reply.headers
    [told] = [one for one in it.catalog.events(100) if one.kind == "start_failed"]
    assert (told.subject, told.message) == (KIND, "disk full; it is tried again")


async def test_who_is_refused_while_everything_is_stopped_is_told_so(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        await it.live.put_workers(1, [])
        async with gateway(it) as (of, client):
            assert "being started" in (await ask(client, BRIEF_MS)).json()["error"]
            assert of.ready()

            async def told() -> bool:
                await it.live.notify(ENDING)  # again: it may not listen yet
                return "is being stopped" in (await ask(client, BRIEF_MS)).json()["error"]

            await eventually(told)
            reply = await ask(client, BRIEF_MS)
            assert (reply.status_code, reply.json()["code"]) == (503, "NO_WORKERS")
            assert "retry-after" not in reply.headers
            assert not of.ready()


async def test_without_live_state_nothing_is_held(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not because it was held for long enough."""
    monkeypatch.setattr("controlplane.gateway.knowledge.Meeting", partial(Meeting, most_s=3_600.0))
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        it.valkey.stop()
        async with gateway(it) as (of, client):
            await eventually(lambda: held(of) is None)
            reply = await ask(client, BRIEF_MS)
            assert (reply.status_code, reply.json()["code"]) == (503, "NO_WORKERS")
            assert "the live state, which lists them, does not answer" in reply.json()["error"]
            it.valkey.start()
            await it.live.put_workers(1, [])

            async def known() -> bool:
                return "being started" in (await ask(client, BRIEF_MS)).json()["error"]

            await eventually(known)


async def test_nothing_is_held_for_ever() -> None:
    def loads_nothing(
        candidate: Candidate, worker: WorkerId, slack_ms: float | None, need: str = ""
    ) -> asyncio.Future[None]:
        raise AssertionError((candidate, worker, slack_ms, need))

    path = QueryPath(loader=loads_nothing)
    changes: list[object] = []
    meeting = Meeting(path, lambda: changes.append(path.waiting), most_s=0.05)
    meeting.begin()
    assert path.waiting is not None
    await eventually(lambda: path.waiting is None)
    assert changes == [None]


async def test_who_cannot_be_reached_is_waited_for_once(tmp_path: Path, port: int) -> None:
    sockets: list[socket.socket] = []
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        gone = {"id": "gone", "address": f"unix:{tmp_path}", "device_kind": KIND}
        await it.live.put_workers(1, [silent(it, sockets), silent(it, sockets), gone])
        async with gateway(it) as (of, client):
            reply = await ask(client, BRIEF_MS)
            assert (reply.status_code, reply.json()["code"]) == (503, "NO_WORKERS")
            assert held(of) is None
    for each in sockets:
        each.close()


async def test_whoever_is_met_first_answers_without_waiting_for_the_others(
    tmp_path: Path, port: int
) -> None:
    sockets: list[socket.socket] = []
    async with fleet(tmp_path, port=port) as it:
        entry = await loaded(it, "a")
        await it.live.put_workers(1, [silent(it, sockets), entry])
        async with gateway(it) as (of, client):
            assert (await ask(client, BRIEF_MS)).status_code == 200
            assert held(of) == 0
    for each in sockets:
        each.close()


async def test_nothing_is_loaded_while_another_worker_may_hold_it(
    tmp_path: Path, port: int
) -> None:
    """``b`` is on no worker that is met at first: it is loaded once all were tried."""
    sockets: list[socket.socket] = []
    async with fleet(tmp_path, port=port) as it:
        entry = await loaded(it, "a")
        it.register("b")
        await it.live.put_workers(1, [silent(it, sockets), entry])
        async with gateway(it) as (of, client):
            await eventually(lambda: of.known.workers.keys() == {WorkerId("w1")})
            body = {**ROW, "variant": B, "slo": {"latency_ms": 30_000.0}}
            asked = asyncio.create_task(client.post("/v1/query", json=body))
            await eventually(lambda: held(of) == 1)
            assert of.statuses()[0].replicas[0].variant == A
            assert len(of.statuses()[0].replicas) == 1
            assert (await asked).json()["variant"] == B
    for each in sockets:
        each.close()


async def test_how_long_a_worker_took_to_start_is_what_the_next_is_expected_to_take(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it:
        it.register("a")
        controller = it.control()
        async with gateway(it) as (of, client):
            await eventually(lambda: bool(of.known.workers))
            await controller.stop()
            (worker,) = of.statuses()
            os.kill(worker.pid, signal.SIGKILL)
            await eventually(lambda: not of.known.workers)
            await asyncio.sleep(1.5)
            it.control()
            await eventually(lambda: bool(of.known.workers))
            (worker,) = of.statuses()
            it.catalog.set_inventory(KIND, 0)
            await eventually(lambda: not of.known.workers)
            assert (await ask(client, BRIEF_MS)).json()["error"].endswith("is scaled to 0 workers")
            it.catalog.set_inventory(KIND, 1)
            await eventually(
                lambda: of.path.snapshot.wanted.kinds() == [KIND] or bool(of.known.workers)
            )
            start = of.path.snapshot.wanted.starting.get(KIND)
            assert of.known.workers or (start is not None and 1_000 <= start.usual_ms != 6_000.0)
