"""A file store that answers questions of other machines, and the side that asks.

What lies between the two is a function: it takes a question with its arguments to where the store
is, and brings the answer back. Arguments and answers are plain values, and no piece is larger than
``PIECE_BYTES``, so a model of any size takes little memory on either side.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from variants.artifacts.integrity import Seen, Verified, seen
from variants.artifacts.store import Draft, FileArtifactStore
from variants.errors import (
    ArtifactDamaged,
    InvalidInput,
    ModellessError,
    NotFound,
    StateUnavailable,
    VariantNotLoadable,
)
from variants.types import Digest

PIECE_BYTES = 4 << 20
MOST_UPLOADS = 16
IDLE_S = 300.0
"""An upload of which nothing came for so long is over."""
_ERRORS = {
    kind.__name__: kind
    for kind in (ArtifactDamaged, InvalidInput, NotFound, StateUnavailable, VariantNotLoadable)
}


class Failed(NamedTuple):
    """An error as an answer: whatever carries answers may wrap errors in its own."""

    kind: str
    message: str


class Ask(Protocol):
    """Takes a question to where the artifacts are and returns the answer.

    Raises:
        StateUnavailable: nobody answers.
    """

    def __call__(self, question: str, *arguments: Any) -> Any: ...


class ArtifactService:
    """Answers questions about a store, and takes artifacts in. Used by several threads."""

    def __init__(
        self, store: FileArtifactStore, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock_s = clock_s
        self._verified = Verified()
        self._uploads: dict[str, _Upload] = {}
        self._lock = threading.Lock()
        self._questions: dict[str, Callable[..., Any]] = {
            "look": self._look,
            "size": store.size_bytes,
            "check": self._check,
            "read": self._read,
            "begin": self._begin,
            "write": self._write,
            "publish": self._publish,
            "abandon": self._abandon,
            "delete": store.delete,
            "digests": lambda: list(store.digests()),
        }

    def answer(self, question: str, *arguments: Any) -> Any:
        """The answer, or how it failed."""
        try:
            if (ask := self._questions.get(question)) is None:
                raise InvalidInput(f"{question!r} is no question about artifacts")
            return ask(*arguments)
        except ModellessError as error:
            return Failed(type(error).__name__, error.message)
        except OSError as error:
            why = f"the artifact store is not available: {error.strerror}"
            return Failed(StateUnavailable.__name__, why)

    # -- out --------------------------------------------------------------------------------------

    def _look(self, digest: Digest) -> Seen | None:
        return seen(self._store.place(digest))

    def _check(self, digest: Digest) -> int:
        """Compare the artifact with its name; its size."""
        return self._verified.check(self._store.place(digest), digest).size_bytes

    def _read(self, digest: Digest, at: int) -> bytes:
        """A piece. The file may have been replaced in between, by the same bytes."""
        file = os.open(self._store.path(digest), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.pread(file, PIECE_BYTES, at)
        finally:
            os.close(file)

    # -- in ---------------------------------------------------------------------------------------

    def _begin(self, digest: Digest) -> str:
        """Begin an upload; its name, or nothing where the artifact is here and sound."""
        place = self._store.place(digest)
        try:
            self._verified.check(place, digest)
        except VariantNotLoadable:
            pass
        else:
            return ""
        with self._lock:
            now_s = self._clock_s()
            for name, upload in tuple(self._uploads.items()):
                # What is being written, published or abandoned at this moment is not idle.
                if now_s - upload.last_s > IDLE_S and upload.lock.acquire(blocking=False):
                    try:
                        del self._uploads[name]
                        upload.close()
                    finally:
                        upload.lock.release()
            if len(self._uploads) >= MOST_UPLOADS:
                raise StateUnavailable("too many artifacts are being stored at once; try again")
            name = secrets.token_hex(16)
            self._uploads[name] = _Upload(self._store.draft(), digest, now_s)
        return name

    def _write(self, name: str, at: int, piece: bytes) -> None:
        upload = self._upload(name)
        with upload.lock:
            upload.check_open()
            if at != upload.draft.size_bytes:
                raise StateUnavailable("a piece of the artifact was lost on its way; try again")
            upload.draft.write(piece)
            upload.last_s = self._clock_s()

    def _publish(self, name: str) -> None:
        upload = self._upload(name)
        with upload.lock:
            upload.check_open()
            try:
                upload.draft.publish(upload.digest)
            finally:
                self._abandon(name)

    def _abandon(self, name: str) -> None:
        with self._lock:
            upload = self._uploads.pop(name, None)
        if upload is not None:
            with upload.lock:
                upload.close()

    def _upload(self, name: str) -> "_Upload":
        with self._lock:
            if (upload := self._uploads.get(name)) is None:
                raise _too_late()
            return upload


def _too_late() -> StateUnavailable:
    return StateUnavailable("the artifact was not stored in time; try again")


class _Upload:
    """An artifact that comes in."""

    def __init__(self, draft: Draft, digest: Digest, now_s: float) -> None:
        self.draft = draft
        self.digest = digest
        self.last_s = now_s
        """When anything of it came."""
        self.lock = threading.RLock()
        """Held by whoever uses the draft."""
        self._is_open = True

    def check_open(self) -> None:
        """Refuse a question that had found the upload before it was over: the number of its file
        may be another one's by now.

        Raises:
            StateUnavailable: it is over.
        """
        if not self._is_open:
            raise _too_late()

    def close(self) -> None:
        self._is_open = False
        self.draft.close()


class ServedArtifacts:
    """An ``ArtifactOrigin`` behind a function that takes questions to an ``ArtifactService``."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def look(self, digest: Digest) -> Seen | None:
        found = self._asked("look", digest)
        return None if found is None else Seen(*found)

    def size_bytes(self, digest: Digest) -> int:
        return int(self._asked("size", digest))

    def check(self, digest: Digest) -> int:
        return int(self._asked("check", digest))

    def pieces(self, digest: Digest) -> Iterator[bytes]:
        size = self.check(digest)
        # One piece is on its way while the one before is written: 150 MiB/s instead of 115. With
        # two on their way, Ray brings 45.
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._asked, "read", digest, 0)
            for at in range(PIECE_BYTES, size, PIECE_BYTES):
                piece = coming.result()
                coming = pool.submit(self._asked, "read", digest, at)
                yield piece
            yield coming.result()

    def put(self, digest: Digest, source: Path) -> None:
        if not (name := self._asked("begin", digest)):
            return
        try:
            at = 0
            with source.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    self._asked("write", name, at, piece)
                    at += len(piece)
            self._asked("publish", name)
        except BaseException:
            with suppress(StateUnavailable):
                self._ask("abandon", name)
            raise

    def delete(self, digest: Digest) -> None:
        self._asked("delete", digest)

    def digests(self) -> list[Digest]:
        return [Digest(digest) for digest in self._asked("digests")]

    def _asked(self, question: str, *arguments: Any) -> Any:
        answer = self._ask(question, *arguments)
        if isinstance(answer, Failed):
            raise _ERRORS.get(answer.kind, StateUnavailable)(answer.message)
        return answer
