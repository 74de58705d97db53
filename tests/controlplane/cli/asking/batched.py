"""Files of rows, and a run of ``modelless batch`` over them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.controlplane.cli.asking.answering import Answering
from tests.controlplane.cli.shell import Ended, Shell


def rows_npz(tmp_path: Path, count: int) -> Path:
    """Rows whose first number is that of the row."""
    rows = np.zeros((count, 64), np.float64)
    rows[:, 0] = np.arange(count)
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, pixels=rows, labels=np.arange(count))
    return path


def rows_jsonl(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def row(number: int) -> str:
    return json.dumps([number, *[0] * 63])


def batch(shell: Shell, gateway: Answering, rows: Path, answers: Path, *options: str) -> Ended:
    arguments = ("--input", str(rows), "--output", str(answers), "--progress", "none", *options)
    return shell("batch", "digits", *arguments, url=gateway.url)


def answers_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


TWO: list[dict[str, Any]] = [
    {"name": "age", "dtype": "int32", "shape": []},
    {"name": "marks", "dtype": "float32", "shape": [2]},
]
