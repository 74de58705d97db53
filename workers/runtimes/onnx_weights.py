"""Weights that are mapped from the file while a session is made, and then are its own.

ONNX Runtime reads a file, copies each weight out of it and lets go of the file in the end, so that
a load takes up to twice the file for a moment, which is more than a worker reserves
(docs/decisions/0015). Weights in a file of their own it maps, and packs for its kernels from there.
So it is given the model without its weights (``variants.onnx_wire``), and told that they lie in the
very file.

Weights that it does not pack stay mapped. Answers would then depend on the file for as long as the
variant is loaded: whoever changes it changes them, and cutting it short ends the worker. So memory
with the same content takes their place once the session is there.
"""

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from variants.onnx_wire import LEAST_FILE_BYTES, without_weights

FOLDER = "session.model_external_initializers_file_folder_path"
FAILED = ctypes.c_void_p(-1).value
TO_PLACE = 3
"""``MREMAP_MAYMOVE | MREMAP_FIXED``: what is there leaves in the same step."""
PIECE_BYTES = 2**24
"""So much at a time is there twice."""


def mapped_session(
    ort: Any, path: str, options: Any, providers: Sequence[str], disabled: Sequence[str]
) -> Any:
    """An ``InferenceSession`` of a file, for the CPU.

    Args:
        disabled: optimisers that are left out.

    Raises:
        Exception: what ONNX Runtime raises where it refuses the model.
    """
    file = Path(path).resolve()
    model = _without_weights(file)
    if not model:
        return ort.InferenceSession(
            path, options, providers=providers, disabled_optimizers=disabled
        )
    options.add_session_config_entry(FOLDER, f"{file.parent}/")
    session = ort.InferenceSession(
        model, options, providers=providers, disabled_optimizers=disabled
    )
    own_pages(file)
    return session


def _without_weights(file: Path) -> bytes:
    """The model, with its weights where they lie; empty where none can be mapped, or it is small,
    or no such model, of which ONNX Runtime says what is wrong."""
    with file.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size < LEAST_FILE_BYTES:
            return b""
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                model, weights = without_weights(data, file.name)
            except (ValueError, IndexError, UnicodeDecodeError):
                return b""
    return model if weights else b""


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
