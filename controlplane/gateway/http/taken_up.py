"""TakenUp: what a request has changed is known to all gateways before it is answered."""

from collections.abc import Awaitable, Callable

from controlplane.gateway.http.guarded import AsgiApp, Message, Receive, Send, asks

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_BEGUN = 202
"""What is under way is told by who does it, when it is done."""


class TakenUp:
    """ASGI middleware: holds the answer of a request that has changed something until every gateway
    goes by that, so that who has read it finds it so with the next query."""

    def __init__(self, app: AsgiApp, everywhere: Callable[[], Awaitable[None]]) -> None:
        """
        Args:
            everywhere: returns when all gateways have looked at what has changed.
        """
        self.app = app
        self._everywhere = everywhere

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _may_change(scope["method"], scope["path"]):
            send = self._once_known(send)
        await self.app(scope, receive, send)

    def _once_known(self, send: Send) -> Send:
        async def held(message: Message) -> None:
            if message["type"] == "http.response.start" and _has_changed(message["status"]):
                await self._everywhere()
            await send(message)

        return held


def _may_change(method: str, path: str) -> bool:
    return method not in _READS and path.startswith("/v1/") and not asks(method, path)


def _has_changed(status: int) -> bool:
    return 200 <= status < 300 and status != _BEGUN
