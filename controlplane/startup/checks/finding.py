"""What a check of the doctor finds: one line, and what to do about it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from controlplane.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's report."""

    name: str
    ok: bool
    message: str
    remedy: str = ""
    """What to do; empty when it is fine. A finding that is ok and has one is a warning."""


Check = Callable[[Settings], Iterator[Finding]]


Say = Callable[[str], None]


def fine(name: str, message: str) -> Finding:
    return Finding(name=name, ok=True, message=message)


def warning(name: str, message: str, remedy: str) -> Finding:
    return Finding(name=name, ok=True, message=message, remedy=remedy)


def problem(name: str, message: str, remedy: str) -> Finding:
    return Finding(name=name, ok=False, message=message, remedy=remedy)
