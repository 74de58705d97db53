"""Reading a backup into an empty installation."""

import hashlib
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO

import orjson

from controlplane.access.key_changes import put_back
from controlplane.backups.archive import (
    ARTIFACTS,
    CATALOG,
    KEYS,
    MOST_ROW_BYTES,
    MOST_SUMMARY_BYTES,
    NAMED_BY,
    SUMMARY,
    Summary,
)
from controlplane.backups.trial import check_usable
from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.store import check_name
from variants.catalog.copying import Row, check_empty, fill
from variants.catalog.tables import inventory
from variants.errors import InvalidInput

PIECE_BYTES = 2**20
SCRATCH = "restore-"
"""How the names of folders in which a backup is unpacked begin."""


def read_backup(
    source: Path,
    catalog_url: str,
    store: ArtifactStore,
    *,
    keys: Path | None = None,
    scratch: Path,
    told: Callable[[int, int], None] = lambda done, total: None,
    takes: Callable[[str, int], bool] = lambda kind, workers: True,
) -> Summary:
    """Fill a catalog and an artifact store with what a backup holds.

    Artifacts are stored first, unless the catalog holds something already, then the keys, and the
    catalog at the end in one transaction, once its rows have been tried. So what is interrupted
    leaves an empty catalog, and can be done again.

    Args:
        keys: where the file of clients' keys belongs; one that is there stays as it is.
        scratch: a folder for files that are needed meanwhile.
        told: is told how many artifacts of how many are stored.
        takes: whether a number of workers of a device kind that was asked for, which came from
            where the backup was made, is to be wanted here, too.

    Raises:
        Conflict: something is registered in the catalog.
        InvalidInput: the file is no backup, or is damaged, cut off, of a newer version, or of rows
            that are no catalog.
        StateUnavailable: the catalog, the store or the keys cannot be written.
    """
    check_empty(catalog_url)
    with _opened(source) as tar, TemporaryDirectory(prefix=SCRATCH, dir=scratch) as folder:
        members = _members(tar, source)
        name, file = next(members, ("", None))
        if name != SUMMARY or file is None:
            raise InvalidInput(f"{source} is no backup of modelless")
        summary = Summary.decoded(file.read(MOST_SUMMARY_BYTES))
        rows, found_keys, stored = Path(folder) / "rows", b"", set[str]()
        for name, file in members:
            if name == CATALOG:
                _copy(file, rows, summary.catalog_sha256, f"the catalog in {source}")
            elif name == KEYS:
                found_keys = file.read(MOST_SUMMARY_BYTES)
            elif name.startswith(ARTIFACTS):
                stored.add(_store(name.removeprefix(ARTIFACTS), file, store, folder, source))
                told(len(stored), summary.artifacts)
            else:
                raise InvalidInput(f"{source} holds {name!r}, which belongs to no backup")
        if not rows.exists():
            raise InvalidInput(f"{source} is cut off: it holds no catalog")
        _check_complete(rows, stored, summary, source)
        check_usable(_rows(rows), summary.migration, Path(folder))
        if found_keys and keys is not None:
            put_back(keys, found_keys)
        fill(catalog_url, summary.migration, _taken(_rows(rows), takes))
    return summary


def remove_left(scratch: Path) -> None:
    """Remove what killed restorations have left in a folder for what is needed meanwhile, while
    nothing is restored there."""
    for folder in scratch.glob(f"{SCRATCH}*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, mode="r:") as tar:
            yield tar
    except tarfile.TarError as error:
        raise InvalidInput(f"{source} is no backup, or is damaged or cut off: {error}") from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise InvalidInput(f"{source} cannot be read: {error.strerror}") from error


def _members(tar: tarfile.TarFile, source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents, one after the other; nothing is unpacked by its name.

    A file with holes counts as none: a few bytes stand for as many zeros as one likes.
    """
    for member in tar:
        plain = member.isreg() and not member.issparse()
        file = tar.extractfile(member) if plain else None
        if file is None:
            raise InvalidInput(f"{source} holds {member.name!r}, which is no plain file")
        yield member.name, file


def _copy(file: IO[bytes], to: Path, sha256: str, what: str) -> None:
    found = hashlib.sha256()
    with to.open("wb") as copy:
        while piece := file.read(PIECE_BYTES):
            found.update(piece)
            copy.write(piece)
    if found.hexdigest() != sha256:
        raise InvalidInput(f"{what} is damaged: its bytes are not those that were written")


def _store(digest: str, file: IO[bytes], store: ArtifactStore, folder: str, source: Path) -> str:
    check_name(digest)
    with NamedTemporaryFile(dir=folder) as artifact:
        _copy(file, Path(artifact.name), digest, f"the artifact {digest[:12]} in {source}")
        return store.put(Path(artifact.name))


def _rows(file: Path) -> Iterator[Row]:
    with file.open("rb") as lines:
        while line := lines.readline(MOST_ROW_BYTES):
            try:
                table, row = orjson.loads(line)
                yield str(table), dict(row)
            except (orjson.JSONDecodeError, TypeError, ValueError) as error:
                raise InvalidInput("the catalog in the backup is damaged") from error


def _taken(rows: Iterator[Row], takes: Callable[[str, int], bool]) -> Iterator[Row]:
    for table, row in rows:
        if table != inventory.name or takes(str(row["device_kind"]), int(row["workers"])):
            yield table, row


def _check_complete(rows: Path, stored: set[str], summary: Summary, source: Path) -> None:
    """Whether all artifacts that the catalog names came, but for those known to be missing."""
    named = {str(row.get(NAMED_BY[table])) for table, row in _rows(rows) if table in NAMED_BY}
    if lacking := named - stored - set(summary.missing):
        raise InvalidInput(
            f"{source} is cut off: {len(lacking)} of {summary.artifacts} artifacts are not in it"
        )
