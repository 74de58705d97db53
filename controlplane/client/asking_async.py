"""``modelless.AsyncClient``: as ``modelless.Client``, for an event loop."""

import asyncio
from collections.abc import Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from controlplane.client.binary import (
    Signature,
    Signatures,
    arrays_in,
    as_arrays,
    binary_content,
    infer_path,
    is_large,
    metadata_path,
    read_answer,
)
from controlplane.client.exchange import (
    EXPLAIN_PATH,
    FEEDBACK_PATH,
    HEADERS,
    IDLE_S,
    PATH,
    TIMEOUT_S,
    Reply,
    asked_about,
    asked_about_rows,
    checked,
    connection_options,
    feedback_content,
    in_trace,
    left_unanswered,
    named_url,
    query_content,
    read_document,
    read_reply,
    typed_failures,
    waits_s,
)
from controlplane.client.pictures import Picture, check_about, picture_query
from variants.types import Prefer

if TYPE_CHECKING:
    import httpx


class AsyncClient:
    """The same as ``Client`` for an event loop: many queries may wait at once.

    ::

        async with modelless.AsyncClient() as client:
            replies = await asyncio.gather(*(client.query("digits", [row]) for row in rows))

    At most ``connections`` queries are under way; further ones wait for one to end, for as long as
    that takes: the deadline and ``timeout_s`` count from when a query is sent.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        certificate: str | PathLike[str] = "",
        connections: int = 100,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """As ``Client`` takes them.

        Raises:
            InvalidInput: ``url`` is none, no header can carry the token, or the certificate cannot
                be read.
        """
        import httpx

        self.url = named_url(url)
        self.timeout_s = timeout_s
        limits = httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=IDLE_S,
        )
        options = connection_options(self.url, token, certificate)
        self._signatures = Signatures()
        self._http = httpx.AsyncClient(transport=transport, limits=limits, **options)
        # Not the pool's own queue: it goes through all that wait for each that ends, and who waits
        # there for longer than the time-out fails without having been sent.
        self._turn = asyncio.Semaphore(connections)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def query(
        self,
        task: str,
        inputs: Any = None,
        *,
        image: Picture = None,
        image_mean: float | Iterable[float] | None = None,
        image_std: float | Iterable[float] | None = None,
        latency_ms: float | None = None,
        accuracy: float | None = None,
        cost: float | None = None,
        prefer: Prefer | str | None = None,
        best_effort: bool = False,
        variant: str | None = None,
        model_version: str | None = None,
        priority: int | None = None,
        truncate: bool = False,
        arrays: bool = False,
    ) -> Reply:
        """Ask for a task, with the meaning and the errors of ``Client.query``."""
        needs = checked(
            {
                "latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer,
                "best_effort": best_effort, "model_version": model_version, "priority": priority,
            }
        )  # fmt: skip
        timeout_s = waits_s(self.timeout_s, needs)
        check_about(inputs, image, image_mean, image_std)
        if image is not None:
            sent = picture_query(
                task, image, needs, variant=variant, mean=image_mean, std=image_std
            )
            reply = read_reply(await self._post(*sent, timeout_s), self.url)
            return as_arrays(reply) if arrays else reply
        given = None if truncate else arrays_in(inputs, lists=arrays)
        if given is not None and (arrays or is_large(given)):
            signature = self._signatures.of(task) or await self._signature(task)
            made = binary_content(signature, given, arrays=arrays, **needs)
            if made is not None:
                response = await self._post(infer_path(task, variant), *made, timeout_s)
                document = read_document(response, self.url)
                return read_answer(response, document, signature, self.url)
        about = asked_about(inputs, truncate=truncate)
        content = query_content(task, about, variant=variant, **needs)
        reply = read_reply(await self._post(PATH, content, HEADERS, timeout_s), self.url)
        return as_arrays(reply) if arrays else reply

    async def _signature(self, task: str) -> Signature:
        with typed_failures(self.url, self.timeout_s):
            async with self._turn:
                response = await self._http.get(metadata_path(task), timeout=self.timeout_s)
        return self._signatures.keep(task, read_document(response, self.url))

    async def _post(
        self, path: str, content: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> "httpx.Response":
        """Ask a query; once more where a kept connection was closed as it was asked."""
        sent: dict[str, Any] = {
            "content": content, "headers": in_trace(headers), "timeout": timeout_s
        }  # fmt: skip
        with typed_failures(self.url, timeout_s):
            async with self._turn:
                try:
                    return await self._http.post(path, **sent)
                except Exception as error:
                    if not left_unanswered(error):
                        raise
                return await self._http.post(path, **sent)

    async def explain(
        self,
        task: str,
        *,
        rows: int = 1,
        length: int | None = None,
        latency_ms: float | None = None,
        accuracy: float | None = None,
        cost: float | None = None,
        prefer: Prefer | str | None = None,
        best_effort: bool = False,
        variant: str | None = None,
        model_version: str | None = None,
        priority: int | None = None,
    ) -> dict[str, Any]:
        """What would become of such a query now, and why, as ``Client.explain``."""
        content = query_content(
            task, asked_about_rows(rows, length), latency_ms=latency_ms, accuracy=accuracy,
            cost=cost, prefer=prefer, best_effort=best_effort, variant=variant,
            model_version=model_version, priority=priority,
        )  # fmt: skip
        with typed_failures(self.url, self.timeout_s):
            async with self._turn:
                response = await self._http.post(
                    EXPLAIN_PATH, content=content, headers=HEADERS, timeout=self.timeout_s
                )
        return read_document(response, self.url)

    async def feedback(
        self, answer: Reply | str, labels: str | int | Iterable[str | int]
    ) -> dict[str, Any]:
        """Say which classes were right, as ``Client.feedback``."""
        content = feedback_content(answer, labels)
        with typed_failures(self.url, self.timeout_s):
            async with self._turn:
                response = await self._http.post(
                    FEEDBACK_PATH, content=content, headers=HEADERS, timeout=self.timeout_s
                )
        return read_document(response, self.url)
