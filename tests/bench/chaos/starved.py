"""How long the gateways' threads waited for a processor: what a machine that others use as well, or
that is too small, makes of a query's time is not the product's doing.

The kernel counts for each thread how long it could have run and did not
(``/proc/PID/task/TID/schedstat``). Those that run most are looked at ten times a second.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

EVERY_S = 0.1
ANEW_S = 2.0
"""How often it is looked which threads run most."""
MOST = 12
"""Threads of each process. Any of them that holds the interpreter makes the others wait for it."""


class Starved:
    """Looks from ``start`` to ``stop`` at the processes that ``which`` gives."""

    def __init__(self, which: Callable[[], list[psutil.Process]]) -> None:
        self._which = which
        self._spans: list[tuple[float, float, float]] = []
        """From, to, and how long one of the threads waited meanwhile: the most of all."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Starved":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def within(self, from_s: float, to_s: float) -> float:
        """For how long of this time a gateway waited for a processor, at most."""
        found_s = 0.0
        first = bisect_left(self._spans, from_s, key=lambda span: span[1])
        for begin_s, end_s, waited_s in self._spans[first:]:
            if begin_s >= to_s:
                break
            found_s += min(waited_s, min(end_s, to_s) - max(begin_s, from_s))
        return found_s

    def _run(self) -> None:
        threads: list[Path] = []
        known: dict[Path, float] = {}
        at_s = looked_s = float("-inf")
        while not self._over.wait(EVERY_S):
            now_s = time.monotonic()
            if now_s - looked_s > ANEW_S:
                threads, looked_s = self._busiest(), now_s
            waited = {}
            for thread in threads:
                with suppress(OSError, ValueError):
                    waited[thread] = int(thread.read_text().split()[1]) / 1e9
            most_s = max((waited[one] - known[one] for one in waited if one in known), default=0.0)
            if known and most_s > 0.0:
                self._spans.append((at_s, now_s, most_s))
            known, at_s = waited, now_s

    def _busiest(self) -> list[Path]:
        found: list[Path] = []
        for process in self._which():
            ran: list[tuple[int, Path]] = []
            for one in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                with suppress(OSError, ValueError, IndexError):
                    ran.append((int(one.read_text().split()[0]), one))
            found += [one for _, one in sorted(ran, reverse=True)[:MOST]]
        return found
