"""Where a cluster's profiles are measured, on two raylets: see ``nodes_that_measure``."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.deployment import short_directory

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    with short_directory() as home:
        command = [sys.executable, "-m", "tests.integration.clusters.nodes_that_measure", str(home)]
        ran = subprocess.run(
            command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600
        )
        assert ran.returncode == 0, ran.stderr
        return dict(json.loads((home / "found.json").read_text()))


def test_a_kind_without_workers_is_measured_on_a_node_of_its_label(
    found: dict[str, Any],
) -> None:
    assert found["bound"]


def test_an_artifact_that_is_not_what_was_registered_is_refused_there(
    found: dict[str, Any],
) -> None:
    assert found["damaged"].startswith("ARTIFACT_INVALID: ")
    assert "is damaged" in found["damaged"]


def test_a_process_beside_workers_takes_only_what_nobody_else_wants(found: dict[str, Any]) -> None:
    on_a_slice_of_its_own, beside_workers = found["scheduled"]
    assert on_a_slice_of_its_own == os.SCHED_OTHER
    assert beside_workers == os.SCHED_IDLE


def test_a_node_that_is_lost_is_told_as_that(found: dict[str, Any]) -> None:
    assert found["lost"].startswith("REPLICA_LOST: measuring mlp-v1-onnx-fp32 on cpu-1: ")


def test_a_node_that_is_lost_is_known_as_gone_when_its_process_is(found: dict[str, Any]) -> None:
    assert found["stay"] == [True, False]


def test_the_code_of_all_benches_is_kept_once(found: dict[str, Any]) -> None:
    assert found["classes"] == 1
