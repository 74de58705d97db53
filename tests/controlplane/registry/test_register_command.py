"""``modelless register`` as a process: what it prints where, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import onnx_models as models
from tests.controlplane.cli.shell import Shell
from variants.catalog.sql import open_catalog
from variants.types import ImageScale

pytestmark = pytest.mark.slow


def command(folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    line = [sys.executable, "-m", "controlplane.cli.main", "register", *arguments]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MODELLESS_")}
    return line, environment | {
        "MODELLESS_STATE_DIR": str(folder / "state"),
        "MODELLESS_CORES": "1",
        "TMPDIR": str(folder),
    }


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line, environment = command(folder, *arguments)
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models.write(tmp_path / "tiny.onnx")
    models.write_rows(tmp_path / "rows.npz")
    return tmp_path


@pytest.fixture
def here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, forked_sandboxes: None
) -> Shell:
    """The command in this process, and models tried in processes that are forked: for what it says,
    which takes a quarter of the processor time."""
    _, environment = command(folder)
    for name in ("MODELLESS_STATE_DIR", "MODELLESS_CORES", "TMPDIR"):
        monkeypatch.setenv(name, environment[name])
    return Shell(monkeypatch, capsys)


def test_it_registers_and_says_what(folder: Path) -> None:
    (folder / "labels.txt").write_text("left\nmiddle\nright\n")
    done = run(
        folder, str(folder / "tiny.onnx"), "--task", "shapes", "--eval", str(folder / "rows.npz"),
        "--labels", f"@{folder / 'labels.txt'}", "--latency-ms", "20", "-o", "json",
        "--progress", "json", "--variants", "onnx-int8", "--image-std", "0.0625",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["versions"][0] | {"source": ""} == {
        "task": "shapes", "model": "tiny", "version": 1, "stage": "live", "source": "",
    }  # fmt: skip
    assert [v["name"] for v in body["variants"]] == ["tiny-v1-onnx-fp32", "tiny-v1-onnx-int8"]
    assert body["variants"][0]["accuracy"] == 1.0
    steps = [json.loads(line) for line in done.stderr.splitlines()]
    assert (steps[0]["step"], steps[-1]["done"]) == ("check", steps[-1]["total"])
    catalog = open_catalog(f"sqlite:///{folder / 'state' / 'catalog.db'}")
    (task,) = catalog.snapshot().tasks
    catalog.close()
    assert (task.labels, task.slo.latency_ms) == (("left", "middle", "right"), 20.0)
    assert task.image == ImageScale(std=(0.0625,))


def test_the_table_names_every_variant(here: Shell, folder: Path) -> None:
    done = here(
        "register", str(folder / "tiny.onnx"), "--task", "shapes",
        "--eval", str(folder / "rows.npz"),
        "--variants", "onnx-int8,tensorrt-fp32",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "left out: tiny-v1-tensorrt-fp32: it runs on GPUs only" in done.out
    for text in ("tiny-v1-onnx-fp32", "tiny-v1-onnx-int8", "100.00 %", "cpu-1", "24 rows"):
        assert text in done.out
    assert done.err.splitlines()[0] == "[0/8] checking tiny.onnx"
    assert done.out.splitlines()[-2] == (
        f"ask it: `modelless query shapes --input {folder / 'rows.npz'} --row 0`"
    )
    assert done.out.splitlines()[-1] == (
        "tiny-v1 may answer any query of shapes from now on; `modelless retire shapes tiny 1` ends"
        " that, and `register --stage canary` would have let it answer only queries that name one"
        " of its variants"
    )


def test_what_comes_from_the_build_cache_is_said(here: Shell, folder: Path) -> None:
    said: list[str] = []
    built: list[int] = []
    for task, options in (("a", ()), ("b", ()), ("c", ("--fresh",))):
        done = here(
            "register", str(folder / "tiny.onnx"), "--task", task,
            "--eval", str(folder / "rows.npz"), "--variants", "onnx-int8", *options,
        )  # fmt: skip
        assert done.code == 0, done.err
        said.append(next((x for x in done.out.splitlines() if "build cache" in x), ""))
        built.append(done.err.count("building"))
    assert said == [
        "",
        "from the build cache: 2 variants built before, 2 measured before; --fresh does all of it"
        " anew",
        "",
    ]
    assert built == [2, 0, 2]


@pytest.mark.parametrize("output", ["table", "json"])
def test_wrong_input_is_one_sentence_and_exit_code_2(
    folder: Path, output: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    wrong = folder / "wrong.onnx"
    wrong.write_text("no model")
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(folder / "state"))
    ended = Shell(monkeypatch, capsys)(
        "register", str(wrong), "--task", "shapes", "--eval", str(folder / "rows.npz"),
        "-o", output, "--progress", "none",
    )  # fmt: skip
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    told = json.loads(line)["error"] if output == "json" else line
    assert "wrong.onnx is not an ONNX model" in told


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("MODELLESS_PORT", "eight", "error: setting MODELLESS_PORT: "),
        ("MODELLESS_STATE_DIR", "/dev/null/state", "error: the state directory /dev/null/state "),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_exit_code_2(
    folder: Path,
    name: str,
    value: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(folder / "state"))
    monkeypatch.setenv(name, value)
    ended = Shell(monkeypatch, capsys)(
        "register", str(folder / "tiny.onnx"), "--task", "shapes",
        "--eval", str(folder / "rows.npz"),
    )  # fmt: skip

    assert (ended.code, ended.out) == (2, "")
    (told,) = ended.err.splitlines()
    assert told.startswith(sentence)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_no_row_and_no_file(
    folder: Path, number: signal.Signals
) -> None:
    models.write(folder / "endless.onnx", models.endless())
    line, environment = command(
        folder, str(folder / "endless.onnx"), "--task", "shapes",
        "--eval", str(folder / "rows.npz"), "--progress", "plain", "--variants", "onnx-fp32",
    )  # fmt: skip
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        while "judging" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)  # anywhere in a step that does not end
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        rest = process.communicate(timeout=120)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == (
        "interrupted: nothing was registered; what was built and measured is kept in"
        f" {folder / 'state' / 'build-cache'}, and the same command goes on from there;"
        " --quick judges by fewer rows and measures less"
    )
    assert [child for child in children if child.is_running()] == []
    assert [p.name for p in folder.glob("modelless-*")] == []
    store = folder / "state" / "artifacts"
    assert [p for p in store.rglob("*") if p.is_file()] == []
    catalog = open_catalog(f"sqlite:///{folder / 'state' / 'catalog.db'}")
    assert catalog.snapshot().versions == ()
    catalog.close()
