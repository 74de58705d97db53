"""A command that is interrupted ends with its exit code, wherever the interrupt was met."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
