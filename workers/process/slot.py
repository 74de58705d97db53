"""A page of a file that holds what its process wrote last, also when the process dies.

The page is written and synchronised before it is used, so that its blocks are there: a mapped file
with a hole raises SIGBUS, which ends the process, when a full disk cannot fill the hole. Where a
file system gives changed data a new place (Btrfs, ZFS), allocating does not help, and the page is
written with ``pwrite`` instead, which fails with an error.
"""

import fcntl
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path

from variants.disk import allocate

ENTRY_BYTES = 8
PAGE_BYTES = 4096
IN_PLACE = frozenset({"ext2", "ext3", "ext4", "tmpfs", "xfs"})
"""File systems on which overwriting an allocated block needs no space."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Slot:
    """Entries of eight bytes in a file that is locked for as long as the process lives."""

    def __init__(self, path: Path, *, mapped: bool | None = None) -> None:
        """Make the file.

        Args:
            mapped: whether the page is mapped; if not said, where that is safe.

        Raises:
            OSError: the disk is full, or the file cannot be made. Nothing is left of it.
        """
        self.path = path
        self._map: mmap.mmap | None = None
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            allocate(self._file, PAGE_BYTES)
            if file_system(path) in IN_PLACE if mapped is None else mapped:
                self._map = mmap.mmap(self._file, PAGE_BYTES)
        except OSError:
            self.remove()
            raise

    def rename(self, path: Path) -> None:
        self.path.rename(path)
        self.path = path

    def write(self, index: int, entry: bytes) -> None:
        """Set one entry, or several that follow one another.

        Raises:
            OSError: it cannot be written; never where the page is mapped.
        """
        at = index * ENTRY_BYTES
        if self._map is not None:
            self._map[at : at + len(entry)] = entry
        else:
            os.pwrite(self._file, entry, at)

    def remove(self) -> None:
        """Clear the page and remove the file. The lock stays where the file cannot be removed."""
        if self._map is not None:
            self._map[:] = bytes(PAGE_BYTES)
            self._map.close()
            self._map = None
        elif self._file >= 0:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def file_system(path: Path) -> str:
    """The kind of file system that a path is on; empty when it cannot be told."""
    folder = os.path.realpath(path.parent)
    found, longest = "", -1
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        mounted, _, kind = line.partition(" - ")
        point = _ESCAPED.sub(lambda sign: chr(int(sign[1], 8)), mounted.split()[4])
        # A later mount on the same point hides the earlier one.
        if len(point) >= longest and os.path.commonpath((point, folder)) == point:
            found, longest = kind.split()[0], len(point)
    return found
