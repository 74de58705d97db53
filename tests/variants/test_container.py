"""What the limits of control groups leave to a process, from files as the kernel writes them, and
from the kernel itself where this process may make a group."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import psutil
import pytest

from variants.container import (
    CONTROL_GROUPS,
    free_memory_mib,
    most_tasks,
    quota_cores,
    total_memory_mib,
    usable_cores,
)

HERE = len(os.sched_getaffinity(0))
MIB = 2**20


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """This process is in a group of the second version, which limits nothing."""
    file = tmp_path / "own"
    file.write_text("0::/pod/container\n")
    (tmp_path / "pod" / "container").mkdir(parents=True)
    return file


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_without_limits_it_is_the_machine(tmp_path: Path, own: Path) -> None:
    write(tmp_path / "pod" / "container", cpu__max="max 100000", memory__max="max")
    for where in (own, tmp_path / "none"):
        assert quota_cores(tmp_path, where) is None
        assert usable_cores(tmp_path, where) == HERE
        assert total_memory_mib(tmp_path, where) == psutil.virtual_memory().total / MIB
        assert 0 < free_memory_mib(tmp_path, where) < total_memory_mib(tmp_path, where)


def test_the_fewest_processes_that_a_group_or_one_above_it_allows_count(
    tmp_path: Path, own: Path
) -> None:
    group = tmp_path / "pod" / "container"
    assert most_tasks(tmp_path, own) is None
    write(group, pids__max="max")
    assert most_tasks(tmp_path, own) is None
    write(group, pids__max="300")
    write(tmp_path / "pod", pids__max="200")
    assert most_tasks(tmp_path, own) == 200


def test_the_least_quota_of_a_group_and_those_above_it_counts(tmp_path: Path, own: Path) -> None:
    write(tmp_path / "pod" / "container", cpu__max="250000 100000")
    write(tmp_path / "pod", cpu__max="150000 100000")
    assert quota_cores(tmp_path, own) == 1.5


@pytest.mark.parametrize(
    ("quota", "cores"), [(20_000, 1), (100_000, 1), (190_000, 1), (10_000_000, HERE)]
)
def test_a_part_of_a_core_is_none_that_can_be_kept_busy(
    tmp_path: Path, own: Path, quota: int, cores: int
) -> None:
    write(tmp_path / "pod" / "container", cpu__max=f"{quota} 100000")
    assert usable_cores(tmp_path, own) == cores


def test_the_least_limit_of_memory_counts_and_files_are_free(tmp_path: Path, own: Path) -> None:
    write(
        tmp_path / "pod" / "container",
        memory__max=str(100 * MIB),
        memory__current=str(70 * MIB),
        memory__stat=f"anon 1\ninactive_file {30 * MIB}",
    )
    write(tmp_path / "pod", memory__max="max", memory__current="0", memory__stat="")
    assert total_memory_mib(tmp_path, own) == 100.0
    assert free_memory_mib(tmp_path, own) == 60.0


def test_a_limit_counts_without_looking_at_what_is_used(tmp_path: Path, own: Path) -> None:
    """Device kinds are asked for at every turn of the control loop; the kernel sums the rest up."""
    write(tmp_path / "pod", memory__max=str(100 * MIB))
    assert total_memory_mib(tmp_path, own) == 100.0


def test_a_group_that_is_full_leaves_nothing(tmp_path: Path, own: Path) -> None:
    write(
        tmp_path / "pod",
        memory__max=str(100 * MIB),
        memory__current=str(101 * MIB),
        memory__stat="inactive_file 0",
    )
    assert free_memory_mib(tmp_path, own) == 0.0


def test_groups_of_the_first_version_as_a_container_sees_them(tmp_path: Path) -> None:
    """The paths are those of the host, of which a container sees its own part alone."""
    own = tmp_path / "own"
    own.write_text("9:name=systemd:/\n8:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n3:cpuset:/\n")
    period = {"cpu__cfs_period_us": "100000"}
    write(tmp_path / "cpu", **period, cpu__cfs_quota_us="-1")
    assert quota_cores(tmp_path, own) is None
    write(tmp_path / "cpu", **period, cpu__cfs_quota_us="300000")
    write(
        tmp_path / "memory",
        memory__limit_in_bytes=str(50 * MIB),
        memory__usage_in_bytes=str(20 * MIB),
        memory__stat=f"inactive_file 0\ntotal_inactive_file {5 * MIB}",
    )
    assert quota_cores(tmp_path, own) == 3.0
    assert total_memory_mib(tmp_path, own) == 50.0
    assert free_memory_mib(tmp_path, own) == 35.0


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """New groups of this machine for processor time and memory, of either version."""
    name = f"modelless-test-{token_hex(4)}"
    second = (CONTROL_GROUPS / "cgroup.controllers").exists()
    parents = [CONTROL_GROUPS] if second else [CONTROL_GROUPS / c for c in ("cpu", "memory")]
    made: list[Path] = []
    try:
        try:
            for parent in parents:
                (parent / name).mkdir()
                made.append(parent / name)
            if second:
                (made[0] / "cpu.max").write_text("100000 100000")
                (made[0] / "memory.max").write_text(str(256 * MIB))
            else:
                (made[0] / "cpu.cfs_quota_us").write_text("100000")
                (made[1] / "memory.limit_in_bytes").write_text(str(256 * MIB))
        except OSError as error:
            pytest.skip(f"this process may make no control group here: {error}")
        yield made
    finally:
        for folder in made:
            folder.rmdir()


def test_a_process_in_a_group_sees_its_limits(groups: list[Path]) -> None:
    code = (
        "import os, sys\n"
        "for folder in sys.argv[1:]:\n"
        "    open(f'{folder}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "from variants.container import *\n"
        "print(usable_cores(), total_memory_mib(), free_memory_mib())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, groups)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    cores, total_mib, free_mib = map(float, done.stdout.split())
    assert (cores, total_mib) == (1.0, 256.0)
    assert 0.0 < free_mib < 256.0
