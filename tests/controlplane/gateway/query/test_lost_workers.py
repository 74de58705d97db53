"""Queries to workers that hang, die, leave, or are not there."""

import asyncio
import os
import signal
from typing import Any

import pytest

from controlplane.gateway.query.query_errors import worker_error
from planner.types import Query
from tests.controlplane.serving import FAST, KIND, LATE, TASK, Served, infer, query, until
from variants.types import DeviceKindName, TaskName
from workers.channel.reply import SILENT, lost_reply
from workers.types import ReplyCode


async def test_a_worker_that_hangs_is_not_waited_for(served: Served) -> None:
    child = await served.process("w1", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    for best_effort in (False, True):
        answer = await served.ask(query(slo={"latency_ms": 50}, best_effort=best_effort))
        assert answer.error == (504, "DEADLINE_EXCEEDED", "not answered within 50 ms")
    assert served.in_flight == 0
    os.kill(child.pid, signal.SIGCONT)
    assert (await served.ask(query(6))).json["outputs"] == [[6, 0, 0, 0]]


async def test_once_a_worker_hangs_the_next_queries_go_elsewhere(served: Served) -> None:
    child = await served.process("w1", FAST)
    await served.worker("w2", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    asked = (query(n, slo={"latency_ms": 3_000}) for n in range(20))
    crowd = await asyncio.gather(*map(served.ask, asked))
    assert {answer.status for answer in crowd} == {200, 504}
    # It is expected to take another three seconds.
    answers = await asyncio.gather(*(served.ask(query(n)) for n in range(10)))
    assert [answer.json["worker"] for answer in answers] == ["w2"] * 10
    os.kill(child.pid, signal.SIGCONT)


def test_what_failed_at_a_worker_is_not_told_to_whom_it_refuses() -> None:
    asked = Query(TaskName("letters"), 1, 0.0, 50.0)
    why = "2 batches failed in a row; the last: letters/v failed: KeyError: 'secret'"
    error = worker_error(ReplyCode.QUARANTINED, why, asked, None)
    assert (error.code, error.retryable) == ("OVERLOADED", True)
    assert "secret" not in error.message
    assert "quarantine" in error.message


def test_a_worker_that_does_not_answer_is_not_called_lost() -> None:
    asked = Query(TASK.name, 1, 0.0, 50.0)
    silent = worker_error(ReplyCode.LOST, SILENT, asked, None)
    lost = worker_error(ReplyCode.LOST, "closed", asked, None)
    assert str(silent) == "the worker does not answer"
    assert str(lost) == "the worker was lost while it answered"


async def test_without_workers_it_says_so_and_when_one_is_expected(served: Served) -> None:
    answer = await served.ask(query(variant=None))
    status, code, message = answer.error
    assert (status, code, answer.json["retryable"]) == (503, "NO_WORKERS", True)
    assert message.startswith("no worker that could answer is running: 1 of cpu-")
    assert 5 <= answer.json["retry_after_s"] <= 6
    assert answer.headers["retry-after"] == "6"


async def test_scaled_to_none_nobody_knows_when_to_come_back(served: Served) -> None:
    for kind in (served.gateway.settings.kinds[0].name, KIND.name):
        served.gateway.catalog.set_inventory(DeviceKindName(kind), 0)
    await until(lambda: served.gateway.path.snapshot.wanted.kinds() == [])
    for path in ("/v1/query", "/v2/models/letters/infer"):
        answer = await served.ask(query(variant=None) if "v1" in path else infer(), path=path)
        assert answer.error == (
            503,
            "NO_WORKERS",
            "no worker is running and none is wanted: every device kind is scaled to 0 workers",
        )
        assert answer.json["retryable"] is True
        assert "retry-after" not in answer.headers
        assert "retry_after_s" not in answer.json


async def test_the_query_of_a_killed_worker_is_answered_by_another(served: Served) -> None:
    child = await served.process("w1", LATE)
    os.kill(child.pid, signal.SIGSTOP)  # it will not answer
    asked = query(5, variant=LATE, slo={"latency_ms": 30_000})
    asking = asyncio.create_task(served.ask(asked))
    await until(lambda: served.in_flight == 1)
    await served.worker("w2", LATE)
    os.kill(child.pid, signal.SIGKILL)
    answer = await asking
    assert (answer.json["worker"], answer.json["outputs"]) == ("w2", [[5, 0, 0, 0]])
    assert served.gateway.path.counters.retries == {"lost": 1}
    assert served.in_flight == 0


async def test_the_query_of_a_killed_worker_is_lost_when_there_is_no_other(served: Served) -> None:
    child = await served.process("w1", LATE)
    os.kill(child.pid, signal.SIGSTOP)  # it will not answer
    asking = asyncio.create_task(served.ask(query(variant=LATE, slo={"latency_ms": 5_000})))
    await until(lambda: served.in_flight == 1)
    os.kill(child.pid, signal.SIGKILL)
    status, code, _ = (await asking).error
    assert (status, code) == (503, "REPLICA_LOST")
    assert served.in_flight == 0
    await until(lambda: not served.gateway.known.workers)


async def test_a_query_is_tried_at_two_workers_and_no_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: one that ends its worker shall not end them all."""
    for name in ("w1", "w2", "w3", "w4"):
        await served.worker(name, FAST)
    tried: list[str] = []

    def lost_at(worker: str) -> Any:
        def infer(*asked: Any) -> int:
            tried.append(worker)
            asyncio.get_running_loop().call_soon(asked[4], lost_reply("closed"))
            return len(tried)

        return infer

    for worker, connection in served.gateway.path.connections.items():
        monkeypatch.setattr(connection, "infer", lost_at(worker))
    answer = await served.ask(query(1))
    assert answer.error[:2] == (503, "REPLICA_LOST")
    assert len(tried) == len(set(tried)) == 2


async def test_who_has_the_time_waits_for_the_worker_that_follows(served: Served) -> None:
    """Those that came before the last one was killed, and those that come after that."""
    served.gateway.catalog.set_inventory(KIND.name, 1)
    child = await served.process("w1", FAST)
    os.kill(child.pid, signal.SIGSTOP)
    asked = [query(row, variant=FAST, slo={"latency_ms": 30_000}) for row in (5, 6)]
    first = asyncio.create_task(served.ask(asked[0]))
    await until(lambda: served.in_flight == 1)
    os.kill(child.pid, signal.SIGKILL)
    await until(lambda: not served.gateway.known.workers)
    second = asyncio.create_task(served.ask(asked[1]))
    await until(lambda: len(served.gateway.path.awaiting) == 2)
    answer = await served.ask(query(variant=FAST, slo={"latency_ms": 500}))
    assert answer.error[:2] == (503, "NO_WORKERS")
    await served.worker("w2", FAST)
    answers = await asyncio.gather(first, second)
    assert [one.json["outputs"] for one in answers] == [[[5, 0, 0, 0]], [[6, 0, 0, 0]]]
    assert (served.in_flight, len(served.gateway.path.awaiting)) == (0, 0)


async def test_a_worker_that_does_not_come_is_waited_for_until_the_deadline(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("START_MS", "OVERDUE_MS"):
        monkeypatch.setattr(f"planner.worker_starts.{name}", 50.0)
    served.gateway.catalog.set_inventory(KIND.name, 1)
    await until(lambda: KIND.name in served.gateway.path.snapshot.wanted.kinds())
    answer = await served.ask(query(variant=FAST, slo={"latency_ms": 300}))
    assert answer.error == (
        504,
        "DEADLINE_EXCEEDED",
        "not answered within 300 ms: no worker that could answer was there, and the one being "
        "started took longer",
    )
    assert (served.in_flight, len(served.gateway.path.awaiting)) == (0, 0)


async def test_a_worker_that_leaves_sends_its_queries_elsewhere(served: Served) -> None:
    first = await served.worker("w1", FAST)
    await served.worker("w2", FAST)
    stopping = asyncio.create_task(first.drain_and_stop(1.0))
    answers = await asyncio.gather(*(served.ask(query(n)) for n in range(30)))
    await stopping
    assert [answer.json["outputs"][0][0] for answer in answers] == list(range(30))
