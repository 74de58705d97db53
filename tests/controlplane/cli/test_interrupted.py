"""A command that is interrupted ends with its exit code, wherever the interrupt was met; one that
must not end with the reader of its output goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from controlplane.cli.lasting_output import outliving_its_output
from controlplane.cli.outcome import INTERRUPTED
from controlplane.cli.progress import interruptible

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = """
import typer
from controlplane.cli.commands import root
from controlplane.cli.main import main
from controlplane.cli.progress import interruptible

root.app = typer.Typer()

@root.app.command()
def imports():
    with interruptible("nothing was registered"):
        exec("raise KeyboardInterrupt")

main([])
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


AT_ITS_FIRST_IMPORTS = """
import runpy, signal, sys

module = sys.argv.pop(1)

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
runpy.run_module("controlplane.cli.main", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["typer", "variants.errors", "controlplane.cli.commands.look"])
def test_an_interrupt_before_the_command_begins_ends_it_without_a_traceback(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_ITS_FIRST_IMPORTS, module, "models", "list"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "")


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


# -- output whose reader goes away ----------------------------------------------------------------

READ_IN_PART = """
import contextlib, os, sys, time
from pathlib import Path
from controlplane.cli.lasting_output import outliving_its_output
from controlplane.cli.start_lines import step, tell
done = Path(sys.argv[1])
within = outliving_its_output() if sys.argv[2] == "outlives" else contextlib.nullcontext()
with within:
    for number in range(200):
        tell(f"line {number}")
        print("a library's line", flush=True)
        if number == 100:
            time.sleep(0.5)  # the reader has gone by now
    os.system("echo a child >&2")
    with step("Last"):
        pass
    done.write_text("done")
"""


def run_into_head(tmp_path: Path, how: str) -> tuple[int, bool, str]:
    """The exit code of a command of which two lines are read; whether it came to its end."""
    done = tmp_path / "done"
    command = subprocess.Popen(
        [sys.executable, "-c", READ_IN_PART, str(done), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert command.stdout is not None
    lines = [command.stdout.readline() for _ in range(2)]
    command.stdout.close()
    return command.wait(timeout=30), done.exists(), "".join(lines)


def test_a_command_goes_on_whose_reader_has_gone(tmp_path: Path) -> None:
    code, came_to_its_end, read = run_into_head(tmp_path, "outlives")
    assert (code, came_to_its_end) == (0, True)
    assert "line 0" in read


def test_others_end_with_their_reader(tmp_path: Path) -> None:
    code, came_to_its_end, _ = run_into_head(tmp_path, "ends")
    assert (code != 0, came_to_its_end) == (True, False)


def test_while_somebody_reads_everything_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with outliving_its_output():
        print("out")
        print("err", file=sys.stderr)
        assert sys.stdout.isatty() is False
        os.write(sys.stdout.fileno(), b"")
    assert capfd.readouterr() == ("out\n", "err\n")
