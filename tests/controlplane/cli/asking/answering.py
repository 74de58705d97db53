"""A gateway in this process whose answers a test decides, query by query."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.query.v2.parsing import parse_v2
from controlplane.http_errors import error_body, error_headers, status_of
from tests.controlplane.cli.gateway import ANSWER, Gateway
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
        api.add_api_route("/v1/explain", lambda: self.explained, methods=["POST"])
        for path in ("/v2/models/{task}/infer", "/v2/models/{task}/versions/{version}/infer"):
            api.add_api_route(path, self._infer, methods=["POST"])

    async def _infer(self, request: Request) -> Response:
        """An answer of the protocol: the best class of a row is its first number."""
        names = request.path_params
        header = request.headers.get("inference-header-content-length", "").encode()
        tasks = {task.name: task for task in self.catalog.snapshot().tasks}
        number = len(self.asked)
        self.asked.append({})
        try:
            body, version = await request.body(), names.get("version")
            parsed = parse_v2(body, names["task"], version, tasks, 0.0, 0, header)
            self.asked[number] = asked_of(parsed)
            found = await self.decide(number, self.asked[number])
        except ModellessError as error:
            found = error
        if isinstance(found, ModellessError):
            body = json.dumps(error_body(found, "r")).encode()
            return Response(
                body, status_of(found), error_headers(found), media_type="application/json"
            )
        assert parsed.v2 is not None
        scores = np.zeros((len(parsed.tensors[0]), 10), np.float32)
        scores[np.arange(len(scores)), parsed.tensors[0][:, 0].astype(int) % 10] = 0.75
        made = ReplyMetadata(**{name: found[name] for name in ReplyMetadata._fields})
        content, head = parsed.v2.encode(parsed.task, [scores], made)
        lines = (line.partition(": ") for line in head.decode().splitlines())
        return Response(content, headers={name: value for name, _, value in lines})


def asked_of(parsed: ParsedQuery) -> Asked:
    """What a query of the protocol asks for, and the first number of each of its rows."""
    query = parsed.query
    return {
        "rows": parsed.tensors[0][:, 0].astype(int).tolist(),
        "priority": query.priority,
        "latency_ms": query.latency_ms,
        "accuracy": query.accuracy,
        "variant": query.variant,
    }
