"""`modelless doctor`: its lines, its exit code and its JSON."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.startup import doctor
from controlplane.startup.checks import configuration, installation, machine
from tests.controlplane.startup.doctor.looked_at import run

pytestmark = pytest.mark.slow


@pytest.fixture
def one_problem(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that is taken, on a machine that is otherwise fine."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        for name in [name for name in os.environ if name.startswith("MODELLESS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("MODELLESS_STATE_DIR", str(state_dir))
        monkeypatch.setenv("MODELLESS_PORT", str(number))
        monkeypatch.setenv("MODELLESS_GRPC_PORT", "0")
        monkeypatch.setenv("MODELLESS_WORKER_MEMORY_MIB", "1")
        yield number


def test_a_problem_ends_with_1_and_stands_on_one_line_with_its_remedy(
    one_problem: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(["doctor"], capsys)

    lines = out.splitlines()
    assert (code, len(lines)) == (1, len(doctor.CHECKS))
    # Others may use the cores just now, and replicas of other tests may have any niceness.
    beside = (" port ", " core time ", " niceness ")
    others = [line for line in lines if not any(name in line for name in beside)]
    assert {line.split()[0] for line in others} == {"ok"}
    [line] = [line for line in lines if " port " in line]
    assert line.split(maxsplit=2)[2] == (
        f"127.0.0.1:{one_problem} cannot be used: Address already in use; "
        "choose another port with --port or MODELLESS_PORT"
    )


def two_checks(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the doctor look at settings and cores alone, of which nothing is set."""
    monkeypatch.setattr(doctor, "CHECKS", (configuration.names, machine.cores))
    for name in [name for name in os.environ if name.startswith("MODELLESS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(state_dir))


def test_a_warning_stands_on_one_line_and_ends_with_0(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_checks(state_dir, monkeypatch)
    monkeypatch.setenv("MODELLESS_WORKRES", "2")
    monkeypatch.setenv("MODELLESS_CORES", "100000")

    code, out = run(["doctor"], capsys)

    lines = out.splitlines()
    assert (code, [line.split()[:2] for line in lines]) == (
        0, [["warning", "settings"], ["warning", "cores"]],
    )  # fmt: skip
    assert lines[0].endswith("is no setting; did you mean MODELLESS_WORKERS?")
    assert lines[1].split(maxsplit=2)[2].startswith("MODELLESS_CORES=100000, and this machine has ")


def test_on_a_terminal_the_last_line_names_what_matters(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_checks(state_dir, monkeypatch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    assert run(["doctor"], capsys)[1].splitlines()[-1] == "Everything can run here."
    monkeypatch.setenv("MODELLESS_WORKRES", "2")
    assert run(["doctor"], capsys)[1].splitlines()[-1] == "1 warning (settings)"


def test_the_report_in_json_has_the_same(
    one_problem: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Replicas of other tests that run on this machine may have any niceness.
    others = (installation.packages, machine.niceness)
    light = tuple(check for check in doctor.CHECKS if check not in others)
    monkeypatch.setattr(doctor, "CHECKS", light)
    code, out = run(["doctor", "-o", "json"], capsys)

    said = json.loads(out)
    assert (code, len(said)) == (1, len(light))
    assert [one["name"] for one in said if not one["ok"]] == ["port"]


def test_the_doctor_imports_nothing_heavy(state_dir: Path) -> None:
    script = (
        "import sys\n"
        "from controlplane.startup.doctor import examine\n"
        "from controlplane.settings import load_settings\n"
        "list(examine(load_settings()))\n"
        "print(sorted({'ray', 'torch', 'onnx', 'onnxruntime', 'sklearn', 'ortools'} "
        "& set(sys.modules)))\n"
    )
    environment = os.environ | {"MODELLESS_STATE_DIR": str(state_dir)}

    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )

    assert ran.stdout == "[]\n"
    assert not state_dir.exists()
