"""The state directory of one ``modelless up``: made, locked, and cleared of old leftovers."""

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import IO

from controlplane.cluster.processes.ray_environment import TOKEN_FILE, ray_dir
from controlplane.settings import Settings
from controlplane.startup.presence import read_state, state_path
from controlplane.startup.processes import end_processes
from controlplane.startup.valkey import left_servers
from variants.disk import FULL
from variants.errors import InvalidInput, StateUnavailable

LOOK_S = 0.3
"""For how long somebody may hold a lock only to look."""
ROOM_BYTES = 4 * 2**20
"""Free space that a start needs: the logs of Ray's processes, above all."""


def prepare(settings: Settings) -> None:
    """Make the state directory, the channel secret and Ray's token.

    Raises:
        InvalidInput: the directory cannot be made or written.
        StateUnavailable: its disk is full.
    """
    from workers.channel.secret import ensure_secret

    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.run_dir.mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(PermissionError):  # another user made it, as on some volumes
            settings.run_dir.chmod(0o700)  # also where it was copied from elsewhere
        ensure_secret(settings.secret_path)
        _ensure_token(settings.state_dir / TOKEN_FILE)
    except OSError as error:
        cannot = f"the state directory {settings.state_dir} cannot be used: {error.strerror}"
        if error.errno in FULL:
            raise StateUnavailable(f"{cannot}; free some space on its disk") from error
        raise InvalidInput(f"{cannot}; set MODELLESS_STATE_DIR") from error
    excess = path_excess(settings)
    if excess > 0:
        raise InvalidInput(
            f"the path of {settings.state_dir} is {excess} bytes too long for Unix sockets; set"
            " MODELLESS_STATE_DIR to a shorter one"
        )


def _ensure_token(path: Path) -> None:
    """Make Ray's token if there is none, whole or not at all: a full disk may cut a file off."""
    if path.exists() and path.stat().st_size:
        return
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(os.urandom(32).hex())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def path_excess(settings: Settings) -> int:
    """By how many bytes the state directory's path is too long for Unix sockets in it."""
    return len(os.fsencode(settings.run_dir / "w-cpu-256-xxxxxxxx.sock")) - 107


def take_lock(path: Path) -> IO[str] | None:
    """The lock file, held; None when another process keeps it.

    `modelless status` takes it for a moment to look, and must not make a start fail.
    """
    lock = path.open("a+")
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                return None
            time.sleep(0.02)
        else:
            return lock


def clear_leftovers(settings: Settings) -> int:
    """End what a killed run had started and is still there; return how many.

    It may have been killed before it could write down that it had started a Valkey.
    """
    noted = (read_state(settings) or {}).get("processes", [])
    assert isinstance(noted, list)
    left = {(int(pid), float(at)) for pid, at in noted} | left_servers(settings.run_dir)
    ended = end_processes(left, wait_s=3.0)
    with contextlib.suppress(OSError):  # the disk has become read-only
        state_path(settings).unlink(missing_ok=True)
    return ended


def forget_counts(settings: Settings) -> None:
    """Remove what gateways left of their counts: all of them have ended."""
    for left in settings.run_dir.glob("g-*.json"):
        with contextlib.suppress(OSError):
            left.unlink()


def clear_files(settings: Settings) -> None:
    """Remove what workers and gateways of an earlier run have left, and the logs of all Ray
    sessions but the last.

    On a cluster, gateways of a killed `up` go on, and are taken over.
    """
    of_gateways = (
        () if settings.ray_address else ("g-*.sock", "g-*.json", "g-*.take", "g-*.answers")
    )
    for pattern in ("w-*.sock", *of_gateways):
        for left in settings.run_dir.glob(pattern):
            with contextlib.suppress(OSError):
                left.unlink()
    for session in sorted(ray_dir(settings).glob("session_2*"))[:-1]:  # named by date
        shutil.rmtree(session, ignore_errors=True)
