"""FollowedKeys: the keys of clients as their file has them now."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from controlplane.access.client_keys import ClientKey, Role, read
from controlplane.gateway.http.access import Access, KnownClients
from controlplane.gateway.query.query_context import QueryContext
from controlplane.views.machines.keys_file import KeysStatus, keys_status
from variants.errors import InvalidInput
from variants.figures import counted

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it is looked whether the file has changed."""

Mark = tuple[int, int, int] | None
"""By what a file is known to be the same: its number, its size, when it was written."""


class FollowedKeys:
    """Reads the file when it has changed. A file that is wrong changes nothing, and is logged."""

    def __init__(
        self,
        file: Path,
        access: Access,
        path: QueryContext,
        reads: Callable[[Path], Sequence[ClientKey]] = read,
    ) -> None:
        """
        Args:
            access: is given the keys.
            path: is told whether there are any.
            reads: raises ``InvalidInput`` for a file that cannot be read, or is wrong.
        """
        self._reads = reads
        self._file = file
        self._access = access
        self._path = path
        self._read: Mark = None
        self._told = ""
        """What was wrong with the file when it was last read."""
        self._known = False

    @property
    def status(self) -> KeysStatus:
        """Whether the file could be read when it was last looked at."""
        return keys_status(self._told, known=self._known)

    async def follow(self) -> None:
        """Wait a moment, and look."""
        await asyncio.sleep(LOOK_S)
        self.look()

    def look(self) -> None:
        """Take over what the file says, if it has changed."""
        mark = self._mark()
        if mark == self._read and not self._told:
            return
        if mark is None:
            log.warning("the file of clients' keys is gone: %s", self._file)
        self._read = mark
        try:
            keys = self._reads(self._file)
        except InvalidInput as error:
            # It is read again at the next look: what is wrong may pass, as too many open files do.
            if error.message != self._told:
                told = "stay as they were" if self._known else "are not known"
                log.error("the keys of clients %s: %s", told, error.message)
            self._told = error.message
            return
        self._told, self._known = "", True
        self._access.clients = KnownClients(keys)
        asking = [key.name for key in keys if key.role is Role.QUERIES]
        self._path.counts_clients = bool(asking)
        for name in asking:
            self._path.counters.client(name)
        for name, digest in self._access.clients.old_keys.items():
            self._path.counters.client(name).has_old_key(digest)
        log.info("clients have %s", counted(len(keys), "key"))

    def _mark(self) -> Mark:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns)
