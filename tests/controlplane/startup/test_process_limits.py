"""Limits of processes within which nothing starts: said at once, and not by an endless start."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.settings import load_settings
from controlplane.startup.process_limits import LEAST_TASKS, strict_limits

GIB = 2**30
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("files", "space_bytes", "tasks", "of"),
    [
        (20_000, -1, -1, []),
        (-1, 4 * GIB, 10_000, []),
        (128, 2 * GIB, LEAST_TASKS, []),
        (127, -1, -1, ["files"]),
        (-1, 2 * GIB - 1, -1, ["memory"]),
        (-1, -1, LEAST_TASKS - 1, ["processes"]),
        (64, GIB, 50, ["files", "memory", "processes"]),
    ],
)
def test_which_limits_are_too_low(
    files: int, space_bytes: int, tasks: int, of: list[str], tmp_path: Path
) -> None:
    found = strict_limits(load_settings(state_dir=tmp_path), files, space_bytes, tasks)
    assert [one.of for one in found] == of


def test_the_nodes_of_a_cluster_have_limits_of_their_own(tmp_path: Path) -> None:
    assert strict_limits(load_settings(state_dir=tmp_path, ray_address="auto"), 64, GIB, 50) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        (
            resource.RLIMIT_NOFILE,
            100,
            "100 open files are allowed (ulimit -Hn), and nothing starts with fewer than 128; "
            "raise that limit: LimitNOFILE= of systemd, --ulimit nofile= of Docker",
        ),
        (
            resource.RLIMIT_AS,
            GIB,
            "a process may map 1,024 MiB (ulimit -v), and nothing starts with less than "
            "2,048 MiB; lift that limit, as MODELLESS_WORKER_MEMORY_MIB bounds what variants take",
        ),
    ],
)
def test_up_refuses_to_start_within_them(limit: int, most: int, said: str, tmp_path: Path) -> None:
    given = {name: value for name, value in os.environ.items() if "MODELLESS_" not in name}
    ended = subprocess.run(
        [sys.executable, "-m", "controlplane.cli.main", "up"],
        env=given | {"MODELLESS_STATE_DIR": str(tmp_path / "s"), "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (2, f"error: {said}")
