"""Notes of artifacts that are being stored and that no catalog names yet.

An artifact is stored before the catalog names it. A process that is killed in between takes nothing
back, but leaves its note, by which others find what it had stored.

::

    root/of-<name>      an empty file for each catalog whose artifacts were stored here
    root/<token>        one note, locked by its writer for as long as that lives

A note names only what was not in the store before. Where several catalogs have stored here, none of
them knows what the others use: then nothing is found.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from variants.disk import ensure_room
from variants.errors import StateUnavailable
from variants.types import Digest

FOLDER = "storing"
"""In the folder of the store."""
_OF = "of-"
LEAST_BYTES = 4 * 2**20
"""What the catalog and notes may write beside the artifacts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What somebody began to store."""

    path: Path
    digests: frozenset[Digest]

    def forget(self) -> None:
        """Nothing is left to be done about it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class StoringNotes:
    """The notes of one catalog in the folder of an artifact store."""

    def __init__(self, store: Path, *, url: str, name: Path) -> None:
        """
        Args:
            store: the folder of the artifacts.
            url: of the catalog, if it has one for all; it is not written down.
            name: else the file beside the catalog that tells it from others. It is made with the
                first note, and moves with the catalog.
        """
        self._root = store / FOLDER
        self._url = url
        self._name = name

    @contextmanager
    def noted(self, digests: Collection[Digest]) -> Iterator[Note]:
        """A note that these are about to be stored; whoever enters this forgets it in the end.

        Raises:
            StateUnavailable: it cannot be written.
        """
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._root / self._mine(make=True)).touch(mode=0o600)
            path = self._root / token_hex(16)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unavailable(error) from error
        note = Note(path=path, digests=frozenset(digests))
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                os.write(file, json.dumps(sorted(digests)).encode())
                os.fsync(file)
            except OSError as error:
                note.forget()
                raise self._unavailable(error) from error
            yield note
        finally:
            os.close(file)

    def ensure_room(self, size_bytes: int) -> None:
        """Return when so much can be stored, before somebody works for long on what is to be.

        Raises:
            StateUnavailable: there is no space left for it.
        """
        folder = self._root.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            ensure_room(folder, size_bytes + LEAST_BYTES)
        except OSError as error:
            raise self._unavailable(error) from error

    def shared(self) -> bool:
        """Whether another catalog has stored artifacts here: what it uses is not known.

        Raises:
            StateUnavailable: that cannot be read.
        """
        return self._others(self._names())

    @contextmanager
    def abandoned(self, safe_s: float) -> Iterator[list[Note]]:
        """Notes whose writers are gone, and which are older than that; nobody else has them.

        Those in which nothing can be read are removed: their writers had stored nothing yet.

        Raises:
            StateUnavailable: they cannot be read.
        """
        files: list[int] = []
        try:
            yield list(self._abandoned(safe_s, files))
        finally:
            for file in files:
                os.close(file)

    def _abandoned(self, safe_s: float, files: list[int]) -> Iterator[Note]:
        names = self._names()
        if self._others(names):
            return
        for path in (self._root / name for name in names if not name.startswith(_OF)):
            with suppress(OSError):  # its writer is at work, or has just forgotten it
                file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                files.append(file)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(file)
                if not found.st_nlink or time.time() - found.st_mtime < safe_s:
                    continue
                note = Note(path=path, digests=_digests(os.pread(file, found.st_size, 0)))
                if note.digests:
                    yield note
                else:
                    note.forget()

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._root))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error) from error

    def _others(self, names: Collection[str]) -> bool:
        mine = self._mine(make=False)
        return any(name.startswith(_OF) and name != mine for name in names)

    def _mine(self, *, make: bool) -> str:
        """The name of the file that says that this catalog's artifacts were stored here."""
        name = self._url
        if not name and make and not self._name.exists():
            part = self._name.with_name(f".{self._name.name}.{token_hex(4)}")
            try:
                part.write_text(f"{token_hex(16)}\n")
                with suppress(FileExistsError):  # another process was quicker
                    os.link(part, self._name)  # whole or not at all
            finally:
                part.unlink(missing_ok=True)
        if not name:
            with suppress(FileNotFoundError):
                name = self._name.read_text()
        return f"{_OF}{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def _unavailable(self, error: OSError) -> StateUnavailable:
        return StateUnavailable(f"the folder {self._root} is not available: {error.strerror}")


def _digests(text: bytes) -> frozenset[Digest]:
    """Those that a note names; none where it was not written whole."""
    try:
        return frozenset(Digest(str(digest)) for digest in json.loads(text))
    except (ValueError, TypeError):
        return frozenset()
