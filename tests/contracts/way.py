"""A way to a server that is slow, loses what is sent, or leads elsewhere from one moment on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

PIECE = 65_536


class Way:
    """Passes bytes on between a port of this machine and a server on a Unix socket.

    Attributes:
        delay_s: for so long each piece of an answer lies before it goes on.
        lost: nothing goes on any more over the connections that there are; those that come are as
            good as new.
        server: its Unix socket, to which connections lead that come from now on.
    """

    def __init__(self, url: str) -> None:
        self.delay_s = 0.0
        self.server = urlsplit(url).path
        self.connections = 0
        """How many came."""
        self._lost: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._listening is not None
        return f"redis://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    def lose(self) -> None:
        """Let nothing through over the connections that there are, and end none of them."""
        self._lost |= self._open

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._came, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._listening is not None
        self._listening.close()
        for one in self._open:
            one.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        own = asyncio.current_task()
        assert own is not None
        self._open.add(own)
        own.add_done_callback(self._open.discard)
        there, back = await asyncio.open_unix_connection(self.server)
        with suppress(asyncio.CancelledError):  # which asyncio's streams would report
            await asyncio.gather(
                self._pass(own, reader, back), self._pass(own, there, writer, slow=True)
            )
        for each in (writer, back):
            each.close()

    async def _pass(
        self,
        connection: "asyncio.Task[None]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        slow: bool = False,
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE):
                if slow:
                    await asyncio.sleep(self.delay_s)
                if connection not in self._lost:
                    writer.write(piece)
                    await writer.drain()
        writer.close()


@asynccontextmanager
async def way_to(url: str) -> AsyncIterator[Way]:
    """A way to the server at a URL, ``unix://PATH``."""
    way = Way(url)
    await way.open()
    try:
        yield way
    finally:
        await way.close()
