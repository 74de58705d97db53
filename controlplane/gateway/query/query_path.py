"""QueryPath: the entrance for queries, in both dialects.

Everything on it is callbacks on one event loop: no task, future or timer per query. A query is
parsed here and becomes an ``InFlight``, which selects, sends, retries and answers; under pressure
``EarlyRefusals`` looks at it first. What all of them share is in ``QueryContext``.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from random import getrandbits
from typing import Any, TypeVar

from controlplane.gateway.overload.repeated_refusals import outline_of, outline_of_inference
from controlplane.gateway.protection.body_reader import LONG_BYTES, UNUSUAL_BYTES
from controlplane.gateway.query.departures import Unread
from controlplane.gateway.query.early_refusals import (
    Asking,
    EarlyRefusals,
    LainMs,
    asked_by,
    known_to_be_new,
)
from controlplane.gateway.query.in_flight import InFlight
from controlplane.gateway.query.lean_json import LongBody
from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.query_context import Loader, Respond
from controlplane.gateway.query.skimming import skim_v1, skim_v2
from controlplane.gateway.query.v2.parsing import json_bytes, parse_v2
from controlplane.gateway.texts.asked import AskedInText, check_numbers
from planner.types import ANYBODY, Client, Query
from variants.errors import InvalidInput, ModellessError, Overloaded
from variants.slots import tuple_of
from variants.types import TaskName

MAX_IN_FLIGHT = 50_000
MAX_IN_FLIGHT_BYTES = 2**30
"""Of the tensors of all queries in flight; they are kept to be asked elsewhere."""
CROWDED = MAX_IN_FLIGHT // 2
"""From here on a task may have no more queries in flight than there is room left for others."""

Flight = TypeVar("Flight", bound=InFlight)
AskedFor = Callable[[], Query | None]
"""Says what a query asks for, about, before its body is read; None where that is not known."""
Share = Callable[[ParsedQuery, Respond, bytes | None], bool]
"""Takes what ``QueryPath.start`` takes."""


def monotonic_ms() -> float:
    """A clock that never goes back, in ms; only differences mean anything."""
    return time.monotonic() * 1000


class QueryPath(EarlyRefusals):
    """Answers queries from an in-memory snapshot and open connections to workers.

    Its owner says with ``update`` what has changed.
    """

    def __init__(self, *, loader: Loader, clock_ms: Callable[[], float] = monotonic_ms) -> None:
        super().__init__(loader, clock_ms)
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
        fields = (self.enter(client, respond), given_id, told_ms, takes, client, False, None)
        asking = tuple_of(Asking, fields)
        try:
            draw = getrandbits(32)
            if self.under_pressure():
                told, received_ms = self.turn_away_by_outline(
                    asked_by(client, outline_of(body)),
                    lambda since_ms: skim_v1(body, self.tasks, since_ms, draw),
                    asking,
                    received_ms,
                    draw,
                    lain_ms,
                )
                if told:
                    return
                if told is None:
                    asking = asking._replace(unseen=True)
            if self.reader is not None and len(body) > LONG_BYTES:
                raise LongBody
            most = inf if self.reader is None else UNUSUAL_BYTES
            self._parsed(parse_v1(body, self.tasks, received_ms, draw, most_bytes=most), asking)
        except (LongBody, AskedInText) as elsewhere:
            said = {"task": None, "received_ms": received_ms, "draw": draw}
            self._unread(body, said, asking, elsewhere)
        except Exception as error:
            self.fail(error, asking.respond, given_id=given_id)

    def handle_image(
        self,
        image: bytes | bytearray,
        asked: Mapping[str, Any],
        received_ms: float,
        respond: Respond,
        given_id: bytes | None = None,
        takes: bytes = b"",
        client: Client = ANYBODY,
    ) -> None:
        """Answer a ``POST /v1/query`` whose body is a picture, as ``handle_v1``.

        Args:
            asked: by its headers (``controlplane.gateway.images.asked``).
        """
        asking = Asking(self.enter(client, respond), given_id, -inf, takes, client)
        draw = getrandbits(32)
        fields = {"task": None, "image": asked, "received_ms": received_ms, "draw": draw}
        try:
            self._read_elsewhere(image, fields, asking)
        except Exception as error:
            self.fail(error, asking.respond, given_id=given_id)

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
        """Answer a ``POST /v2/models/{task}[/versions/{variant}]/infer``, as ``handle_v1``.

        Args:
            pinned: the version of the address, if it has one.
            json_header: the header ``Inference-Header-Content-Length``.
        """
        fields = (self.enter(client, respond), given_id, told_ms, takes, client, False, None)
        asking = tuple_of(Asking, fields)
        try:
            if pinned is not None:
                pinned = self.variant_of(TaskName(task), pinned)
            draw = getrandbits(32)
            if self.under_pressure():
                outline = asked_by(client, outline_of_inference(task, pinned, body, json_header))
                told, received_ms = self.turn_away_by_outline(
                    outline,
                    lambda since_ms: (
                        skim_v2(body, task, pinned, self.tasks, since_ms, draw)
                        if json_header is None
                        else None
                    ),
                    asking,
                    received_ms,
                    draw,
                    lain_ms,
                )
                if told:
                    return
                if told is None:
                    asking = asking._replace(unseen=True, outline=outline)
            if self.reader is not None and json_bytes(body, json_header) > LONG_BYTES:
                raise LongBody
            most = inf if self.reader is None else UNUSUAL_BYTES
            parsed = parse_v2(
                body, task, pinned, self.tasks, received_ms, draw, json_header, most_bytes=most
            )
            self._parsed(parsed, asking)
        except (LongBody, AskedInText) as elsewhere:
            said = {
                "task": task,
                "pinned": pinned,
                "json_header": None if json_header is None else json_header.decode("latin-1"),
                "received_ms": received_ms,
                "draw": draw,
            }
            self._unread(body, said, asking, elsewhere)
        except Exception as error:
            self.fail(error, asking.respond, self._if_known(task), given_id)

    def _unread(
        self,
        body: bytes | bytearray,
        said: dict[str, Any],
        asking: Asking,
        elsewhere: LongBody | AskedInText,
    ) -> None:
        """Have another process read a body, unless it would be refused for want of time now."""
        asked = _query_of(elsewhere)  # not the error itself, which leads back to here
        if not (asking.unseen and self._refused_unread(asked, asking)):
            texts = isinstance(elsewhere, AskedInText)
            self._read_elsewhere(body, said, asking, texts=texts, asked=asked)

    def _refused_unread(self, asked: AskedFor, asking: Asking) -> bool:
        """Answer a query that would be refused for want of time now, before its texts are read;
        return whether it was."""
        query = asked()
        if query is None:
            return False
        query = query._replace(client=asking.client)
        return self.turn_away(query, asking.respond, asking.given_id, asking.told_ms)

    async def read_texts(self, body: bytes | bytearray, received_ms: float) -> Query:
        """What a body of ``/v1/query`` with texts asks for; nothing is asked.

        Raises:
            ModellessError: it is wrong, or cannot be read now.
        """
        if self.text_reader is None:
            raise AskedInText
        found: asyncio.Future[ParsedQuery | ModellessError] = (
            asyncio.get_running_loop().create_future()
        )
        fields = {"task": None, "received_ms": received_ms, "draw": getrandbits(32)}
        self.text_reader.read(body, fields, self.tasks, partial(_unless_done, found))
        parsed = await found
        if isinstance(parsed, ModellessError):
            raise parsed
        if parsed.query.unread:
            self.holding.check(self.snapshot, parsed.query)
        return parsed.query

    def handle_texts(
        self,
        body: bytes,
        task: str,
        pinned: str | None,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None = None,
        client: Client = ANYBODY,
        *,
        answered_as: Callable[[ParsedQuery], ParsedQuery],
    ) -> None:
        """Answer a call that asks with texts.

        Args:
            body: what asks for the same over HTTP (``handle_v2``).
            respond: as ``enter`` gave it.
            answered_as: the query, once it was read, with the form of its answer.
        """
        unseen = self.under_pressure()
        asking = Asking(respond, given_id, client=client, unseen=unseen)
        fields: dict[str, Any] = {
            "task": task, "pinned": pinned, "json_header": None, "received_ms": received_ms,
            "draw": getrandbits(32),
        }  # fmt: skip

        def asked() -> Query | None:
            try:
                parse_v2(body, task, pinned, self.tasks, received_ms, fields["draw"])
            except AskedInText as found:
                return _query_of(found)()
            except ModellessError:
                pass  # what is wrong is found when it is read
            return None

        try:
            if unseen and self._refused_unread(asked, asking):
                return
            self._read_elsewhere(
                body, fields, asking, texts=True, answered_as=answered_as, asked=asked
            )
        except Exception as error:
            self.fail(error, respond, self._if_known(task), given_id)

    def _parsed(self, parsed: ParsedQuery, asking: Asking, *, texts: bool = False) -> None:
        """Take a query whose body was read; ``texts``: by the process that reads these."""
        respond, given_id, told_ms, takes, client, unseen, outline = asking
        try:
            if parsed.task.text is not None and not texts:
                check_numbers(parsed.task, parsed.query.variant, self.tasks)
            if parsed.query.unread:
                self.holding.check(self.snapshot, parsed.query)
        except ModellessError as error:
            error.asked_task = parsed.task.name
            raise
        if takes and self.compresses:
            parsed = parsed._replace(takes=takes)
        if client is not ANYBODY:
            parsed = parsed._replace(query=parsed.query._replace(client=client))
        if not (unseen and self.turn_away(parsed.query, respond, given_id, told_ms, outline)):
            self.start(parsed, respond, given_id)

    def _read_elsewhere(
        self,
        body: bytes | bytearray,
        fields: dict[str, Any],
        asking: Asking,
        *,
        texts: bool = False,
        answered_as: Callable[[ParsedQuery], ParsedQuery] | None = None,
        asked: AskedFor = lambda: None,
    ) -> None:
        """Have a long body, or one of texts, read by the process that does."""
        respond, given_id = asking.respond, asking.given_id
        reader = self.text_reader if texts else self.reader
        if reader is None:
            raise InvalidInput("texts are not read here")
        unread, others = Unread(respond), self.departures.others

        def is_over() -> bool:
            """Whether it need not be read any more, once it has waited for its turn."""
            if unread.left_ms is not None:
                self.gave_up(respond, unread.left_ms, asked())
            elif not self._refused_unread(asked, asking):
                return False
            others.discard(unread)
            return True

        def done(found: ParsedQuery | ModellessError) -> None:
            others.discard(unread)
            if unread.left_ms is not None:
                query = found.query if isinstance(found, ParsedQuery) else asked()
                self.gave_up(respond, unread.left_ms, query)
                return
            if isinstance(found, AskedInText) and not texts:  # it was too long to be looked at here
                self._read_elsewhere(body, fields, asking, texts=True)
                return
            if isinstance(found, ModellessError):
                named = fields["task"] or fields.get("image", {}).get("task")
                self.fail(found, respond, self._if_known(named), given_id)
                return
            try:
                parsed = found if answered_as is None else answered_as(found)
                self._parsed(parsed, asking, texts=texts)
            except Exception as error:
                self.fail(error, respond, given_id=given_id)

        others.add(unread)
        reader.read(body, fields, self.tasks, done, asking.client, is_over)

    def _if_known(self, name: str | None) -> str:
        """The name of a task, where there is one of it: what else is asked is counted at none."""
        return name if name is not None and TaskName(name) in self.tasks else ""

    def start(self, parsed: ParsedQuery, respond: Respond, given_id: bytes | None = None) -> None:
        """Take responsibility for a query: ``respond`` is called exactly once from now on."""
        if parsed.task.sharing is not None and self.share(parsed, respond, given_id):
            return
        flight = InFlight(self, parsed, respond, given_id)
        if not self._took(flight):
            return
        self.demand.count(parsed.query)
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
            return Overloaded(f"{MAX_IN_FLIGHT:,} queries are in flight through this gateway")
        if self.held_bytes + nbytes > MAX_IN_FLIGHT_BYTES:
            return Overloaded(
                f"queries of {self.held_bytes / 2**20:,.0f} MiB are in flight through this gateway"
            )
        if count >= CROWDED and self.held.get(task, 0) > MAX_IN_FLIGHT - count:
            return Overloaded(
                f"{count} queries are in flight through this gateway, too many of them of this task"
            )
        return None


def _query_of(elsewhere: Exception) -> AskedFor:
    """What a query asks for that is read elsewhere, where that is known before."""
    asked = elsewhere.query if isinstance(elsewhere, AskedInText) else None

    def query() -> Query | None:
        with suppress(ModellessError):  # what is wrong is found when it is read
            return None if asked is None else asked()
        return None

    return query


def _unless_done(
    future: "asyncio.Future[ParsedQuery | ModellessError]", found: ParsedQuery | ModellessError
) -> None:
    if not future.done():  # who waited may have gone
        future.set_result(found)


def _not_shared(_parsed: ParsedQuery, _respond: Respond, _given_id: bytes | None) -> bool:
    return False
