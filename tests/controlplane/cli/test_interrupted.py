"""A command that is interrupted ends with its exit code, wherever the interrupt was met."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from controlplane.cli.outcome import INTERRUPTED
from controlplane.cli.progress import interruptible

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = """
import typer
from controlplane.cli import main as cli
from controlplane.cli.progress import interruptible

cli.app = typer.Typer()

@cli.app.command()
def imports():
    with interruptible("nothing was registered"):
        exec("raise KeyboardInterrupt")

cli.main([])
"""
"""Is interrupted in code that is run from text, as `dataclasses` does it while modules are
imported: a process of ``python -m`` is then killed by SIGINT in the end, whatever it caught."""


def test_an_interrupt_while_modules_are_imported_ends_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(COMMAND)
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (130, "interrupted: nothing was registered\n")


class Interrupting:
    """Is interrupted while it is collected, where Python ignores what is raised."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_python_ignored_ends_the_command(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    hook, handlers = sys.unraisablehook, [signal.getsignal(signal.SIGTERM)]
    handlers.append(signal.getsignal(signal.SIGALRM))

    def work() -> None:
        with interruptible("nothing was registered"):
            Interrupting(number)
            time.sleep(30)

    with pytest.raises(typer.Exit) as ended:
        work()
    assert ended.value.exit_code == INTERRUPTED
    assert capsys.readouterr().err == "interrupted: nothing was registered\n"
    assert sys.unraisablehook is hook
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGALRM)] == handlers


def test_other_exceptions_that_python_ignores_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []

    class Failing:
        def __del__(self) -> None:
            raise ValueError("collected")

    monkeypatch.setattr(sys, "unraisablehook", lambda what: shown.append(str(what.exc_value)))
    with interruptible("nothing was registered"):
        Failing()
    assert shown == ["collected"]
