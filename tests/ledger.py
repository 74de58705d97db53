"""What a campaign of broken input leaves behind: memory, and failures that nobody was told.

A campaign sends much that is wrong to something that has to go on. What it was answered is counted
where it is sent; here is what nobody who sends can see.
"""

import asyncio
import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SEED = int(os.environ.get("MODELLESS_TEST_SEED", "1"))
"""What a campaign's random numbers begin with: another one sends other input."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Footprint(NamedTuple):
    """What this process holds."""

    objects: int
    """That the garbage collector knows of."""
    resident_mib: float

    def over(self, before: "Footprint") -> str:
        """How much more it is, in words."""
        return (
            f"{self.objects - before.objects:+,} objects,"
            f" {self.resident_mib - before.resident_mib:+.1f} MiB"
        )


def footprint() -> Footprint:
    """What is held now that cannot be let go of."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Footprint(len(gc.get_objects()), pages * _PAGE / 2**20)


class Unheard(logging.Handler):
    """Failures that are only logged, or that only the event loop is told."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """An error, or a traceback of any level."""
        if record.levelno >= logging.ERROR or record.exc_info:
            error = record.exc_info[1] if record.exc_info else None
            self.found.append(f"{record.name}: {record.getMessage()}: {error!r}")

    def of_loop(self, _: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
        self.found.append(f"event loop: {found.get('message')}: {found.get('exception')!r}")


@contextmanager
def unheard() -> Iterator[list[str]]:
    """The failures until it ends, of all logs and of the running event loop."""
    handler, loop, root = Unheard(), asyncio.get_running_loop(), logging.getLogger()
    before = loop.get_exception_handler()
    loop.set_exception_handler(handler.of_loop)
    root.addHandler(handler)
    try:
        yield handler.found
    finally:
        root.removeHandler(handler)
        loop.set_exception_handler(before)
