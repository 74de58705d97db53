"""A declared peak: an elastic fleet is there before it begins, though hardly anybody asks yet."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

import pytest

from tests.integration.deployment import ANSWER_S, CLI, Deployment, environment

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

AHEAD_S = 30.0
"""From the declaration to the peak: more than the first guess at how long workers take."""
TRIES = 4
"""How long workers take on a busy machine is learned from the first of them."""


def peaks(running: Deployment, *arguments: str) -> Any:
    """What ``modelless peaks`` prints."""
    done = subprocess.run(
        [*CLI, "peaks", *arguments, "-o", "json"],
        env=environment(running.state_dir, running.port),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def serving(running: Deployment) -> int:
    """Workers that have something ready."""
    return sum(bool(running.ready(worker)) for worker in running.workers())


@contextmanager
def few_queries(running: Deployment) -> Iterator[None]:
    """A few queries per second, which only the most accurate variant may answer."""
    floor = max(variant["accuracy"] for variant in running.variants())
    slo = {"accuracy": floor, "latency_ms": 5_000.0}
    over = Event()

    def ask() -> None:
        while not over.wait(0.3):
            running.query([[0.0] * 64], slo=slo)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2 * ANSWER_S)


def declared(running: Deployment) -> int:
    """Declare more than two workers can serve, a while ahead; the peak's id."""
    begin = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
    added = peaks(
        running, "add", "--task", "digits", "--qps", "1000000",
        "--start", begin.isoformat(), "--for", "1h",
    )  # fmt: skip
    assert added["state"] == "ahead"
    return int(added["id"])


def test_capacity_is_up_before_a_declared_peak(elastic: Deployment) -> None:
    with few_queries(elastic):
        elastic.until(lambda: serving(elastic) == 1, "one worker for a few queries")
        for _ in range(TRIES):
            id_ = declared(elastic)
            assert len(elastic.workers()) == 1
            elastic.until(
                lambda: serving(elastic) == 2, "two workers that serve", timeout_s=AHEAD_S + 120.0
            )
            [peak] = elastic.get("/v1/peaks")["peaks"]
            told = [e["kind"] for e in elastic.get("/v1/events")["events"]]
            assert "peak_due" in told
            why = elastic.get("/v1/plan")["explanation"]
            assert any(line.startswith(f"Peak {id_} is planned") for line in why), why
            peaks(elastic, "remove", str(id_))
            elastic.until(lambda: len(elastic.workers()) == 1, "one worker again")
            if peak["state"] == "ahead":
                break
        else:
            raise AssertionError(f"too late each time\n{elastic.log}")
