"""Compiled PyTorch programs, kept on the machine that they were compiled for.

Each lies unpacked in a folder of its own, and a process loads it from there every time: a library
that is loaded from the same file again is the same library. From a new file it would be another
one, and none is ever unloaded, because AOTInductor's libraries keep a thread's last error in a
variable of the thread: 1.5 MiB a load stayed of a small model. It also leaves the weights in the
system's file cache, where all workers share them.
"""

import hashlib
import json
import os
import platform
import secrets
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

from variants.errors import RuntimeFailed
from workers.runtimes.engine_store import LIMIT_MIB, EngineCache
from workers.runtimes.pytorch.compiling import COMPILER, CONFIGURATION, Order, compile_apart

_PROGRAM = "program"
_MANIFEST = "manifest.json"


def package(
    order: Order,
    folder: Path,
    *,
    limit_mib: float = LIMIT_MIB,
    make: Callable[[Order], bytes] = compile_apart,
) -> Path:
    """The folder of a compiled program, compiled now if it has never been.

    ``folder`` is where they are kept, so much of them; ``make`` is what compiles.

    Raises:
        RuntimeFailed: it cannot be compiled, or nothing can be kept there.
    """
    kept = EngineCache(folder)
    digest = _digest(order)
    with kept.building(digest):
        own = kept.subfolder(digest)
        if own is None:
            raise RuntimeFailed(f"compiled programs cannot be kept in {folder}")
        program = own / _PROGRAM
        if not _whole(program):
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir(mode=0o700)
            fresh = own / f".{secrets.token_hex(8)}"
            unpack(make(order), fresh)
            fresh.rename(program)
            _prune(folder, own, limit_mib)
        return program


def unpack(data: bytes, folder: Path) -> None:
    """Write a package's files into a new folder, with a list of what they are."""
    folder.mkdir(mode=0o700)
    with zipfile.ZipFile(BytesIO(data)) as members:
        members.extractall(folder)
    manifest = json.dumps(_digests(folder), indent=1)
    (folder / _MANIFEST).write_text(manifest)


def _prune(folder: Path, keep: Path, limit_mib: float) -> None:
    """Remove the longest unused programs until the rest fits. A process that runs one keeps it."""
    found = []
    for program in folder.glob(f"*/{_PROGRAM}"):
        with suppress(OSError):
            size = sum(path.stat().st_size for path in program.rglob("*"))
            found.append((program.stat().st_mtime_ns, program.parent, size))
    excess = sum(size for *_, size in found) - limit_mib * 2**20
    for _, own, size in sorted(found):
        if excess > 0 and own != keep:
            shutil.rmtree(own, ignore_errors=True)
            excess -= size


def _whole(folder: Path) -> bool:
    """Whether a package lies there with all that was written, and nothing else."""
    with suppress(OSError, ValueError):
        if json.loads((folder / _MANIFEST).read_bytes()) == _digests(folder):
            os.utime(folder)
            return True
    return False


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the list itself."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / _MANIFEST:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[str(path.relative_to(folder))] = digest
    return found


def _digest(order: Order) -> str:
    """The key of all that the machine code depends on."""
    with open(order.path, "rb") as file:
        artifact = hashlib.file_digest(file, "sha256").hexdigest()
    about = {
        **asdict(order),
        "path": artifact,
        "torch": version("torch"),
        "machine": _gpu() if order.device == "cuda" else _processor(),
        "configuration": [COMPILER, CONFIGURATION],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


@cache
def _processor() -> str:
    """The properties of the processor that decide which instructions a compiler may use."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.startswith(("flags", "Features"))]
    return f"{platform.machine()} {lines[0] if lines else ''}"


def _gpu() -> list[Any]:
    import torch

    return [torch.cuda.get_device_name(), *torch.cuda.get_device_capability(), torch.version.cuda]
