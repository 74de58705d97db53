"""Which tests a process takes next, and what another hearing is given to and asks for."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import again
from tests.scheduling.order import INTEGRATION, group, next_group

LONG, OTHER = f"{INTEGRATION}test_digits_family.py", f"{INTEGRATION}clusters/test_compose.py"
FILE = "tests/planner/test_energy.py"
LIVE = "tests/integration/test_live.py::test_it"


class Runs:
    """In place of running pytest: exit statuses to give, and how often it was asked."""

    def __init__(self, *statuses: int) -> None:
        self.left = list(statuses)
        self.commands: list[list[str]] = []

    def run(self, command: list[str], check: bool) -> "subprocess.CompletedProcess[bytes]":
        self.commands.append(command)
        return subprocess.CompletedProcess(command, self.left.pop(0))


@pytest.fixture
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "v" / "cache" / "lastfailed"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(again, "FAILURES", file)
    return file


def hearing(
    monkeypatch: pytest.MonkeyPatch, failures: Path, failed: list[str], *statuses: int
) -> tuple[int, Runs]:
    runs = Runs(*statuses)
    monkeypatch.setattr(subprocess, "run", runs.run)
    failures.write_text(json.dumps(dict.fromkeys(failed, True)))
    return again.main(1), runs


def test_what_passes_three_times_alone_counts_as_passed_and_is_named(
    monkeypatch: pytest.MonkeyPatch, failures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, runs = hearing(monkeypatch, failures, [LIVE], 0, 0, 0)
    assert status == 0
    assert [command[-1] for command in runs.commands] == [LIVE.partition("::")[0]] * 3
    assert f"UNSTEADY: failed beside other tests, passed 3 times alone:\n    {LIVE}" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("statuses", [(1,), (0, 1), (0, 0, 1)])
def test_one_more_failure_fails(
    monkeypatch: pytest.MonkeyPatch, failures: Path, statuses: tuple[int, ...]
) -> None:
    status, runs = hearing(monkeypatch, failures, [LIVE], *statuses)
    assert status == 1
    assert runs.left == []


def test_many_failures_are_no_accident(monkeypatch: pytest.MonkeyPatch, failures: Path) -> None:
    failed = [f"tests/test_{number}.py::test_it" for number in range(again.MOST + 1)]
    status, runs = hearing(monkeypatch, failures, failed)
    assert status == 1
    assert runs.commands == []


def test_what_failed_together_counts_once(monkeypatch: pytest.MonkeyPatch, failures: Path) -> None:
    failed = [f"{LIVE}[{case}]" for case in range(again.MOST + 1)]
    status, runs = hearing(monkeypatch, failures, failed, 0, 0, 0)
    assert status == 0
    assert runs.commands[0][-2:] == ["--last-failed", LIVE.partition("::")[0]]


def test_what_failed_is_tried_in_the_order_of_its_file(
    monkeypatch: pytest.MonkeyPatch, failures: Path, tmp_path: Path
) -> None:
    """Whose tests share something find it as the ones before left it."""
    file = tmp_path / "test_order.py"
    file.write_text(
        "told = []\ndef test_z(): told.append(1)\ndef test_other(): told.append(2)\n"
        "def test_a(): assert told == [1]\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts =\n")
    failures.write_text(json.dumps({"test_order.py::test_a": True, "test_order.py::test_z": True}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(again, "TIMES", 1)
    assert again.main(1) == 0
    failures.write_text(json.dumps({"test_order.py::test_a": True}))
    assert again.main(1) == 1


def test_only_failures_are_tried_again(failures: Path) -> None:
    assert again.main(again.NONE_COLLECTED) == 0
    assert again.main(2) == 2
    assert again.main(1) == 1


def test_a_folder_with_a_shared_deployment_is_one_group() -> None:
    assert group(f"{INTEGRATION}one_worker/test_story.py::test_it") == f"{INTEGRATION}one_worker"
    below = f"{INTEGRATION}one_worker/below/test_it.py::test_it"
    assert group(below) == f"{INTEGRATION}one_worker"
    assert group(f"{LONG}::test_it[a]") == LONG


def test_one_process_leaves_integration_tests_to_the_others() -> None:
    assert next_group([LONG, OTHER, FILE], [True, True, False]) is None
    assert next_group([LONG, OTHER, FILE], [True, True, True]) == FILE
    assert next_group([LONG, OTHER, FILE], [True, True]) == FILE


def test_three_processes_run_integration_tests_at_most() -> None:
    assert next_group([LONG, OTHER, FILE], [True, True, False, False]) is None
    assert next_group([LONG, OTHER, FILE], [True, True, True, False]) == FILE


def test_it_takes_them_when_nothing_else_is_left_or_it_is_alone() -> None:
    assert next_group([LONG, OTHER], [True, True, True]) is None
    assert next_group([LONG, FILE], []) is None
