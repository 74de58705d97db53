"""Keys of the build cache: digests of everything that a result depends on.

That is what goes in (files and rows, by their contents), how it is done (the code of this project
and the versions of libraries) and, for what is measured, where. Names play no part: the same model
under another name, or for another task of the same form, finds what was done before.
"""

import hashlib
import json
import platform
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from profiler.fingerprint import fingerprint, gpu_and_driver, lasting
from variants.builders.registry import BUILDERS, make_builder
from workers.runtimes.registry import RUNTIMES, libraries_of

FORMAT = 1
"""Of what is kept under a key: another one has keys of its own."""
ROOT = Path(__file__).resolve().parents[2]
BUILDING = ("variants/builders", "variants/checks", "variants/metrics")
MEASURING = ("profiler", "variants/metrics", "workers/runtimes")
"""Folders whose code decides what comes out."""
LIBRARIES = ("numpy", "onnx", "onnxruntime")
"""What every builder uses."""
OWN = ("variants", "workers")
"""Packages of this project that builders and runtimes are in."""


def key_of(**parts: object) -> str:
    """The digest of named plain JSON values."""
    text = json.dumps({**parts, "format": FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def building_tools(kind: str, *, trains: bool) -> str:
    """What a kind of variant is built with here: the code, the libraries, the processor.

    Args:
        trains: whether weights may be trained, which takes torch whatever the kind.
    """
    entry, builder = BUILDERS[kind], make_builder(kind)
    libraries = dict.fromkeys(
        (*LIBRARIES, *entry.needs, *libraries_of(builder.runtime), *(("torch",) if trains else ()))
    )
    return _tools(BUILDING, entry.target, tuple(libraries), gpu=builder.gpu)


def measuring_tools(runtime: str, *, gpu: bool) -> str:
    """What a variant is measured with here: the code, its runtime's libraries, the processor."""
    target = RUNTIMES[runtime].target if runtime in RUNTIMES else ""
    return _tools(MEASURING, target, libraries_of(runtime), gpu=gpu)


@cache
def _tools(folders: tuple[str, ...], target: str, libraries: tuple[str, ...], *, gpu: bool) -> str:
    """Cached, because a process keeps the code and the libraries that it has imported."""
    name, driver = gpu_and_driver() if gpu else ("", "")
    host = lasting(fingerprint(*libraries, gpu=name, driver=driver))
    return key_of(
        host=host, python=platform.python_version(), code=_code(folders), added=_added(target)
    )


@cache
def _code(folders: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _added(target: str) -> str:
    """The digest of the module that a package of others adds; empty of this project's own."""
    module = target.partition(":")[0]
    if not module or module.partition(".")[0] in OWN:
        return ""
    with suppress(ImportError, ValueError, OSError):
        found = find_spec(module)
        if found is not None and found.origin:
            return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
    return ""
