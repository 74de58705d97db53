"""A gateway keeps queries from a worker that is slowed, and asks it again later."""

import asyncio
import logging
import time
from collections.abc import Generator, Iterable, Sequence

import pytest

from planner.slow_workers import Episode, SlowWorkers, WorkerTimes
from planner.types import Choice, Query, Refusal, RefusalCode
from tests.controlplane.serving import FAST, TASK, Served, query
from variants.types import VariantName, WorkerId
from workers.host import WorkerHost
from workers.runtimes.protocol import Runtime, Tensor

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


class Slowed:
    """A runtime that takes 20 ms longer while it is told to."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.by_s = 0.02

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        time.sleep(self.by_s)
        return self.runtime.run(inputs)

    def __getattr__(self, name: str) -> object:
        return getattr(self.runtime, name)


def slowed(host: WorkerHost) -> Slowed:
    assert host._executor is not None
    (replica,) = host._executor.replicas.values()
    assert replica.runtime is not None
    made = Slowed(replica.runtime)
    replica.runtime = made  # type: ignore[assignment]
    return made


async def who_answers(served: Served) -> str:
    answer = await served.ask(query(1, 2, 3, 4))
    assert answer.status == 200
    return str(answer.json["worker"])


async def test_a_worker_that_is_slowed_gets_no_queries_until_it_is_as_quick_again(
    served: Served,
) -> None:
    hosts = {name: await served.worker(name, FAST) for name in ("w1", "w2")}
    slow = slowed(hosts["w2"])
    known, end_s = served.gateway.known, time.monotonic() + PATIENCE_S

    while not known.slow.spared and time.monotonic() < end_s:
        await who_answers(served)
    assert known.slow.spared.keys() == {"w2"}
    told = {row["worker"]: (row["slowness"], row["spared"]) for row in known.seen_workers()}
    assert told == {"w1": (None, False), "w2": (known.slow.spared[WorkerId("w2")], True)}
    assert {await who_answers(served) for _ in range(20)} == {"w1"}

    slow.by_s = 0.0
    while await who_answers(served) != "w2" and time.monotonic() < end_s:
        pass
    assert await who_answers(served) in ("w1", "w2")
    assert not known.slow.spared


class Told(SlowWorkers):
    """One worker's episode has begun and another one's is over, at each look."""

    def looking(self, now_s: float, reports: Iterable[WorkerTimes]) -> Generator[None, None, bool]:
        changed = yield from super().looking(now_s, reports)
        self.begun = {WorkerId("w1"): Episode(2.94, 0.0, 0, 0.0)}
        self.ended = {WorkerId("w2"): Episode(5.21, 83.4, 3, 28.0)}
        return changed


async def test_that_a_worker_is_slow_is_logged_as_it_begins_and_with_counts_when_it_is_over(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.worker("w1", FAST)
    known = served.gateway.known
    known.slow = Told()
    caplog.set_level(logging.INFO, "controlplane.gateway.knowledge")
    for _ in known.refresh_latencies(0.0):
        pass
    assert caplog.messages == [
        "w1 takes 2.9 times as long as others of its kind: queries go elsewhere while these have "
        "time, and it is asked again later and later",
        "w2 no longer counts as slower than others of its kind: within 83 s it took up to 5.2 "
        "times as long, and queries were kept from it 3 times, for 28 s in all",
    ]
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]
    caplog.clear()
    for _ in known.refresh_latencies(70.0):
        pass
    assert [one.levelname for one in caplog.records] == ["INFO", "INFO"]  # it is no news


async def test_one_that_is_slow_answers_for_one_that_says_nothing(served: Served) -> None:
    for name in ("w1", "w2", "w3"):
        await served.worker(name, *([FAST] if name != "w3" else []))
    workers = served.gateway.known.workers

    def asked(*spared: str) -> dict[str, int]:
        of = {
            str(one.view.id): len(ready) for one, ready in workers.sparing([*map(WorkerId, spared)])
        }
        return {name: count for name, count in of.items() if name != "w3"}

    assert asked() == {"w1": 1, "w2": 1}
    assert asked("w2") == {"w1": 1, "w2": 0}
    workers.silent.add(WorkerId("w1"))
    assert asked() == {"w2": 1}
    assert asked("w2") == {"w2": 1}
    assert asked("w1", "w2") == {"w2": 1}


async def test_what_a_spared_worker_holds_is_not_loaded_there(served: Served) -> None:
    """Its queries are refused for the queue of the other one, and not as if they waited for it."""
    for name in ("w1", "w2"):
        await served.worker(name, FAST)
    known, path = served.gateway.known, served.gateway.path
    known.slow.spared = {WorkerId("w2"): 3.0}
    known.rebuild()
    now_ms = path.clock_ms()
    known.workers[WorkerId("w1")].view.busy_until_ms = now_ms + 1_000.0
    asked = Query(TASK.name, 1, now_ms, 100.0, variant=VariantName(FAST))

    refused = path.choose(asked, now_ms)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.load) == (RefusalCode.OVERLOADED, None)

    known.slow.spared = {}
    known.rebuild()
    chosen = path.choose(asked, now_ms)
    assert isinstance(chosen, Choice)
    assert chosen.worker.id == "w2"


async def test_the_only_one_that_holds_a_variant_answers_however_slow(served: Served) -> None:
    host = await served.worker("w1", FAST)
    await served.worker("w2")
    slowed(host)
    assert {await who_answers(served) for _ in range(20)} == {"w1"}


async def test_what_was_slow_once_answers_again_though_all_its_queries_were_refused(
    served: Served,
) -> None:
    """Nobody else holds it, and nothing but these queries could show that it is quick again."""
    slow = slowed(await served.worker("w1", FAST))
    slow.by_s, end_s = 0.045, time.monotonic() + PATIENCE_S
    tight = {"latency_ms": 25}

    answer = await served.ask(query(1))
    while answer.status != 422 and time.monotonic() < end_s:
        await served.ask(query(1))
        answer = await served.ask(query(1, slo=tight))
    assert answer.error[:2] == (422, "SLO_INFEASIBLE")

    slow.by_s, end_s = 0.0, time.monotonic() + PATIENCE_S
    while answer.status != 200 and time.monotonic() < end_s:
        await asyncio.sleep(0.2)
        answer = await served.ask(query(1, slo=tight))
    assert answer.status == 200
