"""Work in steps: what takes long is done in parts, between which something else may be done."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def finish(steps: Generator[None, None, Result]) -> Result:
    """Do all steps at once; what comes of them."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Result = done.value
            return found
