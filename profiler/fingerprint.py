"""What a measurement was made on, and whether that is still what there is.

A fingerprint is one line of clauses: the processor, its cores, the system, then libraries, then a
GPU and its driver. Lines that were written with fewer clauses are compared by those they have.
"""

import platform
from contextlib import suppress
from pathlib import Path

from variants.container import usable_cores

_BUILDS = ("", "-gpu", "-cu12", "-cu13")
"""Ends of the names of distributions of the same library that are built for GPUs."""
_NONE = "none"
_SYSTEMS = ("Linux", "Darwin", "Windows", "FreeBSD")
_PROCESSOR, _CORES, _SYSTEM, _GPU, _DRIVER = "processor", "cores", "system", "GPU", "driver"


def fingerprint(*libraries: str, gpu: str = "", driver: str = "") -> str:
    """Processor, cores, system and library versions in one line.

    Two profiles with the same fingerprint can be compared. ``gpu`` and its ``driver`` are named for
    variants that run on one.
    """
    processor = _processor()
    parts = [processor.get("model name", platform.machine())]
    if "model" in processor:  # a virtual machine's name of it says little
        parts.append(f"family {processor.get('cpu family', '?')} model {processor['model']}")
    parts.append(f"{usable_cores()} cores")
    parts.append(f"{platform.system()} {platform.release()}")
    for library in libraries:
        found = _version(library)
        parts.append(f"no {library}" if found is None else f"{library} {found}")
    parts += [f"{_GPU} {gpu}"] if gpu else []
    parts += [f"{_DRIVER} {driver}"] if driver else []
    return "; ".join(part.replace(";", ",") for part in parts)


def gpu_and_driver() -> tuple[str, str]:
    """Name and driver version of this process's GPU, for ``fingerprint``; empty where none is."""
    from profiler.hardware_counters import find_gpu

    device, _ = find_gpu()
    return ("", "") if device is None else (device.name, device.driver)


def is_stale(profile_host: str, now: str) -> str | None:
    """What has changed since a profile was measured, in one clause: ``onnxruntime 1.30 -> 1.31``.

    ``profile_host`` and ``now`` are fingerprints. ``None`` when nothing has that matters: neither
    another release of the same system's kernel does, nor a clause that only one of them has.
    """
    was, is_now = _clauses(profile_host), _clauses(now)
    changes = [
        f"{name} {was[name]} -> {is_now[name]}"
        for name in was
        if name in is_now and was[name] != is_now[name]
    ]
    return ", ".join(changes) or None


def lasting(line: str) -> str:
    """A fingerprint without the release of the system's kernel, which ``is_stale`` disregards."""
    parts = line.split("; ")
    return "; ".join(
        part.partition(" ")[0] if part.partition(" ")[0] in _SYSTEMS else part for part in parts
    )


def _clauses(line: str) -> dict[str, str]:
    """Name to value, in order. The processor comes first and has no name of its own."""
    processor, *parts = line.split("; ")
    found = {_PROCESSOR: processor} if processor else {}
    for part in parts:
        first, _, rest = part.partition(" ")
        if first == "no":
            found[rest] = _NONE
        elif rest in {"core", _CORES}:
            found[_CORES] = first
        elif first in _SYSTEMS:
            found[_SYSTEM] = first
        elif first and rest:
            found[first] = rest
    return found


def _version(library: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    for build in _BUILDS:
        try:
            return version(library + build)
        except PackageNotFoundError:
            continue
    return None


def _processor() -> dict[str, str]:
    """What the system says of the first processor."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    return fields
