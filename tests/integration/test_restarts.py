"""Stop, kill and start again: state stays, nothing else does."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.deployment import (
    CLI,
    Deployment,
    deployed,
    environment,
    short_directory,
)
from tests.ports import free_port

pytestmark = pytest.mark.integration


def test_a_restart_finds_tasks_and_models_again(state: Path, digits: Deployment) -> None:
    known = {v["name"] for v in digits.variants()}
    digits.stop()
    with deployed(state) as again:
        assert {v["name"] for v in again.variants()} == known
        assert again.query([[0.0] * 64]).status == 200


def test_what_a_killed_run_left_is_cleared(state: Path) -> None:
    with deployed(state) as first:
        started = first.processes()
        first.process.kill()
        first.process.wait()
    with deployed(state) as second:
        assert second.query([[0.0] * 64]).status == 200
        assert [p for p in started if p.is_running() and p.status() != "zombie"] == []


def test_in_the_background_and_down_again(state: Path) -> None:
    with short_directory() as home:
        shutil.copytree(state / "artifacts", home / "artifacts")
        shutil.copy(state / "catalog.db", home)
        port = free_port()
        settings = environment(home, port)
        up = subprocess.run([*CLI, "up", "--detach"], env=settings, capture_output=True, text=True,
                            timeout=300, check=False)  # fmt: skip
        try:
            assert up.returncode == 0, up.stderr
            assert f"127.0.0.1:{port}" in up.stderr
        finally:
            down = subprocess.run([*CLI, "down"], env=settings, capture_output=True, text=True,
                                  timeout=300, check=False)  # fmt: skip
        assert down.returncode == 0, down.stderr
        again = subprocess.run([*CLI, "down"], env=settings, capture_output=True, text=True,
                               timeout=300, check=False)  # fmt: skip
        assert again.returncode == 3
