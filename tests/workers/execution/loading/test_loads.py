"""Loads that hang or fail, and what is left of them."""

import asyncio
import gc
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from weakref import ref

import pytest

from planner.latency_table import LatencyTable
from tests.workers.builders import echo_spec, until, vid
from tests.workers.execution.loading.asking import ask, half
from tests.workers.gated import Gates
from variants.errors import Internal, VariantNotLoadable
from variants.registry import Entry
from variants.types import VariantName
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.process.quarantine import CrashLedger
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec, ReplyCode


async def test_the_longest_batch_holds_for_the_worker_until_another_is_told(
    loading: Loading,
) -> None:
    """Batches of 4 are predicted to take 14 ms, whatever a busy machine makes of them."""
    executor = loading.executor
    wide = echo_spec(options={"latency_ms": "10"}, latency=((1, 10.0), (8, 20.0)))
    await loading.load(replace(wide, longest_batch_ms=15.0))
    queue = executor.replicas[vid(wide)].queue

    async def longest() -> int:
        executor.queue.replan(queue, LatencyTable(wide.latency), 0.0)
        executor.queue.correct(queue, 1.0)
        for _ in range(20):
            ask(executor, wide)
        found = queue.limit
        await executor.quiet()
        return found

    assert await longest() == 4
    await loading.load(wide)
    assert await longest() == 4
    await loading.load(replace(wide, longest_batch_ms=0.0))
    assert await longest() == 8


async def test_a_query_that_waited_for_a_load_is_forgotten_once_it_is_answered(
    loading: Loading,
) -> None:
    executor, spec = loading.executor, half("slow", load_s="0.05")
    load = asyncio.create_task(loading.load(spec))
    await until(lambda: executor.replicas)
    answers = ask(executor, spec)
    await load
    await executor.quiet()
    assert answers.codes == [ReplyCode.OK]
    ask(executor, spec)  # the runtime's thread keeps its last batch
    await executor.quiet()
    kept = ref(answers)
    del answers
    gc.collect()
    assert kept() is None


def illness(loading: Loading) -> str:
    try:
        loading.check()
    except Internal as error:
        return error.message
    return ""


async def test_a_load_that_hangs_is_no_good_health(gates: Gates) -> None:
    ledger = CrashLedger("")
    loading = Loading(Executor(ledger), ledger, 100.0, 1, stuck_s=0.05)
    slow = replace(half("slow"), load_s=0.0, runtime="gated")
    gates.loads.clear()
    load = asyncio.create_task(loading.load(slow))
    await until(lambda: illness(loading))
    assert re.fullmatch("task/slow has been loading for [0-9]+ s", illness(loading))
    gates.loads.set()
    await load
    assert illness(loading) == ""
    loading.shutdown()


async def test_closing_that_hangs_is_no_good_health_and_blamed(
    gates: Gates, tmp_path: Path
) -> None:
    ledger = CrashLedger(str(tmp_path))
    ledger.open()
    loading = Loading(Executor(ledger), ledger, 100.0, 1, stuck_s=0.05)
    await loading.load(replace(half("slow"), load_s=0.0, runtime="gated"))
    gates.closes.clear()
    unload = asyncio.create_task(loading.unload("task", "slow"))
    await until(lambda: illness(loading))
    assert re.fullmatch("task/slow has been closing for [0-9]+ s", illness(loading))
    assert len(ledger.crashes_s(vid(half("slow")).to_bytes(8, "big"))) == 1, "once, not each time"
    gates.closes.set()
    assert await unload
    assert illness(loading) == ""
    loading.shutdown()
    ledger.close()


class Odd:
    """A runtime that raises on its first run what no runtime should."""

    open = 0

    def __init__(self, spec: LoadSpec, threads: int) -> None:
        pass

    def load(self) -> None:
        Odd.open += 1

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        raise ZeroDivisionError("odd")

    def close(self) -> None:
        Odd.open -= 1


async def test_whatever_a_first_run_raises_the_memory_is_given_back(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workers.runtimes.registry.RUNTIMES", {"odd": Entry(target=f"{__name__}:Odd")}
    )
    with pytest.raises(VariantNotLoadable, match="ZeroDivisionError"):
        await loading.load(replace(half("odd"), runtime="odd"))
    assert (Odd.open, loading.reserved_mib) == (0, 0.0)


async def test_how_long_loads_take_here_is_what_later_ones_are_expected_to_take() -> None:
    """The first load of a runtime imports it, so it is held against another number."""
    executor = Executor(CrashLedger(""))
    executor.start()
    loading = Loading(executor, CrashLedger(""), 1_000.0, 1)
    await loading.load(echo_spec(load_s=9.0, cold_load_s=39.0))
    assert loading.thread.profiled_s == 39.0
    assert executor.usage.load_pace == 2.0**-3  # it took a moment

    for name in "ab":
        await loading.load(echo_spec(variant=VariantName(name), load_s=9.0, cold_load_s=39.0))
    assert loading.thread.profiled_s == 57.0
    [resident, *_] = loading.room.residents(executor.replicas.values(), time.monotonic())
    assert resident.load_s == 9.0 * 2.0**-4
