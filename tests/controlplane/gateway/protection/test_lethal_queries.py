"""Queries that end their worker, with real workers in processes of their own."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from controlplane.gateway.protection.lethal_queries import (
    ANSWERED,
    MOST,
    SURE_MS,
    UNSURE_MS,
    LethalQueries,
)
from controlplane.load_specs import Specs
from tests.controlplane.serving import KIND, TASK, Known, Served, post, query, serving, until
from variants.types import WorkerId
from workers.process.last_batch import IDLE, Evidence
from workers.process.slot import ENTRY_BYTES
from workers.runtimes.protocol import Tensor

CRASHING = "crash-v1-echo-fp32"
EXITING = "exit-v1-echo-fp32"
LONG = "long-v1-echo-fp32"
LETHAL = 13.0
ROWS = [[1.0, 2.0, 3.0, 4.0]] * 8
KNOWN = (
    Known(name=CRASHING, accuracy=0.9, p95_ms=1.0, options={"crash_value": "13"}),
    Known(name=EXITING, accuracy=0.9, p95_ms=1.0, options={"exit_value": "13"}),
    Known(name=LONG, accuracy=0.9, p95_ms=1.0, options={"latency_ms_per_row": "800"}),
)

# -- the memory -----------------------------------------------------------------------------------


def content(value: float) -> list[Tensor]:
    return [np.full((1, 4), value, np.float32)]


def blocked_ms(memory: LethalQueries, value: float, now_ms: float, variant: str = "v") -> float:
    return memory.blocked_ms("t", variant, content(value), now_ms)


def test_alone_in_its_batch_a_query_is_blocked_at_once_and_for_its_variant() -> None:
    memory = LethalQueries()
    assert memory.lost("t", "v", content(1), 1, Evidence.CRASHED, 0.0)
    assert blocked_ms(memory, 1, 1_000.0) == SURE_MS - 1_000.0
    assert blocked_ms(memory, 2, 1_000.0) == 0.0
    assert blocked_ms(memory, 1, 1_000.0, "w") == 0.0
    assert blocked_ms(memory, 1, SURE_MS) == 0.0
    assert not memory.suspected


def test_without_evidence_it_is_blocked_for_a_shorter_time() -> None:
    memory = LethalQueries()
    memory.lost("t", "v", content(1), 1, Evidence.NONE, 0.0)
    assert blocked_ms(memory, 1, 0.0) == UNSURE_MS
    memory.lost("t", "v", content(1), 1, Evidence.NONE, 10.0)  # another one that was under way
    assert blocked_ms(memory, 1, 10.0) == SURE_MS


def test_in_company_it_takes_two() -> None:
    memory = LethalQueries()
    memory.lost("t", "v", content(1), 5, Evidence.CRASHED, 0.0)
    assert blocked_ms(memory, 1, 1.0) == 0.0
    memory.lost("t", "v", content(1), 3, Evidence.CRASHED, 1.0)
    assert blocked_ms(memory, 1, 1.0) == SURE_MS


def test_what_is_answered_is_forgiven_and_needs_evidence_from_then_on() -> None:
    memory = LethalQueries()
    memory.lost("t", "v", content(1), 2, Evidence.CRASHED, 0.0)
    memory.answered("t", "v", content(1))
    assert not memory.suspected
    assert not memory.lost("t", "v", content(1), 1, Evidence.NONE, 0.0)
    assert memory.lost("t", "v", content(1), 1, Evidence.OUT_OF_MEMORY, 0.0)


def test_it_is_bounded() -> None:
    memory = LethalQueries()
    for value in range(MOST + 10):
        memory.lost("t", "v", content(value), 1, Evidence.CRASHED, 0.0)
        memory.answered("t", "w", content(value))
    assert blocked_ms(memory, 9, 1.0) == 0.0
    assert blocked_ms(memory, 10, 1.0) > 0.0
    assert (len(memory._strikes), len(memory._answered)) == (MOST, MOST // 16)
    assert len(memory._answered) < ANSWERED


# -- with workers ---------------------------------------------------------------------------------


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url, known=KNOWN) as running:
        yield running


def alive(*children: asyncio.subprocess.Process) -> int:
    return sum(child.returncode is None for child in children)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [CRASHING, EXITING])
async def test_a_query_that_ends_its_worker_ends_no_other(served: Served, variant: str) -> None:
    children = [await served.process(name, variant, ledger=True) for name in ("w1", "w2")]
    assert (await served.ask(query(1, variant=variant))).status == 200
    status, code, text = (await served.ask(query(LETHAL, variant=variant))).error
    assert (status, code) == (503, "REPLICA_LOST")
    assert "not tried again elsewhere" in text
    await until(lambda: alive(*children) == 1)
    for _ in range(3):
        status, code, text = (await served.ask(query(LETHAL, variant=variant))).error
        assert (status, code) == (400, "INVALID_INPUT")
        assert text.startswith("a worker was lost while it ran exactly this query on variant")
    assert (await served.ask(query(2, variant=variant))).status == 200
    assert alive(*children) == 1
    assert served.gateway.path.counters.retries == {}
    text = (await served.get("/metrics")).body.decode()
    assert 'modelless_queries_blocked_total{task="letters"} 3.0' in text
    assert (await served.ask(query(1, variant="unknown"))).error[1] == "NOT_FOUND"
    counted = served.gateway.path.counters.task("letters").errors_by_fault()
    assert counted == {"REPLICA_LOST": 1, "INVALID_INPUT": 0, "BLOCKED": 3, "NOT_FOUND": 1}


def runs(page: Path) -> bool:
    """Whether the worker whose page it is runs a batch."""
    return page.read_bytes()[:ENTRY_BYTES] != IDLE


async def load(served: Served, worker: str) -> None:
    """Load the long one on a worker that is connected."""
    connected = served.gateway.known.workers[WorkerId(worker)]
    specs = Specs(served.gateway.catalog.snapshot(), served.gateway.store)
    await connected.connection.load(specs.of(TASK.name, LONG, KIND.name), 60.0)
    await until(lambda: (TASK.name, LONG) in connected.ready)


@pytest.mark.slow
async def test_what_had_not_begun_is_tried_elsewhere(served: Served) -> None:
    first = await served.process("w1", LONG, ledger=True)
    await served.process("w2", ledger=True)
    page = Path(served.gateway.known.workers[WorkerId("w1")].connection.status.page)
    running, waiting = await served.client(), await served.client()
    running.send(post(query(variant=LONG, inputs=ROWS)))
    await until(lambda: runs(page))
    waiting.send(post(query(2, variant=LONG)))
    await until(lambda: served.in_flight == 2)
    await load(served, "w2")
    os.kill(first.pid, signal.SIGKILL)
    assert (await running.answer()).error[:2] == (503, "REPLICA_LOST")
    assert (await waiting.answer()).json["worker"] == "w2"
    assert served.gateway.path.counters.retries == {"lost": 1}


@pytest.mark.slow
async def test_what_was_answered_lately_is_tried_elsewhere_when_somebody_kills_the_worker(
    served: Served,
) -> None:
    first = await served.process("w1", LONG, ledger=True)
    await served.process("w2", ledger=True)
    page = Path(served.gateway.known.workers[WorkerId("w1")].connection.status.page)
    tensors: list[Tensor] = [np.array(ROWS, np.float32)]
    for _ in range(16):
        served.gateway.path.lethal.answered("letters", LONG, tensors)
    client = await served.client()
    client.send(post(query(variant=LONG, inputs=ROWS)))
    await until(lambda: runs(page))
    await load(served, "w2")
    os.kill(first.pid, signal.SIGKILL)
    assert (await client.answer()).json["worker"] == "w2"
