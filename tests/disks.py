"""Real small disks for tests: file systems in memory that can be filled to the last byte. And files
that are another user's."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.services import missing

NOBODY = 65534
_HOLD = 'mount -t tmpfs -o "$2" none "$1" && echo mounted && cat; umount -l "$1"'
"""Unmounts when its standard input ends, so also when the process that started it is killed."""


@contextmanager
def small_disk(size_kib: int, inodes: int = 0) -> Iterator[Path]:
    """A folder that is a disk of its own, mounted and unmounted; that needs root's rights."""
    with TemporaryDirectory(prefix="mls-disk-", ignore_cleanup_errors=True) as folder:
        options = f"size={size_kib}k,mode=700" + (f",nr_inodes={inodes}" if inodes else "")
        holder = subprocess.Popen(
            ["/bin/sh", "-c", _HOLD, "hold", folder, options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            mounted = holder.stdout.readline() == b"mounted\n"
            if mounted:
                yield Path(folder)
        finally:
            holder.stdin.close()
            holder.stdout.close()
            holder.wait(300)
        if not mounted:
            missing("a disk in memory", "cannot be mounted (that needs root)")


def fill(disk: Path, name: str = "filler") -> Path:
    """Write a file until not one more byte finds room; return it."""
    path = disk / name
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for size in (2**20, 4096, 1):
            while True:
                try:
                    os.write(file, bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
    finally:
        os.close(file)
    return path


@contextmanager
def without_rights() -> Iterator[None]:
    """As another user where root runs the tests, to whom nothing is refused."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
