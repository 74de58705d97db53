"""A gateway in this process whose answers a test decides, query by query."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from controlplane.http_errors import error_body, error_headers, status_of
from tests.controlplane.cli.test_commands import ANSWER, Gateway
from variants.errors import ModellessError

Asked = dict[str, Any]
Decide = Callable[[int, Asked], Awaitable[dict[str, Any] | ModellessError]]


async def answer(number: int, asked: Asked) -> dict[str, Any] | ModellessError:
    return ANSWER


class Answering(Gateway):
    """A gateway that asks ``decide`` for each answer: the query's number, from 0, and its body."""

    def __init__(self, tmp_path: Path) -> None:
        self.decide: Decide = answer
        self.headers: list[dict[str, str]] = []
        super().__init__(tmp_path)

    def _add_query(self, api: FastAPI) -> None:
        async def query(request: Request) -> Response:
            number = len(self.asked)
            self.headers.append(dict(request.headers))
            self.asked.append(json.loads(await request.body()))
            found = await self.decide(number, self.asked[number])
            if isinstance(found, ModellessError):
                body = error_body(found, "r")
                return JSONResponse(body, status_of(found), error_headers(found))
            return JSONResponse(found)

        api.add_api_route("/v1/query", query, methods=["POST"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the test cannot go on without."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another thread
            await asyncio.sleep(0.005)
