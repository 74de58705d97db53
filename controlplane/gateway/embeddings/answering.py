"""Answers of ``POST /v1/embeddings``: queries for its texts, and what they give put together.

``answer`` is the way in.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from random import getrandbits
from typing import Any, NamedTuple

import orjson

from controlplane.gateway.embeddings.asked import Asked, read_request
from controlplane.gateway.embeddings.collected import Collected
from controlplane.gateway.embeddings.cutting import MOST_ROWS, cut, rows_of_query
from controlplane.gateway.query.departures import GONE_BODY, Gone, Part, innermost
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_context import Respond
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.query.replies import JSON, ReplyMetadata
from controlplane.gateway.texts.asked import BYTES, TRUNCATE
from controlplane.gateway.tracing.watched import Watched
from controlplane.http_errors import CLIENT_GONE_STATUS, as_openai
from controlplane.slo_parameters import slo_parameters
from controlplane.views.catalog.text_vectors import VERSION
from planner.types import Client, Query
from variants.errors import Internal, InvalidInput, ModellessError
from variants.texts.inputs import TEXT

AT_ONCE = 4
"""Queries of one request that are in flight."""
PATIENCE_MS = 30_000.0
"""How long after its first byte a request of several queries has one asked again that was refused
for want of room, or got no answer in its time. Those of one query leave that to their client."""
LEAST_WAIT_S, MOST_WAIT_S = 0.02, 5.0
MOST_LATE = 4
"""Times that a query is asked which gets no answer in its time: it may never be fast enough."""
_BUSY, _LATE, _INFEASIBLE = frozenset({429, 503}), 504, 422
_TEXT = re.compile(r"\btext (\d{1,6})\b")
"""How an error names a text of its query."""


class Failed(Exception):
    """A query was answered with an error: its status, body and header lines."""

    def __init__(self, status: int, body: bytes, headers: bytes) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers


class ClientGone(Exception):
    """The client of a request has gone."""


class _Piece(NamedTuple):
    """What one query of a request has given."""

    entries: dict[int, bytes]
    """By the number of a text, as JSON."""
    tokens: int
    metadata: ReplyMetadata
    headers: bytes


def answer(
    path: QueryPath,
    body: bytes | bytearray,
    fields: Mapping[bytes, bytes],
    received_ms: float,
    respond: Respond,
    given_id: bytes | None,
    client: Client,
) -> None:
    """Answer a ``POST /v1/embeddings``; its errors look as those of OpenAI's API.

    Args:
        fields: its headers, by their names in lower case.
        received_ms: when its first byte came.
        given_id: the caller's ``X-Request-Id``.
        client: by whose key it is asked.
    """
    try:
        asked = read_request(body, fields, path.tasks)
    except Exception as error:
        fail(path, error, respond, given_id)
        return
    if isinstance(respond, Watched):
        respond.task = asked.name
    request = Request(path, asked, received_ms, respond, given_id, client)
    answering = asyncio.ensure_future(_answered(path, request, respond, given_id))
    _UNDER_WAY.add(answering)
    answering.add_done_callback(_UNDER_WAY.discard)


_UNDER_WAY: set["asyncio.Future[None]"] = set()
"""Whoever holds no reference to a task may lose it."""


async def _answered(
    path: QueryPath, request: "Request", respond: Respond, given_id: bytes | None
) -> None:
    path.departures.others.add(request)
    try:
        body, headers = await request.answered()
    except Failed as failed:
        in_their_form(respond, failed.status, failed.body, failed.headers)
    except ClientGone:
        respond(CLIENT_GONE_STATUS, GONE_BODY, b"")
    except Exception as error:
        fail(path, error, respond, given_id)
    else:
        if isinstance(respond, Watched):
            respond.made = request.made
        respond(200, body, JSON + headers)
    finally:
        path.departures.others.discard(request)


def _renumbered(body: bytes, numbers: Sequence[int]) -> bytes:
    """The body of an error, which names a text as the request has numbered it.

    Args:
        numbers: in the request, of the texts of the query that was refused.
    """
    told = orjson.loads(body)
    if told["code"] != "INVALID_INPUT":
        return body

    def number(found: re.Match[str]) -> str:
        at = int(found[1])
        return f"text {numbers[at] if at < len(numbers) else at}"

    return orjson.dumps({**told, "error": _TEXT.sub(number, told["error"])})


def fail(path: QueryPath, error: Exception, respond: Respond, given_id: bytes | None) -> None:
    """Answer with an error, in the form that these clients expect."""
    path.fail(error, partial(in_their_form, respond), given_id=given_id)


def in_their_form(respond: Respond, status: int, body: bytes, headers: bytes) -> None:
    """Pass an answer with an error on as clients of OpenAI's API expect it."""
    respond(status, orjson.dumps(as_openai(orjson.loads(body))), headers)


def _code_of(error: Exception) -> str:
    """The code by which a request fails."""
    if isinstance(error, Failed):
        return str(orjson.loads(error.body)["code"])
    return error.code if isinstance(error, ModellessError) else Internal.code


class Request:
    """One request under way."""

    def __init__(
        self,
        path: QueryPath,
        asked: Asked,
        received_ms: float,
        respond: Respond,
        given_id: bytes | None,
        client: Client,
    ) -> None:
        """
        Args:
            received_ms: when its first byte came.
            respond: where its answer goes.
            given_id: the caller's ``X-Request-Id``.
            client: by whose key it is asked.
        """
        self._path = path
        self._asked = asked
        self._received_ms = received_ms
        self._respond = innermost(respond)
        self._given_id = given_id
        self._client = client
        self._left = False
        """Whether its client has gone."""
        self._asked_for: set[Part] = set()
        """Where the answers of its queries go that have none yet."""
        self._most_rows = MOST_ROWS
        """Of a query: more were too slow for its SLO."""
        self.made: ReplyMetadata | None = None
        """How the first of its vectors were made, once they are there."""

    def left_by(self, gone: Gone) -> None:
        """Ask for nothing more where its client has gone, and let go of what is asked."""
        if not self._left and self._respond in gone:
            self._left = True
            for each in self._asked_for:
                self._path.departures.left(each)

    async def answered(self) -> tuple[bytes, bytes]:
        """The body of its answer, and header lines.

        All vectors are of the version that has answered the first query.

        Raises:
            Failed: a query was answered with an error.
            ClientGone: nobody waits for the answer any more.
            ModellessError: what is asked for is wrong.
        """
        path, texts = self._path, self._asked.texts
        one = self._asked.query(self._received_ms, getrandbits(32), texts, 1)
        rows = rows_of_query(path.snapshot_for(one), one)
        first, *others = cut(texts, rows)
        version = one.version
        pieces = await self._pieces(first, version, self._received_ms, again=bool(others))
        self.made = pieces[0].metadata
        version = self.made.model_version
        left = iter(others)

        async def ask() -> None:
            for piece in left:
                pieces.extend(await self._pieces(piece, version, path.clock_ms(), again=True))

        asking = [asyncio.ensure_future(ask()) for _ in range(min(AT_ONCE, len(others)))]
        try:
            await asyncio.gather(*asking)
        except Exception as error:
            self._let_go_of_others(_code_of(error))
            raise
        finally:
            for each in asking:
                each.cancel()
        return self._written(pieces), pieces[0].headers

    def _let_go_of_others(self, failed_by: str) -> None:
        """Ask for nothing more of a request that has failed: what waits for a worker need not run.

        Args:
            failed_by: the code of its error.
        """
        for each in self._asked_for:
            each.failed_by = failed_by
            self._path.departures.left(each)

    async def _pieces(
        self, numbers: list[int], version: str | None, sent_ms: float, *, again: bool
    ) -> list[_Piece]:
        """Ask for some of the texts: at once, or in halves where that is too slow for the SLO, as
        they have more tokens than was likely.

        Args:
            numbers: of the texts.
            version: that alone may answer; None: any one.
            sent_ms: from when the deadline of the first query counts.
            again: whether one is asked again that is refused for want of room.
        """
        if len(numbers) <= self._most_rows:
            try:
                return [await self._piece(numbers, version, sent_ms, again=again)]
            except Failed as failed:
                if not self._is_too_slow(failed, numbers):
                    raise
            self._most_rows = min(self._most_rows, len(numbers) // 2)
            sent_ms = self._path.clock_ms()
        middle = len(numbers) // 2
        pieces = await self._pieces(numbers[:middle], version, sent_ms, again=True)
        version, sent_ms = pieces[0].metadata.model_version, self._path.clock_ms()
        return pieces + await self._pieces(numbers[middle:], version, sent_ms, again=True)

    def _is_too_slow(self, failed: Failed, numbers: list[int]) -> bool:
        """Whether fewer texts at once may meet an SLO that these did not."""
        if failed.status != _INFEASIBLE or len(numbers) == 1:
            return False
        now_ms, texts = self._path.clock_ms(), [self._asked.texts[at] for at in numbers]
        one = self._asked.query(now_ms, getrandbits(32), texts, 1)
        return not self._path.is_infeasible(one, now_ms)

    async def _piece(
        self, numbers: list[int], version: str | None, sent_ms: float, *, again: bool
    ) -> _Piece:
        """Ask for some of the texts in one query, as ``_pieces``."""
        texts = [self._asked.texts[at] for at in numbers]
        late = 0
        while True:
            if self._left:
                raise ClientGone
            draw = getrandbits(32)
            query = self._asked.query(sent_ms, draw, texts, len(texts))._replace(version=version)
            try:
                return await self._once(query, numbers, texts)
            except Failed as failed:
                late += failed.status == _LATE
                wait_s = self._wait_s(failed, query) if again and late < MOST_LATE else None
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            sent_ms = self._path.clock_ms()

    def _wait_s(self, failed: Failed, query: Query) -> float | None:
        """When to ask again; None: not. Where there was no answer in time, others get as much time
        first."""
        if failed.status not in _BUSY and failed.status != _LATE:
            return None
        told = orjson.loads(failed.body)
        after_s = told.get("retry_after_s") or 0.0
        if failed.status == _LATE:
            after_s = query.latency_ms / 1_000
        wait_s = max(LEAST_WAIT_S, min(float(after_s), MOST_WAIT_S))
        left_ms = self._received_ms + PATIENCE_MS - self._path.clock_ms()
        return wait_s if told.get("retryable") and wait_s * 1_000 < left_ms else None

    async def _once(self, query: Query, numbers: list[int], texts: list[str]) -> _Piece:
        path, forms = self._path, list[Collected]()
        answered: asyncio.Future[tuple[int, bytes, bytes]] = (
            asyncio.get_running_loop().create_future()
        )

        def take(status: int, body: bytes, headers: bytes) -> None:
            if not answered.done():
                answered.set_result((status, body, headers))

        respond = Part(take)

        def collected(parsed: ParsedQuery) -> ParsedQuery:
            forms[:] = [Collected.of(parsed)]
            return parsed._replace(v2=forms[0])

        self._asked_for.add(respond)
        try:
            path.handle_texts(
                orjson.dumps(self._inference(query, texts)), self._asked.name, query.variant,
                query.received_ms, path.enter(self._client, respond), self._given_id, self._client,
                answered_as=collected,
            )  # fmt: skip
            status, body, headers = await answered
        finally:
            self._asked_for.discard(respond)
        if self._left:
            raise ClientGone
        if status != 200 or not forms or not forms[0].kept:
            raise Failed(status, _renumbered(body, numbers), headers)
        [(vectors, metadata)] = forms[0].kept
        if len(vectors) != len(numbers) or vectors.ndim != 2:
            raise InvalidInput(f"variant {metadata.variant!r} gives no vector for each text")
        way = path.holding.way_of(query.task, metadata.model_version)
        tokens = forms[0].tokens
        entries = {at: self._entry(at, vector) for at, vector in zip(numbers, vectors, strict=True)}
        return _Piece(entries, tokens.get(way, max(tokens.values())), metadata, headers)

    def _inference(self, query: Query, texts: list[str]) -> dict[str, Any]:
        """The body of an inference request of the Open Inference Protocol that asks for this."""
        parameters = slo_parameters(
            latency_ms=query.latency_ms, accuracy=query.accuracy, cost=query.cost,
            prefer=query.prefer, best_effort=query.best_effort, model_version=query.version,
            priority=query.priority,
        )  # fmt: skip
        if self._asked.truncate:
            parameters[TRUNCATE] = True
        entry = {"name": TEXT, "datatype": BYTES, "shape": [len(texts)], "data": texts}
        return {"inputs": [entry], "parameters": parameters}

    def _entry(self, at: int, vector: Any) -> bytes:
        if self._asked.base64:
            written = b'"%s"' % b64encode(vector.astype("<f4").tobytes())
        else:
            written = orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)
        return b'{"object":"embedding","index":%d,"embedding":%s}' % (at, written)

    def _written(self, pieces: list[_Piece]) -> bytes:
        entries: dict[int, bytes] = {}
        for piece in pieces:
            entries |= piece.entries
        listed = b",".join(entries[at] for at in range(len(entries)))
        made = [piece.metadata for piece in pieces]
        tokens = sum(piece.tokens for piece in pieces)
        said = {
            "model": f"{self._asked.name}{VERSION}{made[0].model_version}",
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "model_version": made[0].model_version,
            "variants": sorted({one.variant for one in made}),
            "accuracy": min(one.accuracy for one in made),
            "slo_met": all(one.slo_met for one in made),
        }
        return b'{"object":"list","data":[%s],%s' % (listed, orjson.dumps(said)[1:])
