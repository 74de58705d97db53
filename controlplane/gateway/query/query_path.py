"""QueryPath: the entrance for queries, in both dialects.

Everything on it is callbacks on one event loop: no task, future or timer per query. A query is
parsed here and becomes an ``InFlight``, which selects, sends, retries and answers. What all of them
share is in ``QueryContext``.
"""

import time
from collections.abc import Callable
from functools import partial
from math import inf
from random import getrandbits
from typing import Any, NamedTuple, TypeVar

from controlplane.gateway.overload.repeated_refusals import (
    Holds,
    Outline,
    outline_of,
    outline_of_headers,
    outline_of_inference,
)
from controlplane.gateway.protection.body_reader import LONG_BYTES, UNUSUAL_BYTES
from controlplane.gateway.query.in_flight import OTHERS_FIRST, TRIES, InFlight
from controlplane.gateway.query.lean_json import LongBody
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.query_context import Loader, QueryContext, Respond
from controlplane.gateway.query.query_errors import refusal_error, worker_error
from controlplane.gateway.query.skimming import asked_by_headers, skim_v1, skim_v2
from controlplane.gateway.query.v2_parsing import json_bytes, parse_v2
from planner.selection.plan_following import choose
from planner.selection.refusal import room_at_ms
from planner.types import ANYBODY, Choice, Client, Query, Refusal, RefusalCode
from variants.errors import ModellessError, Overloaded
from variants.types import TaskName, VariantName, WorkerId
from workers.types import ReplyCode

MAX_IN_FLIGHT = 50_000
MAX_IN_FLIGHT_BYTES = 2**30
"""Of the tensors of all queries in flight; they are kept to be asked elsewhere."""
FOR_OTHERS_MS = 2.0
"""For so long one who has to leave the room to others is refused without another look."""
CROWDED = MAX_IN_FLIGHT // 2
"""From here on a task may have no more queries in flight than there is room left for others."""
FOR_WANT_OF_TIME = frozenset({RefusalCode.OVERLOADED, RefusalCode.DEADLINE_EXCEEDED})
MAX_CLASSES = 10_000
"""Distinct needs that are counted between two reports; clients may ask for anything."""

DemandKey = tuple[TaskName, float, float | None, VariantName | None]
"""What demand is counted by: task, latency SLO in ms, accuracy floor, and the variant that the
query is pinned to."""


Flight = TypeVar("Flight", bound=InFlight)
Share = Callable[[ParsedQuery, Respond, bytes | None], bool]
"""Takes what ``QueryPath.start`` takes."""


LainMs = Callable[[], float]
"""For how long a query's bytes had lain there before they were seen, in ms; costs a system call."""


def known_to_be_new() -> float:
    """Of bytes that had not lain anywhere, or for a time that is counted already."""
    return 0.0


def monotonic_ms() -> float:
    """A clock that never goes back, in ms; only differences mean anything."""
    return time.monotonic() * 1000


class _Asking(NamedTuple):
    """Who asks: where the answer goes, and what is known of him."""

    respond: Respond
    given_id: bytes | None
    told_ms: float | None
    """When he was told to come back, where it was not seen yet whether his query would be refused;
    else None."""
    outline: Outline | None = None
    takes: bytes = b""
    """The coding in which the answer may be compressed."""
    client: Client = ANYBODY


class _Expected(NamedTuple):
    """What a query would be told."""

    error: ModellessError
    workers: tuple[WorkerId, ...]
    """Those that would refuse it."""
    until_ms: float
    """For so long they would, ..."""
    before_ms: float
    """... if it came before this."""


class QueryPath(QueryContext):
    """Answers queries from an in-memory snapshot and open connections to workers.

    Its owner says with ``update`` what has changed.
    """

    def __init__(self, *, loader: Loader, clock_ms: Callable[[], float] = monotonic_ms) -> None:
        super().__init__(loader, clock_ms)
        self._demand: dict[DemandKey, int] = {}
        self.share: Share = _not_shared
        """Takes queries over whose task shares answers; says whether it did."""

    def handle_v1(
        self,
        body: bytes | bytearray,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None = None,
        told_ms: float = -inf,
        lain_ms: LainMs = known_to_be_new,
        takes: bytes = b"",
        client: Client = ANYBODY,
    ) -> None:
        """Answer a ``POST /v1/query``.

        Args:
            received_ms: when its first byte came, by ``clock_ms``.
            given_id: the caller's ``X-Request-Id``.
            told_ms: when its sender was told to come back, by ``clock_ms``.
            lain_ms: asked where time is short, to count from when its bytes came.
            takes: the coding in which the answer may be compressed; empty: it may not.
            client: by whose key it is asked.
        """
        respond = self.enter(client, respond)
        try:
            draw = getrandbits(32)
            told: bool | None = False
            if self.under_pressure():
                outline = _asked_by(client, outline_of(body))
                told = self._refused_again(
                    outline, received_ms, draw, respond, given_id, told_ms, lain_ms
                )
                if not told:
                    received_ms -= lain_ms()
                if told is None:
                    asked = skim_v1(body, self.tasks, received_ms, draw)
                    if asked is not None:
                        asked = asked._replace(client=client)
                        told = self.turn_away(asked, respond, given_id, told_ms, outline)
                if told:
                    return
            asking = _Asking(
                respond, given_id, told_ms if told is None else None, None, takes, client
            )
            if self.reader is not None and len(body) > LONG_BYTES:
                raise LongBody
            most = inf if self.reader is None else UNUSUAL_BYTES
            self._parsed(parse_v1(body, self.tasks, received_ms, draw, most_bytes=most), asking)
        except LongBody:
            fields = {"task": None, "received_ms": received_ms, "draw": draw}
            self._read_elsewhere(body, fields, asking)
        except Exception as error:
            self.fail(error, respond, given_id=given_id)

    def handle_v2(
        self,
        task: str,
        pinned: str | None,
        body: bytes | bytearray,
        json_header: bytes | None,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None = None,
        told_ms: float = -inf,
        lain_ms: LainMs = known_to_be_new,
        takes: bytes = b"",
        client: Client = ANYBODY,
    ) -> None:
        """Answer a ``POST /v2/models/{task}[/versions/{variant}]/infer``.

        Args:
            pinned: the version of the address, if it has one.
            json_header: the header ``Inference-Header-Content-Length``.
            received_ms: when its first byte came, by ``clock_ms``.
            given_id: the caller's ``X-Request-Id``.
            told_ms: when its sender was told to come back, by ``clock_ms``.
            lain_ms: asked where time is short, to count from when its bytes came.
            takes: the coding in which the answer may be compressed; empty: it may not.
            client: by whose key it is asked.
        """
        respond = self.enter(client, respond)
        try:
            if pinned is not None:
                pinned = self.variant_of(TaskName(task), pinned)
            draw = getrandbits(32)
            outline: Outline | None = None
            told: bool | None = False
            if self.under_pressure():
                outline = _asked_by(client, outline_of_inference(task, pinned, body, json_header))
                told = self._refused_again(
                    outline, received_ms, draw, respond, given_id, told_ms, lain_ms
                )
                if not told:
                    received_ms -= lain_ms()
                if told is None and json_header is None:
                    asked = skim_v2(body, task, pinned, self.tasks, received_ms, draw)
                    if asked is not None:
                        asked = asked._replace(client=client)
                        told = self.turn_away(asked, respond, given_id, told_ms, outline)
                if told:
                    return
            asking = _Asking(
                respond, given_id, told_ms if told is None else None, outline, takes, client
            )
            if self.reader is not None and json_bytes(body, json_header) > LONG_BYTES:
                raise LongBody
            most = inf if self.reader is None else UNUSUAL_BYTES
            parsed = parse_v2(
                body, task, pinned, self.tasks, received_ms, draw, json_header, most_bytes=most
            )
            self._parsed(parsed, asking)
        except LongBody:
            fields = {
                "task": task,
                "pinned": pinned,
                "json_header": None if json_header is None else json_header.decode("latin-1"),
                "received_ms": received_ms,
                "draw": draw,
            }
            self._read_elsewhere(body, fields, asking)
        except Exception as error:
            self.fail(error, respond, given_id=given_id)

    def _parsed(self, parsed: ParsedQuery, asking: "_Asking") -> None:
        """Take a query whose body was read."""
        respond, given_id, told_ms, outline, takes, client = asking
        if takes and self.compresses:
            parsed = parsed._replace(takes=takes)
        if client is not ANYBODY:
            parsed = parsed._replace(query=parsed.query._replace(client=client))
        if told_ms is None or not self.turn_away(parsed.query, respond, given_id, told_ms, outline):
            self.start(parsed, respond, given_id)

    def _read_elsewhere(
        self, body: bytes | bytearray, fields: dict[str, Any], asking: "_Asking"
    ) -> None:
        """Have a long body read by the reader's process."""
        assert self.reader is not None
        respond, given_id = asking.respond, asking.given_id

        def done(found: ParsedQuery | ModellessError) -> None:
            if isinstance(found, ModellessError):
                self.fail(found, respond, given_id=given_id)
                return
            try:
                self._parsed(found, asking)
            except Exception as error:
                self.fail(error, respond, given_id=given_id)

        self.reader.read(body, fields, self.tasks, done)

    def start(self, parsed: ParsedQuery, respond: Respond, given_id: bytes | None = None) -> None:
        """Take responsibility for a query: ``respond`` is called exactly once from now on."""
        if parsed.task.sharing is not None and self.share(parsed, respond, given_id):
            return
        flight = InFlight(self, parsed, respond, given_id)
        if not self._took(flight):
            return
        self.count_demand(parsed.query)
        try:
            flight.dispatch(parsed.query)
        except Exception as error:
            flight.fail(error)

    def begin(self, flight: Flight, go: Callable[[Flight], None]) -> None:
        """The same for a query in flight that somebody else has made, and starts with ``go``."""
        if not self._took(flight):
            return
        try:
            go(flight)
        except Exception as error:
            flight.fail(error)

    def _took(self, flight: InFlight) -> bool:
        """Count a query in that is in flight from now on, or refuse it; whether it was taken."""
        task, counters = flight.parsed.query.task, self.counters
        if counters.in_flight >= CROWDED or self.held_bytes + flight.nbytes > MAX_IN_FLIGHT_BYTES:
            full = self._full(task, flight.nbytes)
            if full is not None:
                self.fail(full, flight.respond, task, flight.given_id)
                return False
        counters.in_flight += 1
        self.held_bytes += flight.nbytes
        self.held[task] = self.held.get(task, 0) + 1
        self.guard.add(flight)
        return True

    def _full(self, task: TaskName, nbytes: int) -> Overloaded | None:
        """Why one more query of a task is too many for this gateway, if it is."""
        count = self.counters.in_flight
        if count >= MAX_IN_FLIGHT:
            return Overloaded(f"{MAX_IN_FLIGHT} queries are in flight through this gateway.")
        if self.held_bytes + nbytes > MAX_IN_FLIGHT_BYTES:
            return Overloaded(
                f"queries of {self.held_bytes / 2**20:.0f} MiB are in flight through this gateway."
            )
        if count >= CROWDED and self.held.get(task, 0) > MAX_IN_FLIGHT - count:
            return Overloaded(
                f"{count} queries are in flight through this gateway, too many of them of this"
                " task."
            )
        return None

    def turn_away_by_headers(
        self,
        task: str,
        variant: str | None,
        slo: bytes | None,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None,
        told_ms: float,
        client: Client = ANYBODY,
    ) -> bool:
        """Answer a query whose body is still to come, if it would be refused for want of time now.

        Args:
            task: what it asks for, by its headers or path; ``variant`` and ``slo``, which is JSON,
                as well, where those say it.

        Returns:
            Whether it was answered, or will be: then its body is not wanted.
        """
        if not self.under_pressure():
            return False
        draw = getrandbits(32)
        outline = _asked_by(client, outline_of_headers(task, variant, slo))
        respond = self.enter(client, respond)
        try:
            told = self._refused_again(outline, received_ms, draw, respond, given_id, told_ms)
            if told is not None:
                return told
            if variant is not None:
                variant = self.variant_of(TaskName(task), variant)
            asked = asked_by_headers(task, variant, slo, self.tasks, received_ms, draw)
            if asked is None:
                return False
            asked = asked._replace(client=client)
            return self.turn_away(asked, respond, given_id, told_ms, outline)
        except ModellessError:
            return False  # what is wrong is found when it is read as a whole

    def turn_away(
        self,
        query: Query,
        respond: Respond,
        given_id: bytes | None = None,
        told_ms: float = -inf,
        outline: Outline | None = None,
    ) -> bool:
        """Answer a query that would be refused for want of time now; return whether it was.

        The refusal is the one that it would get after its body was read. Who has come back sooner
        than told gets it when that time has come, but no later than an answer: those who ask again
        at once do not take the time of those who wait. With the same ``outline`` others are refused
        for a moment.
        """
        if self.waiting is not None or query.task in self.sharing:
            return False
        now_ms = self.clock_ms()
        expected = self._expected_error(query, now_ms)
        if expected is None:
            return False
        if outline is not None:
            room_ms = room_at_ms(self.snapshot, query, expected.workers)
            before_ms = min(expected.before_ms, room_ms)
            holds = Holds(expected.until_ms, before_ms, len(expected.workers))
            self.repeated.add(outline, query, expected.error, holds, now_ms)
        self.count_demand(query)
        worded = self.repeated.wording(expected.error)
        answer = partial(self.refuse, worded, respond, query.task, given_id)
        held_ms = min(told_ms, query.received_ms + query.latency_ms) if worded.waits else -inf
        self._give(answer, held_ms, now_ms)
        return True

    def _refused_again(
        self,
        outline: Outline | None,
        received_ms: float,
        draw: int,
        respond: Respond,
        given_id: bytes | None,
        told_ms: float,
        lain_ms: LainMs = known_to_be_new,
    ) -> bool | None:
        """Answer a query that asks for what was refused a moment ago, if it still would be.

        Returns:
            Whether it was answered; ``None`` if nothing is known of what it asks for.
        """
        found = None if outline is None else self.repeated.find(outline)
        if found is None:
            return None
        now_ms = self.clock_ms()
        wording = self.repeated.again(found, received_ms, now_ms)
        if wording is None:
            received_ms -= lain_ms()
            wording = self.repeated.again(found, received_ms, now_ms)
        if wording is None:
            query = found.query._replace(received_ms=received_ms, draw=draw)
            return self.turn_away(query, respond, given_id, told_ms, outline)
        query = found.query
        self.count_demand(query)
        held_ms = -inf
        if wording.waits:
            self._narrow(found.holds.workers, now_ms)
            held_ms = min(told_ms, received_ms + query.latency_ms)
        self._give(partial(self.refuse, wording, respond, query.task, given_id), held_ms, now_ms)
        return True

    def _give(self, answer: Callable[[], None], held_ms: float, now_ms: float) -> None:
        """Give an answer, at ``held_ms`` if that is yet to come."""
        if held_ms > now_ms:
            self.held_answers.hold(held_ms, answer)
        else:
            answer()

    def _expected_error(self, query: Query, now_ms: float) -> "_Expected | None":
        """What a query would be told, were workers to say what they have just said to others."""
        found = choose(self.snapshot, self.routes, self.congestion, query, now_ms)
        refused: tuple[WorkerId, ...] = ()
        why, until_ms, before_ms = "", inf, inf
        standing = self.standing(query, now_ms)
        while isinstance(found, Choice):
            modest = self.leaving_room(query, found, now_ms)
            if modest is None:
                return _Expected(
                    Overloaded(OTHERS_FIRST), refused, now_ms + FOR_OTHERS_MS, before_ms
                )
            found = modest
            said, worker = None, found.worker.id
            if not found.cold and not query.best_effort:
                said = self.refusals.expected(worker, found.candidate, query, now_ms, standing)
            if said is None:
                return None
            refused = (*refused, found.worker.id)
            why = said.why
            until_ms, before_ms = min(until_ms, said.until_ms), min(before_ms, said.before_ms)
            if len(refused) == TRIES:
                break
            query = query._replace(avoid=found.worker.id)
            found = choose(self.snapshot, self.routes, self.congestion, query, now_ms)
        if isinstance(found, Refusal) and found.code not in FOR_WANT_OF_TIME:
            return None
        self._narrow(len(refused), now_ms)
        short = isinstance(found, Choice) or found.code is RefusalCode.OVERLOADED
        if refused or short:  # else no room would have helped
            self.lately.add(query.task, standing, now_ms)
        if refused and short:
            error: ModellessError = worker_error(ReplyCode.OVERLOADED, why, query, None)
            return _Expected(error, refused, until_ms, before_ms)
        assert isinstance(found, Refusal)
        return _Expected(refusal_error(found), refused, until_ms, before_ms)

    def _narrow(self, workers: int, now_ms: float) -> None:
        """Narrow the window as if so many workers had refused a query."""
        for number in range(1, workers + 1):
            self.congestion.refused(now_ms, twice=number == TRIES)

    def count_demand(self, query: Query) -> None:
        """Count a query as demand."""
        key = (query.task, query.latency_ms, query.accuracy, query.variant)
        demand = self._demand
        if key in demand or len(demand) < MAX_CLASSES:
            demand[key] = demand.get(key, 0) + query.rows

    def take_demand(self) -> dict[DemandKey, int]:
        """Rows that were asked for since this was last called."""
        taken, self._demand = self._demand, {}
        return taken


def _asked_by(client: Client, outline: Outline | None) -> Outline | None:
    """The outline of what one client asks: what others were refused says nothing of it."""
    if outline is None or client is ANYBODY:
        return outline
    return (*outline[:3], client.name)


def _not_shared(_parsed: ParsedQuery, _respond: Respond, _given_id: bytes | None) -> bool:
    return False
