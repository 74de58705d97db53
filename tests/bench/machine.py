"""The machine that numbers were taken on, in one line, and whether it was idle."""

import os
import platform
import time
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


def busy_cores(seconds: float = 1.0) -> float:
    """Cores in use while this process sleeps; time that a hypervisor took away counts, too."""
    before, began_s = psutil.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took_s = psutil.cpu_times(), time.monotonic() - began_s
    idle_s = after.idle + after.iowait - before.idle - before.iowait
    return max(0.0, (psutil.cpu_count() or 1) - idle_s / took_s)


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
