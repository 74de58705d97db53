"""The fronts: ``python -m tests.bench.fronts.servers FRONT PORT`` serves until it is told to stop.

All run one event loop of uvloop in one process. Granian is imported from an environment of its own.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
import uvloop

from tests.bench.fronts.handler import answer
from workers.host import settle_memory

Message = MutableMapping[str, Any]
JSON = "application/json"


async def asgi(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """The leanest application that reads a whole body."""
    if scope["type"] != "http":
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    found = answer(body)
    headers = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(found))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": found})


async def rsgi(scope: Any, protocol: Any) -> None:
    """The same for granian's own interface."""
    found = answer(await protocol())
    headers = [("content-type", JSON), ("content-length", str(len(found)))]
    protocol.response_bytes(200, headers, found)


def ours(port: int) -> None:
    """The product's front, with its limits and rules of access, and no worker behind it."""
    from controlplane.gateway.http.access import Access
    from controlplane.gateway.http.client_limits import ClientLimits
    from controlplane.gateway.http.http_protocol import front_factory
    from controlplane.gateway.http.http_server import HttpServer
    from controlplane.gateway.protection.compression import Inflater
    from controlplane.gateway.protection.connections import ConnectionCaps
    from controlplane.gateway.query.query_path import QueryPath
    from controlplane.gateway.query.replies import JSON as HEADERS
    from controlplane.settings import load_settings

    class Answered(QueryPath):
        def handle_v1(
            self, body: Any, received_ms: float, respond: Any, *_: Any, **__: Any
        ) -> None:
            respond(200, answer(body), HEADERS)

    async def serve() -> None:
        with tempfile.TemporaryDirectory() as folder:
            settings = load_settings(state_dir=folder, port=port)
            most = int(settings.max_body_mib * 2**20)
            front = front_factory(
                Answered(loader=lambda *_: None),  # type: ignore[arg-type]
                Access(settings), most, ConnectionCaps.of(settings), Inflater(most),
            )  # fmt: skip
            listening = socket.create_server(("127.0.0.1", port), backlog=1_024)
            listening.setblocking(False)
            await HttpServer(asgi, front, listening, None, ClientLimits()).run_here()

    settle_memory()
    uvloop.run(serve())


def lean_uvicorn(port: int) -> None:
    """Uvicorn with httptools and an ASGI application."""
    settle_memory()
    uvicorn.run(asgi, host="127.0.0.1", port=port, loop="uvloop", http="httptools", ws="none",
                lifespan="off", log_level="error", access_log=False)  # fmt: skip


def granian(interface: str) -> Callable[[int], None]:
    """Granian with one process, one thread of its own and one event loop."""

    def serve(port: int) -> None:
        sys.path.append(os.environ["GRANIAN"])
        from granian import Granian  # type: ignore[import-not-found]
        from granian.constants import (  # type: ignore[import-not-found]
            HTTPModes,
            Interfaces,
            Loops,
        )

        Granian(
            f"tests.bench.fronts.servers:{interface}", address="127.0.0.1", port=port,
            interface=Interfaces(interface), loop=Loops.uvloop, workers=1, runtime_threads=1,
            http=HTTPModes.http1, log_enabled=False, websockets=False,
        ).serve()  # fmt: skip

    return serve


FRONTS: dict[str, Callable[[int], None]] = {
    "today's": ours,
    "uvicorn, ASGI": lean_uvicorn,
    "granian, ASGI": granian("asgi"),
    "granian, RSGI": granian("rsgi"),
}

if __name__ == "__main__":
    FRONTS[sys.argv[1]](int(sys.argv[2]))
