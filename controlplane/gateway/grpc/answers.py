"""Answers: every procedure but inference, from what the gateway knows.

Each takes a request and fills in a reply. Values come as the protocol's JSON has them, whose fields
are those of the messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.json_format import ParseDict

from controlplane.gateway.grpc.messages import SERVICE
from controlplane.gateway.open_inference.protocol_views import ProtocolViews
from controlplane.gateway.open_inference.repository import Repository
from variants.errors import InvalidInput, NotFound

SERVING, NOT_SERVING = 1, 2
"""States of a server for probes, as ``health.proto`` has them."""


class Answers:
    """The procedures of one gateway, by name in ``table``."""

    def __init__(self, views: ProtocolViews, repository: Repository) -> None:
        self._views = views
        self._repository = repository

    def table(self) -> Mapping[str, Callable[[Any, Any], Awaitable[None]]]:
        return {
            "Health": self._health,
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    async def _health(self, request: Any, reply: Any) -> None:
        """Of the whole server, which is what this service says of itself too."""
        if request.service not in ("", SERVICE):
            raise NotFound(f"there is no service {request.service[:128]!r}; there is: {SERVICE}")
        reply.status = SERVING if self._views.is_ready() else NOT_SERVING

    async def _live(self, _: Any, reply: Any) -> None:
        reply.live = True

    async def _ready(self, _: Any, reply: Any) -> None:
        reply.ready = self._views.is_ready()

    async def _model_ready(self, request: Any, reply: Any) -> None:
        # As with Triton, whose clients wait for a model by asking again: what is not there is not
        # ready. They raise what is answered with an error.
        with suppress(NotFound):
            reply.ready = self._views.task_ready(request.name, request.version)

    async def _server(self, _: Any, reply: Any) -> None:
        ParseDict(self._views.server(), reply)

    async def _metadata(self, request: Any, reply: Any) -> None:
        found = self._views.metadata(request.name, request.version)
        ParseDict({**found, "properties": self._views.properties(request.name)}, reply)

    async def _config(self, request: Any, reply: Any) -> None:
        ParseDict({"config": self._views.config(request.name, request.version)}, reply)

    async def _statistics(self, request: Any, reply: Any) -> None:
        rows = await self._views.statistics(request.name, request.version)
        # A message has no place for the variant's name: the metadata's properties have it.
        await _fill(reply, {"model_stats": rows})

    async def _index(self, request: Any, reply: Any) -> None:
        await _fill(reply, {"models": self._views.index(ready_only=request.ready)})

    async def _load(self, request: Any, reply: Any) -> None:
        if request.parameters:
            raise InvalidInput("models are registered, and not loaded with parameters or files")
        name = _named(request)
        await self._repository.load(name)
        reply.model_name, reply.isLoaded = name, True

    async def _unload(self, request: Any, _: Any) -> None:
        await self._repository.unload(_named(request))


async def _fill(reply: Any, fields: Mapping[str, Any]) -> None:
    """Fill in a reply that has rows for every variant, in a thread: queries go on meanwhile.

    Fields that the messages do not have are left out.
    """
    await asyncio.to_thread(ParseDict, fields, reply, ignore_unknown_fields=True)


def _named(request: Any) -> str:
    """The task of a request to the repository; KServe's clients write it into the first field."""
    return str(request.model_name or request.repository_name)
