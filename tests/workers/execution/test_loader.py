"""Making room for a load, without a socket."""

import asyncio
import gc
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

from planner.eviction.rules import Resident
from planner.eviction.turns import SOON_S
from planner.latency_table import LatencyTable
from tests.workers.builders import echo_spec, row, until, vid
from tests.workers.gated import Gates
from variants.errors import Internal, Overloaded, VariantNotLoadable
from variants.registry import Entry
from variants.types import ReplicaState, VariantName
from workers.channel.frames import HEADER, Chunk, infer_frame, layout_of, unpack_infer, unpack_reply
from workers.execution.batch_runner import FAILURES
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.execution.replicas import Replica
from workers.execution.room import Demanded, Look, Room
from workers.process.line import FIRST_S
from workers.process.quarantine import CrashLedger
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec, ReplyCode

PROTECTED_S = 0.2
"""How long ``Pausing`` protects what was loaded, and the least time that it takes to look."""


class Answers:
    """Keeps the codes of all replies."""

    tag = b"none"

    def __init__(self) -> None:
        self.codes: list[int] = []

    def send(self, frame: bytes) -> None:
        self.codes.append(unpack_reply(frame)[2])

    def answer(self, chunks: list[Chunk]) -> None:
        self.send(b"".join(chunks))


def half(name: str, **options: str) -> LoadSpec:
    return replace(echo_spec(options=options), variant=VariantName(name), memory_mib=50.0)


def ask(executor: Executor, spec: LoadSpec) -> Answers:
    answers = Answers()
    frame = b"".join(infer_frame(1, vid(spec), 1, 60 * 10**6, row(1)))
    _, _, _, described, request_id, rows, variant, budget_us, *_ = unpack_infer(frame)
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


async def test_a_load_waits_for_room_that_others_are_about_to_give(loading: Loading) -> None:
    """Three variants, room for two, all asked for at once: each is loaded in its turn."""
    waits = Demanded(waiting=True, patience_s=60.0)
    await asyncio.gather(*(loading.load(half(name), demanded=waits) for name in "abc"))
    assert len(loaded(loading.executor)) == 2


class Pausing(Room):
    """Takes a moment to say that nothing leaves, as on a machine that others keep busy."""

    def leaving(
        self,
        spec: LoadSpec,
        look: Look,
        *,
        waiting: bool,
        patience_s: float = 0.0,
        drain: bool = False,
    ) -> list[Replica] | None:
        found = super().leaving(spec, look, waiting=waiting, patience_s=patience_s, drain=drain)
        while drain and found is None and time.monotonic() < look.now_s + 2 * PROTECTED_S:
            time.sleep(PROTECTED_S)
        return found


async def test_a_load_is_not_refused_when_what_is_loaded_becomes_free_to_leave_meanwhile() -> None:
    """What is protected when the worker looks for room is not when it has looked."""
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    room = Pausing(executor.usage, 100.0, min_residency_s=PROTECTED_S)
    loading = Loading(executor, ledger, 100.0, 1, room)
    first, second = (replace(half(name), memory_mib=100.0) for name in ("first", "second"))
    await loading.load(first, demanded=Demanded(waiting=False))
    ask(executor, first)
    await executor.quiet()
    await loading.load(second, demanded=Demanded(waiting=True, patience_s=60.0))
    assert loaded(executor) == {"second"}
    await executor.stop()
    loading.shutdown()


async def test_a_load_waits_for_the_room_of_what_has_failed_and_is_being_closed(
    loading: Loading,
) -> None:
    executor = loading.executor
    failing, new = (replace(half(name), memory_mib=100.0) for name in ("failing", "new"))
    failing = replace(failing, options=(("fail_after", "1"),))
    await loading.load(failing)
    for _ in range(FAILURES):
        ask(executor, failing)
        await executor.quiet()
    assert executor.on_quarantine
    assert loading.reserved_mib == 100.0
    waits = Demanded(waiting=True, patience_s=60.0)
    load = asyncio.create_task(loading.load(new, demanded=waits))
    await asyncio.sleep(10 * FIRST_S)  # it has looked for room meanwhile
    closing = asyncio.create_task(loading.close_quarantined())
    assert (await load).state is ReplicaState.READY
    closing.cancel()


async def test_nothing_leaves_for_a_load_whose_turn_comes_late(gates: Gates) -> None:
    """The worker loads one after the other; what is there serves until then."""
    ledger = CrashLedger("")
    loading = Loading(Executor(ledger), ledger, 100.0, 1)
    await loading.load(half("there"))
    gates.loads.clear()
    slow = replace(half("slow"), load_s=60.0, runtime="gated")
    first = asyncio.create_task(loading.load(slow))
    await until(lambda: "slow" in {r.spec.variant for r in loading.executor.replicas.values()})

    for late in (Demanded(waiting=False), Demanded(waiting=True, patience_s=1.0)):
        with pytest.raises(Overloaded, match="no room here before others are loaded"):
            await loading.load(half("next"), demanded=late)
    assert loaded(loading.executor) == {"there", "slow"}

    gates.loads.set()
    await first
    await loading.load(half("next"), demanded=Demanded(waiting=True, patience_s=1.0))
    assert loaded(loading.executor) == {"slow", "next"}
    loading.shutdown()


async def test_a_load_for_queries_to_come_waits_for_its_turn_where_that_comes_soon(
    gates: Gates,
) -> None:
    ledger = CrashLedger("")
    loading = Loading(Executor(ledger), ledger, 100.0, 1)
    await loading.load(half("there"))
    gates.loads.clear()
    quick = replace(half("quick"), load_s=SOON_S / 2, runtime="gated")
    first = asyncio.create_task(loading.load(quick))
    await until(lambda: len(loaded(loading.executor)) == 2)

    next_one = asyncio.create_task(loading.load(half("next"), demanded=Demanded(waiting=False)))
    await asyncio.sleep(10 * FIRST_S)  # it has looked for room meanwhile
    assert loaded(loading.executor) == {"there", "quick"}
    gates.loads.set()
    await first
    assert (await next_one).state is ReplicaState.READY
    assert loaded(loading.executor) == {"quick", "next"}
    loading.shutdown()


async def test_the_next_turn_is_of_what_is_asked_for_most_for_each_second_of_loading(
    gates: Gates,
) -> None:
    """They came in another order, and what is asked for most of all would be loaded for longest."""
    ledger = CrashLedger("")
    loading = Loading(Executor(ledger), ledger, 100.0, 1)
    await loading.load(half("there"))
    gates.loads.clear()
    quick = replace(half("quick"), load_s=SOON_S / 2, runtime="gated")
    first = asyncio.create_task(loading.load(quick))
    await until(lambda: len(loaded(loading.executor)) == 2)
    order: list[str] = []

    async def wish(spec: LoadSpec) -> None:
        await loading.load(spec, demanded=Demanded(waiting=False), begin=True)
        order.append(spec.variant)

    long, seldom, often = replace(half("long"), load_s=60.0), half("seldom"), half("often")
    wishes = []
    for spec, queries in ((long, 20), (seldom, 1), (often, 10)):
        for _ in range(queries):
            loading.executor.usage.missed(vid(spec), time.monotonic(), waits=False)
        wishes.append(asyncio.create_task(wish(spec)))
    await asyncio.sleep(10 * FIRST_S)  # they have looked for room meanwhile
    assert not order
    gates.loads.set()
    await first
    await until(lambda: bool(order))
    assert order[0] == "often"
    for each in wishes:
        each.cancel()
    await asyncio.gather(*wishes, return_exceptions=True)
    loading.shutdown()


class Turns:
    """Loads behind one that is held up, and the order in which they end."""

    def __init__(self, memory_mib: float) -> None:
        ledger = CrashLedger("")
        self.loading = Loading(Executor(ledger), ledger, memory_mib, 1)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: list[str] = []

    async def begin(self, name: str, demanded: Demanded | None = None) -> None:
        """Begin a load; the first one ends when the gate is opened."""
        runtime = "echo" if self._tasks else "gated"
        spec = replace(half(name), runtime=runtime, load_s=1.0)
        self._tasks.append(asyncio.create_task(self._load(spec, demanded)))
        known = self.loading.executor.usage
        if demanded is None:
            await until(lambda: name in loaded(self.loading.executor))
        else:
            await until(lambda: known.learned_qps((vid(spec),), time.monotonic())[0] > 0.0)

    async def end(self, gates: Gates) -> list[str]:
        gates.loads.set()
        await asyncio.gather(*self._tasks)
        self.loading.shutdown()
        return list(dict.fromkeys(self._ended))

    async def _load(self, spec: LoadSpec, demanded: Demanded | None) -> None:
        await self.loading.load(spec, demanded=demanded)
        self._ended.append(str(spec.variant))


async def test_what_queries_ask_for_is_loaded_before_what_nobody_has_asked_for(
    gates: Gates,
) -> None:
    gates.loads.clear()
    turns = Turns(1_000.0)
    for name in ("first", "planned", "seldom", "often", "planned too"):
        await turns.begin(name)
    for name in ("seldom", "often", "often", "often"):
        await turns.begin(name, Demanded(waiting=False))
    await asyncio.sleep(0.05)
    assert await turns.end(gates) == ["first", "often", "seldom", "planned", "planned too"]


async def test_a_load_for_which_others_left_keeps_its_place_in_line(gates: Gates) -> None:
    turns = Turns(150.0)
    await turns.loading.load(half("there"))
    gates.loads.clear()
    await turns.begin("first")
    await turns.begin("planned")
    await turns.begin("displaces", Demanded(waiting=True, patience_s=9.0))
    await turns.begin("displaces", Demanded(waiting=True, patience_s=9.0))
    assert await turns.end(gates) == ["first", "planned", "displaces"]


class Counting(Room):
    """Counts how often it goes through all that is loaded."""

    looks = 0

    def ruled(self, replicas: Iterable[Replica], now_s: float) -> list[Resident[int]]:
        self.looks += 1
        return super().ruled(replicas, now_s)


async def test_loads_that_wait_for_room_share_few_looks_and_go_as_soon_as_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.execution.loader.EXPECTED_S", 60.0)
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    room = Counting(executor.usage, 100.0, min_residency_s=0.0)
    loading = Loading(executor, ledger, 100.0, 1, room)
    waits = Demanded(waiting=True, patience_s=60.0)
    whole = [replace(half(name), memory_mib=100.0) for name in ("first", "second", "third")]
    await loading.load(whole[0], demanded=waits)
    loads = [asyncio.create_task(loading.load(spec, demanded=waits)) for spec in whole[1:]]
    await asyncio.sleep(100 * FIRST_S)
    assert room.looks <= 2 + 12, "one for each as it comes, and ever fewer for both"
    room.looks = 0
    for spec, load in zip(whole, loads, strict=False):
        ask(executor, spec)  # that it is used is told: the next look would come much later
        await load
    assert loaded(executor) == {"third"}
    assert room.looks <= 16
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


async def test_a_load_for_queries_to_come_returns_when_it_has_begun(loading: Loading) -> None:
    status = await loading.load(half("a"), demanded=Demanded(waiting=False), begin=True)
    assert (status.state, status.asked) == (ReplicaState.LOADING, True)
    status = await loading.load(half("a"))
    assert status.state is ReplicaState.READY


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
