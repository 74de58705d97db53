"""`modelless up` where it must not start: one sentence, and nothing is made."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from controlplane.building.types import Progress
from controlplane.cli import start_lines
from controlplane.cli.commands import lifecycle
from controlplane.cli.render.words import left_words
from controlplane.cli.start_lines import hello, own_name, progress
from controlplane.settings import load_settings
from tests.controlplane.certificates import self_signed

pytestmark = pytest.mark.slow

TOKEN = "sixteen-letters!"


def up(folder: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """Exit code and what is said on standard error."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MODELLESS_")}
    environment["MODELLESS_STATE_DIR"] = str(folder / "state")
    environment |= {f"MODELLESS_{name}": value for name, value in settings.items()}
    ran = subprocess.run(
        [sys.executable, "-m", "controlplane.cli.main", "up", *arguments],
        capture_output=True, text=True, env=environment, timeout=300, check=False,
    )  # fmt: skip
    assert ran.stdout == ""
    assert not (folder / "state").exists()
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "set MODELLESS_API_TOKEN to at least 16 characters"),
        ({"API_TOKEN": "short"}, "MODELLESS_API_TOKEN has 5 characters"),
        ({"API_TOKEN": TOKEN}, "the token would travel in the clear"),
        (
            {"API_TOKEN": TOKEN, "BEHIND_TLS_PROXY": "true"},
            "set MODELLESS_ALLOWED_HOSTS to the names they use",
        ),
    ],
)
@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_an_open_door_is_refused(
    tmp_path: Path, settings: dict[str, str], said: str, detach: list[str]
) -> None:
    code, text = up(tmp_path, "--host", "0.0.0.0", *detach, **settings)

    assert (code, len(text.splitlines())) == (2, 1)
    assert "MODELLESS_HOST=0.0.0.0 is" in text
    assert said in text


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("kill -TERM $$", 1, "the start was ended by SIGTERM; nothing runs"),
        ("exit 0", 1, "the start ended without a word"),
        ("echo error: no; exit 3", 3, "error: no"),
    ],
)
def test_a_start_in_the_background_that_ends_is_told_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: str,
    code: int,
    said: str,
) -> None:
    class Ends(subprocess.Popen[bytes]):
        def __init__(self, _: object, **options: Any) -> None:
            super().__init__(["sh", "-c", end], **options)

    monkeypatch.setattr(lifecycle, "err", Console(stderr=True))
    monkeypatch.setattr("controlplane.cli.commands.lifecycle.subprocess.Popen", Ends)
    settings = load_settings(state_dir=tmp_path)
    with pytest.raises(typer.Exit) as ended:
        lifecycle._detach(settings, None)
    assert (ended.value.exit_code, capsys.readouterr().err.strip()) == (code, said)


def test_a_certificate_that_clients_would_refuse_is_refused(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, days=-1)

    code, text = up(tmp_path, TLS_CERT=pair.certificate, TLS_KEY=pair.key)

    assert code == 2
    assert "has expired" in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("done", "total", "spent_s", "words"),
    [
        (0, 100, 5.0, ""),
        (0, 0, 5.0, ""),
        (100, 100, 5.0, ""),
        (10, 100, 30.0, "about 4 min left"),
        (25, 100, 30.0, "about 90 s left"),
        (50, 100, 24.0, "about 20 s left"),
        (90, 100, 30.0, "some seconds left"),
    ],
)
def test_how_long_the_rest_takes_is_said_in_round_numbers(
    done: int, total: int, spent_s: float, words: str
) -> None:
    assert left_words(done, total, spent_s) == words


def test_a_log_has_a_line_for_each_step_with_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_lines, "err", Console(stderr=True))
    with progress("Example models") as show:
        for done, message in (
            (0, "training a"),
            (50, "measuring a"),
            (50, "measuring a: 2 threads"),
        ):
            step = message.partition("ing")[0].replace("measur", "measure")
            show(Progress(step=step, done=done, total=200, message=message))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["      0 %  training a", "     25 %  measuring a, some seconds left"]


@pytest.mark.parametrize("width", [60, 100])
def test_on_a_terminal_a_long_step_pushes_neither_the_bar_nor_the_clock_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    console = Console(stderr=True, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(start_lines, "err", console)
    at = "judging cnn-large-v1-onnx-fp32 on cpu-1: 8 of 540 rows"
    with progress("Profiles") as show:
        message = f"{at}, about 5 min until all are judged"
        show(Progress(step="measure", done=100, total=200, message=message))
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).splitlines()
    bars = [line for line in drawn if "Profiles" in line and "50 %" in line]
    assert bars
    assert all("0:00:00 some seconds left" in line for line in bars)
    assert f"    {at}" in [line.rstrip() for line in drawn]


@pytest.mark.parametrize("tasks", [{"digits", "a"}, {"churn"}])
def test_the_first_thing_to_ask_is_shown_although_standard_output_is_rays_by_then(
    tasks: set[str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with (tmp_path / "ray.log").open("w") as log:
        monkeypatch.setattr("sys.stdout", log)
        hello(load_settings(state_dir=tmp_path), "http://127.0.0.1:8000", 9.0, tasks)
    said = capfd.readouterr().err
    assert said.endswith("Ctrl-C stops everything.\n")
    asked = 'v1/query -d \'{"task": "digits"' if "digits" in tasks else "v2/models/churn"
    assert f"curl -s http://127.0.0.1:8000/{asked}" in said
    assert (tmp_path / "ray.log").read_text() == ""


@pytest.mark.parametrize(
    ("found", "here", "name"),
    [
        ("/usr/bin/modelless", "/home/ann/m", "modelless"),
        (None, "/home/ann/m", ".venv/bin/modelless"),
        (None, "/srv", "/home/ann/m/.venv/bin/modelless"),
    ],
)
def test_the_command_is_shown_as_a_shell_finds_it(found: str | None, here: str, name: str) -> None:
    assert own_name(found, Path("/home/ann/m/.venv/bin/python"), Path(here)) == name


def test_a_task_of_texts_is_shown_with_a_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = ("churn", "sentiment")
    hello(load_settings(state_dir=tmp_path), "http://127.0.0.1:8000", 9.0, tasks, ("sentiment",))
    asked = """/v1/query -d '{"task": "sentiment", "inputs": ["a text"]}'"""
    assert f"curl -s http://127.0.0.1:8000{asked}" in capfd.readouterr().err


def test_in_the_background_a_command_stops_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(state_dir=tmp_path)
    hello(settings, "http://127.0.0.1:8000", 9.0, (), at_terminal=False)
    said = capfd.readouterr().err
    assert said.endswith("\n`modelless down` stops everything.\n")
    # A log breaks no command in two.
    assert "`modelless register MODEL.onnx --task NAME --eval ROWS.npz`\n" in said
