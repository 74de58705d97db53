"""The artifact store on a file system: one read-only file per digest, written atomically.

::

    root/ab/cd/abcd...      the artifacts, mode 0444
    root/incoming/          files that are being written, each locked by its writer
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from variants.artifacts import integrity
from variants.artifacts.plain_files import (
    chunks_of,
    create_locked,
    entries_of,
    is_plain,
    open_source,
    sweep,
    write_all,
)
from variants.errors import (
    ArtifactDamaged,
    InvalidInput,
    NotFound,
    StateUnavailable,
    VariantNotLoadable,
)
from variants.types import Digest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_INCOMING = "incoming"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileArtifactStore:
    """An ``ArtifactStore`` in a folder. Any number of processes may share it.

    The folder is made when it is missing. What writers that died left behind is removed here.

    Raises:
        StateUnavailable: the folder cannot be made or written.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        with self._failures_explained():
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root = self.root.resolve()
            with self._folder(_INCOMING, create=True) as incoming:
                sweep(incoming)

    def put(self, source: Path) -> Digest:
        """Copy a file in and return its digest; storing the same bytes again is no error.

        The file is read once, in pieces, so its size does not matter.

        Raises:
            InvalidArtifact: ``source`` is missing, unreadable, or not a plain file (a link to one
                is not).
            StateUnavailable: the store cannot be written. Nothing was stored.
        """
        with open_source(source) as file:
            return self.put_pieces(chunks_of(file, source))

    def put_pieces(
        self,
        pieces: Iterable[bytes | bytearray | memoryview],
        expected: Digest | None = None,
    ) -> Digest:
        """Store bytes that come one piece after another and return their digest; storing the same
        bytes again is no error.

        An error that ``pieces`` raises passes through, and nothing is stored then.

        Raises:
            ArtifactDamaged: the bytes are not those ``expected``. Nothing was stored.
            StateUnavailable: the store cannot be written, or ``pieces`` raised an ``OSError``.
                Nothing was stored.
        """
        with self._failures_explained(), self._draft() as draft:
            for piece in pieces:
                draft.write(piece)
            return draft.publish(expected)

    def draft(self) -> "Draft":
        """A new artifact that is written piece by piece. It has to be closed.

        Raises:
            StateUnavailable: the store cannot be written.
        """
        with self._failures_explained():
            return self._draft()

    def _draft(self) -> "Draft":
        with self._folder(_INCOMING, create=True) as incoming:
            return Draft(self, *create_locked(incoming))

    def path(self, digest: Digest) -> Path:
        """A readable local path of the artifact, whose bytes are not meant to change.

        Raises:
            NotFound: it is not in the store.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        check_name(digest)
        with self._failures_explained():
            try:
                with self._folder(digest[:2], digest[2:4]) as folder:
                    found = os.stat(digest, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                raise NotFound(f"artifact {digest} is not in the store") from None
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(f"artifact {digest} is not in the store: its place is no plain file")
        return self.place(digest)

    def place(self, digest: Digest) -> Path:
        """Where the artifact belongs, whether it is there or not. Looks at nothing.

        Raises:
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        return place_of(self.root, digest)

    def look(self, digest: Digest) -> integrity.Seen | None:
        """How the artifact's file looks, with the time at which it was stored first; None when
        there is none.

        Raises:
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        return integrity.seen(self.place(digest))

    def size_bytes(self, digest: Digest) -> int:
        """How many bytes the artifact has.

        Raises:
            NotFound: it is not in the store.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        path = self.path(digest)
        with self._failures_explained():
            return path.stat().st_size

    def sound(self, digest: Digest) -> Path:
        """A readable local path of the artifact, which was read and is what its name says.

        Raises:
            ArtifactDamaged: it is missing or holds other bytes.
            VariantNotLoadable: it cannot be read.
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        path = self.place(digest)
        integrity.check(path, digest)
        return path

    def check(self, digest: Digest) -> None:
        """Read the artifact; the same as ``sound`` here."""
        self.sound(digest)

    def put_back(self, digest: Digest) -> bool:
        """There are no copies beside what is kept here."""
        check_name(digest)
        return False

    def delete(self, digest: Digest) -> None:
        """Remove an artifact; removing one that is not there is no error.

        A process that has it open can go on reading it.

        Raises:
            InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
        """
        check_name(digest)
        with (
            self._failures_explained(),
            suppress(FileNotFoundError),
            self._folder(digest[:2], digest[2:4]) as folder,
        ):
            os.unlink(digest, dir_fd=folder)
            os.fsync(folder)

    def digests(self) -> Iterator[Digest]:
        """All that is stored, in no particular order."""
        for first in entries_of(self.root, "[0-9a-f]{2}"):
            for second in entries_of(first, "[0-9a-f]{2}"):
                for path in entries_of(second, f"{first.name}{second.name}[0-9a-f]{{60}}"):
                    if is_plain(path):
                        yield Digest(path.name)

    def _publish(self, name: str, size_bytes: int, digest: Digest) -> None:
        """Give a complete file its place, unless the same artifact has it already and is sound."""
        with (
            self._folder(_INCOMING) as incoming,
            self._folder(digest[:2], digest[2:4], create=True) as folder,
        ):
            with suppress(FileNotFoundError):
                there = os.stat(digest, dir_fd=folder, follow_symlinks=False)
                same_size = stat.S_ISREG(there.st_mode) and there.st_size == size_bytes
                if same_size and self._is_sound(digest):
                    return
            os.rename(name, digest, src_dir_fd=incoming, dst_dir_fd=folder)
            os.fsync(folder)

    def _is_sound(self, digest: Digest) -> bool:
        try:
            self.sound(digest)
        except VariantNotLoadable:
            return False
        return True

    @contextmanager
    def _folder(self, *names: str, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder below the root, reached without following a link."""
        folder = os.open(self.root, _FOLDER)
        try:
            for name in names:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, mode=0o755, dir_fd=folder)
                        os.fsync(folder)
                below = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _failures_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateUnavailable(
                f"the artifact store at {self.root} is not available: {error.strerror}"
            ) from error


class Draft:
    """An artifact that is being written: all of it is stored in the end, or nothing."""

    def __init__(self, store: FileArtifactStore, name: str, file: int) -> None:
        """Made by the store; ``file`` is open and locked under ``name`` among the incoming."""
        self._store = store
        self._name = name
        self._file = file
        self._sha256 = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Raises ``OSError`` where it cannot be written."""
        self._sha256.update(piece)
        self.size_bytes += write_all(self._file, piece)

    def publish(self, expected: Digest | None = None) -> Digest:
        """Give the artifact its place and return its digest.

        Raises:
            ArtifactDamaged: its bytes are not those ``expected``.
            OSError: it cannot be written.
        """
        digest = Digest(self._sha256.hexdigest())
        if expected not in (None, digest):
            raise ArtifactDamaged(
                f"its artifact {expected[:12]} is damaged: the {self.size_bytes:,} bytes that came "
                "are not those that were registered"
            )
        os.fchmod(self._file, 0o444)
        os.fsync(self._file)
        self._store._publish(self._name, self.size_bytes, digest)
        return digest

    def close(self) -> None:
        """Remove what was not published."""
        # Gone already when it was published; otherwise nothing of it may stay.
        with suppress(OSError), self._store._folder(_INCOMING) as incoming:
            os.unlink(self._name, dir_fd=incoming)
        os.close(self._file)


def place_of(root: Path, digest: Digest) -> Path:
    """Where an artifact belongs in the store of a folder.

    Raises:
        InvalidInput: ``digest`` is not 64 lower-case hexadecimal digits.
    """
    check_name(digest)
    return root / digest[:2] / digest[2:4] / digest


def is_digest(name: str) -> bool:
    """Whether a name is that of an artifact."""
    return _DIGEST.fullmatch(name) is not None


def check_name(digest: str) -> None:
    """Raise ``InvalidInput`` where it is not 64 lower-case hexadecimal digits."""
    if not is_digest(digest):
        raise InvalidInput(f"{digest!r} is not a digest: 64 lower-case hexadecimal digits")
