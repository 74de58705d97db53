"""Copies of artifacts on a machine that does not see where they are kept.

::

    root/files/             a ``FileArtifactStore`` of what was fetched or stored here
    root/used/              an empty file for each, written to whenever it is used
    root/fetching/          locks: two processes of a machine do not fetch the same twice

What is fetched is compared with its digest before it has a place. What was used the longest ago
leaves when room is short, by the limit or on the disk, unless a process is reading it.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from variants.artifacts.integrity import Seen, Verified
from variants.artifacts.protocol import ArtifactOrigin
from variants.artifacts.store import FileArtifactStore
from variants.errors import (
    ArtifactDamaged,
    NotFound,
    StateUnavailable,
    VariantNotLoadable,
)
from variants.types import Digest

LIMIT_SETTING = "MODELLESS_ARTIFACT_CACHE_MIB"
ATTEMPTS = 3
"""A copy may be damaged here, or leave before it is locked: then it is fetched again."""
FULL = (errno.ENOSPC, errno.EDQUOT)
T = TypeVar("T")


class CachedArtifactStore:
    """An ``ArtifactStore`` whose files are copies. Any number of processes may share the folder.

    Raises:
        StateUnavailable: the folder cannot be made or written.
    """

    def __init__(self, root: Path, origin: ArtifactOrigin, limit_bytes: int) -> None:
        self.origin = origin
        self._limit_bytes = limit_bytes
        self._files = FileArtifactStore(root / "files")
        self._used = self._files.root.parent / "used"
        self._fetching = self._files.root.parent / "fetching"
        self._verified = Verified()
        with self._failures_explained():
            self._used.mkdir(mode=0o700, exist_ok=True)
            self._fetching.mkdir(mode=0o700, exist_ok=True)

    # -- the protocol -----------------------------------------------------------------------------

    def put(self, source: Path) -> Digest:
        """Store a file where all artifacts are, by way of a copy here; as ``ArtifactStore``.

        Raises:
            InvalidArtifact: ``source`` is no plain file that can be read.
            StateUnavailable: it cannot be stored, here or there. It is not stored there then.
        """
        size = 0
        with suppress(OSError, ValueError):  # it is refused below
            size = source.lstat().st_size
        for _ in range(ATTEMPTS):
            digest = self._with_room(size, lambda: self._files.put(source))
            self._use(digest)
            if (file := _lock(self.place(digest), fcntl.LOCK_SH)) is None:
                continue  # it left before it was locked
            try:
                self._send(digest)
            finally:
                os.close(file)
            return digest
        raise StateUnavailable(f"the copy of artifact {digest[:12]} does not stay on this machine")

    def path(self, digest: Digest) -> Path:
        try:
            with self.held(digest) as (path, _):
                return path
        except VariantNotLoadable as error:
            raise NotFound(f"artifact {digest} is not to be had: {error.message}") from error

    def place(self, digest: Digest) -> Path:
        return self._files.place(digest)

    def look(self, digest: Digest) -> Seen | None:
        return self.origin.look(digest)

    def size_bytes(self, digest: Digest) -> int:
        return self.origin.size_bytes(digest)

    def sound(self, digest: Digest) -> Path:
        with self.held(digest) as (path, _):
            return path

    def check(self, digest: Digest) -> None:
        self.origin.check(digest)

    def put_back(self, digest: Digest) -> bool:
        if not self._is_here(digest):
            return False
        try:
            file, _ = self._hold(digest)
        except VariantNotLoadable:
            return False
        try:
            self._send(digest)
        finally:
            os.close(file)
        return True

    def delete(self, digest: Digest) -> None:
        self.origin.delete(digest)
        self._discard(digest)

    def digests(self) -> Iterator[Digest]:
        yield from self.origin.digests()

    # -- copies -----------------------------------------------------------------------------------

    def known(self, digest: Digest) -> Seen | None:
        """How the copy looks, if there is one that this process has read. Asks nobody."""
        return self._verified.known(self.place(digest), digest)

    def is_sound_here(self, digest: Digest) -> bool:
        """Whether there is a copy that is what its name says; it is read. Asks nobody."""
        if (file := _lock(self.place(digest), fcntl.LOCK_SH)) is None:
            return False
        try:
            self._verified.check(self.place(digest), digest)
        except VariantNotLoadable:
            return False
        finally:
            os.close(file)
        return True

    @contextmanager
    def held(self, digest: Digest) -> Iterator[tuple[Path, Seen]]:
        """A copy that is what its name says and stays while this is entered, and how it looks.

        It is fetched if need be, and read once by each process.

        Raises:
            ArtifactDamaged: it is missing, or damaged, where artifacts are kept.
            VariantNotLoadable: it cannot be fetched, kept or read.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        file, found = self._hold(digest)
        try:
            yield self.place(digest), found
        finally:
            os.close(file)

    def _hold(self, digest: Digest) -> tuple[int, Seen]:
        """A copy that is sound: the open file, locked, and how it looks. Raises as ``held``."""
        path = self.place(digest)
        anew = False
        for _ in range(ATTEMPTS):
            self._fetch(digest, anew=anew)
            if (file := _lock(path, fcntl.LOCK_SH)) is None:
                continue
            try:
                found = self._verified.check(path, digest)
            except BaseException as error:
                os.close(file)
                if not isinstance(error, ArtifactDamaged):
                    raise
                anew = True
            else:
                self._use(digest)
                return file, found
        raise VariantNotLoadable(f"its artifact {digest[:12]} does not stay on this machine")

    def _fetch(self, digest: Digest, *, anew: bool) -> None:
        """Return when there is a copy; ``anew``: another one than the one that is here."""
        try:
            if not anew and self._is_here(digest):
                return
            with self._failures_explained(), self._alone(digest):
                if anew or not self._is_here(digest):  # nobody has fetched it meanwhile
                    size = self.origin.size_bytes(digest)
                    self._with_room(size, lambda: self._take(digest))
        except NotFound as error:
            raise ArtifactDamaged(f"its artifact {digest[:12]} is missing") from error
        except StateUnavailable as error:
            raise VariantNotLoadable(
                f"its artifact {digest[:12]} cannot be fetched: {error.message}"
            ) from error

    def _send(self, digest: Digest) -> None:
        """Store a copy, which is locked, where all artifacts are."""
        try:
            with self._failures_explained():
                self.origin.put(digest, self.place(digest))
        except ArtifactDamaged as error:
            raise StateUnavailable(f"{error.message}; try again") from error

    def _take(self, digest: Digest) -> None:
        pieces = self.origin.pieces(digest)
        first = next(pieces, b"")  # raises where it is damaged there
        try:
            self._files.put_pieces(chain((first,), pieces), expected=digest)
        except ArtifactDamaged as error:
            self.origin.check(digest)  # raises where it is damaged there
            raise StateUnavailable(
                "what came is not what was registered, and was discarded"
            ) from error
        self._use(digest)

    def _is_here(self, digest: Digest) -> bool:
        try:
            self._files.path(digest)
        except NotFound:
            return False
        return True

    # -- room -------------------------------------------------------------------------------------

    def _with_room(self, size_bytes: int, store: Callable[[], T]) -> T:
        """Store a copy that is so large. Others leave for it: within the limit, or, where the disk
        is full before that is reached, as many as it is large; then it is tried once more.

        Raises:
            StateUnavailable: it has no room, or as ``store``.
        """
        self._make_room(size_bytes)
        try:
            return store()
        except StateUnavailable as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in FULL:
                raise
            if not self._make_room(size_bytes, disk_is_full=True):
                raise
        return store()

    def _make_room(self, size_bytes: int, *, disk_is_full: bool = False) -> bool:
        """Let what was used the longest ago leave until so much has room within the limit; on a
        full disk until so much has left. Returns whether anything has.

        Raises:
            StateUnavailable: it never has.
        """
        if size_bytes > self._limit_bytes:
            raise StateUnavailable(
                f"it takes {size_bytes / 2**20:,.0f} MiB, and {LIMIT_SETTING} allows "
                f"{self._limit_bytes / 2**20:,.0f} MiB for all copies on a machine"
            )
        sizes = {}
        for digest in self._files.digests():
            with suppress(NotFound, OSError):
                sizes[digest] = self._files.size_bytes(digest)
        excess = sum(sizes.values()) + size_bytes - self._limit_bytes
        if disk_is_full:
            excess = max(excess, size_bytes)
        has_left = False
        for digest in sorted(sizes, key=self._last_use_ns):
            if excess <= 0:
                break
            if self._discard(digest):
                excess -= sizes[digest]
                has_left = True
        return has_left

    def _discard(self, digest: Digest) -> bool:
        """Remove a copy unless a process is reading it; whether it is gone."""
        if (file := _lock(self.place(digest), fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
            return not self._is_here(digest)
        try:
            self._files.delete(digest)
            (self._used / digest).unlink(missing_ok=True)
        finally:
            os.close(file)
        return True

    def _use(self, digest: Digest) -> None:
        """Note that it is used now. On a full disk it stays noted as it was."""
        now_ns = time.time_ns()  # a file system by itself knows a few milliseconds only
        with suppress(OSError):
            (self._used / digest).touch(mode=0o600)
            os.utime(self._used / digest, ns=(now_ns, now_ns))

    def _last_use_ns(self, digest: Digest) -> int:
        try:
            return (self._used / digest).stat().st_mtime_ns
        except OSError:
            return 0

    # -- processes --------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, digest: Digest) -> Iterator[None]:
        """Wait until no other process of this machine fetches it."""
        lock = self._fetching / digest[:2]
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    @contextmanager
    def _failures_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateUnavailable(
                f"the folder for copies of artifacts {self._files.root.parent} is not available: "
                f"{error.strerror}"
            ) from error


def _lock(path: Path, how: int) -> int | None:
    """The open file, locked; None where there is none, or others do not let it be locked."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, how)
    except OSError:
        os.close(file)
        return None
    if not os.fstat(file).st_nlink:  # it left before it was locked
        os.close(file)
        return None
    return file
