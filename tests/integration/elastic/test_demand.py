"""An elastic fleet follows the demand."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.deployment import BUSY, Deployment
from tests.integration.trace_player import Asked, play

pytestmark = pytest.mark.integration

TIMES = 4.0
"""As many rows are asked for as one worker serves by its profile, so many times: on an idle machine
a worker of half of it is up to twice as quick as that says."""
ROWS = 8
"""Of each query."""
PART_S = 2.0
"""All answers of so many seconds are awaited before the next ones are asked for."""


@contextmanager
def asked(running: Deployment, qps: float, body: dict[str, Any]) -> Iterator[Counter[str]]:
    """Ask at a rate, whatever becomes of it: clients that wait for their answers ask for as much as
    one worker serves and no more, and then one is enough."""
    trace = [Asked(n / qps, body) for n in range(round(qps * PART_S))]
    outcomes: Counter[str] = Counter()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            for one in asyncio.run(play(running.port, trace)):
                outcomes["200" if one.status == 200 else str(one.body.get("code"))] += 1

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield outcomes
    finally:
        over.set()
        thread.join()


def test_an_elastic_fleet_follows_the_demand(elastic: Deployment) -> None:
    def count(wanted: int, what: str) -> None:
        elastic.until(lambda: len(elastic.workers()) == wanted, what)

    count(1, "one worker while no query comes")
    [worker] = elastic.workers()
    best = max(elastic.variants(), key=lambda variant: float(variant["accuracy"]))
    of = f"task=digits&variant={best['name']}&device_kind={worker['device_kind']}"
    [profile] = elastic.get(f"/v1/profiles?{of}")["profiles"]
    point = max(profile["points"], key=lambda point: int(point["batch_size"]))
    row_ms = point["p50_ms"] / point["batch_size"]
    slo = {"latency_ms": max(1_000.0, TIMES * ROWS * row_ms), "accuracy": best["accuracy"]}
    body = {"task": "digits", "inputs": [[0.0] * 64] * ROWS, "slo": slo}
    qps = TIMES * 1_000.0 / (ROWS * row_ms)
    with asked(elastic, qps, body) as outcomes:
        count(2, "two workers under load")
        before = outcomes["200"]
        elastic.until(lambda: outcomes["200"] > before + 20, "service")
    assert outcomes.keys() <= {"200", *BUSY}
    count(1, "one worker when the load is over")
