"""A file that is mapped for a moment: what a process has of it, and how that becomes its own.

Memory that is mapped from a file changes with it, and ends the process where the file is cut short
(SIGBUS). What stays in use of a file that somebody may change gets memory with the same content in
its place.
"""

import ctypes
import mmap
import os
from pathlib import Path

FAILED = ctypes.c_void_p(-1).value
TO_PLACE = 3
"""``MREMAP_MAYMOVE | MREMAP_FIXED``: what is there leaves in the same step."""
PIECE_BYTES = 2**24
"""So much at a time is there twice."""


def own_pages(file: Path) -> None:
    """Put memory of this process's own, with the same content, in the place of what it has mapped
    of a file. A private mapping would not do: it ends where the file is cut short.

    Raises:
        MemoryError: there is none left.
    """
    for begin, end in _mapped(file):
        for piece in range(begin, end, PIECE_BYTES):
            _own(piece, min(PIECE_BYTES, end - piece))


def _own(begin: int, size: int) -> None:
    """The same of memory that begins there and may be read.

    Raises:
        MemoryError: there is none left.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = library.mremap.restype = ctypes.c_void_p
    rights, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    count = ctypes.c_size_t(size)
    copy = library.mmap(None, count, rights, kind, -1, ctypes.c_long(0))
    if copy == FAILED:
        raise MemoryError(f"no memory for weights of {size} bytes")
    ctypes.memmove(copy, begin, size)
    there = library.mremap(ctypes.c_void_p(copy), count, count, TO_PLACE, ctypes.c_void_p(begin))
    if there != begin:
        raise MemoryError(f"no place for weights: {os.strerror(ctypes.get_errno())}")


def _mapped(file: Path) -> list[tuple[int, int]]:
    """From where to where this process has mapped a file.

    On some file systems the kernel tells another device and number of it than ``stat``, on others
    another path.
    """
    stat = file.stat()
    device, number = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}", str(stat.st_ino)
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, _, _, of, node, *path = line.split(maxsplit=5)
        if (of, node) == (device, number) or path == [str(file)]:
            begin, _, end = where.partition("-")
            found.append((int(begin, 16), int(end, 16)))
    return found
