"""StreamWriter: the answers of one stream of queries, in the order of these."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from controlplane.gateway.grpc.messages import ModelInferResponse, ModelStreamInferResponse
from controlplane.gateway.grpc.statuses import sentence, status_of
from controlplane.gateway.grpc.wire import as_parameters, nested, read_request
from controlplane.gateway.query.query_context import Respond
from variants.errors import InvalidInput

AHEAD = 64
"""Queries of one stream that are answered at once; no more of it is read meanwhile. Two of the
largest batches that profiles have (32 rows): one runs, one fills."""
_INFER_RESPONSE = 2
"""Number of the field of a ``ModelStreamInferResponse``."""

Answer = tuple[int, bytes, bytes]
"""As the query path gives it: HTTP's status, body, header lines."""


class _Asked(NamedTuple):
    """A query of a stream."""

    request: bytes
    answered: "asyncio.Future[Answer]"
    respond: Respond
    """Where its answer goes, for ``answered``."""


class StreamWriter:
    """The answers of one stream, written in the order of their queries."""

    def __init__(self, context: Any, left: Callable[[Respond], None]) -> None:
        """
        Args:
            left: told of each query that has no answer when the stream ends before it.
        """
        self._context = context
        self._left = left
        self._unwritten: deque[_Asked] = deque()
        self._due: asyncio.Queue[_Asked | None] = asyncio.Queue(AHEAD)
        self._task = asyncio.create_task(self._write())
        self._task.add_done_callback(self._ended)

    async def add(
        self, request: bytes, answered: "asyncio.Future[Answer]", respond: Respond
    ) -> None:
        """Return when another query may be read."""
        asked = _Asked(request, answered, respond)
        self._unwritten.append(asked)
        await self._due.put(asked)
        if self._task.done():
            self._ended()
            self._task.result()

    async def finish(self) -> None:
        """Return when all are written."""
        await self._due.put(None)
        await self._task

    def cancel(self) -> None:
        self._task.cancel()

    async def _write(self) -> None:
        while (asked := await self._due.get()) is not None:
            await self._context.write(_streamed(asked.request, await asked.answered))
            self._unwritten.popleft()

    def _ended(self, _: object = None) -> None:
        """Nobody waits for a writer that has ended, nor for what it has not written."""
        while not self._due.empty():
            self._due.get_nowait()
        while self._unwritten:
            asked = self._unwritten.popleft()
            if not asked.answered.done() or asked.answered.cancelled():
                self._left(asked.respond)


def _streamed(request: bytes, answer: Answer) -> bytes:
    """An answer as a ``ModelStreamInferResponse``; a stream goes on after an error."""
    status, body, headers = answer
    if status == 200:
        return nested(_INFER_RESPONSE, body, as_parameters(headers))
    error = orjson.loads(body)
    response = ModelInferResponse()
    try:
        message, _ = read_request(request)
        response.id, response.model_name = message.id, message.model_name
    except InvalidInput:
        pass  # then it has none
    _, _, metadata = status_of(error)
    for name, value in metadata:
        if isinstance(value, str):  # what is bytes says the same once more
            response.parameters[name].string_param = value
    return bytes(
        ModelStreamInferResponse(
            error_message=sentence(error), infer_response=response
        ).SerializeToString()
    )
