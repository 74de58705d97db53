"""Making room for a load, without a socket."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest

from tests.workers.builders import echo_spec, row, until, vid
from variants.errors import Internal, Overloaded, RuntimeFailed
from variants.types import VariantName
from workers.executor import Executor
from workers.frames import HEADER, Chunk, infer_frame, layout_of, unpack_infer, unpack_reply
from workers.loading import Loading
from workers.quarantine import CrashLedger
from workers.runtime import RUNTIMES, Tensor
from workers.types import LoadSpec, ReplyCode


class Answers:
    """Keeps the codes of all replies."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def send(self, frame: bytes) -> None:
        self.codes.append(unpack_reply(frame)[2])

    def send_large(self, chunks: list[Chunk]) -> None:
        self.send(b"".join(chunks))


@pytest.fixture
async def loading() -> AsyncIterator[Loading]:
    """100 MiB in which everything may leave at once."""
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    made = Loading(executor, ledger, 100.0, 1, min_residency_s=0.0)
    yield made
    await executor.stop()
    made.shutdown()


def half(name: str, **options: str) -> LoadSpec:
    return replace(echo_spec(options=options), variant=VariantName(name), memory_mib=50.0)


def ask(executor: Executor, spec: LoadSpec) -> Answers:
    answers = Answers()
    frame = b"".join(infer_frame(1, vid(spec), 1, 10**6, row(1)))
    _, _, _, described, request_id, rows, variant, budget_us, _ = unpack_infer(frame)
    base = HEADER + described
    executor.submit(
        variant, rows, budget_us, layout_of(frame[HEADER:base]), frame, base, answers, request_id
    )
    return answers


def loaded(executor: Executor) -> set[str]:
    return {str(replica.spec.variant) for replica in executor.replicas.values()}


async def test_what_is_idle_leaves_for_an_on_demand_load(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("idle"))
    await loading.load(half("busy", latency_ms="50"))
    answers = ask(executor, half("busy"))
    await loading.load(half("new"), make_room=True)
    assert loaded(executor) == {"busy", "new"}
    assert loading.reserved_mib == 100.0
    await executor.quiet()
    assert answers.codes == [ReplyCode.OK]


async def test_what_left_and_came_back_is_no_stranger(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("often"))
    for _ in range(5):
        ask(executor, half("often"))
    await executor.quiet()
    await loading.unload("task", "often")
    await loading.load(half("once"))
    ask(executor, half("once"))
    await executor.quiet()
    await loading.load(half("often"))
    await loading.load(half("new"), make_room=True)
    assert loaded(executor) == {"often", "new"}


async def test_a_planned_load_evicts_nobody(loading: Loading) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    with pytest.raises(Overloaded, match=r"0\.0 MiB are free"):
        await loading.load(half("c"))


async def test_a_planned_load_waits_for_what_leaves_before_it(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("a"))
    await loading.load(half("busy", latency_ms="50"))
    answers = ask(executor, half("busy"))
    leaves = asyncio.create_task(loading.unload("task", "busy"))
    comes = asyncio.create_task(loading.load(half("new")))
    await until(lambda: vid(half("busy")) not in executor.replicas)
    assert answers.codes == [ReplyCode.OK]
    await asyncio.gather(leaves, comes)
    assert loaded(executor) == {"a", "new"}


async def test_a_load_that_needs_more_than_what_leaves_is_refused(loading: Loading) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    leaves = asyncio.create_task(loading.unload("task", "a"))
    await asyncio.sleep(0)  # now it is leaving
    with pytest.raises(Overloaded, match=r"50\.0 MiB are free"):
        await loading.load(replace(half("huge"), memory_mib=60.0))
    await leaves


async def test_a_pace_holds_for_the_worker_until_it_is_told_another(loading: Loading) -> None:
    """Batches of 8 take 20 ms: long enough for a busy machine to make no difference."""
    executor = loading.executor
    wide = echo_spec(options={"latency_ms": "10"}, latency=((1, 10.0), (8, 20.0)))
    await loading.load(replace(wide, pace_ms=15.0))
    lane = executor.replicas[vid(wide)].lane

    async def longest() -> int:
        for _ in range(20):
            ask(executor, wide)
        found = lane.limit
        await executor.quiet()
        return found

    assert await longest() == 4
    await loading.load(wide)
    assert await longest() == 4
    await loading.load(replace(wide, pace_ms=0.0))
    assert await longest() == 8


async def test_what_is_in_use_never_leaves(loading: Loading) -> None:
    executor = loading.executor
    for name in ("a", "b"):
        await loading.load(half(name, latency_ms="50"))
    for name in ("a", "b"):
        ask(executor, half(name))
    with pytest.raises(Overloaded):
        await loading.load(half("c"), make_room=True)
    assert loaded(executor) == {"a", "b"}
    await executor.quiet()


async def test_what_is_larger_than_the_worker_evicts_nobody(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("a"))
    with pytest.raises(Overloaded):
        await loading.load(replace(half("huge"), memory_mib=101.0), make_room=True)
    assert loaded(executor) == {"a"}
    assert np.isclose(loading.reserved_mib, 50.0)


async def test_what_is_unloaded_while_it_makes_room_leaves_once(loading: Loading) -> None:
    await loading.load(replace(half("old"), memory_mib=100.0))
    await asyncio.gather(loading.load(half("new"), make_room=True), loading.unload("task", "old"))
    assert loaded(loading.executor) == {"new"}


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


async def test_a_load_that_hangs_is_no_good_health() -> None:
    ledger = CrashLedger("")
    loading = Loading(Executor(ledger), ledger, 100.0, 1, stuck_s=0.05)
    slow = replace(half("slow", load_s="0.3"), load_s=0.0)
    load = asyncio.create_task(loading.load(slow))
    await until(lambda: illness(loading))
    assert illness(loading) == "task/slow has been loading for 0 s"
    await load
    assert illness(loading) == ""
    loading.shutdown()


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
    monkeypatch.setitem(RUNTIMES, "odd", f"{__name__}:Odd")
    with pytest.raises(RuntimeFailed, match="ZeroDivisionError"):
        await loading.load(replace(half("odd"), runtime="odd"))
    assert (Odd.open, loading.reserved_mib) == (0, 0.0)
