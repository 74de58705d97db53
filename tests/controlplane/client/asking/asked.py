"""How the client is used in a thread beside the gateway, and answered without one."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import pytest

from controlplane.client import Client, ModellessError
from tests.controlplane.serving import Served

TOKEN = "open sesame"
T = TypeVar("T")


async def using(served: Served, what: Callable[[Client], T], *, token: str = TOKEN) -> T:
    """What a client gives, in a thread, because the gateway runs on this loop."""

    def run() -> T:
        with Client(f"http://127.0.0.1:{served.port}/", token=token) as client:
            return what(client)

    return await asyncio.to_thread(run)


async def refusal(served: Served, **changes: Any) -> ModellessError:
    asked = {"task": "letters", "inputs": [[0] * 4]} | changes
    token = asked.pop("token", TOKEN)
    with pytest.raises(ModellessError) as refused:
        await using(served, lambda client: client.query(**asked), token=token)
    return refused.value


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    """A client whose requests end in this process."""
    return Client(transport=httpx.MockTransport(answer))


def told(code: str, **more: Any) -> dict[str, Any]:
    return {"error": "a sentence", "code": code, "retryable": True, "request_id": "r1", **more}
