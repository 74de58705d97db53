"""What leaves a worker's memory for a load, and what stays."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.workers.builders import vid
from tests.workers.execution.loading.asking import ask, half, loaded
from variants.errors import Overloaded
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.execution.room import Demanded, Room
from workers.process.line import FIRST_S
from workers.process.quarantine import CrashLedger
from workers.types import ReplyCode


async def test_what_is_idle_leaves_for_an_on_demand_load(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("idle"))
    await loading.load(half("busy", latency_ms="50"))
    answers = ask(executor, half("busy"))
    await loading.load(half("new"), demanded=Demanded(waiting=True))
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
    await loading.load(half("new"), demanded=Demanded(waiting=True))
    assert loaded(executor) == {"often", "new"}


async def test_a_planned_load_evicts_nobody(loading: Loading) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    with pytest.raises(Overloaded, match=r"0\.0 MiB are free"):
        await loading.load(half("c"))


async def test_a_load_that_needs_more_than_what_leaves_is_refused(loading: Loading) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    leaves = asyncio.create_task(loading.unload("task", "a"))
    await asyncio.sleep(0)  # now it is leaving
    with pytest.raises(Overloaded, match=r"50\.0 MiB are free"):
        await loading.load(replace(half("huge"), memory_mib=60.0))
    await leaves


async def test_what_is_in_use_never_leaves(loading: Loading) -> None:
    executor = loading.executor
    for name in ("a", "b"):
        await loading.load(half(name, latency_ms="50"))
    for name in ("a", "b"):
        ask(executor, half(name))
    with pytest.raises(Overloaded):
        await loading.load(half("c"), demanded=Demanded(waiting=True))
    assert loaded(executor) == {"a", "b"}
    await executor.quiet()


async def test_what_is_in_use_leaves_after_its_answer_if_the_query_has_the_time(
    loading: Loading,
) -> None:
    executor = loading.executor
    for name in ("a", "b"):
        await loading.load(half(name, latency_ms="50"))
    answers = [ask(executor, half(name)) for name in ("a", "b")]
    await loading.load(half("c"), demanded=Demanded(waiting=True, patience_s=60.0))
    await executor.quiet()
    assert [one.codes for one in answers] == [[ReplyCode.OK], [ReplyCode.OK]]
    assert len(loaded(executor)) == 2
    assert "c" in loaded(executor)


async def test_what_many_ask_for_stays(loading: Loading) -> None:
    executor = loading.executor
    big = replace(half("hot"), memory_mib=80.0)
    await loading.load(big)
    for _ in range(40):
        ask(executor, big)
    await executor.quiet()
    with pytest.raises(Overloaded, match="in use or asked for more"):
        await loading.load(half("rare"), demanded=Demanded(waiting=True))
    assert loaded(executor) == {"hot"}


async def test_filler_leaves_although_it_has_just_been_loaded() -> None:
    """It came because memory was free: there are no queries that it has to serve first."""
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    loading = Loading(executor, ledger, 100.0, 1, Room(executor.usage, 100.0))
    for name in ("used", "filler"):
        await loading.load(replace(half(name), load_s=10.0))
    ask(executor, half("used"))
    await executor.quiet()
    await loading.load(half("new"), demanded=Demanded(waiting=False))
    assert loaded(executor) == {"used", "new"}
    await executor.stop()
    loading.shutdown()


async def test_under_gdsf_what_was_used_counts_from_the_last_eviction_on() -> None:
    """The others need not be told of each use."""
    executor = Executor(CrashLedger(""))
    executor.start()
    room = Room(executor.usage, 100.0, "gdsf")
    loading = Loading(executor, CrashLedger(""), 100.0, 1, room)
    for name in ("leaves", "stays"):
        await loading.load(replace(half(name), load_s=1.0))
    for _ in range(3):
        ask(executor, half("stays"))
    ask(executor, half("leaves"))
    await executor.quiet()
    await loading.load(replace(half("new"), load_s=1.0), demanded=Demanded(waiting=True))
    assert loaded(executor) == {"stays", "new"}
    stays = executor.replicas[vid(half("stays"))]
    assert stays.inflation == 0.0
    ask(executor, half("stays"))
    await executor.quiet()
    assert stays.inflation == 1.0 / 50.0  # one use, one second, 50 MiB: the worth of what left
    await executor.stop()
    loading.shutdown()


async def test_what_was_loaded_for_a_query_stays_until_the_query_has_come(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a load that could wait for the answers of what is here."""
    monkeypatch.setattr("workers.execution.loader.EXPECTED_S", 60.0)
    executor = loading.executor
    whole = [replace(half(name), memory_mib=100.0) for name in ("first", "second")]
    waits = Demanded(waiting=True, patience_s=60.0)
    first, second = (asyncio.create_task(loading.load(spec, demanded=waits)) for spec in whole)
    await first
    await asyncio.sleep(10 * FIRST_S)  # the second has looked for room meanwhile
    answers = ask(executor, whole[0])
    await second
    assert answers.codes == [ReplyCode.OK]
    assert loaded(executor) == {"second"}


async def test_what_was_asked_for_or_loaded_anew_since_it_was_seen_is_not_unloaded(
    loading: Loading,
) -> None:
    executor = loading.executor
    seen = await loading.load(half("a"))
    assert (seen.load_no, seen.asked) == (1, False)
    ask(executor, half("a"))
    await executor.quiet()
    assert not await loading.unload("task", "a", seen=(1, False))
    assert await loading.unload("task", "a", seen=(1, True))
    again = await loading.load(half("a"), demanded=Demanded(waiting=False))
    assert (again.load_no, again.asked) == (2, True)
    assert not await loading.unload("task", "a", seen=(1, True))
    assert loaded(executor) == {"a"}


async def test_what_is_larger_than_the_worker_evicts_nobody(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("a"))
    with pytest.raises(Overloaded):
        await loading.load(replace(half("huge"), memory_mib=101.0), demanded=Demanded(waiting=True))
    assert loaded(executor) == {"a"}
    assert np.isclose(loading.reserved_mib, 50.0)


async def test_what_is_unloaded_while_it_makes_room_leaves_once(loading: Loading) -> None:
    await loading.load(replace(half("old"), memory_mib=100.0))
    await asyncio.gather(
        loading.load(half("new"), demanded=Demanded(waiting=True)), loading.unload("task", "old")
    )
    assert loaded(loading.executor) == {"new"}


async def test_a_worker_tells_what_a_load_would_cost_by_what_leaves(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(half("asked"))
    await loading.load(half("filler"))
    for _ in range(5):
        ask(executor, half("asked"))
    await executor.quiet()
    (first_mib, first_s), (second_mib, second_s) = loading.evictable(time.monotonic())
    assert (first_mib, second_mib) == (50.0, 50.0)
    assert first_s == 0.0 < second_s, "what no query asked for costs nothing"


async def test_a_worker_tells_how_fast_its_memory_turns_over(loading: Loading) -> None:
    await loading.load(half("a"), demanded=Demanded(waiting=False))
    await loading.load(half("b"), demanded=Demanded(waiting=False))
    assert loading.room.churn_per_s(time.monotonic()) == 0.0
    await loading.load(half("c"), demanded=Demanded(waiting=True))
    assert loading.room.churn_per_s(time.monotonic()) > 0.0


async def test_what_is_pinned_never_leaves_for_a_load(loading: Loading) -> None:
    executor = loading.executor
    await loading.load(replace(half("pinned"), pinned=True))
    await loading.load(half("other"))
    for _ in range(5):
        ask(executor, half("other"))
    await executor.quiet()
    await loading.load(half("new"), demanded=Demanded(waiting=True))
    assert loaded(executor) == {"pinned", "new"}
    assert [mib for mib, _ in loading.evictable(time.monotonic() + 9.0)] == [50.0]
    # What a query has loaded says nothing of pins.
    await loading.load(half("pinned"), demanded=Demanded(waiting=True))
    assert executor.replicas[vid(half("pinned"))].spec.pinned
    await loading.load(replace(half("new"), pinned=True))
    with pytest.raises(Overloaded, match="what is loaded is pinned, in use or asked for more"):
        await loading.load(half("third"), demanded=Demanded(waiting=True))
    await loading.load(replace(half("pinned"), pinned=False))
    await loading.load(half("third"), demanded=Demanded(waiting=True, patience_s=5.0))
    assert loaded(executor) == {"new", "third"}


async def test_a_load_may_be_told_to_take_free_memory_only(loading: Loading) -> None:
    await loading.load(half("a"))
    free = Demanded(waiting=True, patience_s=5.0, evicts=False)
    await loading.load(half("b"), demanded=free)
    began_s = time.monotonic()
    with pytest.raises(Overloaded, match=r"0\.0 MiB are free"):
        await loading.load(half("c"), demanded=free)
    assert time.monotonic() - began_s < 5.0
    assert loaded(loading.executor) == {"a", "b"}
