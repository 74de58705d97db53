"""What a measurement was made on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def fingerprint(*libraries: str) -> str:
    """Processor, cores, system and library versions in one line.

    Two profiles with the same fingerprint can be compared.
    """
    parts = [_processor(), f"{len(os.sched_getaffinity(0))} cores"]
    parts.append(f"{platform.system()} {platform.release()}")
    for library in libraries:
        try:
            parts.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            parts.append(f"no {library}")
    return "; ".join(parts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
