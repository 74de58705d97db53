"""Calls of Ray's that would hold up the control loop: see also ``tests.integration.clusters``."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.cluster import measuring_nodes
from controlplane.cluster.measuring_nodes import (
    Begun,
    MeasuringHere,
    MeasuringNodes,
    NodeBench,
    in_time,
)
from controlplane.cluster.sent_settings import SentSettings
from controlplane.profiling.measuring_lock import may_measure, measuring_first
from controlplane.settings import Settings, load_settings
from variants.errors import ClusterUnavailable, ReplicaLost


async def test_a_control_store_that_does_not_answer_holds_up_nothing() -> None:
    back = threading.Event()
    try:
        with pytest.raises(ClusterUnavailable, match="does not answer"):
            await in_time(back.wait, patience_s=0.01)
    finally:
        back.set()


async def test_what_the_control_store_refuses_is_said() -> None:
    def refuse() -> None:
        raise ConnectionError("traceback\nno such node")

    with pytest.raises(ClusterUnavailable, match=r"^Ray's control store: no such node$"):
        await in_time(refuse)


async def test_what_it_answers_comes_back() -> None:
    assert await in_time(lambda: 7) == 7


def listed(*, alive: bool = True, draining: bool = False) -> list[Mapping[str, Any]]:
    node = {"NodeID": "n-1", "Alive": alive} | ({"DrainsUntilMs": 0} if draining else {})
    return [{"NodeID": "n-0", "Alive": True}, node]


@pytest.mark.parametrize(
    ("looks", "stays"),
    [
        ([listed()] * 99, True),
        ([listed(), listed(), listed(alive=False)], False),
        ([listed(), listed(draining=True)], False),
        ([[]], False),
        ([listed(), None], False),
    ],
)
async def test_a_node_stays_if_it_is_there_for_a_while(
    looks: list[list[Mapping[str, Any]] | None], stays: bool
) -> None:
    """Ray notices only after a while that a machine is gone, whose processes ended before."""
    coming = iter(looks)

    def look() -> Iterable[Mapping[str, Any]]:
        found = next(coming)
        if found is None:
            raise ConnectionError("no control store")
        return found

    def settings() -> Settings:
        raise AssertionError("nothing is measured")

    nodes = MeasuringNodes(cast(SentSettings, None), settings, listed=look, look_every_s=0.0)
    assert await nodes.stays("n-1") is stays


def test_a_bench_that_gives_way_stops_at_its_next_step_until_it_goes_on() -> None:
    bench, steps = NodeBench(cast(SentSettings, None)), Semaphore(0)

    def measure() -> None:
        for _ in range(3):
            bench._step()
            steps.release()

    bench.give_way(True)
    measuring = threading.Thread(target=measure)
    measuring.start()
    assert not steps.acquire(timeout=0.1)
    bench.give_way(False)
    measuring.join(10.0)
    assert all(steps.acquire(timeout=0.0) for _ in range(3))
    bench._step()


def test_of_two_that_measure_here_the_last_lets_commands_measure(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path)
    settings.run_dir.mkdir(parents=True)
    here = MeasuringHere(cast(SentSettings, None), lambda: settings)
    with ExitStack() as first, ExitStack() as second:
        assert first.enter_context(here._shared())
        assert second.enter_context(here._shared())
        first.close()
        assert not may_measure(settings.run_dir)
        second.close()
        assert may_measure(settings.run_dir)
    with measuring_first(settings.run_dir), here._shared() as may:
        assert not may
    with here._shared() as may:
        assert may


def test_what_measures_has_begun_before_it_waits_for_idle_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On full cores beginning took minutes else, and was given up."""
    done: list[str] = []

    def received(*_: object) -> tuple[Settings, bytes]:
        done.append("begins")
        return load_settings(state_dir=tmp_path), b""

    context = SimpleNamespace(get_node_id=lambda: "n-1")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr(measuring_nodes, "machine_name", lambda: "vm")
    monkeypatch.setattr(measuring_nodes, "receive", received)
    monkeypatch.setattr(measuring_nodes, "take_niceness", lambda _: done.append("yields"))
    monkeypatch.setattr(measuring_nodes, "only_while_idle", lambda: done.append("waits"))
    begun = NodeBench(cast(SentSettings, None)).begin((), while_idle=True)
    assert (begun, done) == (Begun(node="n-1", hosts={}), ["yields", "begins", "waits"])


@pytest.mark.parametrize(("hurried", "patience_s"), [(True, 120.0), (False, 600.0)])
async def test_where_nobody_waits_a_full_node_may_take_long_to_begin(
    monkeypatch: pytest.MonkeyPatch, hurried: bool, patience_s: float
) -> None:
    asked: list[float] = []

    async def answer(_: object, within_s: float, __: str) -> Begun:
        asked.append(within_s)
        return Begun(node="n-1", hosts={})

    @asynccontextmanager
    async def bench(*_: object) -> AsyncIterator[Any]:
        call = SimpleNamespace(remote=lambda *_, **__: None)
        yield SimpleNamespace(begin=call, measure=call)

    monkeypatch.setattr(measuring_nodes, "_bench", bench)
    monkeypatch.setattr(measuring_nodes, "_answer", answer)
    monkeypatch.setattr(measuring_nodes, "_on", lambda _: {})
    named = SimpleNamespace(name="v")
    order = SimpleNamespace(
        due=SimpleNamespace(variant=named, kind=named), key="k", hurried=hurried, urgent=False
    )
    nodes = MeasuringNodes(cast(SentSettings, None), load_settings)
    await nodes.measure(cast(Any, order), "n-1", lambda _: None)
    assert asked[0] == patience_s


async def test_one_that_is_cancelled_takes_nothing_from_another_of_the_same_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That one gives way when it is asked to, and its outcome is told."""
    waits: list[asyncio.Future[Any]] = []
    both = asyncio.Event()
    begun = Begun(node="n-1", hosts={})

    async def answer(reference: Any, *_: object) -> Any:
        if reference != "measure":
            return begun if reference == "begin" else None
        waits.append(asyncio.get_running_loop().create_future())
        if len(waits) == 2:
            both.set()
        return await waits[-1]

    @asynccontextmanager
    async def bench(*_: object) -> AsyncIterator[Any]:
        calls = {
            name: SimpleNamespace(remote=lambda *_, name=name, **__: name)
            for name in ("begin", "measure", "give_way")
        }
        calls["give_way"].options = lambda **_: calls["give_way"]
        yield SimpleNamespace(**calls)

    monkeypatch.setattr(measuring_nodes, "_bench", bench)
    monkeypatch.setattr(measuring_nodes, "_answer", answer)
    monkeypatch.setattr(measuring_nodes, "_on", lambda _: {})
    named = SimpleNamespace(name="v")
    due = SimpleNamespace(variant=named, kind=named)
    order = cast(Any, SimpleNamespace(due=due, key="k", hurried=True, urgent=False))
    nodes = MeasuringNodes(cast(SentSettings, None), load_settings)
    first, second = (
        asyncio.create_task(nodes.measure(order, "n-1", lambda _: None)) for _ in range(2)
    )
    await both.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await nodes.give_way(cast(Any, "k"), True)
    waits[1].set_exception(ReplicaLost("gone"))
    with pytest.raises(ReplicaLost, match="gone"):
        await second
    assert not await nodes.give_way(cast(Any, "k"), True)
