"""FollowedKeys: the keys of clients as their file has them now.

On a cluster the head's file counts, also for gateways on machines that do not see it: a key that is
taken back there is refused everywhere. Where the head has none, each machine goes by its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from controlplane.access.client_keys import ClientKey, KeysOfHead, Role, read
from controlplane.gateway.http.access import Access, KnownClients
from controlplane.gateway.looks import Looks
from controlplane.gateway.query.query_context import QueryContext
from controlplane.views.machines.keys_file import KeysStatus, keys_status
from variants.errors import InvalidInput, StateUnavailable
from variants.figures import counted

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it is looked whether the file has changed."""
ASK_S = 3.0
"""How often the head is asked whether its file has."""

Mark = tuple[int, int, int] | str | None
"""By what a file is known to be the same: its number, its size, when it was written; or what the
head says."""


class FollowedKeys:
    """Reads the file when it has changed. A file that is wrong changes nothing, and is logged."""

    def __init__(
        self,
        file: Path,
        access: Access,
        path: QueryContext,
        reads: Callable[[Path], Sequence[ClientKey]] = read,
        head: Callable[[], KeysOfHead] | None = None,
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            access: is given the keys.
            path: is told whether there are any.
            reads: raises ``InvalidInput`` for a file that cannot be read, or is wrong.
            head: asks the cluster's head, in a thread; raises ``StateUnavailable`` where that does
                not answer. None where this machine sees the same file.
        """
        self._reads = reads
        self._file = file
        self._access = access
        self._path = path
        self._head = head
        self._clock_s = clock_s
        self._asked_at_s = float("-inf")
        self._by_head = False
        """Whether the head had a file when it was last asked."""
        self._read: Mark = None
        self._told = ""
        """What was wrong with the file when it was last read."""
        self._known = False
        self._looks = Looks(self._look)

    @property
    def status(self) -> KeysStatus:
        """Whether the file could be read when it was last looked at."""
        return keys_status(self._told, known=self._known)

    async def follow(self) -> None:
        """Wait a moment, and look."""
        await asyncio.sleep(LOOK_S)
        await self.look()

    async def look(self) -> None:
        """Take over what the head's file says, or this machine's where the head has none, if it has
        changed. While the head does not answer, what it said last stays."""
        await self._looks.look()

    async def look_now(self) -> None:
        """The same, and the head is asked whenever it was asked last."""
        self._asked_at_s = float("-inf")
        await self.look()

    async def _look(self) -> None:
        if self._head is not None and self._clock_s() - self._asked_at_s >= ASK_S:
            self._asked_at_s = self._clock_s()
            with contextlib.suppress(StateUnavailable):
                told = await asyncio.to_thread(self._head)
                self._by_head = bool(told.wrong) or told.keys is not None
                if self._by_head and told.mark != self._read:
                    self._read = told.mark
                    self._take(told.keys, told.wrong)
        if not self._by_head:
            self._look_here()

    def _look_here(self) -> None:
        mark = self._mark()
        if mark == self._read and not self._told:
            return
        if mark is None:
            log.warning("the file of clients' keys is gone: %s", self._file)
        self._read = mark
        try:
            self._take(self._reads(self._file))
        except InvalidInput as error:
            # It is read again at the next look: what is wrong may pass, as too many open files do.
            self._take(None, error.message)

    def _take(self, keys: Sequence[ClientKey] | None, wrong: str = "") -> None:
        if keys is None:
            if wrong != self._told:
                told = "stay as they were" if self._known else "are not known"
                log.error("the keys of clients %s: %s", told, wrong)
            self._told = wrong
            return
        self._told, self._known = "", True
        counters = self._path.counters
        self._access.clients = KnownClients(keys, counters.old_tokens)
        asking = [key.name for key in keys if key.role is Role.QUERIES]
        if tokens := len(self._access.clients.tokens):
            log.info("the operator has %s, by the file of keys", counted(tokens, "token"))
        self._path.counts_clients = bool(asking)
        for name in asking:
            counters.client(name)
        for name, digest in self._access.clients.old_keys.items():
            counters.client(name).old_keys.has(digest)
        log.info("clients have %s", counted(len(keys) - tokens, "key"))

    def _mark(self) -> Mark:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns)
