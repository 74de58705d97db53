"""Everything the gateway answers besides the short way: control API, v2 metadata, metrics.

The inference routes stand here, too: for OpenAPI, and for the rare request that cannot take the
short way because it waits behind another one on its connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from controlplane.access import Access
from controlplane.api import ApiContext, build_api
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
            error = self.access.check(scope["headers"])
            if error is None and scope["path"].startswith("/v2/"):
                error = self._body(scope)
            if error is not None:
                await _answer(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _body(self, scope: Message) -> ModellessError | None:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self.max_body:
                return PayloadTooLarge(f"the body is larger than {self.max_body / 2**20:g} MiB")
        return None


def _answer(error: ModellessError) -> Response:
    return Response(
        orjson.dumps(error_body(error, "")),
        status_of(error),
        error_headers(error),
        "application/json",
    )


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

    @api.get("/metrics", tags=["running"], summary="Metrics for Prometheus")
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
                answered.set_result(Response(body, status, fields, "application/json"))

        start(respond)
        return await answered

    async def read(request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_body:
                raise PayloadTooLarge(f"the body is larger than {max_body / 2**20:g} MiB")
        return bytes(body)

    @api.post("/v1/query", tags=["queries"], summary="Ask a task", openapi_extra=QUERY_BODY)
    async def query(request: Request) -> Response:
        """Name a task and what you need; the reply says which variant answered, and how."""
        received_ms = monotonic_ms()
        body = await read(request)
        return await ask(lambda respond: path.handle_v1(body, received_ms, respond))

    async def infer(request: Request, task: str, variant: str | None) -> Response:
        received_ms = monotonic_ms()
        body = await read(request)
        length = request.headers.get("inference-header-content-length", "")
        json_length = int(length) if length.isdigit() else None
        return await ask(
            lambda respond: path.handle_v2(task, variant, body, json_length, received_ms, respond)
        )

    @api.post("/v2/models/{task}/infer", tags=["queries"], summary="Infer (v2)")
    async def infer_task(request: Request, task: str) -> Response:
        """Open Inference Protocol: the model name is the task."""
        return await infer(request, task, None)

    @api.post(
        "/v2/models/{task}/versions/{variant}/infer", tags=["queries"], summary="Infer, pinned (v2)"
    )
    async def infer_variant(request: Request, task: str, variant: str) -> Response:
        """Open Inference Protocol: the version pins a variant."""
        return await infer(request, task, variant)


QUERY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["task", "inputs"],
                    "additionalProperties": False,
                    "properties": {
                        "task": {"type": "string", "example": "digits"},
                        "slo": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "latency_ms": {"type": "number", "exclusiveMinimum": 0},
                                "accuracy": {"type": "number", "minimum": 0, "maximum": 1},
                                "cost": {"type": "number", "minimum": 0},
                                "prefer": {"enum": ["cost", "accuracy", "latency"]},
                            },
                        },
                        "inputs": {
                            "description": "A list of rows, or an object name to rows.",
                            "oneOf": [{"type": "array"}, {"type": "object"}],
                        },
                        "best_effort": {"type": "boolean", "default": False},
                        "variant": {"type": "string", "description": "Pin this variant."},
                    },
                }
            }
        },
    }
}
