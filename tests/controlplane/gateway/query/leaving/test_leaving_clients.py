"""Clients that leave at random moments: whatever they leave behind ends, and the books balance."""

import asyncio
from random import Random
from typing import Any

import pytest

from controlplane.gateway.query.query_path import QueryPath
from tests.controlplane.serving import DOUBLE, FAST, LATE, SLOW, TASK, Served, post, query, until
from tests.variants.catalog_builders import set_sharing
from variants.types import Sharing, WorkerId
from workers.host import WorkerHost

EXPECT = [("Expect", "100-continue")]
"""By this the request goes the ordinary way."""


async def come_and_go(served: Served, random: Random, queries: int) -> int:
    """A client that asks again and again, and now and then leaves before it has its answer; how
    many queries it has asked."""
    asked = 0
    client = await served.client()
    for _ in range(queries):
        body = query(random.randrange(4), variant=random.choice([FAST, SLOW, LATE, DOUBLE, None]))
        body["inputs"] = body["inputs"] * random.choice([1, 1, 2, 8])
        if random.random() < 0.2:
            body["slo"] = {"latency_ms": random.choice([5, 50, 500])}
        if random.random() < 0.1:
            body["best_effort"] = True
        ordinary = random.random() < 0.2
        client.send(post(body, headers=EXPECT if ordinary else []))
        asked += 1
        answering = asyncio.ensure_future(client.answer())
        if ordinary:
            assert (await answering).status == 100
            answering = asyncio.ensure_future(client.answer())
        patience_s = random.choice([0.0, 0.005, 0.03, 0.2, 60.0])
        done, _ = await asyncio.wait([answering], timeout=patience_s)
        if not done:
            answering.cancel()
            client.close()
            client = await served.client()
    client.close()
    return asked


def assert_nothing_is_left(path: QueryPath, hosts: list[WorkerHost]) -> None:
    assert path.counters.in_flight == 0
    assert len(path.guard) == 0
    assert (path.held_bytes, {*path.held.values()}) == (0, {0})
    assert (len(path.awaiting), path.departures.others) == (0, set())
    for connection in path.connections.values():
        assert connection._pending == {}
    for host in hosts:
        executor = host._running()
        assert (executor.in_flight, executor._held_bytes, executor.queue.count) == (0, 0, 0)
        assert executor.queue.backlog_ms(executor.queue.busy_until_ms) == 0.0
        assert [replica.in_flight for replica in executor.replicas.values()] == [0] * len(
            executor.replicas
        )
        assert not executor._withdrawn


def ended(path: QueryPath, task: str) -> int:
    """Queries of a task that have ended, by what is counted."""
    counted = path.counters.task(task)
    answers = sum(variant.met + variant.missed for variant in counted.variants.values())
    return answers + sum(counted.errors.values())


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["", "answers are shared"])
@pytest.mark.parametrize("seed", range(3))
async def test_each_query_has_one_outcome_whoever_leaves(
    served: Served, seed: int, shared: bool
) -> None:
    """Also where a worker leaves meanwhile, and where a connection to one breaks."""
    random = Random(seed)
    path = served.gateway.path
    hosts = [await served.worker(name, FAST, SLOW, LATE, DOUBLE) for name in ("w1", "w2", "w3")]
    if shared:
        sharing = Sharing(ttl_s=0.05, memory_mib=1.0)
        set_sharing(served.gateway.catalog, TASK.name, sharing)
        await until(lambda: path.tasks[TASK.name].sharing == sharing)
    clients = [
        asyncio.create_task(come_and_go(served, Random(100 * seed + n), 25)) for n in range(16)
    ]
    await asyncio.sleep(0.3 + random.random() / 4)
    served.gateway.known.workers[WorkerId("w2")].connection._refuse(ValueError("it broke"))
    await asyncio.sleep(0.2)
    await hosts[2].drain_and_stop(30.0)
    asked = sum(await asyncio.gather(*clients))

    def books() -> Any:
        return path.counters.in_flight == 0 and not path.departures.others

    await until(books)
    await until(lambda: all(not connection._pending for connection in path.connections.values()))
    await until(lambda: not any(host._running().in_flight for host in hosts[:2]))
    await until(lambda: not any(host._running()._withdrawn for host in hosts[:2]))
    assert_nothing_is_left(path, hosts[:2])
    gone = path.counters.task(TASK.name).errors.get("CLIENT_GONE", 0)
    assert gone > 0
    # Who left in the middle of a turn, before its query was read, has asked nothing.
    unseen = asked - ended(path, TASK.name)
    assert 0 <= unseen <= asked // 4
    # What workers still have to do is known, so that the next one is answered at once.
    quick = await served.ask(query(1, slo={"latency_ms": 60_000}))
    assert quick.status == 200
    waits_ms = [worker.view.busy_until_ms - path.clock_ms()
                for worker in served.gateway.known.workers._workers.values()]  # fmt: skip
    assert max(waits_ms) < 1_000.0
