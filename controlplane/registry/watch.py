"""Watching a folder of versions: which of them to register, and what to tell.

What to do is decided by ``look``, from what was there before and what is there now; ``watch`` only
looks, registers and waits. A version is taken once it holds a model file and was the same at two
looks in a row, so none is taken while it is copied. One that is refused is tried again when it
changes. Nothing that was registered is ever taken back: a version that disappears is only told.
"""

import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, NoReturn

from variants.errors import InvalidArtifact, ModellessError
from variants.model_files import SUFFIXES, numbered_folders


class File(NamedTuple):
    """The properties of a file that change when its contents do. ``name`` is empty for a version
    that is no folder."""

    name: str
    size_bytes: int
    written_ns: int


Files = tuple[File, ...]
"""What lies in a version's folder, by name."""


class WatchEvent(StrEnum):
    FOUND = "found"
    REGISTERED = "registered"
    REFUSED = "refused"
    PUT_OFF = "put-off"
    CHANGED = "changed"
    GONE = "gone"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line for the person who watches."""

    event: WatchEvent
    version: str | None
    """The folder's name; ``None`` speaks of all of them."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVersion:
    """What is remembered of a version."""

    files: Files | None
    """At the last look; ``None``: it is gone."""
    tried: Files | None = None
    """The files as they were when the version was registered or refused."""
    registered: bool = False
    put_off: str = ""
    """Why, as it was told."""


Memory = Mapping[str, KnownVersion]
Listing = Mapping[str, Files]
"""The numbered folders, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What one look at the folder has found."""

    memory: Memory
    ready: tuple[str, ...]
    """Versions to register now, ascending."""
    notices: tuple[Notice, ...]


def begin(listing: Listing, registered: Collection[str]) -> Memory:
    """What is known before the first look: the versions that the catalog has."""
    return {
        name: KnownVersion(files=files, tried=files, registered=True)
        for name, files in listing.items()
        if name in registered
    }


def look(memory: Memory, listing: Listing) -> Looked:
    """Which versions to register, by what was known and what is there now."""
    now = dict(memory)
    ready: list[str] = []
    notices: list[Notice] = []
    for name in sorted(memory.keys() | listing.keys(), key=_ascending):
        known, files = memory.get(name), listing.get(name)
        if known is None:
            now[name] = KnownVersion(files=files)
            notices.append(_notice(WatchEvent.FOUND, name, "found; it is taken when it is whole"))
            continue
        now[name] = replace(known, files=files)
        if files is None:
            if known.files is not None:
                kept = "; it stays in the catalog" if known.registered else ""
                notices.append(_notice(WatchEvent.GONE, name, f"is gone from the folder{kept}"))
        elif files == known.files and files != known.tried and _is_whole(files):
            if known.registered:
                now[name] = replace(known, tried=files)
                text = (
                    "has changed, but stays registered as it was; give the new model a new number"
                )
                notices.append(_notice(WatchEvent.CHANGED, name, text))
            else:
                ready.append(name)
    return Looked(memory=now, ready=tuple(ready), notices=tuple(notices))


def registered(memory: Memory, name: str) -> Memory:
    """What is known once a version is in the catalog."""
    known = memory[name]
    return {**memory, name: replace(known, tried=known.files, registered=True)}


def failed(memory: Memory, name: str, error: ModellessError) -> tuple[Memory, Notice | None]:
    """What is known once a registration failed, and what to tell, unless it was told.

    What may pass is tried again at the next look; all else when the version changes.
    """
    known = memory[name]
    if not error.retryable:
        text = f"refused: {error.message}"
        return {**memory, name: replace(known, tried=known.files)}, _notice(
            WatchEvent.REFUSED, name, text
        )
    told = known.put_off == error.message
    notice = None if told else _notice(WatchEvent.PUT_OFF, name, f"put off: {error.message}")
    return {**memory, name: replace(known, put_off=error.message)}, notice


def watch(
    folder: Path,
    known: Collection[str],
    register: Callable[[str], str],
    tell: Callable[[Notice], None],
    wait: Callable[[], None],
) -> NoReturn:
    """Look at ``folder`` until ``wait`` raises.

    ``known`` are the versions that the catalog has. ``register`` takes the name of a version's
    folder and says in a few words what it did.

    Raises:
        InvalidArtifact: the folder cannot be read at the first look; later that is told.
    """
    memory = begin(listing(folder), known)
    unreadable = False
    while True:
        try:
            looked = look(memory, listing(folder))
        except InvalidArtifact as error:
            if not unreadable:
                tell(Notice(event=WatchEvent.UNREADABLE, version=None, text=error.message))
            unreadable = True
            wait()
            continue
        unreadable = False
        memory = looked.memory
        for notice in looked.notices:
            tell(notice)
        for name in looked.ready:
            try:
                said = register(name)
            except ModellessError as error:
                memory, refusal = failed(memory, name, error)
                if refusal is not None:
                    tell(refusal)
            else:
                memory = registered(memory, name)
                tell(_notice(WatchEvent.REGISTERED, name, said))
        wait()


def listing(folder: Path) -> dict[str, Files]:
    """The numbered folders and what lies in them. Links are not followed.

    Raises:
        InvalidArtifact: the folder cannot be read.
    """
    found: dict[str, Files] = {}
    for path in numbered_folders(folder):
        try:
            mode = path.lstat().st_mode
            children = sorted(path.iterdir()) if stat.S_ISDIR(mode) else [path]
            found[path.name] = tuple(_files(path, children))
        except FileNotFoundError:  # gone since
            continue
        except OSError as error:
            raise InvalidArtifact(f"{path.name} cannot be read: {error.strerror}") from error
    return found


def _files(version: Path, children: list[Path]) -> Iterator[File]:
    for child in children:
        with suppress(FileNotFoundError):  # one that was renamed since is there at the next look
            state = child.lstat()
            name = "" if child == version else child.name
            yield File(name, state.st_size, state.st_mtime_ns)


def _is_whole(files: Files) -> bool:
    """Whether there is something to register, or to refuse."""
    return any(not file.name or file.name.endswith(SUFFIXES) for file in files)


def _ascending(name: str) -> tuple[int, str]:
    """A sort key: by number, and names that only look like a version last."""
    return (int(name), name) if name.isdecimal() else (1 << 64, name)


def _notice(event: WatchEvent, name: str, text: str) -> Notice:
    return Notice(event=event, version=name, text=text)
