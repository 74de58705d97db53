"""What a deployment is on its machine: addresses, memory, the command line around it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.controlplane.cli.shell import Shell
from tests.integration.deployment import (
    CLI,
    Deployment,
    environment,
    short_directory,
)
from workers.process.niceness import YIELDING

pytestmark = pytest.mark.integration


def test_the_doctor_sees_what_answers_queries(digits: Deployment) -> None:
    ran = subprocess.run(
        [*CLI, "doctor", "-o", "json"],
        env=environment(digits.state_dir, digits.port),
        capture_output=True,
        text=True,
        check=False,  # it may find something else
    )
    [found] = [one for one in json.loads(ran.stdout) if one["name"] == "niceness"]
    assert found["message"] == "0 in each of 2 gateways and workers on this machine"


def test_everything_listens_on_loopback_only(digits: Deployment) -> None:
    pids = {p.pid for p in digits.processes()} | {digits.process.pid}
    listening = [
        next(iter(connection.laddr))
        for connection in psutil.net_connections("tcp")
        if connection.pid in pids and connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert [ip for ip in listening if ip not in {"127.0.0.1", "::1", "::ffff:127.0.0.1"}] == []


def test_only_what_serves_is_running(digits: Deployment) -> None:
    lines = [" ".join(process.cmdline()) for process in digits.processes()]
    for needless in ("dashboard.py", "monitor.py", "ray::DashboardAgent"):
        assert [line for line in lines if needless in line.split("idle_agent.py")[0]] == []
    for process in digits.processes():
        assert "site-packages/pandas" not in Path(f"/proc/{process.pid}/maps").read_text()


def test_the_control_loop_and_serves_controller_yield_to_queries(digits: Deployment) -> None:
    levels = {}
    for process in digits.processes():
        title = process.cmdline()[0] if process.cmdline() else ""
        if title.startswith("ray::Serve"):
            name = title.split(".")[0].removeprefix("ray::ServeReplica:modelless-").split("-")[0]
            threads = process.threads()
            levels[name.split(":")[0]] = {os.getpriority(os.PRIO_PROCESS, t.id) for t in threads}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if os.geteuid() == 0:  # else a niceness of the tests stays
        own = 0
    assert levels.pop("gateway") == levels.pop("worker") == {own}
    assert set().union(*levels.values()) == {max(own, YIELDING)}
    assert len(levels) == 2


def test_a_worker_without_torch_never_imports_it(digits: Deployment) -> None:
    (worker,) = digits.workers()
    maps = Path(f"/proc/{worker['pid']}/maps").read_text()
    assert "onnxruntime" in maps
    assert "libtorch" not in maps


def test_starting_twice_says_so(digits: Deployment) -> None:
    again = run("up", digits)
    assert again.returncode == 1
    assert "already running" in again.stderr
    assert str(digits.port) in again.stderr


def test_a_taken_port_says_so(digits: Deployment, tmp_path: Path) -> None:
    with short_directory() as home:
        result = subprocess.run(
            [*CLI, "up"],
            env=environment(home, digits.port),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert result.returncode == 1
    where = f"127.0.0.1:{digits.port}"
    assert f"another installation that runs, or starts, has {where}" in result.stderr
    assert "choose another port with --port or MODELLESS_PORT" in result.stderr


def test_the_command_line_reads_and_asks(
    digits: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(digits.state_dir))
    shell = Shell(monkeypatch, capsys)
    for command in ("status", "tasks list", "models list", "workers list", "plan get",
                    "events list", "variants list digits"):  # fmt: skip
        ended = shell(*command.split(), url=f"http://127.0.0.1:{digits.port}")
        assert ended.code == 0, (command, ended.err)
        assert ended.out.strip()
    status = json.loads(run("status -o json", digits).stdout)
    assert status["ready"] is True
    assert [task["loaded"] == task["variants"] > 0 for task in status["tasks"]] == [True]
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([[0.0] * 64]))
    result = run(f"query digits --input {rows} --latency-ms 10000 -o json", digits)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["slo_met"] is True


def run(command: str, deployment: Deployment) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CLI, *command.split()],
        env=environment(deployment.state_dir, deployment.port)
        | {"MODELLESS_URL": f"http://127.0.0.1:{deployment.port}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
