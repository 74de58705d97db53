"""The one shape of every registry: a name to a lazy factory, with what it needs declared beside it.

Runtimes, builders, policies, eviction rules and batching rules are looked up here, so adding one is
one file or function and one line: ``"name": Entry(target="package.module:attribute")``. Nothing is
imported before it is asked for, and what an entry needs can be read without importing it.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from variants.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that can be chosen by its name."""

    target: str
    """``module:attribute`` of the factory, or of the function that is the rule itself."""
    needs: tuple[str, ...] = ()
    """Packages that have to be importable. Where those of a runtime change their version, profiles
    of its variants are stale."""
    device: str = ""
    """The device that it works on: ``gpu``, or empty for any."""
    about: str = ""
    """What it is, in a few words, for lists and messages."""


def load(
    kind: str,
    name: str,
    entries: Mapping[str, Entry],
    error: Callable[[str], Exception] = InvalidInput,
) -> Any:
    """The attribute that an entry names; its module is imported now.

    Args:
        kind: what is looked up, for messages: ``runtime``, ``eviction rule``.
        name: one of the names in ``entries``.
        error: makes the error from its message; a class of ``variants.errors``.

    Raises:
        InvalidInput: or what ``error`` makes. There is no such name, and the message tells which
            there are; or the entry cannot be imported here, and the message tells why.
    """
    entry = entries.get(name)
    if entry is None:
        raise error(f"{kind} {name!r} is unknown; there are: {', '.join(sorted(entries))}")
    package = missing(entry)
    if package is not None:
        raise error(f"{kind} {name!r} is not installed here: it needs the package {package!r}")
    module, _, attribute = entry.target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as reason:
        raise error(f"{kind} {name!r} is not installed here: {reason}") from reason


def missing(entry: Entry) -> str | None:
    """The first package that an entry needs and that is not installed; None when all are.

    The package is looked for and not imported; of a dotted name its parents are imported.
    """
    return next((package for package in entry.needs if not _is_installed(package)), None)


def _is_installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None  # None is how an import is forbidden
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False
