"""Every error of the control API as one typed body, with a request id that the log has too."""

import logging
import re
from collections.abc import Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.dashboard.error_page import error_page, wants_page
from controlplane.http_errors import STATUS, error_body, error_headers, request_id, status_of
from controlplane.views.schemas import ErrorBody
from controlplane.wrong_values import NO_VALUE, as_share, wrong_value
from variants.errors import InvalidInput, ModellessError, NotFound, PayloadTooLarge
from workers.process.sparing_log import SparingLog

log = logging.getLogger(__name__)
sparing = SparingLog(log)

_TRIED = re.compile(r"float|int|str|bool|(list|constrained)\W.*")
"""What pydantic adds to a place where a value may be of several types: the one that it tried."""
NEAR = 0.85
"""How alike a path and a known one are where that is meant, from 0 to 1."""
_REFERENCE = "#/components/schemas/{model}"
WAITS: dict[str, Any] = {
    "Retry-After": {
        "description": "Whole seconds until it is worth to ask again, where that is known.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Retry-After-Ms": {
        "description": "The same in milliseconds, of `OVERLOADED`.",
        "schema": {"type": "number"},
    },
}
"""Headers of what may succeed later."""
TOKEN: dict[str, Any] = {
    "type": "http",
    "scheme": "bearer",
    "description": "Where `MODELLESS_API_TOKEN` is set, that token; for queries and their like also"
    " a client's key. Health is open to all.",
}


def _described(status: int, description: str = "") -> dict[str, Any]:
    codes = " or ".join(code for code, other in STATUS.items() if other == status)
    return {
        "content": {
            "application/json": {"schema": {"$ref": _REFERENCE.format(model=ErrorBody.__name__)}}
        },
        "description": description or codes,
    } | ({"headers": WAITS} if status in (429, 503) else {})


ERRORS: dict[int | str, dict[str, Any]] = {
    status: _described(status) for status in (400, 401, 403, 404, 409, 413, 429, 500, 503)
}
"""What any route may answer besides its result, for the OpenAPI page.

By reference: of a ``model``, FastAPI makes a validator for each route and status when an
application is built, nearly a thousand that nobody asks. ``describe_errors`` adds what is referred
to.
"""


TOO_LONG: dict[int | str, dict[str, Any]] = {504: _described(504)}
"""What a route may answer as well that waits for workers."""
_SLOW = _described(408, "INVALID_INPUT: the request has not come in full in time")
_CODING = _described(415, "INVALID_INPUT: the body has a Content-Encoding that is not taken")
_UNPACKED = {
    "/v1/query", "/v1/explain", "/v2/models/{task}/infer",
    "/v2/models/{task}/versions/{variant}/infer",
}  # fmt: skip
"""Routes whose bodies may come compressed."""
_VALIDATION = ("HTTPValidationError", "ValidationError")
"""FastAPI's own, which nothing here answers: what is wrong in a request is a 400."""


def describe_errors(document: dict[str, Any]) -> None:
    """Make the errors of an OpenAPI document those that there are.

    Added are the schemas that ``ERRORS`` refers to, what becomes of a body that does not come in
    full, and how to show a token.
    """
    for path, methods in document["paths"].items():
        for route in methods.values():
            replies = route["responses"]
            if _VALIDATION[0] in str(replies.get("422", "")):
                del replies["422"]
            if "requestBody" in route:
                replies["408"] = _SLOW
            if path in _UNPACKED:
                replies["415"] = _CODING
            route["responses"] = dict(sorted(replies.items()))
    own = ErrorBody.model_json_schema(mode="serialization", ref_template=_REFERENCE)
    own = jsonable_encoder(own, exclude_none=True)  # as FastAPI writes those of results
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _VALIDATION:
        schemas.pop(name, None)
    schemas |= {**own.pop("$defs", {}), ErrorBody.__name__: own}
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["components"]["securitySchemes"] = {"token": TOKEN}
    document["security"] = [{}, {"token": []}]  # without a setting there is none


class RequestIds:
    """ASGI middleware: gives each request an id, and an answer when nothing else gave one.

    A caller's ``X-Request-Id`` is kept when it is short and plain, so that a trace has one id.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        id_ = request_id(Headers(scope=scope).get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = id_
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-Id"] = id_
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except ClientDisconnect:
            log.info("request %s: the client went away", id_)
        except Exception as error:
            method = scope["method"]
            sparing.error(method, error, "request %s failed: %s %s", id_, method, scope["path"])
            if started:
                raise
            await JSONResponse(error_body(error, id_), 500)(scope, receive, send_with_id)


def add_error_handlers(api: FastAPI) -> None:
    """Answer domain errors, wrong input and unknown routes with the one error body."""

    def answer(request: Request, error: ModellessError, status: int | None = None) -> JSONResponse:
        body = error_body(error, request.state.request_id)
        return JSONResponse(body, status or status_of(error), headers=error_headers(error))

    @api.exception_handler(ModellessError)
    async def domain(request: Request, error: ModellessError) -> JSONResponse:
        if error.code == "INTERNAL":
            id_ = request.state.request_id
            sparing.error(request.method, error, "request %s failed: %s", id_, error)
        return answer(request, error)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(request, InvalidInput(readable(error)))

    @api.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> Response:
        where = f"{request.method} {request.url.path}"
        if error.status_code == HTTPStatus.NOT_FOUND:
            missing = f"there is nothing at {where}"
            near = _near(request)
            told = NotFound(f"{missing}; did you mean {near}?" if near else missing)
            return told_to_people(request.scope, NotFound(missing)) or answer(request, told)
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = ", ".join(_methods(request))
            wrong = InvalidInput(f"{where} is not possible; allowed: {allowed}")
            response = answer(request, wrong, HTTPStatus.METHOD_NOT_ALLOWED)
            response.headers["Allow"] = allowed
            return response
        if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return answer(request, PayloadTooLarge(str(error.detail)))
        return answer(request, InvalidInput(str(error.detail)), error.status_code)


def told_to_people(scope: Scope, error: ModellessError) -> Response | None:
    """An error as a page, where a person opened the address in a browser; else nothing."""
    status = status_of(error)
    if not wants_page(scope["method"], status, scope["headers"]):
        return None
    page, headers = error_page(scope["path"], status, error.message, scope["state"]["request_id"])
    return Response(page, status, {**headers, **error_headers(error)}, "text/html")


def _methods(request: Request) -> list[str]:
    """What can be done at the path of a request: its routes may be several, one for each method."""
    path = {"type": "http", "path": request.scope["path"], "root_path": "", "headers": []}
    found: set[str] = set()
    for route in request.app.routes:
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
            if route.matches({**path, "method": method})[0] is Match.FULL:
                found.add(method)
    return sorted(found)


def _near(request: Request) -> str:
    """The path that is meant by one at which nothing is; empty: who knows."""
    asked = request.scope["path"]
    plain = asked.rstrip("/")
    for path in (plain, f"/v1{plain}"):
        scope: Scope = {
            "type": "http", "path": path, "root_path": "", "method": "GET", "headers": [],
        }  # fmt: skip
        if path != asked and any(
            route.matches(scope)[0] is not Match.NONE for route in request.app.routes
        ):
            return path[:128]
    known = {str(route.path) for route in iter_route_contexts(request.app.routes)}
    near = get_close_matches(plain[:128], sorted(known), n=1, cutoff=NEAR)
    return near[0] if near else ""


def _meant(errors: Sequence[Any]) -> Any:
    """The first error; of a list that may be something else as well, what is wrong with a list."""
    first = errors[0]
    if not isinstance(first.get("input"), list):
        return first
    field = first["loc"][:2]
    of_lists = (
        one
        for one in errors
        if one["loc"][:2] == field and any("list" in str(part) for part in one["loc"][2:])
    )
    return next(of_lists, first)


def readable(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request, as one sentence."""
    first = _meant(error.errors())
    kind = str(first.get("type", ""))
    place, *path = [str(part) for part in first["loc"] if not _TRIED.fullmatch(str(part))]
    name = ".".join(path)
    if kind == "json_invalid":
        return "the body is not JSON"
    if kind == "missing":
        return f"{place} lacks {name!r}" if name else f"the {place} is missing"
    if kind in NO_VALUE:
        message = wrong_value(first) + as_share(path[-1] if path else "")
    elif kind == "extra_forbidden":
        return f"{place} has no field {name!r}"
    else:
        message = str(first["msg"])
        message = message[:1].lower() + message[1:]
    if not name:
        return f"the {place} is wrong: {message}"
    return f"{place} {name!r} is wrong: {message}"
