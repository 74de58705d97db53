"""Which queries are traced, and where the answer of one goes that may be.

A query is traced if its sender says so (the flag of its ``traceparent``), if it is drawn by the
share of those that say nothing, or if it ends badly: late, refused for want of time or room, or by
a mistake of ours. Of these a few each second are enough. Who says that a query is not to be
traced is heard.
"""

import re
import time
from collections.abc import Callable
from random import random
from typing import Protocol

from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.tracing.allowance import Allowance
from controlplane.gateway.tracing.ended import Asked, Ended, Tries
from planner.types import Candidate, PlacedReason, Query, Reason, WorkerView

Respond = Callable[[int, bytes, bytes], None]

FAILED = 500
"""From this status on an answer is one that operators want to see."""
FAILURES_PER_S, FAILURES_AT_ONCE = 10.0, 20.0
"""Queries that ended badly of which so many are traced, beside those that are traced anyway."""
MOST_PER_S, MOST_AT_ONCE = 200.0, 400.0
"""Queries that their senders trace, or that are drawn, of which so many are traced. Each takes some
150 us, and a client can ask for it with every query."""
LONGEST_STATE = 512
"""Bytes of a ``tracestate`` that are passed on (W3C Trace Context: at least so many)."""

_PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})"
)
_ID = re.compile(rb"x-request-id: ([^\r]*)\r\n")


class Parsed(Protocol):
    """A query that was read."""

    @property
    def query(self) -> Query:
        """What it asks for."""


class Flight(Protocol):
    """A query in flight, as far as a trace tells of it."""

    read_ms: float
    sent_ms: float
    tries: int
    loads: int
    why: str
    candidate: Candidate | None
    worker: WorkerView | None
    reason: Reason | PlacedReason

    @property
    def parsed(self) -> Parsed:
        """The query."""


class Watched:
    """Takes the answer of a query that may be traced, and passes it on."""

    __slots__ = (
        "flight", "made", "parent", "received_ms", "respond", "route", "sampled", "state", "task",
        "traces",
    )  # fmt: skip

    def __init__(
        self,
        traces: "Traces",
        respond: Respond,
        route: str,
        received_ms: float,
        sampled: bool,
        parent: bytes | None = None,
        state: bytes | None = None,
    ) -> None:
        """
        Args:
            sampled: whether it is traced however it ends.
        """
        self.traces = traces
        self.respond = respond
        self.route = route
        self.received_ms = received_ms
        self.sampled = sampled
        self.parent = parent
        self.state = state
        self.task = ""
        self.flight: Flight | None = None
        self.made: ReplyMetadata | None = None

    def __call__(self, status: int, body: bytes, headers: bytes) -> None:
        self.respond(status, body, headers)
        made = self.made
        failed = status >= FAILED or (made is not None and not made.slo_met)
        if self.sampled or failed:
            self.traces.answered(self, status, body, headers, failed=failed)


class Traces:
    """Decides for each query whether it is traced.

    Args:
        share: of the queries that say nothing about it, those that are.
        clock_ms: the query path's clock.
        take: takes what is to be sent; never waits.
        dropped: told of each that is not taken, because too many are traced.
        draw: gives numbers in [0, 1).
    """

    def __init__(
        self,
        share: float,
        clock_ms: Callable[[], float],
        take: Callable[[Ended], None],
        dropped: Callable[[], None],
        draw: Callable[[], float] = random,
    ) -> None:
        self._share = share
        self._clock_ms = clock_ms
        self._take = take
        self._dropped = dropped
        self._draw = draw
        now_ms = clock_ms()
        self._failures = Allowance(FAILURES_PER_S, FAILURES_AT_ONCE, now_ms)
        self._sampled = Allowance(MOST_PER_S, MOST_AT_ONCE, now_ms)

    def watch(
        self,
        respond: Respond,
        route: str,
        received_ms: float,
        parent: bytes | None = None,
        state: bytes | None = None,
    ) -> Respond:
        """Where the answer of a query is to go.

        Args:
            respond: where it went otherwise.
            route: how the query came, without what differs from query to query.
            received_ms: when its first byte came, by ``clock_ms``.
            parent: its header ``traceparent``; one that cannot be read counts as none.
            state: its header ``tracestate``.
        """
        found = None if parent is None else _PARENT.match(parent)
        if parent is None or found is None or not _whole(parent, found.end()):
            return Watched(self, respond, route, received_ms, self._draw() < self._share)
        if not int(found[1], 16) & 1:
            return respond
        if state is not None and len(state) > LONGEST_STATE:
            state = None
        return Watched(self, respond, route, received_ms, True, parent, state)

    def answered(
        self, watched: Watched, status: int, body: bytes, headers: bytes, *, failed: bool
    ) -> None:
        """A query has got its answer that is traced, or ended badly."""
        now_ms = self._clock_ms()
        # Apart from each other: else who asks for many traces would keep failures from being seen.
        if not (
            (watched.sampled and self._sampled.takes(now_ms))
            or (failed and self._failures.takes(now_ms))
        ):
            if watched.sampled:
                self._dropped()
            return
        found = _ID.search(headers)
        tries = None if watched.flight is None else _tries(watched.flight)
        ended = Ended(
            asked=Asked(watched.route, watched.received_ms, watched.parent, watched.state),
            task=watched.task if tries is None else tries.query.task,
            ended_ms=now_ms,
            wall_ns=time.time_ns(),
            status=status,
            error=b"" if status < 400 else body,
            request_id="" if found is None else found[1].decode("latin-1"),
            tries=tries,
            made=watched.made,
        )
        self._take(ended)


def _whole(parent: bytes, end: int) -> bool:
    """Whether a ``traceparent`` ends where it may: later versions may have more fields."""
    more = parent[end:]
    return not more or (not parent.startswith(b"00") and more.startswith(b"-"))


def _tries(flight: Flight) -> Tries:
    candidate, worker = flight.candidate, flight.worker
    return Tries(
        query=flight.parsed.query,
        reason="" if candidate is None else str(flight.reason),
        variant="" if candidate is None else candidate.variant,
        worker="" if worker is None else worker.id,
        read_ms=flight.read_ms,
        sent_ms=flight.sent_ms,
        asked_count=flight.tries,
        why=flight.why,
        loads=flight.loads,
    )
