"""Writing a backup while the installation is in use."""

import fcntl
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import orjson

from controlplane.access.client_keys import text_of
from controlplane.access.key_changes import without_secrets
from controlplane.backups.archive import ARTIFACTS, CATALOG, KEYS, NAMED_BY, SUMMARY, Summary
from controlplane.timestamps import timestamp
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.copying import all_rows
from variants.disk import FULL
from variants.errors import Conflict, InvalidInput, NotFound, StateUnavailable, VariantNotLoadable
from variants.types import Digest

Told = Callable[[int, int], None]
"""Is told how many artifacts of how many are in the file."""


def write_backup(
    target: Path,
    catalog_url: str,
    store: ArtifactStore,
    *,
    keys: Path | None = None,
    release: str = "",
    replace: bool = False,
    told: Told = lambda done, total: None,
) -> Summary:
    """Write catalog and artifacts into one file, whole or not at all.

    The catalog is read as it is at one moment. Artifacts do not change; one that is damaged or
    missing is left out, and the summary says so.

    Args:
        target: the file; it has no write permission for others, and is made in its own folder.
        keys: the file of clients' keys; it may be missing. Of keys only the digests are copied.
        replace: whether a file of that name is written over.

    Raises:
        Conflict: there is a file of that name already.
        InvalidInput: the file cannot be made, or the catalog is of another kind of database.
        StateUnavailable: the catalog cannot be read, or the disk is full.
    """
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder; name a file")
    if target.exists() and not replace:
        raise Conflict(f"{target} exists already; name another file, or say --replace")
    with _explained(target), _published(target) as file, TemporaryFile(dir=target.parent) as rows:
        migration, count, tasks, digests = _copy_rows(catalog_url, rows)
        sound, missing = _sound(digests, store)
        rows.seek(0)
        summary = Summary(
            made_at=timestamp(),
            release=release,
            migration=migration,
            catalog_sha256=hashlib.file_digest(rows, "sha256").hexdigest(),
            rows=count,
            tasks=tasks,
            artifacts=len(sound),
            artifact_bytes=sum(size for _, size in sound.values()),
            missing=missing,
        )
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, SUMMARY, BytesIO(summary.encoded()))
            _add(tar, CATALOG, rows)
            if keys is not None and keys.is_file():
                _add(tar, KEYS, BytesIO(without_secrets(text_of(keys)).encode()))
            for done, (digest, (path, size)) in enumerate(sound.items(), 1):
                with path.open("rb") as artifact:
                    _add(tar, ARTIFACTS + digest, artifact, size)
                told(done, len(sound))
    return summary


def _copy_rows(url: str, to: IO[bytes]) -> tuple[str, int, int, list[Digest]]:
    """Migration, number of rows and of tasks, and the artifacts that the rows name, in order."""
    count = tasks = 0
    digests: dict[Digest, None] = {}
    with all_rows(url) as copied:
        for table, row in copied.rows:
            to.write(orjson.dumps([table, row]) + b"\n")
            count += 1
            tasks += table == "tasks"
            if table in NAMED_BY:
                digests[Digest(row[NAMED_BY[table]])] = None
        return copied.migration, count, tasks, list(digests)


def _sound(
    digests: list[Digest], store: ArtifactStore
) -> tuple[dict[Digest, tuple[Path, int]], tuple[str, ...]]:
    """Where each sound artifact is and how many bytes it has; and those that are not."""
    sound: dict[Digest, tuple[Path, int]] = {}
    missing = []
    for digest in digests:
        try:
            path = store.sound(digest)
        except (VariantNotLoadable, NotFound):
            missing.append(digest)
        else:
            sound[digest] = (path, path.stat().st_size)
    return sound, tuple(missing)


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes], size: int | None = None) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o600
    member.size = file.seek(0, os.SEEK_END) if size is None else size
    file.seek(0)
    tar.addfile(member, file)


@contextmanager
def _published(target: Path) -> Iterator[IO[bytes]]:
    """A new file that gets its name when all is in it, and is gone otherwise.

    Who writes holds a lock on it, so that what a killed one has left is known.
    """
    _remove_left(target)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with suppress(OSError):  # of a file system without locks nothing is removed
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _remove_left(target: Path) -> None:
    """Remove what killed writers of the same backup have left."""
    begin = f".{target.name}."
    for draft in target.parent.iterdir():
        if draft.name.startswith(begin) and draft.name.removeprefix(begin).isdigit():
            with suppress(OSError), draft.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StateUnavailable(f"{target} cannot be written: its disk is full") from error
        raise InvalidInput(f"{target} cannot be written: {error.strerror}") from error
