"""Digests of files: what the artifact store and the build cache know them by."""

import hashlib
from pathlib import Path

from variants.types import Digest

PIECE_BYTES = 1 << 20


def file_digest(path: Path) -> Digest:
    """SHA-256 of what is in a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


def copied(source: Path, target: Path) -> Digest:
    """Copy a file and return the digest of what was copied.

    Raises:
        OSError: one cannot be read, or the other not written.
    """
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while piece := reader.read(PIECE_BYTES):
            digest.update(piece)
            writer.write(piece)
    return Digest(digest.hexdigest())
