"""What ends `modelless up` from outside: Ctrl-C, SIGTERM, and the SIGHUP of a closed terminal."""

import signal
import threading
import time
from collections.abc import Callable

from controlplane.startup.processes import on_end

ONE_SIGNAL_S = 0.5
"""Signals that follow within this time are one: ``timeout`` and ``make`` pass one on that the whole
group of processes has got already. A later one ends everything at once."""


class Interruption:
    """Whether this process was told to end, and what a signal does to what it is at.

    A start just ends. What runs is told, and has its time to stop in order. A second signal kills
    both.
    """

    def __init__(
        self,
        kill: Callable[[], None],
        breaks_off: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            kill: ends everything at once.
            breaks_off: whether this process waits for something that does not look whether it was
                told to end, so that the first signal has to break it off.
        """
        self._kill = kill
        self._breaks_off = breaks_off
        self._clock_s = clock_s
        self._told = threading.Event()
        self._first_s: float | None = None
        """When the first signal came."""

    def is_told(self) -> bool:
        """Whether this process was told to end."""
        return self._told.is_set()

    def tell(self) -> None:
        """Have this process end, as a signal would."""
        self._told.set()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; whether this process was told to end."""
        return self._told.wait(seconds)

    def ends_starts(self) -> None:
        """From now on the first signal raises ``KeyboardInterrupt``. Where SIGINT is ignored, as in
        a background of a shell, it stays so."""
        on_end(self._end_start)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._end_start)

    def ends_in_order(self) -> None:
        """From now on a signal is told to who asks or waits here, and a second one kills."""
        on_end(self._note)
        signal.signal(signal.SIGINT, self._note)

    def _end_start(self, _signal: int, _frame: object) -> None:
        if self._is_first():
            raise KeyboardInterrupt

    def _note(self, _signal: int, _frame: object) -> None:
        if self._is_first() and self._breaks_off():
            raise KeyboardInterrupt

    def _is_first(self) -> bool:
        """Whether a signal is the first one; a later one kills, and what is ended already in order
        must not be broken off by it. One that has come just before is passed on again."""
        self._told.set()
        now_s = self._clock_s()
        if self._first_s is None:
            self._first_s = now_s
            return True
        if now_s - self._first_s > ONE_SIGNAL_S:
            self._kill()
        return False
