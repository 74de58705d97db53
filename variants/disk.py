"""A disk: how much room it has, and that it is full, said in one sentence."""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from variants.errors import StateUnavailable
from variants.figures import figure

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No space left on the device, or none of the user's share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRoom:
    """How much room there is on the disk of a folder."""

    of: str
    """What the folder is, such as ``state``."""
    folder: str
    host: str
    free_bytes: int
    """For this user; a quota is not seen."""
    size_bytes: int


def disk_rooms(folders: Mapping[str, Path], host: str) -> tuple[DiskRoom, ...]:
    """The room on the disks of these folders, each disk once: of the first folder that is on it.

    A folder that is not there, or cannot be looked at, is left out.
    """
    found: dict[int, DiskRoom] = {}
    for of, folder in folders.items():
        with suppress(OSError):
            disk = folder.stat().st_dev
            if disk not in found:
                usage = shutil.disk_usage(folder)
                found[disk] = DiskRoom(
                    of=of, folder=str(folder), host=host,
                    free_bytes=usage.free, size_bytes=usage.total,
                )  # fmt: skip
    return tuple(found.values())


@contextmanager
def full_disk_explained(path: Path | None = None) -> Iterator[None]:
    """Turn the failure to write on a full disk into the error tree; others pass through.

    ``path`` is what is written, where the error may not name it: one that a write raises does not.

    Raises:
        StateUnavailable: there is no space left.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        what = (
            error.filename if path is None and isinstance(error.filename, str) else path or "a file"
        )
        raise StateUnavailable(f"{what} cannot be written: {error.strerror}") from error


def ensure_room(folder: Path, size_bytes: int) -> None:
    """Return when so much can be written in a folder: really, as no quota is seen from outside.

    Raises:
        StateUnavailable: there is no space left for it.
    """
    probe = folder / f".room.{token_hex(4)}"
    try:
        with full_disk_explained():
            allocate_file(probe, size_bytes)
    except StateUnavailable as error:
        reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else ""
        raise StateUnavailable(
            f"{folder} has no room for {figure(size_bytes / 2**20)} MiB: {reason};"
            " free some space on its disk"
        ) from error
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def allocate_file(path: Path, size_bytes: int) -> None:
    """Make a file of zeros, its blocks on the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        allocate(file, size_bytes)
    finally:
        os.close(file)


def allocate(file: int, size_bytes: int) -> None:
    """Fill the begin of an open file with zeros that are on the disk, whatever the file system.

    Written, not ``posix_fallocate``: that is emulated or refused on some file systems, and NFS
    learns of a full disk only when the data is synchronised.

    Raises:
        OSError: the disk is full.
    """
    zeros = memoryview(bytes(size_bytes))
    done = 0
    while done < size_bytes:
        done += os.pwrite(file, zeros[done:], done)
    os.fsync(file)
