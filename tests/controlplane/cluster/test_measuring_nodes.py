"""Calls of Ray's that would hold up the control loop: see also ``tests.integration.clusters``."""

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Semaphore
from typing import Any, cast

import pytest

from controlplane.cluster.measuring_nodes import MeasuringHere, MeasuringNodes, NodeBench, in_time
from controlplane.cluster.sent_settings import SentSettings
from controlplane.profiling.measuring_lock import may_measure, measuring_first
from controlplane.settings import Settings, load_settings
from variants.errors import ClusterUnavailable


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
