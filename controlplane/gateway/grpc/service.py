"""The procedures of the service: inference takes the query path, the rest answers from memory.

All messages come and go as bytes: those of inference because large tensors are not to be copied,
the others because what is wrong with them gets our own sentence. Every procedure reads its request
itself, so that the clock starts with the call and not with the end of its message, and a client
cannot keep a call open by never finishing it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import getrandbits
from typing import Any

import grpc
import orjson
from google.protobuf.message import DecodeError

from controlplane.gateway.grpc.inference import CalledInText, read_query
from controlplane.gateway.grpc.messages import (
    METHODS,
    SERVICE,
    message_class,
)
from controlplane.gateway.grpc.reflection import HEALTH, VERSIONS, reflected
from controlplane.gateway.grpc.statuses import status_of
from controlplane.gateway.grpc.stream_writer import Answer, StreamWriter
from controlplane.gateway.http.access import Access, too_large
from controlplane.gateway.http.guarded import CONTROL_BODY
from controlplane.gateway.images.misplaced import MISPLACED, misplaced
from controlplane.gateway.protection.compression import Inflater, coding_of
from controlplane.gateway.protection.connections import too_many
from controlplane.gateway.protection.grpc_connections import GrpcConnections
from controlplane.gateway.query.query_context import Respond
from controlplane.gateway.query.query_path import QueryPath, monotonic_ms
from controlplane.http_errors import error_body, request_id
from planner.types import ANYBODY, Client
from variants.errors import Internal, InvalidInput, ModellessError, RateLimited, ReplicaLost
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))

MESSAGE_S = 75.0
"""How long a request may take to come in full; as long as HTTP leaves a connection without one."""
END_S = 0.3
"""How long a stream that ends with the gateway is still listened to: its client may be done."""
STOPPING = (
    "this gateway is being stopped; what has no answer was not looked at: open the stream again"
)
STREAMS = 1_000
"""Streams of one gateway. An idle one takes no more than its connection."""
EMPTY = frozenset({"ServerLive", "ServerReady"})
"""What is called with no fields: nothing of the request is looked at."""
OPEN = EMPTY | {"Health"}
"""What may be called without the token."""
OPERATORS = frozenset({"RepositoryModelLoad", "RepositoryModelUnload"})
"""What a client's key does not open."""


class Service:
    """The handlers of one gateway. ``answers`` has one for each procedure but inference."""

    def __init__(
        self,
        path: QueryPath,
        access: Access,
        answers: Mapping[str, Callable[[Any, Any], Awaitable[None]]],
        inflater: Inflater,
    ) -> None:
        """
        Args:
            answers: each takes a request and a reply to fill in.
            inflater: unpacks messages that come compressed.
        """
        self._path = path
        self._inflater = inflater
        self._access = access
        self._answers = answers
        self._streams = 0
        self.closing = False
        """Whether streams end, behind what they have asked."""
        self._waiting: set[asyncio.Timeout] = set()
        """Of each stream that waits for its client: until when."""
        self.connections: GrpcConnections | None = None
        """The caps on its connections."""

    def turned_away(self) -> None:
        """A connection was shut down that was one too many of its address."""
        self._path.counters.connections.refused("grpc", RateLimited.code)

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What a server is given: the protocol, and what probes and tools ask of any server."""
        found: dict[str, Any] = {}
        for method in METHODS:
            if method.name == "ModelInfer":
                found[method.name] = grpc.stream_unary_rpc_method_handler(self.infer)
            elif method.streams:
                found[method.name] = grpc.stream_stream_rpc_method_handler(self.stream)
            elif method.name in self._answers:
                messages = message_class(method.request), message_class(method.reply)
                plain = self._plain(method.name, *messages)
                found[method.name] = grpc.stream_unary_rpc_method_handler(plain)
        [check] = HEALTH.methods
        plain = self._plain("Health", *map(HEALTH.message_class, (check.request, check.reply)))
        probes = {check.name: grpc.stream_unary_rpc_method_handler(plain)}
        tools = {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(self.reflect)}
        return (
            grpc.method_handlers_generic_handler(SERVICE, found),
            *(grpc.method_handlers_generic_handler(name, probes) for name in HEALTH.services),
            *(grpc.method_handlers_generic_handler(name, tools) for name in VERSIONS),
        )

    # -- inference ------------------------------------------------------------------------------

    async def infer(self, _requests: object, context: Any) -> bytes:
        """``ModelInfer``: one query, one answer."""
        began_ms = monotonic_ms()
        given_id, client = await self._admit(context, query=True)
        data = await self._read(context, given_id, asked_by=client)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        respond = self._into(answered, "ModelInfer", began_ms, _fields(context))
        self._ask(data, began_ms, respond, given_id, client)
        try:
            status, body, headers = await answered
        except asyncio.CancelledError:  # by the client, or as its connection ended
            self._path.departures.left(respond)
            raise
        if status != 200:
            await context.abort(*status_of(orjson.loads(body)))
        context.set_trailing_metadata(_metadata(headers))
        return body

    async def stream(self, _requests: object, context: Any) -> None:
        """``ModelStreamInfer``: queries as they come, answers in the order of their queries."""
        given_id, client = await self._admit(context, query=True)
        admitted_by = self._access.clients
        if self._streams >= STREAMS:
            many = RateLimited(f"{STREAMS} streams are open")
            await self._turn_away(context, many, given_id, client)
        self._streams += 1
        writer = StreamWriter(context, self._path.departures.left)
        try:
            while (data := await self._next(context)) is not grpc.aio.EOF and data is not None:
                began_ms = monotonic_ms()
                # Its key may have been removed, or each use of it is counted.
                if self._access.clients is not admitted_by or admitted_by.old_token:
                    admitted_by = self._access.clients
                    authorization = _bytes(_fields(context).get("authorization"))
                    error = self._access.permit_call(None, authorization, asks=True)
                    if error is not None:
                        await writer.finish()
                        await self._turn_away(context, error, given_id)
                    client = self._access.client_of(authorization)
                answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                respond = self._into(answered, "ModelStreamInfer", began_ms, _fields(context))
                try:
                    data = await self._unpacked(data)
                    self._ask(data, began_ms, respond, None, client)
                except ModellessError as error:
                    self._path.fail(error, self._path.enter(client, respond))
                await writer.add(data, answered, respond)
            await writer.finish()
            if data is None:
                await _abort(context, ReplicaLost(STOPPING), given_id)
        finally:
            self._streams -= 1
            writer.cancel()

    def _ask(
        self,
        data: bytes,
        began_ms: float,
        respond: Respond,
        given_id: bytes | None,
        client: Client,
    ) -> None:
        """Hand a query to the query path."""
        path = self._path
        respond = path.enter(client, respond)
        try:
            parsed = read_query(data, path.tasks, path.variant_of, began_ms, getrandbits(32))
            if client is not ANYBODY:
                parsed = parsed._replace(query=parsed.query._replace(client=client))
            if not (path.under_pressure() and path.turn_away(parsed.query, respond, given_id)):
                path.start(parsed, respond, given_id)
        except CalledInText as asked:
            call = asked.call
            path.handle_texts(
                call.body, call.task, call.pinned, began_ms, respond, given_id, client,
                answered_as=call.answered_as,
            )  # fmt: skip
        except Exception as error:
            path.fail(error, respond, given_id=given_id)

    def _into(
        self,
        answered: "asyncio.Future[Answer]",
        method: str,
        began_ms: float,
        fields: dict[str, Any],
    ) -> Respond:
        """Where the answer of a query goes."""
        respond, traces = _into(answered), self._path.traces
        if traces is None:
            return respond
        parent, state = map(_bytes, map(fields.get, ("traceparent", "tracestate")))
        return traces.watch(respond, method, began_ms, parent, state)

    async def _turn_away(
        self,
        context: Any,
        error: ModellessError,
        given_id: bytes | None,
        client: Client | None = None,
    ) -> None:
        """End a call for queries before any is looked at, which counts as over HTTP.

        Args:
            client: by whose key it asks, of a call that was admitted.
        """
        self._path.counters.task("").failed(error.code)
        if client is not None:
            self._path.refused_unread(client)
        await _abort(context, error, given_id)

    async def _next(self, context: Any, within_s: float | None = None) -> Any:
        """The next message of a stream, or its end.

        None where neither came in time, or the gateway stops: of a stream that goes on by then
        nothing more is looked at.
        """
        only_end = self.closing
        try:
            async with asyncio.timeout(END_S if only_end else within_s) as patience:
                self._waiting.add(patience)
                try:
                    data = await context.read()
                finally:
                    self._waiting.discard(patience)
        except TimeoutError:
            return None
        return None if only_end and data is not grpc.aio.EOF else data

    def close(self) -> None:
        """Have streams end, each behind what it has asked."""
        self.closing = True
        soon_s = asyncio.get_running_loop().time() + END_S
        for patience in self._waiting:
            patience.reschedule(soon_s)

    async def _read(
        self,
        context: Any,
        given_id: bytes | None,
        most: int | None = None,
        asked_by: Client | None = None,
    ) -> bytes:
        """The one message of a call; a compressed one has ``most`` bytes before and after.

        Args:
            asked_by: whose query it is; None: it is none.
        """
        try:
            return await self._unpacked(await _read(context, MESSAGE_S), most)
        except ModellessError as error:
            if asked_by is not None:
                await self._turn_away(context, error, given_id, asked_by)
            await _abort(context, error, given_id)
            raise

    async def _unpacked(self, data: bytes, most: int | None = None) -> bytes:
        coding = coding_of(data)
        if not coding:
            return data
        if most is not None and len(data) > most:
            raise too_large(most)
        return bytes(await self._inflater.inflated(data, coding, most))

    # -- everything else ------------------------------------------------------------------------

    def _plain(
        self, name: str, request_class: Any, reply_class: Any
    ) -> Callable[[object, Any], Awaitable[bytes]]:
        """The handler of a procedure that answers from memory."""
        answer = self._answers[name]
        is_open, asks, empty = name in OPEN, name not in OPERATORS, name in EMPTY

        async def handle(_requests: object, context: Any) -> bytes:
            given_id, _ = await self._admit(context, is_open=is_open, asks=asks)
            data = b"" if empty else await self._read(context, given_id, CONTROL_BODY)
            reply = reply_class()
            try:
                await answer(request_class.FromString(data), reply)
            except DecodeError:
                wrong = InvalidInput(f"the message is no {request_class.DESCRIPTOR.name}")
                await _abort(context, wrong, given_id)
            except Exception as error:
                await _abort(context, error, given_id)
            return bytes(reply.SerializeToString())

        return handle

    async def reflect(self, _requests: object, context: Any) -> None:
        """``ServerReflectionInfo``: what there is to call, one answer for each question."""
        given_id, _ = await self._admit(context)
        while (data := await self._next(context, MESSAGE_S)) is not grpc.aio.EOF:
            if data is None:
                return
            try:
                if len(data) > CONTROL_BODY:
                    raise too_large(CONTROL_BODY)
                await context.write(reflected(await self._unpacked(data, CONTROL_BODY)))
            except ModellessError as error:
                await _abort(context, error, given_id)

    async def _admit(
        self, context: Any, *, is_open: bool = False, asks: bool = True, query: bool = False
    ) -> tuple[bytes | None, Client]:
        """Refuse a call that may not be made; of an admitted one, its own id and its client.

        Args:
            query: it is one for queries.
        """
        fields = _fields(context)
        given_id = _bytes(fields.get("x-request-id"))
        if self.connections is not None and self.connections.marked:
            limit = self.connections.limit_over(context.peer())
            if limit is not None:
                await _abort(context, RateLimited(too_many(limit)), given_id)
        authorization = _bytes(fields.get("authorization"))
        error = self._access.permit_call(
            _bytes(fields.get("origin")), authorization, open=is_open, asks=asks
        )
        if error is not None and query:
            await self._turn_away(context, error, given_id)
        elif error is not None:
            await _abort(context, error, given_id)
        client = self._access.client_of(authorization)
        if query and not MISPLACED.isdisjoint(fields):
            wrong = misplaced(fields, v2=True, what="metadata")
            await self._turn_away(context, wrong, given_id, client)
        return given_id, client


def _fields(context: Any) -> dict[str, Any]:
    """The metadata that a call came with."""
    return dict(context.invocation_metadata() or ())


def _into(answered: "asyncio.Future[Answer]") -> Respond:
    """Where the query path writes an answer to."""

    def respond(status: int, body: bytes, headers: bytes) -> None:
        if not answered.done():  # the client may have gone
            answered.set_result((status, body, headers))

    return respond


async def _read(context: Any, within_s: float) -> bytes:
    """The one message of a call.

    Raises:
        InvalidInput: there is none, or not in time.
    """
    try:
        async with asyncio.timeout(within_s):
            data = await context.read()
    except TimeoutError as error:
        raise InvalidInput(
            f"the request takes too long: it has not come within {within_s:,g} s"
        ) from error
    if data is grpc.aio.EOF:
        raise InvalidInput("the call carries no message")
    return bytes(data)


async def _abort(context: Any, error: Exception, given_id: bytes | None) -> None:
    """End a call with an error; one that is not ours is logged and shown as an id only."""
    id_ = request_id(given_id)
    if not isinstance(error, ModellessError) or isinstance(error, Internal):
        sparing.error("", error, "request %s failed", id_)
    await context.abort(*status_of(error_body(error, id_)))


def _metadata(headers: bytes) -> tuple[tuple[str, str], ...]:
    """Header lines, each ending in CRLF, as metadata."""
    lines = headers.decode("latin-1").split("\r\n")[:-1]
    return tuple((name, value) for name, _, value in (line.partition(": ") for line in lines))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("latin-1", "replace") if isinstance(value, str) else value
