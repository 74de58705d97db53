"""Guarded: what every request must pass before the ASGI application sees it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.responses import JSONResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from controlplane.api.errors import RequestIds, told_to_people
from controlplane.gateway.embeddings.asked import MOST_BYTES
from controlplane.gateway.http.access import HEALTH, OPEN, Access, length_in, too_large
from controlplane.gateway.http.exchange import is_query
from controlplane.http_errors import as_openai, error_body, error_headers, status_of
from variants.errors import ModellessError

UPLOAD = "/v1/models"
"""The one path whose body has a limit of its own: it goes to disk."""

METRICS = "/metrics"
EMBEDDINGS = "/v1/embeddings"
MODELS = "/v1/models"
"""What OpenAI's clients list."""

CONTROL_BODY = 2**18
"""Bytes of any other body that is no query: it is read on the event loop."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class Guarded:
    """ASGI middleware: Host, Origin, token and body size, before anything else sees a request.

    Whoever asks by HEAD is answered as by GET, without the body, which the server leaves out.
    """

    def __init__(self, app: AsgiApp, access: Access, max_body: int) -> None:
        self.app = app
        self.access = access
        self.max_body = max_body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.access.cross_origin:
                if lines := self._preflight(scope):
                    await Response(status_code=204, headers=_fields(lines))(scope, receive, send)
                    return
                send = self._telling(scope, send)
            reads = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
            error = self.access.check(
                scope["headers"],
                any_host=reads in HEALTH,
                open=reads in OPEN,
                asks=asks(scope["method"], scope["path"]),
                watches=reads == METRICS,
                asks_whether=scope["method"] == "OPTIONS" and asks(_wanted(scope), scope["path"]),
            )
            if scope["path"] != UPLOAD:
                path = scope["path"].encode("latin-1", "replace")
                others = MOST_BYTES if scope["path"] == EMBEDDINGS else CONTROL_BODY
                most = self.max_body if is_query(path) else min(self.max_body, others)
                error = error or _body(scope, most)
                receive = _counted(receive, most)
            if error is not None:
                await RequestIds(_refusal(error))(scope, receive, send)
                return
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)

    def _preflight(self, scope: Message) -> bytes:
        """Header lines of the answer to a browser that asks whether a page may ask; empty where it
        does not, or may not."""
        if scope["method"] != "OPTIONS":
            return b""
        fields = dict(scope["headers"])
        if not asks(_wanted(scope), scope["path"]) or not self.access.host_allowed(
            fields.get(b"host", b"")
        ):
            return b""
        return self.access.cross_origin.preflight(fields)

    def _telling(self, scope: Message, send: Send) -> Send:
        """The same ``send`` with the headers that let a page read the answer."""
        lines = b""
        if asks(scope["method"], scope["path"]):
            lines = self.access.cross_origin.lines(dict(scope["headers"]).get(b"origin"))
        if not lines:
            return send

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_fields(lines))
            await send(message)

        return tell


def _wanted(scope: Message) -> str:
    """The method of the request that a browser asks about; empty where it does not."""
    fields: dict[bytes, bytes] = dict(scope["headers"])
    return fields.get(b"access-control-request-method", b"").decode("latin-1")


def _fields(lines: bytes) -> dict[str, str]:
    """Header lines as names and values."""
    found = lines.decode("latin-1").splitlines()
    return dict(line.split(": ", 1) for line in found)


def asks(method: str, path: str) -> bool:
    """Whether a request is one that a client's key opens: a query, a word on its answer, or a look
    at what there is."""
    if path in ("/v1/query", EMBEDDINGS, "/v1/explain", "/v1/feedback"):
        return method == "POST"
    if path == "/v2/repository/index" or is_query(path.encode("latin-1", "replace")):
        return True
    looks = path in (MODELS, "/v2") or path.startswith("/v2/")
    return looks and method in ("GET", "HEAD")


def _body(scope: Message, most: int) -> ModellessError | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and length_in(value) > most:
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
        response = told_to_people(dict(scope), error)
        if response is None:
            body = error_body(error, scope["state"]["request_id"])
            if scope["path"] == EMBEDDINGS:
                body = as_openai(body)
            response = JSONResponse(body, status_of(error), error_headers(error))
        await response(scope, receive, send)

    return refuse
