"""Engines that were built before: what one is keyed by, and where it is kept.

Building an engine takes from seconds to minutes, loading a built one milliseconds. But an engine is
machine code that the runtime trusts: one from elsewhere could do anything. So engines are read from
a folder that no other user can write to, each with a header that says what it was built for, and
whatever is not whole or not ours is built again.
"""

import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from variants.errors import RuntimeFailed

log = logging.getLogger(__name__)

RANGES = "1,2-8,9-32,33-64"
"""Batch sizes that share kernels, unless a variant says otherwise: one query alone, a few, many.
Larger batches than the last cannot be run."""
LIMIT_MIB = 16 * 1024.0
"""Most bytes of engines that are kept; those that were unused the longest go first."""

_MAGIC = b"MLENGINE"
_HEADER = struct.Struct("<8sI32s32sQ")
"""Magic, layout version, digest of the key, digest of the engine, the engine's length."""
_LAYOUT = 1
_SUFFIX = ".engine"


def default_folder() -> Path:
    """Where engines are kept unless a variant's ``engines`` option names another folder."""
    return Path.home() / ".cache" / "modelless" / "engines"


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Batch sizes from ``low`` to ``high``, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def parse_ranges(text: str) -> tuple[BatchRange, ...]:
    """``1,2-8,9-32,33-64``: ranges that begin at one row and leave none out.

    Raises:
        RuntimeFailed: they are written otherwise.
    """
    ranges: list[BatchRange] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?\s*", part)
        low = int(found[1]) if found else 0
        high = int(found[2] or low) if found else 0
        if low != (ranges[-1].high + 1 if ranges else 1) or high < low:
            raise RuntimeFailed(
                f"batch ranges are written like {RANGES!r}, from 1 and without a gap, not {text!r}"
            )
        ranges.append(BatchRange(low, high))
    return tuple(ranges)


@dataclass(frozen=True, kw_only=True)
class EngineKey:
    """All that an engine depends on. Change any of it, and another engine is needed."""

    builder: str
    """The library that built it, and its version: ``TensorRT 11.4.0.106``."""
    gpu: str
    """The GPU as the driver names it, MIG profile included."""
    capability: tuple[int, int]
    multiprocessors: int
    """Kernels are chosen by timing them, on so many."""
    artifact: str
    """SHA-256 of the ONNX file."""
    outputs: tuple[str, ...]
    """The outputs that are computed."""
    ranges: tuple[BatchRange, ...]
    options: tuple[tuple[str, str], ...] = ()
    """All other options of the build."""

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits that no other key has."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class EngineCache:
    """A folder of engines, mode 0700, that several processes may use at once.

    A cache that cannot be used costs time and breaks nothing: it says why in the log once and holds
    nothing.
    """

    def __init__(self, folder: Path, *, limit_mib: float = LIMIT_MIB) -> None:
        self._folder = folder
        self._limit_bytes = int(limit_mib * 2**20)
        self._complained = False

    def get(self, digest: str) -> bytes | None:
        """The engine under a key's digest, whole; None when there is none, and it must be built."""
        with self._opened() as folder:
            if folder is None:
                return None
            name = digest + _SUFFIX
            data = _read_own(folder, name)
            if data is None:
                return None
            engine = _unframed(data, digest)
            if engine is None:
                log.warning("engine %s is damaged and is built again", digest[:12])
                _remove(folder, name)
                return None
            with suppress(OSError):
                os.utime(name, dir_fd=folder)  # it was used
            return engine

    def put(self, digest: str, engine: bytes) -> None:
        """Keep an engine, whole or not at all. A full disk is no error."""
        with self._opened() as folder:
            if folder is None:
                return
            temporary = f".{digest}.{secrets.token_hex(8)}"
            try:
                _write(folder, temporary, _framed(engine, digest))
                os.rename(temporary, digest + _SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                _remove(folder, temporary)
                self._complain(f"cannot be written: {error.strerror}")
                return
            self._prune(folder, keep=digest + _SUFFIX)

    def remove(self, digest: str) -> None:
        """Forget an engine."""
        with self._opened() as folder:
            if folder is not None:
                _remove(folder, digest + _SUFFIX)

    @contextmanager
    def building(self, digest: str) -> Iterator[None]:
        """Hold this while building: another process that wants the same engine waits, and then
        finds it."""
        with self._opened() as folder:
            name = f".{digest}.lock"
            lock = None if folder is None else _lock(folder, name)
            try:
                yield
            finally:
                if folder is not None and lock is not None:
                    # Removed while it is held. A process that waits on it looks for the engine
                    # anyway.
                    _remove(folder, name)
                    os.close(lock)

    def subfolder(self, digest: str) -> Path | None:
        """A folder of its own, for a back end that keeps its engines itself; None: keep none."""
        with self._opened() as folder:
            if folder is None:
                return None
            with suppress(FileExistsError):
                os.mkdir(digest, 0o700, dir_fd=folder)
            inner = os.open(digest, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                if wrong := _unsafe(os.fstat(inner)):
                    self._complain(f"{digest[:12]} {wrong}")
                    return None
            finally:
                os.close(inner)
            return self._folder / digest

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """A descriptor of the folder, so that it cannot be exchanged while it is used."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            self._complain(f"cannot be opened: {error.strerror}")
            yield None
            return
        try:
            wrong = _unsafe(os.fstat(folder))
            if wrong:
                self._complain(wrong)
            yield None if wrong else folder
        finally:
            os.close(folder)

    def _prune(self, folder: int, keep: str) -> None:
        """Remove the longest unused engines until the rest fits."""
        found = []
        for name in os.listdir(folder):
            if name.endswith(_SUFFIX):
                with suppress(OSError):
                    seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    found.append((name == keep, seen.st_mtime_ns, name, seen.st_size))
        excess = sum(size for *_, size in found) - self._limit_bytes
        for kept, _, name, size in sorted(found):
            if excess <= 0 or kept:
                return
            _remove(folder, name)
            excess -= size

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning("engines are not kept: folder %s %s", self._folder, why)


def digest_of(data: bytes) -> str:
    """SHA-256 of an artifact, as the artifact store has it."""
    return hashlib.sha256(data).hexdigest()


def _unsafe(found: os.stat_result) -> str:
    """Why another user could have written here; empty when none could."""
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, not 0700"
    return ""


def _framed(engine: bytes, digest: str) -> bytes:
    key, body = bytes.fromhex(digest), hashlib.sha256(engine).digest()
    return _HEADER.pack(_MAGIC, _LAYOUT, key, body, len(engine)) + engine


def _unframed(data: bytes, digest: str) -> bytes | None:
    """The engine in a file; None unless it is whole and was built for this key."""
    if len(data) < _HEADER.size:
        return None
    magic, layout, key, body, length = _HEADER.unpack_from(data)
    engine = data[_HEADER.size :]
    whole = (magic, layout, key, length) == (_MAGIC, _LAYOUT, bytes.fromhex(digest), len(engine))
    return engine if whole and hashlib.sha256(engine).digest() == body else None


def _read_own(folder: int, name: str) -> bytes | None:
    """A plain file that only this user could have written; None when there is none."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or _unsafe(found):
            return None
        return file.read()


def _write(folder: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _lock(folder: int, name: str) -> int | None:
    """A descriptor that holds a lock file's lock until it is closed; None where none can be."""
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    except OSError:
        return None
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _remove(folder: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)
