"""Memory that a gateway and a worker of one machine share, so that large tensors are not sent.

A socket copies a tensor four times between a gateway and a batch. Here the gateway writes it once
where the worker reads it, and a frame only says where. One such block belongs to one connection.
It is anonymous memory (``memfd_create``): no name outlives its processes, no mount limits it, and
it is gone when both have let go of it, however they end. Its size is sealed, so that reading it
cannot fail. What a query's tensors take is used again when its reply has arrived, and never
before, whatever became of the query meanwhile; so nobody reads the bytes of another one, as long as
runtimes that keep their inputs are given copies (``workers.runtimes.protocol``).
"""

import fcntl
import mmap
import os
import socket
import stat
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from variants.errors import Conflict, InvalidInput
from workers.channel.extents import Extents
from workers.channel.frames import Layout
from workers.runtimes.protocol import Tensor

BLOCK_BYTES = 32 * 2**20
"""Of the block of one connection. Pages are taken when they are first written."""
MOST_BYTES = 256 * 2**20
"""That a worker maps for one connection."""
BUDGET_BYTES = 128 * 2**20
"""That all blocks of one process take together."""
STEP_BYTES = 256 * 2**10
"""The first pages that a block takes, unless more is needed."""
LARGE_STEP_BYTES = 2**20
"""The most that a block takes beyond what is needed."""
KEPT_BYTES = 2**20
"""What an idle block keeps, so that a query after a silence need not wait for pages."""
IDLE_S = 60.0
"""After so many seconds without a query a block begins to give its pages back."""
GIVEN_BYTES = 4 * 2**20
"""So many at a time, which is once for each of its worker's reports: it holds up the process."""
CAN_SHARE = (
    sys.platform == "linux"
    and hasattr(os, "memfd_create")
    and hasattr(fcntl, "F_ADD_SEALS")
    and hasattr(fcntl, "F_SEAL_SHRINK")
)
"""Whether such memory can be had here. Interpreters built for an old C library lack the calls."""
_OPEN = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SEALS = 0
if CAN_SHARE:
    _SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Budget:
    """How many bytes of pages the blocks of one process may take together."""

    __slots__ = ("size", "taken")

    def __init__(self, size: int = BUDGET_BYTES) -> None:
        self.size = size
        self.taken = 0

    def take(self, size: int) -> bool:
        """Take so many bytes, if there are."""
        if self.taken + size > self.size:
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self.taken -= size


class LentBlock:
    """The gateway's side: writes tensors of queries, and knows which are still being read."""

    def __init__(self, size: int = BLOCK_BYTES, budget: Budget | None = None) -> None:
        """
        Args:
            size: in bytes.
            budget: of which its pages are; default one of its own.

        Raises:
            OSError: no such memory can be had.
        """
        self._budget = Budget(size) if budget is None else budget
        self.handle = os.memfd_create("modelless-tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.handle, size)
            fcntl.fcntl(self.handle, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(self.handle, size)
        except (OSError, ValueError) as error:
            os.close(self.handle)
            raise OSError(f"memory cannot be shared: {error}") from error
        self._bytes = memoryview(self._memory)
        self._extents = Extents(size)
        self._lent: dict[int, tuple[int, int]] = {}
        """Begin and size of what was lent, by request id."""
        self._backed = 0
        """So many bytes from the begin on have pages: writing there cannot fail."""
        self._idle_since_s: float | None = None
        """Since when there is no query; None until the report after the last one."""

    @property
    def offer(self) -> dict[str, int]:
        """What the worker has to know to borrow it."""
        inode = os.fstat(self.handle).st_ino
        return {"handle": self.handle, "inode": inode, "size": self._extents.size}

    @property
    def taken(self) -> int:
        """Bytes that are lent."""
        return self._extents.taken

    @property
    def backed(self) -> int:
        """Bytes that may have pages."""
        return self._backed

    def lend(self, request_id: int, layout: Layout, tensors: Sequence[Tensor]) -> int | None:
        """Write tensors and return where they begin; None where there is no room.

        Args:
            request_id: of their query, on the connection; ``returned`` is called for it.
            layout: of the tensors.
        """
        size = layout.nbytes
        begin = self._extents.take(size)
        if begin is None:
            return None
        try:
            if begin + size > self._backed and not self._back(begin + size):
                self._extents.give_back(begin, size)
                return None
            for place, tensor in zip(layout.tensors(self._bytes, begin), tensors, strict=True):
                place[...] = tensor
        except BaseException:
            self._extents.give_back(begin, size)
            raise
        self._lent[request_id] = begin, size
        self._idle_since_s = None
        return begin

    def returned(self, request_id: int) -> None:
        """The worker has answered a query: it reads its tensors no more."""
        lent = self._lent.pop(request_id, None)
        if lent is not None:
            self._extents.give_back(*lent)

    def reported(self, now_s: float) -> None:
        """The worker has sent a report. A block that is idle for long gives its pages back, the
        last ones first, but for the first ``KEPT_BYTES``.

        Args:
            now_s: by a clock that does not jump.
        """
        if self._lent or self._backed <= KEPT_BYTES:
            return
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        if now_s - self._idle_since_s < IDLE_S:
            return
        begin = max(KEPT_BYTES, self._backed - GIVEN_BYTES)
        with suppress(OSError):  # where that cannot be, they stay
            self._memory.madvise(mmap.MADV_REMOVE, begin, self._backed - begin)
            self._budget.give_back(self._backed - begin)
            self._backed = begin

    def close(self) -> None:
        """Let go of it; the worker keeps what it still reads. It is unmapped with the last array
        that lies in it.

        Raises:
            OSError: its handle was closed by somebody else.
        """
        self._budget.give_back(self._backed)
        self._backed = 0
        del self._bytes, self._memory
        os.close(self.handle)

    def _back(self, end: int) -> bool:
        """Give the first bytes pages, at least up to ``end``; whether there were any to be had."""
        ahead = min(max(self._backed, STEP_BYTES), LARGE_STEP_BYTES)
        end += -end % STEP_BYTES
        end = min(self._extents.size, max(end, self._backed + ahead))
        size = end - self._backed
        if not self._budget.take(size):
            return False
        try:
            os.posix_fallocate(self.handle, self._backed, size)
        except OSError:
            self._budget.give_back(size)
            return False
        self._backed = end
        return True


def borrow(connection: socket.socket, offer: Mapping[str, object]) -> memoryview:
    """The worker's side: the bytes of the block that the other end of a Unix socket lends.

    They are for reading. A runtime may still write to its input, as some models do: that harms no
    other query, and would end the process if the memory itself were only to be read.

    Which process that is says the kernel, and its handle is opened as a file of that process, which
    needs its user or more. What is not sealed as ``LentBlock`` does it is not mapped.

    Args:
        connection: to the process that lends.
        offer: ``LentBlock.offer``.

    Raises:
        Conflict: it cannot be reached from here.
        InvalidInput: it is no such block.
    """
    if not CAN_SHARE or connection.family != socket.AF_UNIX:
        raise Conflict("memory is shared over Unix sockets of Linux only")
    handle, inode, size = (offer.get(name) for name in ("handle", "inode", "size"))
    if type(handle) is not int or type(size) is not int or not 0 < size <= MOST_BYTES:
        raise InvalidInput("it is no block of shared memory")
    pid = 0
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid = struct.unpack("3i", told)[0]
        file = os.open(f"/proc/{pid}/fd/{handle}", _OPEN)
    except OSError as error:
        raise Conflict(f"the memory of process {pid} cannot be opened: {error.strerror}") from error
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or (info.st_ino, info.st_size) != (inode, size):
            raise InvalidInput("it is another file")
        if fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise InvalidInput("its size is not sealed")
        return memoryview(mmap.mmap(file, size)).toreadonly()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"it cannot be mapped: {error}") from error
    finally:
        os.close(file)
