"""Whether a stored artifact is, byte for byte, what its name says.

An artifact is named after the SHA-256 of its content, so a disk that lost bytes, a copy that broke
off or a hand that wrote into the store can be told before a model is made of it. Reading and
hashing takes 0.8 ms for each MiB on a processor with SHA instructions (about 4 ms without), most of
it without holding the interpreter; so it is done once for each process and file, and again only
when the file looks changed.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from variants.errors import ArtifactDamaged, VariantNotLoadable
from variants.types import Digest

SETTLED_NS = 2_000_000_000
"""A file that changed less than this before it was read may change once more without looking
different, as times of files come in coarse steps: what was found of it is not remembered."""


class Seen(NamedTuple):
    """What the file system says of a file: equal as long as nothing was written to it."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    """Unlike the time of modification, no program can set it."""
    inode: int
    device: int


def seen(path: Path) -> Seen | None:
    """What is at a path now; None when nothing is, or nothing that can be looked at."""
    try:
        return _seen(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def check(path: Path, digest: Digest) -> Seen:
    """Read an artifact and compare it with its name; return how the file looked before.

    The errors are clauses that follow a variant's name: ``its artifact 3fa4... is missing``.

    Raises:
        ArtifactDamaged: it is missing, or holds other bytes.
        VariantNotLoadable: it cannot be read.
    """
    name = f"its artifact {digest[:12]}"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactDamaged(f"{name} is missing") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ArtifactDamaged(f"{name} is no plain file") from None
        raise VariantNotLoadable(f"{name} cannot be read: {error.strerror}") from error
    with open(file, "rb") as readable:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ArtifactDamaged(f"{name} is no plain file")
        try:
            actual = hashlib.file_digest(readable, "sha256").hexdigest()
        except OSError as error:
            raise VariantNotLoadable(f"{name} cannot be read: {error.strerror}") from error
    if actual != digest:
        raise ArtifactDamaged(
            f"{name} is damaged: the {found.st_size:,} bytes in the store are not those that were "
            "registered"
        )
    return _seen(found)


class Verified:
    """Which artifacts this process has read and found sound."""

    def __init__(
        self,
        read: Callable[[Path, Digest], Seen] = check,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._read = read
        self._clock_ns = clock_ns
        self._sound: dict[tuple[Path, Digest], Seen] = {}

    def known(self, path: Path, digest: Digest) -> Seen | None:
        """How the file looks, if it was found sound and looks as it did then. Reads nothing."""
        known = self._sound.get((path, digest))
        return known if known is not None and known == seen(path) else None

    def check(self, path: Path, digest: Digest) -> Seen:
        """As the function ``check``, but without reading a file that looks as it did when it was
        found sound.

        Raises:
            ArtifactDamaged, VariantNotLoadable: as there.
        """
        if (known := self.known(path, digest)) is not None:
            return known
        self._sound.pop((path, digest), None)
        found = self._read(path, digest)
        if self._clock_ns() - found.ctime_ns > SETTLED_NS:
            self._sound[path, digest] = found
        return found


def _seen(found: os.stat_result) -> Seen:
    return Seen(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
