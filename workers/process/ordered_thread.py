"""A thread that takes the most urgent of the calls that wait, and of equals the first.

How urgent a call is may change while it waits: it is asked when the thread is free for another.
A call that does not end keeps neither who gives it up waiting nor the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")
Order = tuple[float, ...]
"""What is less comes first."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    run: Callable[[], Any]
    order: Callable[[], Order]
    done: "Future[Any]"


class OrderedThread:
    """Runs one call at a time, off the event loop on which they are awaited."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        """Begun with the first call: it keeps to the cores that its beginner has by then."""
        self._changed = threading.Condition()
        self._waiting: list[_Call] = []
        """In the order in which they came."""
        self._last: Callable[[], None] | None = None
        self._ends = False

    async def run(self, run: Callable[[], ResultT], order: Callable[[], Order]) -> ResultT:
        """Have the thread make a call, and wait for what it gives or raises.

        Args:
            order: what is less comes first. Asked in the thread.

        Raises:
            RuntimeError: the thread was shut down.
        """
        call = _Call(run, order, Future())
        with self._changed:
            if self._ends:
                raise RuntimeError("the thread was shut down")
            self._waiting.append(call)
            self._begin()
            self._changed.notify()
        found: ResultT = await asyncio.wrap_future(call.done)
        return found

    def shutdown(
        self, timeout_s: float | None = None, last: Callable[[], None] | None = None
    ) -> bool:
        """Drop the calls that wait, and wait for the one under way.

        Args:
            timeout_s: how long at most; not said: until it ends.
            last: what the thread does after that.

        Returns:
            Whether all of it is over. What is not goes on for as long as the process does.
        """
        with self._changed:
            dropped, self._waiting = self._waiting, []
            self._ends, self._last = True, last
            if last is not None:
                self._begin()
            self._changed.notify()
        for call in dropped:
            call.done.cancel()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _begin(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    # -- in the thread ----------------------------------------------------------------------------

    def _serve(self) -> None:
        while (call := self._next()) is not None:
            if not call.done.set_running_or_notify_cancel():
                continue
            try:
                call.done.set_result(call.run())
            except BaseException as error:
                call.done.set_exception(error)
            del call  # what it holds would stay until another one comes
        if self._last is not None:
            self._last()

    def _next(self) -> _Call | None:
        """The most urgent call, once there is one; None when there will be none."""
        with self._changed:
            while not self._waiting and not self._ends:
                self._changed.wait()
            if not self._waiting:
                return None
            call = min(self._waiting, key=lambda waiting: waiting.order())
            self._waiting.remove(call)
            return call
