"""A web application that asks one task in three ways, each with the SLO of who waits for it.

Start modelless in another terminal with ``make up``, then::

    .venv/bin/python examples/web_application.py --port 9000
    curl -s localhost:9000/typed -H 'Content-Type: application/json' -d '{"pixels": [[0,0,7,...]]}'

What it does that every such application needs: one client for the life of the process, a deadline
that is how long somebody waits, and errors of modelless as answers of its own. Its tests need no
server: ``tests/controlplane/client/asking/test_web_application.py``.
"""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import modelless


class Digits(BaseModel):
    pixels: list[list[float]]
    """A row of 64 grey values for each digit."""


class Read(BaseModel):
    digits: list[str]
    by: str


def application(client: modelless.AsyncClient) -> FastAPI:
    """The application, asking through a client that its tests may choose."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with client:  # its connections are kept from query to query
            yield

    app = FastAPI(lifespan=lifespan)
    Client = Annotated[modelless.AsyncClient, Depends(lambda: client)]

    @app.post("/typed")
    async def typed(asked: Digits, client: Client) -> Read:
        """Somebody waits and sees each tenth of a second: the cheapest that answers in 50 ms."""
        return read(await client.query("digits", asked.pixels, latency_ms=50))

    @app.post("/cheque")
    async def cheque(asked: Digits, client: Client) -> Read:
        """A mistake costs more than a second does: nothing below 98 % answers."""
        return read(await client.query("digits", asked.pixels, latency_ms=1_000, accuracy=0.98))

    @app.post("/archive")
    async def archive(asked: Digits, client: Client) -> Read:
        """Nobody waits: the cheapest there is, and refused before all others."""
        reply = await client.query(
            "digits", asked.pixels, latency_ms=30_000, prefer="cost", priority=65_535
        )
        return read(reply)

    @app.exception_handler(modelless.ModellessError)
    async def refused(_: Request, error: Exception) -> JSONResponse:
        """What is the asker's to change is told him; what may succeed later, with when to ask."""
        assert isinstance(error, modelless.ModellessError)
        body = {"error": str(error), "modelless_request": error.request_id}
        if isinstance(error, modelless.InvalidInput):
            return JSONResponse(body, 400)
        if error.retryable:
            wait_s = max(1, round(error.retry_after_s or 1))
            return JSONResponse(body, 503, headers={"Retry-After": str(wait_s)})
        return JSONResponse(body, 500)

    return app


def read(reply: modelless.Reply) -> Read:
    return Read(digits=[str(label) for label in reply.labels], by=reply.variant)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--url", default=os.environ.get("MODELLESS_URL"))
    options.add_argument("--port", type=int, default=9_000)
    given = options.parse_args()
    uvicorn.run(application(modelless.AsyncClient(given.url)), port=given.port)


if __name__ == "__main__":
    main()
