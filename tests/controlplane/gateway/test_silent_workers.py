"""A worker that is stopped, and closes no connection, gets no queries until it is heard again."""

import asyncio
import logging
import re
import signal
import time

import pytest

from controlplane.gateway.connected_workers import CONFIRM_S
from tests.controlplane.serving import FAST, Served, query, until
from variants.types import WorkerId

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
SHORT = {"latency_ms": 200}


async def test_a_stopped_worker_gets_no_queries_until_it_goes_on(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "controlplane.gateway.connected_workers")
    await served.process("w1", FAST)
    stopped = await served.process("w2", FAST)
    known, end_s = served.gateway.known.workers, time.monotonic() + PATIENCE_S

    stopped.send_signal(signal.SIGSTOP)
    while not known.silent and time.monotonic() < end_s:
        await served.ask(query(1, slo=SHORT))
    assert known.silent == {"w2"}
    there = {row["worker"]: row for row in served.gateway.known.seen_workers()}
    assert there["w1"]["silent_s"] is None
    assert there["w2"]["silent_s"] > 0
    answers = [await served.ask(query(number)) for number in range(20)]
    assert {answer.json["worker"] for answer in answers} == {"w1"}
    assert [worker.view.id for worker, _ in known.sparing(())] == ["w1"]

    stopped.send_signal(signal.SIGCONT)
    await until(lambda: not known.silent)
    begun, over = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"worker w2 has said nothing for \d+\.\d s: queries go to others .*", begun)
    assert over == "worker w2 says something again: it gets queries as before"
    workers: set[str] = set()
    while len(workers) < 2 and time.monotonic() < end_s:
        workers.add((await served.ask(query(2))).json["worker"])
    assert workers == {"w1", "w2"}


async def test_queries_that_a_stopped_worker_does_not_run_are_answered_by_another(
    served: Served,
) -> None:
    await served.process("w1", FAST, ledger=True)
    stopped = await served.process("w2", FAST, ledger=True)
    stopped.send_signal(signal.SIGSTOP)

    answers = await asyncio.gather(*(served.ask(query(number)) for number in range(20)))
    stopped.send_signal(signal.SIGCONT)

    assert [answer.status for answer in answers] == [200] * 20
    assert {answer.json["worker"] for answer in answers} == {"w1"}
    assert served.in_flight == 0


async def test_the_only_worker_is_asked_though_it_says_nothing(served: Served) -> None:
    stopped = await served.process("w1", FAST, ledger=True)
    stopped.send_signal(signal.SIGSTOP)
    known = served.gateway.known.workers
    await until(lambda: bool(known.silent))

    refused = await served.ask(query(1, slo=SHORT))
    assert refused.error[:2] == (504, "DEADLINE_EXCEEDED")
    told = "not answered within 200 ms: the worker that would answer has said nothing for "
    assert refused.json["error"].startswith(told)
    waiting = asyncio.create_task(served.ask(query(2)))
    await until(lambda: served.in_flight == 1)
    stopped.send_signal(signal.SIGCONT)
    assert (await waiting).status == 200


async def test_a_gateway_that_was_held_up_itself_blames_nobody(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.process("w1", FAST)
    known = served.gateway.known.workers
    known.suspect(WorkerId("w1"))
    await asyncio.sleep(0)  # it is asked
    time.sleep(3 * CONFIRM_S)  # noqa: ASYNC251 -- and has answered long before this ends
    await asyncio.sleep(CONFIRM_S)
    assert not known.silent
    assert "says nothing" not in caplog.text
