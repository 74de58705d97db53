"""Siblings: the gateways of one machine that share a port count as one.

A request for metrics or statistics is answered by whichever of them the kernel picks. Counters that
jumped from one to the other would mean nothing, so each asks the others, over Unix sockets in the
run directory, and adds them up. A gateway that stops leaves its counts there. One that is killed
takes them along: then counters begin anew from less, as after any restart.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from socket import gethostname
from zlib import crc32

import orjson

from controlplane.gateway.counters import Counters

log = logging.getLogger(__name__)

PATIENCE_S = 0.5
"""How long another gateway may take to say what it has counted; its event loop may be full."""
MOST_BYTES = 64 * 2**20


class Siblings:
    """What all gateways that share this one's port have counted."""

    def __init__(self, folder: Path, gateway: str, counters: Counters) -> None:
        """
        Args:
            folder: the run directory, which only this user may enter.
            gateway: the id of this one.
            counters: its own.
        """
        self._folder = folder
        # A run directory may be on a disk that several nodes share.
        self._node = f"g-{crc32(gethostname().encode()) & 0xFFFFFF:06x}"
        self._socket = folder / f"{self._node}-{gateway[:8]}.sock"
        self._left = self._socket.with_suffix(".json")
        self._counters = counters
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Answer the others. A gateway that cannot is left out of their sums, and goes on."""
        try:
            self._server = await asyncio.start_unix_server(self._tell, self._socket)
        except OSError as error:
            log.warning("other gateways cannot ask what this one counts: %s", error)

    async def stop(self) -> None:
        """Leave what was counted to the others."""
        if self._server is None:
            return
        self._server.close()
        self._socket.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a full disk
            part = self._left.with_suffix(".part")
            part.write_bytes(orjson.dumps(self._counters.plain(gone=True), option=_KEYS))
            part.rename(self._left)

    async def total(self) -> Counters:
        """Its own counts, those of the others, and what was left by those that stopped."""
        found = [path for path in self._folder.glob(f"{self._node}-*") if path != self._socket]
        sockets = [path for path in found if path.suffix == ".sock"]
        left = [path for path in found if path.suffix == ".json"]
        if not sockets and not left:
            return self._counters
        told = await asyncio.gather(*map(_asked, sockets))
        return _sum(self._counters, [*told, *map(_read, left)])

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(orjson.dumps(self._counters.plain(), option=_KEYS))
        writer.close()


_KEYS = orjson.OPT_NON_STR_KEYS


async def _asked(socket: Path) -> bytes:
    """What a gateway says; nothing if it does not answer, or was killed and left its socket."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(socket, limit=MOST_BYTES)
            try:
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the run directory was cleared
        return b""


def _sum(own: Counters, told: Iterable[bytes]) -> Counters:
    total = Counters()
    total.add(own.plain())
    for text in told:
        with contextlib.suppress(orjson.JSONDecodeError):
            total.add(orjson.loads(text))
    return total
