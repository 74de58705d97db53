"""Loads that wait for room: in which order they have it, and for how long they wait."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from planner.eviction.rules import Resident
from planner.eviction.turns import SOON_S
from tests.workers.builders import until, vid
from tests.workers.execution.loading.asking import ask, half, loaded
from tests.workers.gated import Gates
from variants.errors import Overloaded
from variants.types import ReplicaState
from workers.execution.batch_runner import FAILURES
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.execution.replicas import Replica
from workers.execution.room import Demanded, Look, Room
from workers.process.line import FIRST_S
from workers.process.quarantine import CrashLedger
from workers.types import LoadSpec, ReplyCode

PROTECTED_S = 0.2
"""How long ``Pausing`` protects what was loaded, and the least time that it takes to look."""


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


async def test_a_load_for_queries_to_come_returns_when_it_has_begun(loading: Loading) -> None:
    status = await loading.load(half("a"), demanded=Demanded(waiting=False), begin=True)
    assert (status.state, status.asked) == (ReplicaState.LOADING, True)
    status = await loading.load(half("a"))
    assert status.state is ReplicaState.READY
