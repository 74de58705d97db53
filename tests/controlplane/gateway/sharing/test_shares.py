"""Queries of a task that shares answers, through a real gateway and real workers."""

import asyncio
import os
import signal
from dataclasses import replace
from typing import Any

from controlplane.gateway.sharing.shared_flight import SharedFlight
from tests.controlplane.serving import (
    DOUBLE,
    FAST,
    FIELDS,
    LATE,
    SLOW,
    TASK,
    Answer,
    Served,
    post,
    query,
    until,
)  # fmt: skip
from tests.variants.catalog_builders import set_sharing
from variants.types import ModelName, Sharing, Stage

HIT, COLLAPSED, MISS = "hit", "modelless; fwd=miss; collapsed", "modelless; fwd=miss"


async def share(served: Served, ttl_s: float = 3_600.0, memory_mib: float = 64.0) -> None:
    sharing = Sharing(ttl_s=ttl_s, memory_mib=memory_mib)
    set_sharing(served.gateway.catalog, TASK.name, sharing)
    await until(lambda: served.gateway.path.tasks[TASK.name].sharing == sharing)


def status(answer: Answer) -> str:
    """What the header says, without the time that a kept answer has left."""
    assert answer.status == 200, answer.body
    said = answer.headers.get("cache-status", "")
    return HIT if said.startswith("modelless; hit; ttl=") else said


def rows_run(served: Served, variant: str) -> int:
    counted = served.gateway.path.counters.task(TASK.name).variants.get(variant)
    return 0 if counted is None else sum(int(rows) for rows, _ in counted.batches.values())


async def test_without_leave_every_query_is_run(served: Served) -> None:
    await served.worker("w1", FAST)
    answers = [await served.ask(query(1)) for _ in range(3)]
    assert [status(answer) for answer in answers] == [""] * 3
    assert rows_run(served, FAST) == 3


async def test_an_answer_is_given_again_and_says_so(served: Served) -> None:
    await served.worker("w1", FAST)
    await share(served)
    first, again, other = [await served.ask(query(n, 5)) for n in (1, 1, 2)]
    assert [status(answer) for answer in (first, again, other)] == [MISS, HIT, MISS]
    assert again.headers["x-choice-reason"] == "cached"
    made, body = first.json, again.json
    assert list(body) == [*FIELDS, "outputs", "labels", "scores"]
    nothing = {"queue_ms": 0.0, "run_ms": 0.0, "cost_usd_per_1k": 0.0}
    assert body == made | nothing
    assert rows_run(served, FAST) == 2


async def test_equal_queries_in_flight_share_one_run(served: Served) -> None:
    await served.worker("w1", LATE)
    await share(served, ttl_s=0.0)
    answers = await asyncio.gather(*(served.ask(query(3, variant=LATE)) for _ in range(20)))
    said = sorted(map(status, answers))
    assert said == sorted([MISS] + [COLLAPSED] * 19)
    assert {tuple(answer.json["outputs"][0]) for answer in answers} == {(3, 0, 0, 0)}
    costs = {status(answer): answer.json["cost_usd_per_1k"] for answer in answers}
    assert costs[MISS] > costs[COLLAPSED] == 0.0
    assert rows_run(served, LATE) == 1
    assert served.in_flight == 0
    # Nothing is kept for no time.
    assert status(await served.ask(query(3, variant=LATE))) == MISS


async def test_only_what_suits_is_given_again(served: Served) -> None:
    await served.worker("w1", FAST, SLOW, DOUBLE)
    await share(served)

    async def asked(**changes: Any) -> tuple[str, str]:
        answer = await served.ask(query(1, **{"variant": None, **changes}))
        return status(answer), answer.json["variant"]

    assert await asked() == (MISS, FAST)
    assert await asked(slo={"accuracy": 0.95}) == (MISS, DOUBLE)
    assert await asked(slo={"accuracy": 0.99}) == (MISS, SLOW)
    # From now on there are three, and the most accurate suits every floor.
    assert await asked() == (HIT, SLOW)
    assert await asked(slo={"accuracy": 0.95, "cost": 1e-9}) == (HIT, SLOW)
    assert await asked(variant=DOUBLE) == (HIT, DOUBLE)
    assert await asked(slo={"prefer": "accuracy"}) == (HIT, SLOW)


async def test_who_prefers_accuracy_gets_no_less_than_a_run_would_give(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    await share(served)
    assert (await served.ask(query(1))).json["variant"] == FAST
    asked = query(1, variant=None, slo={"prefer": "accuracy"})
    answers = [await served.ask(asked) for _ in range(2)]
    assert [(status(one), one.json["variant"]) for one in answers] == [(MISS, SLOW), (HIT, SLOW)]


async def test_a_retired_variant_answers_no_more(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    await share(served)
    asked = query(1, variant=None)
    assert [(await served.ask(asked)).json["variant"] for _ in range(2)] == [FAST, FAST]
    served.gateway.catalog.set_stage([TASK.name], ModelName("fast"), 1, Stage.RETIRED)
    await until(lambda: FAST in served.gateway.path.snapshot.tasks[TASK.name].excluded)
    after = await served.ask(asked)
    assert (status(after), after.json["variant"]) == (MISS, DOUBLE)
    # It comes back with nothing of what it once answered.
    served.gateway.catalog.set_stage([TASK.name], ModelName("fast"), 1, Stage.LIVE)
    await until(lambda: FAST not in served.gateway.path.snapshot.tasks[TASK.name].excluded)
    assert status(await served.ask(query(1))) == MISS


async def test_what_a_lost_revision_answered_is_not_kept(served: Served) -> None:
    """The database went back while the query ran: another revision has the number of that one."""
    await served.worker("w1", FAST, LATE)
    await share(served)
    path = served.gateway.path
    running = asyncio.create_task(served.ask(query(1, variant=LATE)))
    await until(lambda: path.counters.in_flight == 1)
    path.snapshot = replace(path.snapshot, mark="of another one")
    assert (await running).status == 200
    assert status(await served.ask(query(1, variant=LATE))) == MISS
    assert status(await served.ask(query(1, variant=LATE))) == HIT


async def test_a_canary_answers_those_that_name_it(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    served.gateway.catalog.set_stage([TASK.name], ModelName("slow"), 1, Stage.CANARY)
    await share(served)
    assert status(await served.ask(query(1, variant=SLOW))) == MISS
    after = await served.ask(query(1, variant=None))
    assert (status(after), after.json["variant"]) == (MISS, FAST)
    assert status(await served.ask(query(1, variant=SLOW))) == HIT


async def test_leave_is_taken_back(served: Served) -> None:
    await served.worker("w1", FAST)
    await share(served)
    assert [status(await served.ask(query(1))) for _ in range(2)] == [MISS, HIT]
    set_sharing(served.gateway.catalog, TASK.name, None)
    await until(lambda: served.gateway.path.tasks[TASK.name].sharing is None)
    assert status(await served.ask(query(1))) == ""
    await share(served)
    assert status(await served.ask(query(1))) == MISS


async def test_who_waits_keeps_a_deadline_of_its_own(served: Served) -> None:
    """The one that runs gives up after 60 ms, the worker takes 150."""
    await served.worker("w1", LATE)
    await share(served)
    asked = query(1, variant=LATE)
    first = asyncio.create_task(served.ask({**asked, "slo": {"latency_ms": 60}}))
    await until(lambda: served.in_flight == 1)
    waiting = await asyncio.gather(*(served.ask(asked) for _ in range(5)))
    assert (await first).error[:2] == (504, "DEADLINE_EXCEEDED")
    assert sorted(map(status, waiting)) == sorted([MISS] + [COLLAPSED] * 4)
    assert served.in_flight == 0


async def test_who_has_less_time_waits_for_nobody(served: Served) -> None:
    await served.worker("w1", LATE)
    await share(served)
    asked = query(1, variant=LATE)
    first = asyncio.create_task(served.ask(asked))
    await until(lambda: served.in_flight == 1)
    hasty = await served.ask({**asked, "slo": {"latency_ms": 30_000}})
    assert (status(hasty), status(await first)) == (MISS, MISS)


async def test_a_client_that_goes_away_takes_nobody_along(served: Served) -> None:
    await served.worker("w1", LATE)
    await share(served)
    asked = query(1, variant=LATE)
    leaving = await served.client()
    leaving.send(post(asked))
    await until(lambda: served.in_flight == 1)
    staying = asyncio.create_task(served.ask(asked))
    await until(lambda: served.in_flight == 2)
    leaving.close()
    assert status(await staying) == COLLAPSED
    assert rows_run(served, LATE) == 0  # that of who has left counts for nobody
    counted = served.gateway.path.counters.task(TASK.name)
    assert counted.errors == {"CLIENT_GONE": 1}
    assert counted.variants[LATE].met == counted.variants[LATE].collapsed == 1
    assert served.in_flight == 0
    assert status(await served.ask(asked)) == HIT


async def test_who_waits_for_anothers_run_and_has_left_is_not_answered(served: Served) -> None:
    """Nor kept until that run ends."""
    await served.worker("w1", LATE)
    await share(served)
    before = [asyncio.create_task(served.ask(rows(8, n))) for n in range(10, 18)]
    await until(lambda: served.in_flight == 8)
    running = asyncio.create_task(served.ask(rows(8, 1)))
    await until(lambda: served.in_flight == 9)
    flights = [one for one in served.gateway.path.guard if isinstance(one, SharedFlight)]
    [run] = [one for one in flights if one.parsed.tensors[0][0, 0] == 1]
    leaving = await served.client()
    leaving.send(post(rows(8, 1)))
    await until(lambda: len(run.joined) == 1)
    leaving.close()
    await until(lambda: not run.joined)
    counted = served.gateway.path.counters.task(TASK.name)
    assert (counted.errors, run.done) == ({"CLIENT_GONE": 1}, False)
    assert status(await running) == MISS
    assert {status(answer) for answer in await asyncio.gather(*before)} == {MISS}
    assert counted.variants[LATE].met == 9


def rows(count: int, value: float) -> dict[str, Any]:
    """A query of so many rows, which takes 150 ms."""
    asked = query(value, variant=LATE)
    return asked | {"inputs": asked["inputs"] * count}


async def test_a_failed_run_is_not_kept_and_ends_nobody_elses(served: Served) -> None:
    child = await served.process("w1", LATE)
    await share(served)
    os.kill(child.pid, signal.SIGSTOP)
    asked = query(1, variant=LATE)
    asking = [asyncio.create_task(served.ask(asked)) for _ in range(5)]
    await until(lambda: served.in_flight == 5)
    await served.worker("w2", LATE)
    child.kill()
    answers = await asyncio.gather(*asking)
    assert {answer.json["worker"] for answer in answers} == {"w2"}
    assert rows_run(served, LATE) == 1


async def test_nothing_is_kept_of_an_error(served: Served) -> None:
    child = await served.process("w1", LATE)
    await share(served)
    asking = [asyncio.create_task(served.ask(query(1, variant=LATE))) for _ in range(5)]
    await until(lambda: served.in_flight == 5)
    child.kill()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {503}
    assert served.in_flight == 0
    await served.worker("w2", LATE)
    assert status(await served.ask(query(1, variant=LATE))) == MISS


async def test_a_kept_answer_is_given_where_a_run_would_be_refused(served: Served) -> None:
    worker = await served.worker("w1", SLOW)
    await share(served)
    asked = query(1, variant=None)
    assert status(await served.ask(asked)) == MISS
    await worker.drain_and_stop(1.0)
    await until(lambda: not served.gateway.known.workers.statuses())
    assert (await served.ask(query(2, variant=None))).status == 503
    assert status(await served.ask(asked)) == HIT


async def test_an_answer_is_encoded_as_it_is_asked_for(served: Served) -> None:
    await served.worker("w1", FAST)
    await share(served)
    await served.ask(query(1, 5, 2))
    data = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 5, 2, 0]}
    classes = {"name": "y", "parameters": {"classification": 2}}
    path = "/v2/models/letters/infer"
    plain = await served.ask({"inputs": [data], "id": "seven"}, path=path)
    best = await served.ask({"inputs": [data], "outputs": [classes]}, path=path)
    assert [status(answer) for answer in (plain, best)] == [HIT, HIT]
    assert (plain.json["id"], plain.json["outputs"][0]["data"]) == ("seven", [1, 5, 2, 0])
    assert best.json["outputs"][0]["data"] == ["5.000000:1:b", "2.000000:2:c"]
    # The same row in another type is the same input once it is read.
    narrow = {**data, "datatype": "INT8"}
    assert status(await served.ask({"inputs": [narrow]}, path=path)) == HIT


async def test_statistics_count_hits_apart_from_what_was_run(served: Served) -> None:
    await served.worker("w1", FAST)
    await share(served)
    for _ in range(4):
        await served.ask(query(1))
    (row,) = [
        one
        for one in (await served.get("/v2/models/letters/stats")).json["model_stats"]
        if one["variant"] == FAST
    ]
    assert (row["inference_count"], row["execution_count"]) == (1, 1)
    counts = {name: one["count"] for name, one in row["inference_stats"].items()}
    assert counts == {
        "success": 4, "fail": 0, "queue": 1, "compute_input": 1, "compute_infer": 1,
        "compute_output": 1, "cache_hit": 3, "cache_miss": 1,
    }  # fmt: skip
    assert row["inference_stats"]["cache_hit"]["ns"] > 0
    config = (await served.get("/v2/models/letters/config")).json
    assert config["response_cache"] == {"enable": True}


async def test_metrics_say_what_is_kept(served: Served) -> None:
    await served.worker("w1", FAST)
    await share(served)
    for n in (1, 1, 2):
        await served.ask(query(n))
    kept = served.gateway.path.counters.task(TASK.name)
    await until(lambda: kept.cache is not None and kept.cache.answers == 2)
    text = (await served.get("/metrics")).body.decode()
    of = f'{{task="letters",variant="{FAST}"}}'
    assert f"modelless_cache_hits_total{of} 1.0" in text
    assert f"modelless_cache_misses_total{of} 2.0" in text
    assert 'modelless_cache_answers{task="letters"} 2.0' in text
    size = next(line for line in text.splitlines() if line.startswith("modelless_cache_bytes{"))
    assert float(size.split()[1]) > 2 * 16


async def test_answers_from_memory_are_no_demand(served: Served) -> None:
    """Plans are made for what has to be run."""
    await served.worker("w1", FAST)
    await share(served)
    served.gateway.path.demand.take()
    demanded = served.gateway._report.make()["demand"]
    before = sum(demanded.values())
    for _ in range(5):
        await served.ask(query(1))
    served.gateway._report.make()
    assert sum(demanded.values()) - before == 1
