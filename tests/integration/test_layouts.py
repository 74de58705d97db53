"""A machine that is split anew under the plan: one worker of two cores, or two of one.

It needs two cores, and no other workers on the machine that keep to cores of their own.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration import uneven
from tests.integration.deployment import CLI, Deployment, environment
from tests.integration.trace_player import Asked, Told, play

pytestmark = [pytest.mark.integration, pytest.mark.campaign]
LAYOUTS = "1xcpu-2|2xcpu-1"
SMALL: dict[str, object] = {
    "task": "small",
    "inputs": [[1, 2, 3, 4]],
    "slo": {"latency_ms": 60_000.0},
}
LARGE: dict[str, object] = {"task": "large", "inputs": [[1, 2, 3, 4]], "slo": {"latency_ms": 390.0}}
"""A batch takes 200 ms on two cores, and 400 on one."""
PATIENCE_S = 240.0
LINGER_S = 30


@pytest.fixture(scope="module")
def running() -> Iterator[Deployment]:
    def register(state: Path) -> None:
        uneven.register(state, "small", {"s": (0.9, 0.0, 10.0)})
        uneven.register(state, "large", {"l": (0.9, 200.0, 0.0)}, parallel="yes")

    with uneven.started(
        register, arguments=["--slices", LAYOUTS], linger_s=LINGER_S, pin_cores=True
    ) as deployment:
        yield deployment


def test_many_small_queries_and_then_a_large_model_with_a_tight_slo(running: Deployment) -> None:
    """All that can be answered late enough is answered while workers are replaced, by both."""
    assert kinds(running) == {"cpu-2": 1}

    small = asyncio.run(asked_until(running, {"cpu-1": 2}, [(130.0, SMALL)]))["small"]
    assert Counter(one.status for one in small) == {200: len(small)}
    assert kinds_of(small) == {"cpu-2", "cpu-1"}
    assert "The machine is split into 2xcpu-1: this serves" in status(running)

    own = cores(running)
    killed, taken = own.popitem()
    os.kill(next(w["pid"] for w in running.workers() if w["worker"] == killed), signal.SIGKILL)
    replaced = running.until(lambda: (now := cores(running)).keys() - {killed, *own} and now, "one")
    assert sorted(replaced.values()) == sorted((*own.values(), taken))

    told = asyncio.run(asked_until(running, {"cpu-2": 1}, [(2.0, SMALL), (2.0, LARGE)]))
    assert Counter(one.status for one in told["small"]) == {200: len(told["small"])}
    assert kinds_of(told["small"]) == {"cpu-2", "cpu-1"}
    assert kinds_of(told["large"]) == {"cpu-2"}
    assert "The machine is split into 1xcpu-2: this serves" in status(running)


async def asked_until(
    running: Deployment, wanted: dict[str, int], load: Sequence[tuple[float, dict[str, object]]]
) -> dict[str, list[Told]]:
    """What became of queries that are asked until only these workers run, and 5 s longer, by
    task."""
    told: dict[str, list[Told]] = {}
    turns, begin_s = 0, time.monotonic()
    while turns < 2:
        assert time.monotonic() - begin_s < PATIENCE_S, (running.get("/v1/plan"), kinds(running))
        trace = sorted(
            (Asked(n / qps, body) for qps, body in load for n in range(int(qps * 5.0))),
            key=lambda one: one.at_s,
        )
        for asked, one in zip(trace, await play(running.port, trace), strict=True):
            told.setdefault(str(asked.body["task"]), []).append(one)
        turns += kinds(running) == wanted
    for task, ones in told.items():
        slowest_ms = max((one.took_ms for one in ones if one.status == 200), default=0.0)
        print(
            f"{time.monotonic() - begin_s:.0f} s until {wanted}: {len(ones)} queries of {task}, "
            f"{Counter((one.status, one.body.get('code')) for one in ones)}, "
            f"the slowest answer after {slowest_ms:.0f} ms"
        )
    return told


def kinds(running: Deployment) -> dict[str, int]:
    """Workers by kind, those that leave included."""
    return dict(Counter(worker["device_kind"] for worker in running.workers()))


def cores(running: Deployment) -> dict[str, tuple[int, ...]]:
    """Those of each worker, as soon as two of one core each keep to one of its own."""

    def found() -> dict[str, tuple[int, ...]] | None:
        pinned = {worker["worker"]: tuple(worker["cores"]) for worker in running.workers()}
        apart = len(pinned) == 2 and len(set(pinned.values())) == 2
        return pinned if apart and all(pinned.values()) else None

    pinned: dict[str, tuple[int, ...]] = running.until(found, "cores of their own")
    for worker in running.workers():
        assert os.sched_getaffinity(worker["pid"]) == set(pinned[worker["worker"]])
    return pinned


def kinds_of(told: Sequence[Told]) -> set[str]:
    return {one.body["worker"].rpartition("-")[0] for one in told if one.status == 200}


def status(running: Deployment) -> str:
    said = subprocess.run(
        [*CLI, "status"],
        env=environment(running.state_dir, running.port),
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout
