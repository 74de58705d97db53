"""A first start with little measured, plans at work, then kill and start again: state stays.

One deployment, one test after the other. Each start is typed in a folder with modules of the names
of ours, as somebody's project may well have.
"""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controlplane.machine import machine_kinds
from controlplane.settings import load_settings
from tests.integration import uneven
from tests.integration.deployment import (
    CLI,
    Deployment,
    Load,
    Local,
    all_measured,
    deployed,
    environment,
    short_directory,
)
from tests.ports import free_port
from variants.catalog.sql import open_catalog
from variants.types import LatencyPoint, Profile

pytestmark = pytest.mark.integration

BEST, QUICK, ONLY, KNOWN = (f"{model}-v1-echo-fp32" for model in ("best", "quick", "only", "known"))
MODELS = {"quick": (0.9, 2.0, 0.0), "best": (0.99, 40.0, 0.0)}
"""Accuracy, and ms of a batch and of each row."""
TIGHT, LOOSE = ({"latency_ms": ms, "prefer": "accuracy"} for ms in (70.0, 2_000.0))
"""On an idle worker the best meets the tight one: who just misses a batch of it waits for two."""
TIGHT_MS, LOOSE_MS = 50.0, 2_000.0
"""The classes of SLOs in plans that these two are of."""
ROW = [0.0] * uneven.WIDTH
FALSE_MS = 7.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands are typed: whatever imports its modules fails."""
    made = tmp_path_factory.mktemp("typed")
    for package in ("controlplane", "planner", "profiler", "variants", "workers", "numpy"):
        (made / package).mkdir()
        (made / package / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    return made


@pytest.fixture(scope="module")
def first(folder: Path) -> Iterator[Deployment]:
    """Three tasks: of two nothing is measured, the third has a profile of another processor.

    It is killed by the last test.
    """
    with short_directory() as home:
        state = home / "s"
        state.mkdir()
        uneven.register(state, "digits", MODELS, runtime="echo")
        uneven.register(state, "one", {"only": (0.9, 1.0, 0.0)}, runtime="echo")
        uneven.register(state, "stale", {"known": (0.9, 1.0, 0.0)}, runtime="echo")
        _add_stale(state)
        with deployed(state, measured=False, objective="accuracy", typed_in=folder) as running:
            yield running


def _add_stale(state: Path) -> None:
    settings = load_settings(state_dir=state)
    (kind,) = machine_kinds(settings)
    with closing(open_catalog(settings.catalog_url)) as catalog:
        variant = next(v for v in catalog.snapshot().variants if v.name == KNOWN)
        point = LatencyPoint(batch_size=1, p50_ms=FALSE_MS, p95_ms=FALSE_MS, p99_ms=FALSE_MS)
        profile = Profile(
            task=variant.task, variant=variant.name, device_kind=kind.name, points=(point,),
            memory_mib=1.0, load_s=0.1, measured_at="2025-01-01T00:00:00+00:00",
            host="Another processor; 1 cores; Linux 6.1",
        )  # fmt: skip
        catalog.put_profiles((profile,), (kind,))


def planned(running: Deployment, class_ms: float) -> set[str]:
    """What the plan gives a class of queries of digits to."""
    routes = running.get("/v1/plan")["routes"]
    return {
        route["variant"]
        for route in routes
        if (route["task"], route["latency_ms"]) == ("digits", class_ms)
    }


def answering(running: Deployment, slo: dict[str, Any], **fields: Any) -> str:
    """The variant of an answer; empty when the query is refused."""
    answer = running.query([ROW], slo=slo, **fields)
    return str(answer.body["variant"]) if answer.status == 200 else ""


def run(
    folder: Path, settings: dict[str, str], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CLI, *arguments],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_modules_in_the_folder_where_it_is_typed_are_not_taken_for_its_own(
    first: Deployment, folder: Path
) -> None:
    """Nor are they by a start in the background, below."""
    assert Path(f"/proc/{first.process.pid}/cwd").resolve() == folder.resolve()
    assert len(first.workers()) == 1


def test_each_task_is_answered_from_the_start_and_the_rest_is_measured_meanwhile(
    first: Deployment,
) -> None:
    for task, variant in (("one", ONLY), ("stale", KNOWN)):
        answer = first.query([ROW], task=task)
        assert (answer.status, answer.body["variant"]) == (200, variant)
    assert first.query([ROW]).status == 200
    begun = first.log.partition("Live state")[0]
    assert f"measuring {BEST} on" in begun
    assert f"measuring {ONLY} on" in begun
    assert QUICK not in begun
    assert KNOWN not in begun
    assert "2 more are measured while queries are answered" in begun

    def told() -> dict[str, str]:
        events = first.get("/v1/events")["events"]
        return {
            one["subject"]: one["message"] for one in events if one["kind"] == "profile_measured"
        }

    first.until(lambda: len(told()) == 2, "both are measured")
    assert "was never measured here" in told()[f"digits/{QUICK}"]
    assert "processor Another processor -> " in told()[f"stale/{KNOWN}"]
    rows = {row["variant"]: row for row in first.get("/v1/profiles")["profiles"]}
    assert rows.keys() == {BEST, QUICK, ONLY, KNOWN}
    assert rows[KNOWN]["points"][0]["p50_ms"] < FALSE_MS
    first.until(lambda: first.query([ROW], variant=QUICK).status == 200, "it answers then")
    assert all_measured(first)


def test_queries_follow_a_plan_for_accuracy(first: Deployment) -> None:
    first.until(lambda: first.ready(first.workers()[0]) >= {BEST, QUICK}, "all loaded")
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
    first: Deployment, folder: Path
) -> None:
    state, port = first.state_dir, free_port()
    with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
        known = {v.name for v in catalog.snapshot().variants if v.task == "digits"}
    assert {v["name"] for v in first.variants()} == known
    started = first.processes()
    first.process.kill()
    first.process.wait()

    settings = environment(state, port)
    second = Local(state, port)
    try:
        up = run(folder, settings, "up", "--detach")
        assert up.returncode == 0, up.stderr
        assert f"127.0.0.1:{port}" in up.stderr
        assert {v["name"] for v in second.variants()} == known
        assert second.query([ROW]).status == 200
        assert [p for p in started if p.is_running() and p.status() != "zombie"] == []
    finally:
        down = run(folder, settings, "down")
    assert down.returncode == 0, down.stderr
    assert run(folder, settings, "down").returncode == 3
