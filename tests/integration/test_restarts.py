"""Stop, kill and start again: state stays, nothing else does. One after the other."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.deployment import CLI, deployed, environment
from tests.ports import free_port
from variants.catalog.sql import open_catalog

pytestmark = pytest.mark.integration


def run(settings: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CLI, *arguments], env=settings, capture_output=True, text=True, timeout=600, check=False
    )


def test_in_the_background_and_down_again(state: Path) -> None:
    port = free_port()
    settings = environment(state, port)
    try:
        up = run(settings, "up", "--detach")
        assert up.returncode == 0, up.stderr
        assert f"127.0.0.1:{port}" in up.stderr
    finally:
        down = run(settings, "down")
    assert down.returncode == 0, down.stderr
    assert run(settings, "down").returncode == 3


def test_a_restart_finds_tasks_and_models_again_and_clears_what_a_killed_run_left(
    state: Path,
) -> None:
    with closing(open_catalog(f"sqlite:///{state / 'catalog.db'}")) as catalog:
        known = {variant.name for variant in catalog.snapshot().variants}
    with deployed(state) as first:
        assert {v["name"] for v in first.variants()} == known
        assert first.query([[0.0] * 64]).status == 200
        started = first.processes()
        first.process.kill()
        first.process.wait()
    with deployed(state) as second:
        assert {v["name"] for v in second.variants()} == known
        assert second.query([[0.0] * 64]).status == 200
        assert [p for p in started if p.is_running() and p.status() != "zombie"] == []
