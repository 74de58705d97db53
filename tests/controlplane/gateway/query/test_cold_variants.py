"""Queries for variants that are not loaded: loaded in time, or told when to come back."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.gateway.query.in_flight import InFlight
from controlplane.gateway.query.query_path import monotonic_ms
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    KNOWN,
    LATE,
    SLOW,
    TASK,
    Served,
    infer,
    post,
    query,
    serving,
    until,
)
from tests.workers import gated
from variants.errors import ReplicaLost
from variants.types import Rule, RuleKind, VariantName, WorkerId
from workers.runtimes.registry import RUNTIMES

TOO_SOON = {"latency_ms": 30_000.0}
"""A deadline before the end of a load of ``slow_to_load``, and far enough for all else."""


@pytest.fixture
async def slow_to_load(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """Profiles say that each load takes ten minutes; it takes a moment, and where that
    has been learned as far as it goes, the rest would still be too long."""
    known = [replace(each, load_s=600.0) for each in KNOWN]
    async with serving(short_folder, live_url, known=known) as running:
        yield running


async def test_a_cold_variant_is_loaded_when_that_is_in_time(served: Served) -> None:
    await served.worker("w1")
    answer = await served.ask(query(4, variant=DOUBLE, slo={"latency_ms": 30_000}))
    assert answer.json["outputs"] == [[8, 0, 0, 0]]


async def test_a_cold_variant_goes_where_what_leaves_is_worth_least(served: Served) -> None:
    """``w1`` has more free memory and would lose what queries ask for, ``w2`` only a filler."""
    asked_for = await served.worker("w1", FAST, memory_mib=15)
    await served.worker("w2", LATE, memory_mib=10)
    for _ in range(3):
        assert (await served.ask(query(variant=FAST))).json["worker"] == "w1"
    known = served.gateway.known.workers
    await until(lambda: any(loss_s > 0.0 for _, loss_s in known[WorkerId("w1")].view.evictable))
    await until(lambda: known[WorkerId("w2")].view.evictable)
    for _ in range(2):
        answer = await served.ask(query(4, variant=DOUBLE))
        assert (answer.json["outputs"], answer.json["worker"]) == ([[8, 0, 0, 0]], "w2")
    assert [one.variant for one in asked_for.status().replicas] == [FAST]
    assert (await served.ask(query(variant=FAST))).json["worker"] == "w1"


async def test_a_load_for_queries_to_come_goes_there_as_well(slow_to_load: Served) -> None:
    served = slow_to_load
    await served.worker("w1", FAST, memory_mib=15)
    filled = await served.worker("w2", LATE, memory_mib=10)
    await served.ask(query(variant=FAST))
    known = served.gateway.known.workers
    await until(lambda: any(loss_s > 0.0 for _, loss_s in known[WorkerId("w1")].view.evictable))
    await until(lambda: known[WorkerId("w2")].view.evictable)
    answer = await served.ask(query(4, variant=DOUBLE, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    await until(lambda: DOUBLE in [one.variant for one in filled.status().replicas])


async def test_a_cold_variant_says_when_to_come_back(slow_to_load: Served) -> None:
    served = slow_to_load
    await served.worker("w1")
    answer = await served.ask(query(4, variant=FAST, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    assert answer.headers["retry-after"] == "600"
    assert answer.json["retryable"] is True
    assert answer.error[2].endswith("; the load has begun")
    # The load has begun for those who come back.
    connected = served.gateway.known.workers[WorkerId("w1")]
    await until(lambda: connected.ready)
    assert (await served.ask(query(4, variant=FAST, slo=TOO_SOON))).status == 200


async def test_a_load_that_did_not_begin_is_not_said_to_have(slow_to_load: Served) -> None:
    """There is room for one variant, and what is there is asked for."""
    served = slow_to_load
    await served.worker("w1", SLOW, memory_mib=10.0)
    client = await served.client()
    for _ in range(5):
        assert (await client.ask(query(variant=SLOW))).status == 200
    answer = await served.ask(query(4, variant=FAST, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    assert answer.error[2].endswith(
        "it was not loaded: letters/fast-v1-echo-fp32 needs 10.0 MiB, 0.0 MiB are free here, and "
        "what is loaded is in use or asked for more"
    )
    assert int(answer.headers["retry-after"]) == 5
    assert served.gateway.known.workers[WorkerId("w1")].ready == {("letters", SLOW)}


async def test_a_load_that_ends_with_its_worker_does_not_tell_where_that_listened(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtimes = {**RUNTIMES, "echo": gated.ENTRY}
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", runtimes)
    host = await served.worker("w1")
    gated.GATES.loads.clear()
    try:
        (candidate,) = served.gateway.path.snapshot.tasks[TASK.name].by_variant[VariantName(FAST)]
        loading = served.gateway.load(candidate, WorkerId("w1"), 30_000.0)
        await until(lambda: bool(host.status().replicas))
        served.gateway.known.workers[WorkerId("w1")].connection.close()
        with pytest.raises(ReplicaLost, match=r"^worker w1 is lost$"):
            await loading
    finally:
        gated.GATES.open()


async def test_a_load_keeps_nothing_of_queries_whose_clients_have_gone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients that ask and go would fill the memory, as long as the load takes."""
    runtimes = {**RUNTIMES, "echo": gated.ENTRY}
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", runtimes)
    host = await served.worker("w1")
    path = served.gateway.path
    gated.GATES.loads.clear()
    try:
        client = await served.client()
        client.send(post(query(variant=FAST)))
        await until(lambda: bool(host.status().replicas))
        [flight] = path.guard
        assert isinstance(flight, InFlight)
        client.close()
        await until(lambda: served.in_flight == 0)
        assert (flight.parsed.tensors, path.held_bytes) == ([], 0)
        assert path.counters.task(TASK.name).errors == {"CLIENT_GONE": 1}
    finally:
        gated.GATES.open()
    connected = served.gateway.known.workers[WorkerId("w1")]
    await until(lambda: connected.ready)  # the load goes on for queries to come
    assert (await served.ask(query(variant=FAST))).status == 200


async def test_a_variant_that_leaves_while_a_query_is_on_its_way_is_loaded_again(
    served: Served,
) -> None:
    """Its deadline leaves the time for that: it is not told that its variant is cold."""
    host = await served.worker("w1", FAST)
    path = served.gateway.path
    stale = path.snapshot
    answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
    body = json.dumps(query(4, variant=FAST, slo={"latency_ms": 30_000})).encode()
    await host._loading.unload("letters", FAST)
    path.update(  # as if the gateway had not heard of it yet
        snapshot=stale, routes=path.routes, tasks=path.tasks, connections=path.connections
    )
    path.handle_v1(body, monotonic_ms(), lambda code, body, _: answered.set_result((code, body)))
    status, reply = await asyncio.wait_for(answered, 60)
    assert (status, json.loads(reply)["outputs"]) == (200, [[4, 0, 0, 0]])
    assert path.counters.retries == {"cold": 1}


async def test_three_variants_with_room_for_one_are_all_answered_at_once(served: Served) -> None:
    """Each waits for its turn, as long as its deadline leaves the time for it."""
    await served.worker("w1", memory_mib=10.0)
    asked = (served.ask(query(1, variant=name)) for name in (FAST, SLOW, DOUBLE))
    answers = await asyncio.gather(*asked)
    assert [answer.status for answer in answers] == [200, 200, 200], [one.body for one in answers]


async def test_too_little_time_to_load_and_a_damaged_artifact(slow_to_load: Served) -> None:
    """A load that is begun for queries to come says as well that it cannot be done."""
    served = slow_to_load
    await served.worker("w1")
    served.damage(LATE)
    answer = await served.ask(query(4, variant=LATE, slo=TOO_SOON))
    assert answer.error[:2] == (503, "ARTIFACT_INVALID")
    await served.worker("w2")
    answer = await served.ask(query(4, variant=None, slo={**TOO_SOON, "accuracy": 0.95}))
    assert answer.error[:2] == (503, "COLD")
    assert repr(DOUBLE) in answer.error[2]


async def test_loads_in_line_count_into_when_to_come_back(slow_to_load: Served) -> None:
    served = slow_to_load
    await served.worker("w1")
    view = served.gateway.known.workers[WorkerId("w1")].view
    view.loading, view.loading_asked = 20 * ((TASK.name, VariantName(SLOW)),), 20
    answer = await served.ask(query(4, variant=FAST, slo=TOO_SOON))
    assert answer.error[:2] == (503, "COLD")
    assert answer.json["retry_after_s"] == pytest.approx(21 * 600.0)
    assert answer.headers["retry-after"] == "12600"


async def test_while_the_plan_is_frozen_loads_take_free_memory_only(served: Served) -> None:
    host = await served.worker("w1", FAST)
    catalog = served.gateway.catalog
    catalog.put_rule(Rule(kind=RuleKind.FREEZE))
    await until(lambda: served.gateway.known.frozen)
    named = f"/v2/models/letters/versions/{SLOW}/infer"
    assert (await served.ask(infer(), path=named)).status == 200
    assert {one.variant for one in host.status().replicas} == {FAST, SLOW}
