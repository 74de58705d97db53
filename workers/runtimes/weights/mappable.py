"""An ONNX file whose weights can be mapped, and the model of it without them.

Runtimes read a file, copy each weight out of it and let go of the file in the end, so that a load
takes up to twice the file for a moment, which is more than a worker reserves
(docs/decisions/0015). Weights in a file of their own they map, and pack for their kernels from
there. So they are given the model without its weights (``variants.onnx_wire``), and told that they
lie in the very file.

What was built before weights were aligned is copied first, with them where processors want them.
The copy is there, and locked, until the model is made: what a process has left that was killed
meanwhile is removed by the next one that copies.
"""

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from typing import BinaryIO

from variants.onnx_wire import (
    ALIGNMENT,
    LEAST_FILE_BYTES,
    aligned,
    large_weights,
    without_weights,
)

ALIGNED_SHARE = 0.5
"""Of the bytes of large weights: with less of them where processors want them, a file is copied."""

PREFIX, COPY = "modelless-weights-", "aligned.onnx"
"""How a folder of a copy begins, and what the copy in it is called."""


@contextmanager
def mappable(path: str) -> Iterator[Path | None]:
    """A file of the same model whose weights can be mapped, the file itself or a copy; None where
    it is small, or has none, or no copy can be written, or it is no model, of which its runtime
    says what is wrong."""
    file = Path(path).resolve()
    share = _aligned_share(file)
    if share is None or share >= ALIGNED_SHARE:
        yield None if share is None else file
        return
    _remove_left()
    with TemporaryDirectory(prefix=PREFIX) as folder, (Path(folder) / COPY).open("wb") as made:
        fcntl.flock(made, fcntl.LOCK_EX)
        yield Path(made.name) if _is_copied(file, made) else None


def light_model(file: Path, location: str) -> bytes:
    """The model of a file that is ``mappable``, with its weights where they lie.

    Args:
        location: what the file is called in the model.
    """
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return without_weights(data, location)[0]


def _aligned_share(file: Path) -> float | None:
    """Of the bytes of large weights of a large file; None where there are none."""
    with file.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size < LEAST_FILE_BYTES:
            return None
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                found = large_weights(data)
            except (ValueError, IndexError, UnicodeDecodeError):
                return None
    every = sum(one.end - one.start for one in found)
    there = sum(one.end - one.start for one in found if one.start % ALIGNMENT == 0)
    return there / every if every else None


def _is_copied(file: Path, made: BinaryIO) -> bool:
    try:
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for piece in aligned(data):
                made.write(piece)
                data.madvise(mmap.MADV_DONTNEED)  # what was read need not stay
        made.flush()
    except (OSError, ValueError):  # a full disk; it is loaded as it is
        return False
    return os.path.exists(made.name)  # another process may have seen it before it was locked


def _remove_left() -> None:
    """Remove copies that nobody has locked any more."""
    for copy in Path(gettempdir()).glob(f"{PREFIX}*/{COPY}"):
        with suppress(OSError), copy.open("rb") as left:  # locked, or another user's
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(copy.parent, ignore_errors=True)
