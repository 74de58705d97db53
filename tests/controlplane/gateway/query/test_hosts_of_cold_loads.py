"""Where a cold load goes, with real workers: to where what leaves is worth least, also when reports
are old, when several load at once, and through several gateways."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.gateway.connected_worker import ConnectedWorker
from controlplane.gateway.gateway import Gateway
from controlplane.settings import load_settings
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KNOWN,
    LATE,
    SLOW,
    TASK,
    Client,
    Known,
    Served,
    query,
    serving,
    until,
)
from tests.ports import free_port
from tests.workers import builders as workers
from variants.types import ReplicaState, VariantName, WorkerId
from workers.host import WorkerHost
from workers.process.line import LONGEST_REST_S

OTHER = "other-v1-echo-fp32"
"""Held nowhere, as ``DOUBLE``."""


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    # A socket's path may hold 107 bytes, too few for a test's own folder.
    known = (*KNOWN, Known(name=OTHER, accuracy=0.8, p95_ms=1.0))
    async with serving(short_folder, live_url, known=known) as running:
        yield running


def held(host: WorkerHost) -> set[str]:
    return {replica.variant for replica in host.status().replicas}


def view(served: Served, name: str) -> ConnectedWorker:
    return served.gateway.known.workers[WorkerId(name)]


async def ask_often(served: Served, variant: str) -> None:
    for _ in range(40):
        assert (await served.ask(query(variant=variant))).status == 200


async def asked_for_shows(*gateways: Served) -> None:
    """All of them know what the absence of what ``w1`` holds would cost."""
    workers = [view(each, "w1").view for each in gateways]
    await until(lambda: all(one.evictable and one.evictable[0][1] > 0.0 for one in workers))


async def second_gateway(served: Served, live_url: str) -> Served:
    """Another gateway over the same catalog and workers; it counts only what it is asked."""
    one = served.gateway
    port = free_port()
    given = load_settings(state_dir=served.folder, port=port, redis_url=live_url, grpc_port=0)
    secret = workers.secret_of(workers.config(served.folder))
    other = Gateway(given, one.catalog, one.store, secret)
    await other.start()
    served.stack.push_async_callback(other.stop)
    await until(lambda: set(other.known.workers) == set(one.known.workers))
    return Served(gateway=other, folder=served.folder, port=port, stack=served.stack)


async def test_an_old_report_costs_a_second_try_and_nothing_that_is_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``w1`` has said that what it holds is a filler, and its queries come by another gateway."""
    asked_for = await served.worker("w1", FAST, memory_mib=10)
    filled = await served.worker("w2", LATE, memory_mib=10)
    old = view(served, "w1").view.evictable
    learn = ConnectedWorker.learn
    await ask_often(served, FAST)

    def heard_nothing(self: ConnectedWorker, status: object) -> bool:
        return self is not view(served, "w1") and learn(self, status)  # type: ignore[arg-type]

    monkeypatch.setattr(ConnectedWorker, "learn", heard_nothing)
    view(served, "w1").view.evictable = old
    view(served, "w2").view.evictable = ((10.0, 0.01),)
    answer = await served.ask(query(4, variant=DOUBLE))
    assert (answer.json["outputs"], answer.json["worker"]) == ([[8, 0, 0, 0]], "w2")
    assert (held(asked_for), held(filled)) == ({FAST}, {DOUBLE})


async def test_what_was_loaded_is_asked_for_there_before_its_worker_reports(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last report is of when the filler was leaving and nothing had come instead."""
    monkeypatch.setattr("workers.host.rest_s", lambda _: 0.0)
    asked_for = await served.worker("w1", FAST, memory_mib=15)
    filled = await served.worker("w2", LATE, memory_mib=10)
    await ask_often(served, FAST)
    await asked_for_shows(served)
    monkeypatch.setattr("workers.host.rest_s", lambda _: LONGEST_REST_S)
    client = await served.client()
    answers = [await client.ask(query(4, variant=DOUBLE)) for _ in range(5)]
    assert [answer.json["worker"] for answer in answers] == ["w2"] * 5
    assert not served.gateway.path.counters.retries, "no other worker was asked first"
    assert (held(asked_for), held(filled)) == ({FAST}, {DOUBLE})


async def test_a_report_that_does_not_know_of_a_load_does_not_undo_it(served: Served) -> None:
    """It was sent before the load came, or while something was leaving for that."""
    await served.worker("w2", LATE, memory_mib=10)
    one = view(served, "w2")
    await until(lambda: one.view.evictable)
    before = one.connection.status
    leaving = replace(before.replicas[0], state=ReplicaState.UNLOADING)
    while_leaving = replace(before, replicas=(leaving,), evictable=())
    one.begins(TASK.name, VariantName(DOUBLE), 10.0)
    for report, free_mib in ((before, 0.0), (while_leaving, -10.0)):
        one.learn(report)
        assert one.view.loading == ((TASK.name, DOUBLE),)
        assert (one.view.free_mib, one.view.evictable) == (free_mib, ())
    one.answered(TASK.name, VariantName(DOUBLE))
    one.learn(before)
    assert (one.view.loading, one.view.evictable) == ((), before.evictable)


async def test_two_loads_at_once_do_not_count_on_the_same_victim(served: Served) -> None:
    """Both fillers leave, and nothing that is asked for; no report comes between the choices."""
    asked_for = await served.worker("w1", FAST, memory_mib=15)
    await served.worker("w2", LATE, memory_mib=10)
    await served.worker("w3", SLOW, memory_mib=10)
    await ask_often(served, FAST)
    await asked_for_shows(served)
    clients: list[Client] = [await served.client() for _ in range(2)]
    answers = await asyncio.gather(
        *(
            client.ask(query(4, variant=v))
            for client, v in zip(clients, (DOUBLE, OTHER), strict=True)
        )
    )
    assert {answer.json["worker"] for answer in answers} == {"w2", "w3"}
    assert held(asked_for) == {FAST}


async def test_two_gateways_that_choose_at_once_cause_one_load(
    served: Served, live_url: str
) -> None:
    asked_for = await served.worker("w1", FAST, memory_mib=15)
    filled = await served.worker("w2", LATE, memory_mib=10)
    other = await second_gateway(served, live_url)
    await ask_often(served, FAST)
    await asked_for_shows(served, other)
    answers = await asyncio.gather(
        *(each.ask(query(4, variant=DOUBLE)) for each in (served, other))
    )
    assert [answer.json["worker"] for answer in answers] == ["w2", "w2"]
    assert (held(asked_for), held(filled)) == ({FAST}, {DOUBLE})
    assert max(replica.load_no for replica in filled.status().replicas) == 2, "the filler and this"


async def test_two_gateways_that_load_different_ones_at_once_keep_what_is_asked_for(
    served: Served, live_url: str
) -> None:
    """Neither knows of the other's choice: the worker decides, and both are answered."""
    asked_for = await served.worker("w1", FAST, memory_mib=15)
    await served.worker("w2", LATE, memory_mib=10)
    await served.worker("w3", SLOW, memory_mib=10)
    other = await second_gateway(served, live_url)
    await ask_often(served, FAST)
    await asked_for_shows(served, other)
    answers = await asyncio.gather(
        served.ask(query(4, variant=DOUBLE)), other.ask(query(4, variant=OTHER))
    )
    assert [answer.status for answer in answers] == [200, 200]
    assert {answer.json["worker"] for answer in answers} <= {"w2", "w3"}
    assert held(asked_for) == {FAST}


async def test_of_two_with_room_the_one_where_nothing_left_is_taken(served: Served) -> None:
    """``w1`` has the least room that suffices, but what is loaded there does not stay."""
    restless = await served.worker("w1", memory_mib=10)
    for variant in (FAST, OTHER):
        assert (await served.ask(query(variant=variant))).json["worker"] == "w1"
    assert held(restless) == {OTHER}
    assert restless.status().churn_per_s > 0.0
    await served.worker("w2", LATE, memory_mib=25)
    one = view(served, "w1")
    await one.connection.unload("letters", OTHER, 10.0)
    await until(lambda: one.view.free_mib == 10.0 and one.view.churn_per_s > 0.0)
    assert (await served.ask(query(variant=OTHER))).json["worker"] == "w2"
