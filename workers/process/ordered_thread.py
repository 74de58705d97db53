"""A thread that takes the most urgent of the calls that wait, and of equals the first.

How urgent a call is may change while it waits: it is asked when the thread is free for another.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: list[_Call] = []
        """In the order in which they came."""

    async def run(self, run: Callable[[], ResultT], order: Callable[[], Order]) -> ResultT:
        """Have the thread make a call, and wait for what it gives or raises.

        Args:
            order: what is less comes first. Asked in the thread.

        Raises:
            RuntimeError: the thread was shut down.
        """
        call = _Call(run, order, Future())
        with self._lock:
            self._waiting.append(call)
        try:
            self._pool.submit(self._next)
        except RuntimeError:
            with self._lock:
                self._waiting.remove(call)
            raise
        found: ResultT = await asyncio.wrap_future(call.done)
        return found

    def shutdown(self, *, wait: bool) -> None:
        """Drop the calls that wait, and with ``wait`` wait for the one under way."""
        with self._lock:
            dropped, self._waiting = self._waiting, []
        for call in dropped:
            call.done.cancel()
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _next(self) -> None:
        with self._lock:
            if not self._waiting:
                return  # it was shut down meanwhile
            call = min(self._waiting, key=lambda waiting: waiting.order())
            self._waiting.remove(call)
        if not call.done.set_running_or_notify_cancel():
            return
        try:
            call.done.set_result(call.run())
        except BaseException as error:
            call.done.set_exception(error)
