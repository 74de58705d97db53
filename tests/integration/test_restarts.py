"""Plans at work, then stop, kill and start again: state stays, nothing else does.

One deployment, one test after the other.
"""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.integration import uneven
from tests.integration.deployment import (
    CLI,
    Deployment,
    Load,
    Local,
    deployed,
    environment,
    short_directory,
)
from tests.ports import free_port
from variants.catalog.sql import open_catalog

pytestmark = pytest.mark.integration

BEST, QUICK = "best-v1-echo-fp32", "quick-v1-echo-fp32"
MODELS = {"quick": (0.9, 2.0, 0.0), "best": (0.99, 40.0, 0.0)}
"""Accuracy, and ms of a batch and of each row."""
TIGHT, LOOSE = ({"latency_ms": ms, "prefer": "accuracy"} for ms in (70.0, 2_000.0))
"""On an idle worker the best meets the tight one: who just misses a batch of it waits for two."""
TIGHT_MS, LOOSE_MS = 50.0, 2_000.0
"""The classes of SLOs in plans that these two are of."""
ROW = [0.0] * uneven.WIDTH


@pytest.fixture(scope="module")
def first() -> Iterator[Deployment]:
    """It is killed by the last test."""
    with short_directory() as home:
        (home / "s").mkdir()
        uneven.register(home / "s", "digits", MODELS, runtime="echo")
        with deployed(home / "s", objective="accuracy") as running:
            yield running


def planned(running: Deployment, class_ms: float) -> set[str]:
    """What the plan gives a class of queries to."""
    routes = running.get("/v1/plan")["routes"]
    return {route["variant"] for route in routes if route["latency_ms"] == class_ms}


def answering(running: Deployment, slo: dict[str, Any], **fields: Any) -> str:
    """The variant of an answer; empty when the query is refused."""
    answer = running.query([ROW], slo=slo, **fields)
    return str(answer.body["variant"]) if answer.status == 200 else ""


def run(settings: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CLI, *arguments], env=settings, capture_output=True, text=True, timeout=600, check=False
    )


def test_queries_follow_a_plan_for_accuracy(first: Deployment) -> None:
    first.until(lambda: first.ready(first.workers()[0]) == {BEST, QUICK}, "all loaded")
    first.until(lambda: answering(first, LOOSE) and planned(first, LOOSE_MS), "a plan")
    assert planned(first, LOOSE_MS) == {BEST}
    first.until(lambda: answering(first, LOOSE) == BEST, "an answer by the plan")

    asked = {"task": "digits", "inputs": [ROW], "slo": TIGHT}
    with Load(first, asked, clients=4, pause_s=0.02) as load:
        first.until(lambda: planned(first, TIGHT_MS), "a plan for what has to be quick")
        assert planned(first, TIGHT_MS) == {QUICK}
        first.until(lambda: answering(first, TIGHT) == QUICK, "an answer by the plan")
    assert load.untyped == []
    # It would be in time alone, when it is asked for.
    first.until(lambda: answering(first, TIGHT, variant=BEST) == BEST, "an answer by the best")


def test_a_restart_in_the_background_finds_all_again_and_clears_what_a_killed_run_left(
    first: Deployment,
) -> None:
    state, port = first.state_dir, free_port()
    with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
        known = {variant.name for variant in catalog.snapshot().variants}
    assert {v["name"] for v in first.variants()} == known
    started = first.processes()
    first.process.kill()
    first.process.wait()

    settings = environment(state, port)
    second = Local(state, port)
    try:
        up = run(settings, "up", "--detach")
        assert up.returncode == 0, up.stderr
        assert f"127.0.0.1:{port}" in up.stderr
        assert {v["name"] for v in second.variants()} == known
        assert second.query([ROW]).status == 200
        assert [p for p in started if p.is_running() and p.status() != "zombie"] == []
    finally:
        down = run(settings, "down")
    assert down.returncode == 0, down.stderr
    assert run(settings, "down").returncode == 3
