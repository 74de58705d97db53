"""SparingLog: failures that come with queries, in the log once in full and then counted.

Whoever may ask can send the same query again and again, and one that overflows a model fails each
time. A line for each, with a traceback, fills the disk on which the log lies and hides what else
stands there. So of each kind of failure and of what it is of, such as a variant, the first is
logged in full. What follows is counted, and once a minute one line says how many there were and
what the last one said, until none come any more. Counters of queries have no part in this.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar
from weakref import WeakSet

EVERY_S = 60.0
MOST_KINDS = 256
"""Failures of more kinds at once are counted together: a kind may be what clients sent."""

Later = Callable[[float, Callable[[], None]], object]


def in_thread(delay_s: float, call: Callable[[], None]) -> object:
    """Call later, in a thread of its own, which does not keep the process from ending."""
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()
    return timer


@dataclass(slots=True)
class _Kind:
    """One kind of failure, since its last line."""

    told_s: float
    level: int
    count: int = 0
    """How many were not logged; the last of them said this."""
    message: str = ""
    args: tuple[Any, ...] = ()


class SparingLog:
    """Of one logger. Any thread may call it."""

    all: ClassVar["WeakSet[SparingLog]"] = WeakSet()
    """Of this process."""

    def __init__(
        self,
        log: logging.Logger,
        clock_s: Callable[[], float] = monotonic,
        later: Later = in_thread,
    ) -> None:
        """
        Args:
            later: calls a function after so many seconds.
        """
        self._log = log
        self._clock_s = clock_s
        self._later = later
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}
        SparingLog.all.add(self)

    def error(self, of: str, error: BaseException | None, message: str, *args: Any) -> None:
        """Log at ERROR, with the traceback of an error where there is one.

        Args:
            of: such as a variant; with the message, and the kind of the error, it says what counts
                as the same again.
        """
        self._say(logging.ERROR, of, error, message, args)

    def warning(self, of: str, message: str, *args: Any) -> None:
        """Log at WARNING; ``of`` as with ``error``."""
        self._say(logging.WARNING, of, None, message, args)

    def forget(self) -> None:
        """Log the next failure of each kind in full."""
        with self._lock:
            self._kinds.clear()

    def _say(
        self, level: int, of: str, error: BaseException | None, message: str, args: tuple[Any, ...]
    ) -> None:
        now_s = self._clock_s()
        with self._lock:
            key = self._key((message, of, type(error)), now_s)
            kind = self._kinds.get(key)
            if kind is not None and (kind.count or now_s - kind.told_s < EVERY_S):
                kind.count, kind.level = kind.count + 1, max(kind.level, level)
                kind.message, kind.args = message, args
                first_held = kind.count == 1
                left_s = kind.told_s + EVERY_S - now_s
            else:
                self._kinds[key] = _Kind(now_s, level)
                first_held, left_s = False, 0.0
        if kind is None or not kind.count:
            self._log.log(level, message, *args, exc_info=error, stacklevel=3)
        elif first_held:
            self._later(left_s, lambda: self._tell(key))

    def _key(self, key: Hashable, now_s: float) -> Hashable:
        """What a failure counts as: its kind, or where there are too many the rest of them."""
        if key in self._kinds or len(self._kinds) < MOST_KINDS:
            return key
        known = self._kinds.items()
        self._kinds = {
            one: kind for one, kind in known if kind.count or now_s - kind.told_s < EVERY_S
        }
        return key if len(self._kinds) < MOST_KINDS else ""

    def _tell(self, key: Hashable) -> None:
        """Say how many came since the last line."""
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None or not kind.count:  # they were forgotten meanwhile
                return
            self._kinds[key] = _Kind(self._clock_s(), kind.level)
        said = f"{kind.message} [the last of %d such failures within %.0f s]"
        self._log.log(kind.level, said, *kind.args, kind.count, self._clock_s() - kind.told_s)
