"""Work folders: where files are built and measured. They are gone in the end, however that comes.

::

    scratch/modelless-work-<name>/lock     locked by its process for as long as that lives
    scratch/modelless-work-<name>/files    what is handed out

A process that is killed takes nothing back. So whoever makes the next folder removes those whose
processes are gone.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from variants.disk import FULL
from variants.errors import InvalidInput, StateUnavailable

PREFIX = "modelless-work-"
_LOCK = "lock"


@contextmanager
def work_folder(
    scratch: Path | None = None, temporary: Callable[[], str] = tempfile.gettempdir
) -> Iterator[Path]:
    """An empty folder, removed in the end with all that is in it.

    Args:
        scratch: where it is made; None: where the system has temporary files.
        temporary: says where that is.

    Raises:
        InvalidInput: the system has no place for temporary files.
        StateUnavailable: there, its disk became full.
        OSError: it cannot be made.
    """
    root = _temporary_root(temporary) if scratch is None else scratch
    _remove_abandoned(root)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    lock = None
    try:
        lock = _locked(folder)
        files = folder / "files"
        files.mkdir()
        yield files
    except OSError as error:
        if error.errno not in FULL or not _is_in(root, error.filename):
            raise
        remedy = "; free some space there" + (", or set TMPDIR" if scratch is None else "")
        raise StateUnavailable(f"{root} cannot be written: {error.strerror}{remedy}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _is_in(root: Path, file: object) -> bool:
    """Whether a file is in a folder. Of what a write does not name that is taken for granted: what
    is kept elsewhere is written by those who say where."""
    return not isinstance(file, str) or Path(file).is_relative_to(root)


def _temporary_root(temporary: Callable[[], str]) -> Path:
    try:
        return Path(temporary())
    except FileNotFoundError as error:  # none where a file can be written, as on a read-only disk
        raise InvalidInput(
            "no folder for temporary files can be written, such as /tmp; set TMPDIR to one"
        ) from error


def _locked(folder: Path) -> int:
    """A file that has its name only once it is locked: nobody finds it without its lock."""
    unnamed = folder / f"{_LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(folder / _LOCK)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_abandoned(root: Path) -> None:
    """Remove the folders of this user whose processes are gone."""
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # its process is at work, or it has just gone
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
