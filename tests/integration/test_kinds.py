"""Two device kinds on one machine: measured apart, planned for together, the plan followed."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration import uneven
from tests.integration.deployment import Deployment
from tests.integration.trace_player import Asked, Told, play

pytestmark = [pytest.mark.integration, pytest.mark.campaign]
ROWS = 4
"""Of each query. The largest batch that is measured has 64, so a row may not take long."""
RATE_QPS = 107.5
"""Of 100 that the quick kind can do and 25 that the slow one can: no one of them alone."""
PLAY_S, SETTLED_S = 30.0, 16.0
"""How long it is asked, and from when on it counts."""
NEAR = 0.03
"""How far the part of a kind may be from the planned one."""


@pytest.fixture(scope="module")
def running() -> Iterator[Deployment]:
    """One worker of each kind; a query takes 10 ms on the quick one and 40 on the other."""

    def register(state: Path) -> None:
        uneven.register(state, "uneven", {"m": (0.9, 0.0, 10.0 / ROWS)})

    with uneven.started(register, arguments=["--slices", uneven.SLICES]) as deployment:
        yield deployment


def test_each_kind_has_a_worker_that_is_named_by_it(running: Deployment) -> None:
    workers = {worker["device_kind"]: worker["worker"] for worker in running.workers()}

    assert workers.keys() == {"cpu-1", "cpu-1-slow"}
    assert all(name.startswith(f"{kind}-") for kind, name in workers.items())
    standing = running.get("/v1/plan")["standing"]
    assert {(row["device_kind"], row["wanted"], row["running"]) for row in standing["kinds"]} == {
        ("cpu-1", 1, 1),
        ("cpu-1-slow", 1, 1),
    }


def test_variants_are_measured_on_each_kind(running: Deployment) -> None:
    def measured() -> dict[str, float]:
        return {
            profile["device_kind"]: point["p50_ms"]
            for profile in running.get("/v1/profiles")["profiles"]
            for point in profile["points"]
            if point["batch_size"] == ROWS
        }

    ms = running.until(lambda: len(found := measured()) == 2 and found, "measured on both kinds")

    assert ms["cpu-1-slow"] / ms["cpu-1"] == pytest.approx(uneven.TIMES, rel=0.2)


def test_the_plan_divides_the_demand_over_both_and_is_followed(running: Deployment) -> None:
    """Each query counts for the plan of its moment: the forecast grows while it is asked."""
    divisions, told = asyncio.run(_played(running))
    assert sum(one.status == 200 for one in told) > 0.95 * len(told)
    settled = [one for one in told if one.at_s > SETTLED_S and one.status == 200]
    planned = dict.fromkeys(("cpu-1", "cpu-1-slow"), 0.0)
    for one in settled:
        for kind, part in _at(divisions, one.at_s).items():
            planned[kind] += part / len(settled)
    answered = Counter(_kind(one) for one in settled)

    assert planned["cpu-1-slow"] > 2 * NEAR
    for kind, part in planned.items():
        assert answered[kind] / len(settled) == pytest.approx(part, abs=NEAR), (divisions, answered)


async def _played(running: Deployment) -> tuple[list[tuple[float, dict[str, float]]], list[Told]]:
    """What the plan gave to each kind, from when on, and what became of the queries."""
    divisions: list[tuple[float, dict[str, float]]] = []
    begin_s = time.perf_counter()

    async def look() -> None:
        while True:
            at_s = time.perf_counter() - begin_s
            divisions.append((at_s, await asyncio.to_thread(_division, running)))
            await asyncio.sleep(0.5)

    looking = asyncio.create_task(look())
    told = await play(running.port, _queries())
    looking.cancel()
    return divisions, told


def _at(divisions: Sequence[tuple[float, dict[str, float]]], at_s: float) -> dict[str, float]:
    return next((parts for since_s, parts in reversed(divisions) if since_s <= at_s), {})


def _queries() -> list[Asked]:
    draw = random.Random(1)
    queries = []
    at_s = draw.expovariate(RATE_QPS)
    while at_s < PLAY_S:
        body = {"task": "uneven", "inputs": [[1, 2, 3, 4]] * ROWS, "slo": {"latency_ms": 1_000}}
        queries.append(Asked(at_s, body))
        at_s += draw.expovariate(RATE_QPS)
    return queries


def _division(running: Deployment) -> dict[str, float]:
    """The part of the rows that the plan gives to each kind."""
    kinds = {worker["worker"]: worker["device_kind"] for worker in running.workers()}
    found: Counter[str] = Counter()
    for route in running.get("/v1/plan")["routes"]:
        found[kinds[route["worker"]]] += route["qps"]
    return {kind: qps / found.total() for kind, qps in found.items()}


def _kind(told: Told) -> str:
    """The kind of the worker that answered: its name without the end that makes it one."""
    return str(told.body["worker"]).rpartition("-")[0]
