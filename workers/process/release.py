"""Which code a process runs: the release, and a digest of the sources that it was started from.

Two builds of one release differ in the digest, so that what runs still can be told from what is
installed now.
"""

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

ROOMS = ("variants", "planner", "workers", "profiler", "controlplane")
SOURCES = (".py", ".html", ".css", ".js", ".proto")
SHOWN = 12
"""Digits of a digest that are shown and compared."""


@cache
def release() -> str:
    """The release and the digest of the sources, such as ``0.1.0+3f2a...``.

    It is what the files were when this is first called, so replicas call it as they start. Reading
    them takes some 20 ms.
    """
    try:
        number = version("modelless")
    except PackageNotFoundError:
        number = "0"
    return f"{number}+{digest_of_sources(Path(__file__).parents[2])}"


def digest_of_sources(beside: Path) -> str:
    """Of what the rooms in a folder are made of: code, and the pages and files that it reads."""
    found = sha256()
    for room in ROOMS:
        for source in sorted((beside / room).rglob("*.*")):
            if source.suffix in SOURCES:
                found.update(str(source.relative_to(beside)).encode())
                found.update(source.read_bytes())
    return found.hexdigest()[:SHOWN]


def generation(*told: Any) -> str:
    """A name for this code with what a replica is told as it starts: dataclasses and plain values.

    Replicas with one generation are alike; of one with another the code or a setting differs.
    """
    options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    return sha256(orjson.dumps([release(), told], option=options)).hexdigest()[:SHOWN]
