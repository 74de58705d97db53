"""The inference routes as ordinary ones: the same query path behind another entrance."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import getrandbits
from typing import Any

from fastapi import FastAPI, Request, Response

from controlplane.api.bodies.protocol import INFER
from controlplane.api.bodies.queries import EXPLAIN, QUERY
from controlplane.gateway.embeddings.answering import answer as answer_embeddings
from controlplane.gateway.embeddings.described import EMBEDDINGS, ERRORS
from controlplane.gateway.explaining.explanation import explained
from controlplane.gateway.http.access import Access, too_large
from controlplane.gateway.http.exchange import route_of
from controlplane.gateway.images.asked import KIND, asked_by_image
from controlplane.gateway.images.described import with_pictures
from controlplane.gateway.images.misplaced import MISPLACED, misplaced
from controlplane.gateway.lengths.named import at_other_lengths
from controlplane.gateway.protection.compression import Body, Inflater, accepted
from controlplane.gateway.query.parsing import asked_v1
from controlplane.gateway.query.query_context import Respond
from controlplane.gateway.query.query_path import QueryPath, monotonic_ms
from controlplane.gateway.texts.asked import AskedInText
from controlplane.views.explanation_schemas import ExplanationSchema
from controlplane.views.machines.core_shortage import CoreStatus
from planner.types import Client, Refusal, RefusalCode
from variants.errors import ModellessError


def add_query_routes(
    api: FastAPI,
    path: QueryPath,
    max_body: int,
    inflater: Inflater,
    access: Access,
    cores: Callable[[], Awaitable[CoreStatus]],
) -> None:
    """Add ``/v1/query``, ``/v1/explain`` and the two inference routes of v2.

    Bodies have ``max_body`` bytes at most. ``cores`` says whether they are short.
    """
    entrance = Entrance(path, max_body, inflater, access)

    @api.post(
        "/v1/query", tags=["queries"], summary="Ask a task", openapi_extra=with_pictures(QUERY)
    )
    async def query(request: Request) -> Response:
        """Name a task and what you need; the reply says which variant answered, and how.

        The body may be a PNG or JPEG picture too: then headers name the task (`X-Modelless-Task`)
        and what is needed (`SLO-Latency-Ms`, `SLO-Accuracy`, `SLO-Cost`).
        """
        return await entrance.query(request)

    @api.post(
        "/v1/embeddings",
        tags=["queries"],
        summary="Vectors of texts, as clients of OpenAI's API ask for them",
        responses=ERRORS,
        openapi_extra=EMBEDDINGS,
    )
    async def embeddings(request: Request) -> Response:
        """The `model` is a task whose models give vectors, or `TASK/VERSION`.

        Headers (`SLO-Latency-Ms`, `SLO-Accuracy`, `SLO-Cost`, `SLO-Prefer`) or the fields of
        `/v1/query` say what is needed. All vectors of an answer are of one version of one model,
        which its `model` names.
        """
        return await entrance.embeddings(request)

    @api.post(
        "/v1/explain",
        tags=["queries"],
        summary="Why a query would be answered as it would",
        openapi_extra=EXPLAIN,
    )
    async def explain(request: Request) -> ExplanationSchema:
        """What a query would get now from this gateway, and why: nothing is run."""
        said = await entrance.explain(request)
        said.cores = (await cores()).sentence
        return said

    @api.post(
        "/v2/models/{task}/infer", tags=["queries"], summary="Infer (v2)", openapi_extra=INFER
    )
    async def infer_task(request: Request, task: str) -> Response:
        """Open Inference Protocol: the model name is the task."""
        return await entrance.infer(request, task, None)

    @api.post(
        "/v2/models/{task}/versions/{variant}/infer",
        tags=["queries"],
        summary="Infer, pinned (v2)",
        openapi_extra=INFER,
    )
    async def infer_variant(request: Request, task: str, variant: str) -> Response:
        """Open Inference Protocol: the version pins a variant."""
        return await entrance.infer(request, task, variant)


class Entrance:
    """Hands ASGI requests to the query path and waits for its answers."""

    def __init__(self, path: QueryPath, max_body: int, inflater: Inflater, access: Access) -> None:
        self._path = path
        self._access = access
        self._max_body = max_body
        self._inflater = inflater

    async def query(self, request: Request) -> Response:
        """Answer a request for ``/v1/query``.

        Raises:
            ModellessError: the body is too long, or not compressed as it says, or headers of a
                query by image are wrong, or stand with JSON.
        """
        began_ms = _received_ms(request)
        body = await self._read(request)
        given_id = request.state.request_id.encode()
        handle = partial(self._path.handle_v1, body)
        if request.headers.get("content-type", "").lower().startswith(KIND):
            handle = partial(self._path.handle_image, body, self._asked_by_image(request))
        else:
            self._refuse_misplaced(request, v2=False)
        return await self._answer(
            request,
            lambda respond: handle(
                began_ms,
                respond,
                given_id,
                takes=_takes(request),
                client=self._client_of(request),
            ),
        )

    def _asked_by_image(self, request: Request) -> dict[str, Any]:
        try:
            return asked_by_image(request.headers, request.query_params)
        except ModellessError:
            self._path.refused_unread(self._client_of(request))
            raise

    def _refuse_misplaced(self, request: Request, *, v2: bool) -> None:
        if not MISPLACED.isdisjoint(request.headers.keys()):
            self._path.refused_unread(self._client_of(request))
            raise misplaced(request.headers.keys(), v2=v2)

    async def embeddings(self, request: Request) -> Response:
        """Answer a request for ``/v1/embeddings``.

        Raises:
            ModellessError: the body is too long, or not compressed as it says.
        """
        began_ms, client = _received_ms(request), self._client_of(request)
        body, fields = await self._read(request), dict(request.scope["headers"])
        given_id = request.state.request_id.encode()
        return await self._answer(
            request,
            lambda respond: answer_embeddings(
                self._path, body, fields, began_ms, respond, given_id, client
            ),
        )

    async def explain(self, request: Request) -> ExplanationSchema:
        """Say what would become of the query in a request for ``/v1/explain``.

        Raises:
            ModellessError: the body is wrong, too long, or not compressed as it says.
        """
        path = self._path
        body = await self._read(request)
        now_ms = path.clock_ms()
        try:
            query = asked_v1(body, path.tasks, now_ms, getrandbits(32))
        except AskedInText:
            query = await path.read_texts(body, now_ms)
        query = query._replace(client=self._client_of(request))
        task, found = path.tasks.get(query.task), path.foreseen(query, now_ms)
        if isinstance(found, Refusal) and found.code is RefusalCode.VARIANT_NOT_FOUND:
            error = at_other_lengths(path.tasks, path.snapshot, query)
            if error is not None:
                raise error
        return explained(
            path.snapshot_for(query), path.routes, query, found, now_ms,
            metric="" if task is None else task.metric,
            canary=None if path.canaries is None else path.canaries.share_of(query),
        )  # fmt: skip

    async def infer(self, request: Request, task: str, variant: str | None) -> Response:
        """Answer an inference request of v2; ``variant`` pins one.

        Raises:
            ModellessError: the body is too long, or not compressed as it says, or headers say of it
                what its parameters say.
        """
        began_ms = _received_ms(request)
        body = await self._read(request)
        self._refuse_misplaced(request, v2=True)
        header = request.headers.get("inference-header-content-length")
        length = None if header is None else header.encode("latin-1")
        given_id = request.state.request_id.encode()
        return await self._answer(
            request,
            lambda respond: self._path.handle_v2(
                task,
                variant,
                body,
                length,
                began_ms,
                respond,
                given_id,
                takes=_takes(request),
                client=self._client_of(request),
            ),
        )

    async def _answer(self, request: Request, start: Callable[[Respond], None]) -> Response:
        """The response that a query gets which ``start`` hands to the query path."""
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def into(status: int, body: bytes, headers: bytes) -> None:
            if not answered.done():
                lines = headers.decode("latin-1").splitlines()
                fields = dict(line.split(": ", 1) for line in lines)
                answered.set_result(Response(body, status, fields))

        respond: Respond = into
        if (traces := self._path.traces) is not None:
            fields = dict(request.scope["headers"])
            respond = traces.watch(
                into,
                route_of(request.url.path.encode("latin-1", "replace")),
                _received_ms(request),
                fields.get(b"traceparent"),
                fields.get(b"tracestate"),
            )
        start(respond)
        if answered.done():
            return answered.result()
        watching = asyncio.ensure_future(self._watch(request, respond))
        try:
            return await answered
        finally:
            watching.cancel()

    async def _watch(self, request: Request, respond: Respond) -> None:
        """Tell when the client has gone that waits for an answer."""
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._path.departures.left(respond)

    def _client_of(self, request: Request) -> Client:
        # The last of several headers, as what permits it has it.
        return self._access.client_of(dict(request.scope["headers"]).get(b"authorization"))

    async def _read(self, request: Request) -> Body:
        try:
            return await self._unpacked(request)
        except ModellessError:
            self._path.refused_unread(self._client_of(request))
            raise

    async def _unpacked(self, request: Request) -> Body:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._max_body:
                raise too_large(self._max_body)
        coding = request.headers.get("content-encoding")
        if coding is None:
            return bytes(body)
        return await self._inflater.inflated(body, coding.encode("latin-1"))


def _takes(request: Request) -> bytes:
    """The coding that its answer may have; empty: none."""
    return accepted(request.headers.get("accept-encoding", "").encode("latin-1"))


def _received_ms(request: Request) -> float:
    """When its first byte came: it may have waited behind another one since."""
    return float(getattr(request.state, "received_ms", None) or monotonic_ms())
