"""Siblings: the gateways of one machine that share a port count as one.

A request for metrics or statistics is answered by whichever of them the kernel picks. Counters that
jumped from one to the other would mean nothing, so each asks the others, over Unix sockets in the
run directory, and adds them up. What a gateway has told stays there in a file: of one that stops or
is killed, or does not answer for a moment, that is counted, so that sums do not fall.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from time import time
from typing import Any
from zlib import crc32

import orjson

from controlplane.gateway.counting.counters import Counters, staying

log = logging.getLogger(__name__)

PATIENCE_S = 0.5
"""How long another gateway may take to say what it has counted; its event loop may be full."""
YOUNG_S = 1.0
"""A socket that refuses connections is left by a gateway that was killed, or made just now by one
that starts."""
MOST_BYTES = 64 * 2**20
"""What is longer than another gateway's counters can be is not read."""


def named_after_node() -> str:
    """How the files of this node's gateways begin: several may share a run directory's disk."""
    return f"g-{crc32(socket.gethostname().encode()) & 0xFFFFFF:06x}"


def files_of_others(own: Path, pattern: str) -> list[Path]:
    """The files that other gateways have beside the one of this gateway."""
    return [path for path in own.parent.glob(pattern) if path.stem != own.stem]


class Siblings:
    """What all gateways that share this one's port have counted."""

    def __init__(
        self,
        folder: Path,
        gateway: str,
        counters: Counters,
        forget: Callable[[Counters], None] = lambda _: None,
    ) -> None:
        """
        Args:
            folder: the run directory, which only this user may enter.
            gateway: the id of this one.
            counters: its own.
            forget: takes out of what is left to others what nobody asks for any more.
        """
        self._forget = forget
        self._node = named_after_node()
        self._socket = folder / f"{self._node}-{gateway[:8]}.sock"
        self._left = self._socket.with_suffix(".json")
        self._counters = counters
        self._server: asyncio.Server | None = None
        self._too_long: set[str] = set()
        self._writing = Lock()
        self._stopped = False
        """What is left has been written; who asks later reads it there."""

    async def start(self) -> None:
        """Answer the others. A gateway that cannot is left out of their sums, and goes on."""
        try:
            self._server = await asyncio.start_unix_server(self._tell, self._socket)
        except OSError as error:
            log.warning("other gateways cannot ask what this one counts: %s", error)

    async def stop(self) -> None:
        """Leave what was counted to the others, with what is left of those that stopped before."""
        if self._server is None:
            return
        self._server.close()
        with self._writing:
            self._stopped = True
        total = Counters()
        total.add(self._counters.plain(gone=True))
        for left in self._others(".json"):
            asked = left.with_suffix(".sock")
            if not asked.exists() or _is_left(asked):
                _add(total, self._claimed(left))
                _remove_sockets(left)
        self._forget(total)
        self._write(total.plain(gone=True))
        self._socket.unlink(missing_ok=True)

    def alone(self) -> bool:
        """Whether no other gateway of this machine is known."""
        return not self._others(".sock")

    async def total(self) -> Counters:
        """Its own counts, those of the others, and what is left of those that are gone."""
        sockets = {path.stem: path for path in self._others(".sock")}
        left = {path.stem for path in self._others(".json")}
        if not sockets and not left:
            return self._counters
        told = dict(zip(sockets, await asyncio.gather(*map(_asked, sockets.values())), strict=True))
        # In a thread, because of a thousand tasks it takes longer than a query may wait.
        return await asyncio.to_thread(self._sum, told, sockets.keys() | left)

    def _sum(self, told: Mapping[str, bytes], names: Iterable[str]) -> Counters:
        total = Counters()
        total.add(self._kept())
        for name in names:
            text = told.get(name) or _read(self._socket.with_name(f"{name}.json"))
            _add(total, self._whole(name, text))
        return total

    def _claimed(self, left: Path) -> bytes:
        """What one that is gone has left, for the first who takes it; others may stop as well."""
        claimed = self._left.with_suffix(".part")
        try:
            left.rename(claimed)
        except OSError:
            return b""
        text = self._whole(left.stem, _read(claimed))
        claimed.unlink(missing_ok=True)
        return text

    def _whole(self, name: str, text: bytes) -> bytes:
        """What one has told or left; nothing if there is more of it than was read."""
        if len(text) < MOST_BYTES:
            return text
        if name not in self._too_long:
            self._too_long.add(name)
            log.warning("what %s counts is not added up: it is too long", name)
        return b""

    def _others(self, suffix: str) -> list[Path]:
        return files_of_others(self._socket, f"{self._node}-*{suffix}")

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            text = await asyncio.to_thread(lambda: orjson.dumps(self._kept(), option=_KEYS))
            if not self._stopped:
                writer.write(text)
        finally:
            writer.close()

    def _kept(self) -> dict[str, Any]:
        """What was counted until now, after writing down what stays true of it when this gateway is
        gone, unless more is there already. In any thread."""
        plain = self._counters.plain()
        with self._writing:
            if not self._stopped:
                self._write(staying(plain))
        return plain

    def _write(self, plain: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a full disk
            part = self._left.with_suffix(".part")
            part.write_bytes(orjson.dumps(plain, option=_KEYS))
            part.rename(self._left)


_KEYS = orjson.OPT_NON_STR_KEYS


async def _asked(path: Path) -> bytes:
    """What a gateway says, as much as is read of it; nothing if it does not answer or is gone."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=MOST_BYTES)
            try:
                return await reader.readexactly(MOST_BYTES)
            except asyncio.IncompleteReadError as whole:
                return whole.partial
            finally:
                writer.close()
    except ConnectionRefusedError:
        if _is_old(path):
            _remove_sockets(path)
        return b""
    except (OSError, TimeoutError):
        return b""


def _is_left(path: Path) -> bool:
    """Whether a socket is of a gateway that was killed: nobody listens there any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return _is_old(path)
        except OSError:
            return False
    return False


def _is_old(path: Path) -> bool:
    """Whether whoever made a socket listens there by now, if it is still there."""
    with contextlib.suppress(OSError):
        return time() - path.stat().st_mtime > YOUNG_S
    return False


def _remove_sockets(of: Path) -> None:
    """Remove the sockets that a killed gateway has left, whatever was asked there."""
    for path in of.parent.glob(f"{of.stem}.*"):
        if path.is_socket():
            path.unlink(missing_ok=True)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES)
    except OSError:  # the run directory was cleared
        return b""


def _add(total: Counters, text: bytes) -> None:
    """Add what was told or left; nothing if it is cut off, or of another version."""
    told = Counters()
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        plain: dict[str, Any] = orjson.loads(text)
        told.add(plain)
        total.add(plain)
