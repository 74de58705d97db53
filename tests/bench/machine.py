"""The machine that numbers were taken on, in one line, and whether it was idle."""

import os
import platform
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import psutil

IDLE_CORES = 0.3
"""Numbers taken while others use more than this say so."""
LIBRARIES = ("ray", "onnxruntime", "uvloop")


def describe() -> str:
    """Processor, memory, kernel, versions, and the load average of the last minute."""
    cores = len(os.sched_getaffinity(0))
    return ", ".join(
        (
            _processor(),
            "1 core" if cores == 1 else f"{cores} cores",
            f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
            f"{platform.system()} {platform.release()}",
            f"Python {platform.python_version()}",
            *(f"{name} {version(name)}" for name in LIBRARIES),
            f"load average {os.getloadavg()[0]:.2f}",
        )
    )


class Others:
    """What processes that are not ours compute while it is entered.

    Ours are this one and all below it. Time that a hypervisor took away counts as others'.
    """

    def __init__(self) -> None:
        self.cores = 0.0
        self._begin = (0.0, 0.0, 0.0)

    def __enter__(self) -> "Others":
        self._begin = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        wall_s, idle_s, ours_s = (
            now - was for now, was in zip(self._now(), self._begin, strict=True)
        )
        self.cores = max(0.0, (psutil.cpu_count() or 1) - (idle_s + ours_s) / wall_s)

    def _now(self) -> tuple[float, float, float]:
        """Time on the wall, time that cores were idle, processor time of ours, in seconds."""
        machine = psutil.cpu_times()
        ours_s = 0.0
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            with suppress(psutil.Error):  # it has just ended, and counts at its parent's
                ours_s += sum(process.cpu_times()[:4])
        return time.monotonic(), machine.idle + machine.iowait, ours_s


def _processor() -> str:
    """The model; a virtual machine's often says little, so family and model number go with it."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    numbers = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    return f"{fields['model name']} ({numbers})"
