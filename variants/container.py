"""What a container's limits leave of the machine to this process.

A container sees all cores and all memory of its host, and may use a part. Cores that it may not run
on are in its affinity; a quota of processor time and a limit of memory are only in its control
groups (version 1 and 2), those above its own included.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def usable_cores(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUP) -> int:
    """Cores that this process can keep busy: those that it may run on, or what a quota of processor
    time amounts to, rounded down, if that is less. At least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = quota_cores(root, own)
    return cores if quota is None else max(1, min(cores, int(quota)))


def quota_cores(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUP) -> float | None:
    """Cores that the least quota of the control groups of this process amounts to; None where there
    is none."""
    found = []
    for folder in groups("cpu", root, own):
        with suppress(OSError, ValueError):
            found.append(_quota(folder))
    return min(found, default=None)


def most_tasks(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUP) -> int | None:
    """Processes and threads that the control groups of this process allow; None: any number."""
    found = []
    for folder in groups("pids", root, own):
        with suppress(OSError, ValueError):
            found.append(int((folder / "pids.max").read_text()))  # "max" where there is no limit
    return min(found, default=None)


def total_memory_mib(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUP) -> float:
    """Memory of this machine, or the least limit of the control groups of this process."""
    limits = []
    for folder in groups("memory", root, own):
        with suppress(OSError, ValueError):
            limits.append(_limit(folder))
    return float(min([psutil.virtual_memory().total, *limits]) / 2**20)


def free_memory_mib(root: Path = CONTROL_GROUPS, own: Path = OWN_GROUP) -> float:
    """Memory that this process and others beside it may still take, what the kernel caches of files
    counted as free."""
    left = [max(0, limit - used) for limit, used in _memory(root, own)]
    return float(min([psutil.virtual_memory().available, *left]) / 2**20)


def groups(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """The folders of the control groups of this process that may limit something, and of those
    above them. Inside a container a group's path may be that of the host, of which only the
    container's own part is there: its root."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            yield folder
            if folder == base:
                break


def _quota(folder: Path) -> float:
    """Cores by the quota of one control group, of either version.

    Raises:
        OSError, ValueError: it has none.
    """
    if (file := folder / "cpu.max").exists():
        quota, period = file.read_text().split()
    else:
        quota, period = (
            (folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
        )
    if int(quota) <= 0:
        raise ValueError(quota)
    return int(quota) / int(period)


def _limit(folder: Path) -> int:
    """Bytes that one control group may take, of either version.

    Raises:
        OSError, ValueError: it has no limit.
    """
    try:
        text = (folder / "memory.max").read_text()
    except FileNotFoundError:
        text = (folder / "memory.limit_in_bytes").read_text()
    return int(text)  # "max" where there is none


def _memory(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each control group that has a limit, in bytes, without inactive files."""
    for folder in groups("memory", root, own):
        with suppress(OSError, ValueError):
            limit = _limit(folder)
            if (folder / "memory.current").exists():
                names = ("memory.current", "inactive_file")
            else:
                names = ("memory.usage_in_bytes", "total_inactive_file")
            used = int((folder / names[0]).read_text())
            fields = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = next((int(value) for name, value in fields if name == names[1]), 0)
            yield limit, max(0, used - cached)
