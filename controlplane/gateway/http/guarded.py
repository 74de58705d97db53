"""Guarded: what every request must pass before the ASGI application sees it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from controlplane.api.errors import RequestIds
from controlplane.gateway.http.access import OPEN, Access, too_large
from controlplane.gateway.http.exchange import is_query
from controlplane.http_errors import error_body, error_headers, status_of
from variants.errors import ModellessError

UPLOAD = "/v1/models"
"""The one path whose body has a limit of its own: it goes to disk."""

CONTROL_BODY = 2**18
"""Bytes of any other body that is no query: it is read on the event loop."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class Guarded:
    """ASGI middleware: Host, Origin, token and body size, before anything else sees a request."""

    def __init__(self, app: AsgiApp, access: Access, max_body: int) -> None:
        self.app = app
        self.access = access
        self.max_body = max_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_open = scope["method"] == "GET" and scope["path"] in OPEN
            error = self.access.check(
                scope["headers"], open=is_open, asks=asks(scope["method"], scope["path"])
            )
            if scope["path"] != UPLOAD:
                path = scope["path"].encode("latin-1", "replace")
                most = self.max_body if is_query(path) else min(self.max_body, CONTROL_BODY)
                error = error or _body(scope, most)
                receive = _counted(receive, most)
            if error is not None:
                await RequestIds(_refusal(error))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def asks(method: str, path: str) -> bool:
    """Whether a request is one that a client's key opens: a query, or a look at what there is."""
    if path == "/v1/query":
        return method == "POST"
    if path == "/v2/repository/index" or is_query(path.encode("latin-1", "replace")):
        return True
    return method in ("GET", "HEAD") and (path == "/v2" or path.startswith("/v2/"))


def _body(scope: Message, most: int) -> ModellessError | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            return too_large(most)
    return None


def _counted(receive: Receive, most: int) -> Receive:
    """The same body, up to its limit: its length need not have been said before."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            # FastAPI lets no other error through from where it reads a body.
            raise HTTPException(413, too_large(most).message)
        return message

    return counted


def _refusal(error: ModellessError) -> AsgiApp:
    """An application that answers with an error, under the request id of its scope."""

    async def refuse(scope: Message, receive: Receive, send: Send) -> None:
        body = error_body(error, scope["state"]["request_id"])
        response = JSONResponse(body, status_of(error), error_headers(error))
        await response(scope, receive, send)

    return refuse
