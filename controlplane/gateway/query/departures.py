"""Departures: clients that have gone before their answers, and what they had asked.

An index of who waits for what would cost each query something. Instead all that is under way is
gone through once, a moment after a client has gone, for all that have since. While nobody goes,
nothing is done.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import orjson

from controlplane.gateway.counting.client_counters import ClientCounters
from controlplane.gateway.tracing.watched import Respond, Watched
from controlplane.http_errors import CLIENT_GONE
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

GONE_S = 0.02
"""So long after a client has gone all that is under way is gone through, ..."""
REST_TIMES = 20.0
"""... and not before so many times as long have passed as it took the last time."""
GONE_BODY = orjson.dumps({"error": "the client has gone", "code": CLIENT_GONE})
"""Nobody reads it, but traces say how the query ended."""

Gone = Mapping[Respond, float]
"""Where answers were to go to clients that have gone, and when these went, in ms."""


class Leaving(Protocol):
    """What is under way for a client that may go."""

    def left_by(self, gone: Gone) -> None:
        """Let go of it if its answer was to go to one of these."""


class Counting:
    """Takes the answer of a query, counts it for its client, and passes it on."""

    __slots__ = ("counters", "respond")

    def __init__(self, counters: ClientCounters, respond: Respond) -> None:
        self.counters = counters
        self.respond = respond

    def __call__(self, status: int, body: bytes, headers: bytes) -> None:
        self.counters.ended(answered=status == 200)
        self.respond(status, body, headers)


class Part:
    """Takes the answer of one query of several by which a request is answered."""

    __slots__ = ("failed_by", "take")

    def __init__(self, take: Respond) -> None:
        self.take = take
        self.failed_by = ""
        """The code of the error by which its request has failed meanwhile; empty: it has not. Then
        its client has not gone, and it counts as what the client was told."""

    def __call__(self, status: int, body: bytes, headers: bytes) -> None:
        self.take(status, body, headers)


def innermost(respond: Respond) -> Respond:
    """Where an answer goes in the end."""
    while isinstance(respond, Counting | Watched):
        respond = respond.respond
    return respond


def failed_meanwhile(respond: Respond) -> str:
    """The code by which the request has failed that a query is part of; empty where it has not."""
    part = innermost(respond)
    return part.failed_by if isinstance(part, Part) else ""


class Unread:
    """A query whose body another process reads. Its client may go meanwhile."""

    __slots__ = ("left_ms", "respond")

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.left_ms: float | None = None
        """When its client has gone; None while it waits."""

    def left_by(self, gone: Gone) -> None:
        if self.left_ms is None:
            self.left_ms = gone.get(innermost(self.respond))


class Departures:
    """Clients that have gone since a moment ago. Lives on one event loop."""

    def __init__(
        self, clock_ms: Callable[[], float], in_flight: Callable[[], Iterable[Leaving]]
    ) -> None:
        """
        Args:
            in_flight: gives the queries that are.
        """
        self._clock_ms = clock_ms
        self._in_flight = in_flight
        self._gone: dict[Respond, float] = {}
        self._rest_s = 0.0
        self.others: set[Leaving] = set()
        """What else is under way than queries in flight: those that are read elsewhere, and
        requests that are several queries."""

    def left(self, respond: Respond) -> None:
        """A client has gone that waited for an answer, or a request has failed that waited for this
        one of several (``Part``).

        Args:
            respond: where the answer was to go.
        """
        if not self._gone:
            asyncio.get_running_loop().call_later(GONE_S + self._rest_s, self._look)
        self._gone.setdefault(innermost(respond), self._clock_ms())

    def _look(self) -> None:
        gone, self._gone = self._gone, {}
        began_ms = self._clock_ms()
        for each in (*self._in_flight(), *self.others):
            try:
                each.left_by(gone)
            except Exception as error:
                sparing.error("", error, "a query could not be withdrawn")
        self._rest_s = REST_TIMES * (self._clock_ms() - began_ms) / 1_000
