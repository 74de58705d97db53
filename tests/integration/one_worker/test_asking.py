"""Commands that ask for a while, against a whole installation: a replay, a batch, a look."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.deployment import CLI, Deployment, environment
from tests.integration.digits import Rows

pytestmark = pytest.mark.integration

COMMAND_S = 300.0
HEADER = "arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k\n"
PRIORITY = {"priority": 1, "latency_slo_ms": 10_000}


def settings_of(deployment: Deployment) -> dict[str, str]:
    url = f"http://127.0.0.1:{deployment.port}"
    return environment(deployment.state_dir, deployment.port) | {"MODELLESS_URL": url}


def run(deployment: Deployment, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CLI, *arguments],
        env=settings_of(deployment),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


@pytest.fixture
def rows(held_out: tuple[Rows, list[int]], tmp_path: Path) -> Path:
    pixels, _ = held_out
    path = tmp_path / "rows.npz"
    np.savez(path, pixels=np.asarray(pixels, np.float32))
    return path


def test_a_trace_is_replayed_beside_the_simulator(
    digits: Deployment, rows: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(HEADER + "".join(f"{n / 20},digits,10000,0.9,\n" for n in range(40)))

    ended = run(digits, "replay", str(trace), "--input", str(rows), "--compare", "-o", "json")

    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    for counted in (found, found["by_gateway"], found["simulated"]):
        assert (counted["requests"], counted["in_time"]) == (40, 40), found
        assert counted["effective_accuracy"] >= 0.9
    assert found["cost_usd"] > 0
    assert sum(found["variants"].values()) == 40
    assert found["difference"]["in_time"] == 0


@pytest.mark.campaign
def test_queries_of_priority_1_are_answered_while_a_batch_runs(
    digits: Deployment, held_out: tuple[Rows, list[int]], tmp_path: Path
) -> None:
    """And the batch, interrupted once, answers each row as the catalog says."""
    pixels, labels = held_out
    times = 60
    rows, answers = tmp_path / "many.npz", tmp_path / "answers.npz"
    np.savez(rows, pixels=np.tile(np.asarray(pixels, np.float32), (times, 1)))
    command = ["batch", "digits", "--input", str(rows), "--output", str(answers)]
    more = ["--accuracy", "0.97", "--rows-per-query", "2", "--json", "--progress", "none"]
    running = subprocess.Popen(
        [*CLI, *command, *more],
        env=settings_of(digits),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        part = tmp_path / "answers.npz.part"
        digits.until(lambda: part.exists() and part.stat().st_size > 0, "an answer of the batch")
        asked = [interactive(digits, pixels[n : n + 1]) for n in range(50)]
        assert running.poll() is None, running.stderr and running.stderr.read()
        assert asked == [200] * 50
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=COMMAND_S)
        assert running.returncode == 130, said
        assert f"of {times * len(labels):,} rows are done; `--resume` goes on" in said
    finally:
        running.kill()
        running.communicate()

    resumed = run(digits, *command, *more, "--resume")

    assert resumed.returncode == 0, resumed.stderr
    done = json.loads(resumed.stdout)
    assert (done["rows"], done["refused"]) == (times * len(labels), 0)
    assert 0 < done["resumed"] < done["rows"]
    found = np.load(answers)
    right = found["label"] == np.tile(np.asarray(labels).astype(str), times)
    assert found["scores"].shape == (times * len(labels), 10)
    assert abs(right.mean() - found["accuracy"].mean()) < 0.01


def test_one_look_shows_what_runs(digits: Deployment, rows: Path) -> None:
    assert run(digits, "query", "digits", "--input", str(rows)).returncode == 0
    ended = run(digits, "top", "--once")
    assert (ended.returncode, ended.stderr) == (0, "")
    [worker] = digits.workers()
    lines = [line.split() for line in ended.stdout.splitlines()]
    [kind] = [line for line in lines if line and line[0] == worker["device_kind"]]
    assert kind[1:4] == ["1", "of", "1"]
    shown = {line[0] for line in lines if line and line[0].startswith("digits/")}
    assert shown == {f"digits/{variant}" for variant in digits.ready(worker)}
    assert any(line and line[0] == "digits" for line in lines)


def interactive(deployment: Deployment, rows: Any) -> int:
    """The status of a query of the highest priority."""
    data = {"name": "pixels", "datatype": "FP32", "shape": [1, 64], "data": rows}
    body = {"inputs": [data], "parameters": PRIORITY}
    answer = deployment.request("POST", "/v2/models/digits/infer", body)
    time.sleep(0.02)
    return answer.status
