"""Waiting: queries that a gateway holds until a worker that could answer them is there.

A gateway that has just started knows no worker for a moment, and then some of them. A query that it
would refuse in that time can often be answered a few milliseconds later. Where the last worker has
left and the next one is being started, a query with time for it can be answered a few seconds
later.
"""

import asyncio
import logging
from collections import deque
from typing import Protocol

from planner.selection.missing_workers import may_change
from planner.types import Choice, Query, Refusal
from variants.errors import Overloaded

log = logging.getLogger(__name__)

MAX_WAITING = 1_000
MEETING = "this gateway, which has just started, to connect to its workers"
STARTING = "workers that are being started"
AT_ONCE = 32
"""Queries that are tried again in one turn of the event loop."""


class Waiter(Protocol):
    """A query that can be tried again; it is still answered by its deadline."""

    done: bool

    def dispatch(self, query: Query) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Waiting:
    """Holds queries in the order in which they came, without a task or a timer for any of them."""

    def __init__(self, most: int = MAX_WAITING, what: str = MEETING) -> None:
        """
        Args:
            most: queries that are held at once; those beyond are refused.
            what: they wait for, for the sentence of a refusal.
        """
        self._most = most
        self._what = what
        self._held: dict[Waiter, Query] = {}
        self._due: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, waiter: Waiter, query: Query, found: Choice | Refusal) -> bool:
        """Keep a query for later, if its decision may be another one then."""
        if not may_change(found):
            return False
        self.keep(waiter, query)
        return True

    def keep(self, waiter: Waiter, query: Query) -> None:
        """Keep a query for later; one for which there is no room any more is refused."""
        if len(self._held) >= self._most and waiter not in self._held:
            waiter.fail(Overloaded(f"{self._most} queries wait for {self._what}"))
        else:
            self._held[waiter] = query

    def give_up(self, waiter: Waiter) -> bool:
        """Hold a query no longer; return whether it was held."""
        return self._held.pop(waiter, None) is not None

    def try_again(self) -> None:
        """Decide anew about all that are held, soon: more is known now."""
        idle = not self._due
        self._due = deque(self._held)
        if idle and self._due:
            asyncio.get_running_loop().call_soon(self._try)

    def _try(self) -> None:
        for _ in range(min(AT_ONCE, len(self._due))):
            waiter = self._due.popleft()
            query = self._held.pop(waiter, None)
            if query is None or waiter.done:
                continue
            try:
                waiter.dispatch(query)
            except Exception as error:
                waiter.fail(error)
        if self._due:
            asyncio.get_running_loop().call_soon(self._try)
