"""The build cache: what registrations have built and measured, so that the next one goes on there.

::

    root/<key>.json     what came of one piece of work, with a checksum of itself
    root/<key>.bin      the file that it made, if it made one

A key says all that the result depends on (``work_keys``), so what is found holds whoever asks.
Nothing here is trusted: what is damaged is removed and counts as missing. Files that were not used
for the longest leave first, and results without a file, which take hours to measure and next to no
room, after all files. What a registration has used itself leaves for nothing that it makes: of a
family that is larger than the folder may be, the first files are kept, and not the last ones, for
which those would have to leave that the next try begins with.

Any number of processes may share the folder, and whatever is written has its place in one step.
Where nothing can be written, the work is not kept, and that is all.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from controlplane.building.digests import copied, file_digest
from controlplane.timestamps import timestamp

LEAST_FREE_BYTES = 1 << 30
"""What is kept leaves so much of the disk free."""
UNFINISHED_S = 86_400.0
"""A file that was being written for so long has lost its writer."""
_ENTRY, _FILE, _UNFINISHED = ".json", ".bin", ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What came of a piece of work."""

    value: Mapping[str, Any]
    """Plain JSON values."""
    at: str
    """When it was done, as the catalog writes times."""


class BuildCache:
    """Results by their keys, in a folder that is made when the first is kept."""

    def __init__(self, root: Path, limit_bytes: int, *, reads: bool = True) -> None:
        """
        Args:
            limit_bytes: what all entries may take together.
            reads: whether what is there may be used; else everything is done anew, and kept.
        """
        self.root = root
        self._limit_bytes = limit_bytes
        self._reads = reads
        self._used: set[str] = set()
        """Keys that this registration has found or kept, which leave for nothing that it keeps."""
        self.has_kept = False
        """Whether something was kept, or found."""

    def begin(self) -> None:
        """Another registration begins: what the one before has used may leave."""
        self._used.clear()

    def find(
        self, key: str, target: Path | None = None, *, newest_s: float | None = None
    ) -> Kept | None:
        """What was kept under a key; None where there is nothing, or nothing sound.

        Args:
            target: where the entry's file is copied to. An entry without a file has none to copy.
            newest_s: what is older counts as missing.
        """
        if not self._reads:
            return None
        entry = self.root / f"{key}{_ENTRY}"
        try:
            if newest_s is not None and time.time() - entry.stat().st_mtime > newest_s:
                return None
            found = _read(entry)
            file, expected = self.root / f"{key}{_FILE}", found["file"]
            if target is not None and expected and copied(file, target) != expected:
                raise ValueError("the file is damaged")
            kept = Kept(value=dict(found["value"]), at=str(found["at"]))
        except FileNotFoundError:
            if target is not None and entry.exists():  # without its file it is of no use
                self._remove(key)
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self._remove(key)
            if target is not None:
                target.unlink(missing_ok=True)
            return None
        if newest_s is None:
            self._use(entry)
        self._used.add(key)
        self.has_kept = True
        return kept

    def keep(self, key: str, value: Mapping[str, Any], file: Path | None = None) -> bool:
        """Keep a result, in place of what was kept under the key; whether there was room for it."""
        try:
            text = _written(value, "" if file is None else file_digest(file))
            size = len(text) + (0 if file is None else file.stat().st_size)
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._make_room(key, size):
                return False
            if file is not None:
                with self._placed(f"{key}{_FILE}") as part:
                    shutil.copyfile(file, part)
            with self._placed(f"{key}{_ENTRY}") as part:
                part.write_bytes(text)
        except OSError:
            self._remove(key)
            return False
        self._used.add(key)
        self.has_kept = True
        return True

    # -- room -------------------------------------------------------------------------------------

    def _make_room(self, key: str, size: int) -> bool:
        """Let what was not used for the longest leave until there is so much room, files first.

        Returns False where that is not enough, and then nothing leaves; or where the disk would be
        nearly full.
        """
        kept = [one for one in self._listed() if one.key != key]
        excess = sum(one.size_bytes for one in kept) + size - self._limit_bytes
        leaving = []
        for one in sorted(kept, key=lambda one: (not one.has_file, one.used_ns)):
            if excess <= 0:
                break
            if one.key not in self._used:
                leaving.append(one.key)
                excess -= one.size_bytes
        if excess > 0:
            return False
        for gone in leaving:
            self._remove(gone)
        return shutil.disk_usage(self.root).free - size >= LEAST_FREE_BYTES

    def _listed(self) -> Iterator["_Listed"]:
        """Every key with what its files take; those that a writer has left behind are removed."""
        sizes: dict[str, int] = {}
        used: dict[str, int] = {}
        files: set[str] = set()
        for path in self.root.iterdir():
            with suppress(FileNotFoundError):  # it has left meanwhile
                found = path.lstat()
                if path.suffix == _UNFINISHED:
                    if time.time() - found.st_mtime > UNFINISHED_S:
                        path.unlink(missing_ok=True)
                    continue
                if path.suffix == _FILE:
                    files.add(path.stem)
                sizes[path.stem] = sizes.get(path.stem, 0) + found.st_size
                # A file without its entry was left by one that was killed, and leaves first.
                used[path.stem] = max(
                    used.get(path.stem, 0), found.st_mtime_ns if path.suffix == _ENTRY else 0
                )
        for key, size in sizes.items():
            yield _Listed(key=key, size_bytes=size, used_ns=used[key], has_file=key in files)

    def _remove(self, key: str) -> None:
        for suffix in (_ENTRY, _FILE):  # the file never lacks without its entry being gone
            with suppress(OSError):
                (self.root / f"{key}{suffix}").unlink(missing_ok=True)

    def _use(self, entry: Path) -> None:
        """Note that it is used now. On a disk that cannot be written it stays noted as it was."""
        now_ns = time.time_ns()  # a file system by itself knows a few milliseconds only
        with suppress(OSError):
            os.utime(entry, ns=(now_ns, now_ns))

    @contextmanager
    def _placed(self, name: str) -> Iterator[Path]:
        """A file to write, which has that name in the end, or is gone where writing it failed."""
        part = self.root / f"{token_hex(8)}{_UNFINISHED}"
        try:
            yield part
            part.replace(self.root / name)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def cache_in(root: Path, limit_mib: float, *, fresh: bool = False) -> BuildCache | None:
    """The cache in a folder; None where it may take nothing.

    Args:
        fresh: whether all is done anew, whatever is there.
    """
    return BuildCache(root, round(limit_mib * 2**20), reads=not fresh) if limit_mib else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    key: str
    size_bytes: int
    used_ns: int
    has_file: bool


def _written(value: Mapping[str, Any], file: str) -> bytes:
    body = json.dumps({"value": value, "file": file, "at": timestamp()}, sort_keys=True)
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}".encode()


def _read(entry: Path) -> dict[str, Any]:
    """
    Raises:
        OSError: it cannot be read.
        ValueError: it is not what was written.
    """
    checksum, _, body = entry.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise ValueError("the entry is damaged")
    found: dict[str, Any] = json.loads(body)
    return found
