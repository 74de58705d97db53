"""A long way to a worker: a TCP proxy that hands on every byte, in order, some time later.

The kernels that tests run on have no ``netem``. To a connection it is a machine with an address of
its own, and both directions take half of the round trip.
"""

import asyncio
from typing import Self

from workers.channel.address import connect

ADDRESS = "127.0.0.9"
"""Another one than a connection to it comes from, as that of another machine."""


class Detour:
    """Listens for as long as it is entered."""

    def __init__(self, round_trip_ms: float) -> None:
        self.one_way_s = round_trip_ms / 2_000
        self._server: asyncio.Server | None = None
        self._to = ""
        self._ends: set[_End] = set()

    def to(self, address: str) -> str:
        """The address by which that one is reached on the long way."""
        assert self._server is not None
        self._to = address
        return f"tcp:{ADDRESS}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, ADDRESS, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for end in tuple(self._ends):
            end.close()

    def _accepted(self) -> "_End":
        near, far = _End(self), _End(self)
        near.other, far.other = far, near
        self._ends |= {near, far}
        near.opening = asyncio.ensure_future(connect(self._to, far))
        return near


class _End(asyncio.Protocol):
    """One end of a connection that is led on."""

    def __init__(self, detour: Detour) -> None:
        self._detour = detour
        self.other: _End
        self.opening: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for data in self._early:
            transport.write(data)

    def data_received(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._detour.one_way_s, self.other.write, bytes(data))

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._detour.one_way_s, self.other.close)

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._early.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if self._transport is not None:
            self._transport.abort()
