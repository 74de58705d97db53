"""Plain files, opened so that nothing else is, and files that are locked while they are written."""

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from variants.errors import InvalidArtifact

CHUNK_BYTES = 1 << 20


@contextmanager
def open_source(source: Path) -> Iterator[int]:
    """A descriptor of a plain file. Nothing else is even opened: that could block, or rewind."""
    try:
        _refuse_unless_plain(source, os.lstat(source))
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidArtifact(f"{str(source)!r} cannot be read: {reason}") from error
    try:
        _refuse_unless_plain(source, os.fstat(file))  # it may have been replaced in between
        yield file
    finally:
        os.close(file)


def _refuse_unless_plain(source: Path, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return
    what = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device"
    raise InvalidArtifact(f"{str(source)!r} is {what}, not a plain file")


def chunks_of(file: int, source: Path) -> Iterator[memoryview]:
    """The bytes of a file piece by piece, each until the next is asked for.

    Raises:
        InvalidArtifact: it cannot be read.
    """
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while True:
        try:
            count = os.readv(file, [buffer])
        except OSError as error:
            raise InvalidArtifact(f"{str(source)!r} cannot be read: {error.strerror}") from error
        if not count:
            return
        yield buffer[:count]


def write_all(file: int, data: bytes | bytearray | memoryview) -> int:
    """Write all of it; returns how many bytes that were."""
    rest = whole = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]
    return whole.nbytes


def create_locked(incoming: int) -> tuple[str, int]:
    """A new file and its name, locked for as long as it is open."""
    while True:
        name = secrets.token_hex(16)
        file = os.open(
            name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=incoming
        )
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return name, file
        os.close(file)  # a sweep came before the lock and removed it


def sweep(incoming: int) -> None:
    """Remove the files of dead writers: a lock dies with the process that holds it."""
    for name in os.listdir(incoming):
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=incoming)
        except OSError:
            continue  # just published, or nothing that a writer made
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=incoming)
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            os.close(file)


def is_plain(path: Path) -> bool:
    """Whether a plain file is there still: another process may have deleted it since."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def entries_of(folder: Path, pattern: str) -> Iterator[Path]:
    """Entries of a real folder whose whole name matches."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return
        entries = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in entries:
        if re.fullmatch(pattern, name):
            yield folder / name
