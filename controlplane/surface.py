"""Everything the gateway answers besides the short way: control API, v2 metadata, metrics.

The inference routes stand here, too: for OpenAPI, and for the rare request that cannot take the
short way because it waits behind another one on its connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from controlplane.access import OPEN, Access
from controlplane.api import ApiContext, build_api
from controlplane.api_bodies import INFER, QUERY
from controlplane.api_errors import RequestIds
from controlplane.http_errors import error_body, error_headers, status_of
from controlplane.live import LiveState
from controlplane.metrics import GatewayCollector
from controlplane.oip import add_protocol_routes
from controlplane.path import monotonic_ms
from variants.errors import ModellessError, PayloadTooLarge
from workers.types import WorkerStatus

if TYPE_CHECKING:
    from controlplane.gateway import Gateway

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class LiveReads:
    """The live state as the control API reads it; workers come from this gateway's connections."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._live: LiveState = gateway.live

    async def worker_status(self) -> list[WorkerStatus]:
        return self._gateway.statuses()

    async def operation(self, id: str, /) -> Mapping[str, Any] | None:
        return await self._live.operation(id)

    async def put_operation(self, id: str, body: Mapping[str, Any], /) -> None:
        await self._live.put_operation(id, body)

    async def slo_report(self) -> Mapping[str, Any]:
        """Attainment per task over all gateways, since each of them started."""
        total: dict[str, dict[str, int]] = {}
        for gateway in (await self._live.gateways()).values():
            for name, counted in gateway["tasks"].items():
                row = total.setdefault(name, {"met": 0, "late": 0, "refused": 0})
                errors: Mapping[str, int] = counted["errors"]
                late = errors.get("DEADLINE_EXCEEDED", 0)
                row["met"] += counted["met"]
                row["late"] += counted["missed"] + late
                row["refused"] += sum(errors.values()) - late
        tasks = []
        for name, row in sorted(total.items()):
            requests = sum(row.values())
            attainment = row["met"] / requests if requests else None
            tasks.append({"task": name, "requests": requests, "attainment": attainment, **row})
        return {"window_s": 0.0, "tasks": tasks}


class Guarded:
    """ASGI middleware: Host, Origin, token and body size, before anything else sees a request."""

    def __init__(self, app: AsgiApp, access: Access, max_body: int) -> None:
        self.app = app
        self.access = access
        self.max_body = max_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_open = scope["method"] == "GET" and scope["path"] in OPEN
            error = self.access.check(scope["headers"], open=is_open)
            if error is None and scope["path"].startswith("/v2/"):
                error = self._body(scope)
            if error is not None:
                await RequestIds(_refusal(error))(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _body(self, scope: Message) -> ModellessError | None:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self.max_body:
                return PayloadTooLarge(f"the body is larger than {self.max_body / 2**20:g} MiB")
        return None


def _refusal(error: ModellessError) -> AsgiApp:
    """An application that answers with an error, under the request id of its scope."""

    async def refuse(scope: Message, receive: Receive, send: Send) -> None:
        body = error_body(error, scope["state"]["request_id"])
        response = JSONResponse(body, status_of(error), error_headers(error))
        await response(scope, receive, send)

    return refuse


def build_surface(
    gateway: "Gateway", access: Access, collector: GatewayCollector, max_body: int
) -> AsgiApp:
    """The ASGI application behind the front."""
    context = ApiContext(
        catalog=gateway.catalog,
        store=gateway.store,
        settings=gateway.settings,
        live=LiveReads(gateway),
    )
    api = build_api(context)
    add_metrics_route(api, collector)
    add_protocol_routes(api, gateway)
    add_query_routes(api, gateway, max_body)
    return Guarded(api, access, max_body)


def add_metrics_route(api: FastAPI, collector: GatewayCollector) -> None:
    registry = CollectorRegistry()
    registry.register(collector)

    @api.get(
        "/metrics",
        tags=["running"],
        summary="Metrics for Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def add_query_routes(api: FastAPI, gateway: "Gateway", max_body: int) -> None:
    """The inference routes as ordinary ones: the same query path behind another entrance."""
    path = gateway.path

    async def ask(start: Callable[[Callable[[int, bytes, bytes], None]], None]) -> Response:
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def respond(status: int, body: bytes, headers: bytes) -> None:
            if not answered.done():
                lines = headers.decode("latin-1").splitlines()
                fields = dict(line.split(": ", 1) for line in lines)
                answered.set_result(Response(body, status, fields))

        start(respond)
        return await answered

    async def read(request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_body:
                raise PayloadTooLarge(f"the body is larger than {max_body / 2**20:g} MiB")
        return bytes(body)

    def received_ms(request: Request) -> float:
        """When its first byte came: it may have waited behind another one since."""
        return float(getattr(request.state, "received_ms", None) or monotonic_ms())

    @api.post("/v1/query", tags=["queries"], summary="Ask a task", openapi_extra=QUERY)
    async def query(request: Request) -> Response:
        """Name a task and what you need; the reply says which variant answered, and how."""
        began_ms = received_ms(request)
        body = await read(request)
        given_id = request.state.request_id.encode()
        return await ask(lambda respond: path.handle_v1(body, began_ms, respond, given_id))

    async def infer(request: Request, task: str, variant: str | None) -> Response:
        began_ms = received_ms(request)
        body = await read(request)
        header = request.headers.get("inference-header-content-length")
        length = None if header is None else header.encode("latin-1")
        given_id = request.state.request_id.encode()
        return await ask(
            lambda respond: path.handle_v2(task, variant, body, length, began_ms, respond, given_id)
        )

    @api.post(
        "/v2/models/{task}/infer", tags=["queries"], summary="Infer (v2)", openapi_extra=INFER
    )
    async def infer_task(request: Request, task: str) -> Response:
        """Open Inference Protocol: the model name is the task."""
        return await infer(request, task, None)

    @api.post(
        "/v2/models/{task}/versions/{variant}/infer",
        tags=["queries"],
        summary="Infer, pinned (v2)",
        openapi_extra=INFER,
    )
    async def infer_variant(request: Request, task: str, variant: str) -> Response:
        """Open Inference Protocol: the version pins a variant."""
        return await infer(request, task, variant)
