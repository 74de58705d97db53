"""Checks of the state directory: the folder, its secrets, and processes that a killed run left."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from controlplane.given_settings import PREFIX
from controlplane.settings import FILE, Settings
from controlplane.startup.checks.finding import Finding, fine, problem, warning
from variants.errors import InvalidInput
from variants.figures import counted


def state_directory(settings: Settings) -> Iterator[Finding]:
    from controlplane.startup.state_directory import ROOM_BYTES, path_excess

    path, name = settings.state_dir, "state"
    excess = path_excess(settings)
    if excess > 0:
        yield problem(
            name,
            f"the path of {path} is {excess} bytes too long for Unix sockets",
            "set MODELLESS_STATE_DIR to a shorter one",
        )
    elif path.exists() and not path.is_dir():
        yield problem(name, f"{path} is not a directory", "set MODELLESS_STATE_DIR to another one")
    elif closed := _closed(settings):
        yield problem(
            name,
            f"{closed} cannot be written",
            "let this user write there, or set MODELLESS_STATE_DIR to another one",
        )
    elif (free := shutil.disk_usage(_nearest(path)).free) < ROOM_BYTES:
        yield problem(
            name,
            f"{_nearest(path)} has {free / 2**20:,.1f} MiB free",
            "free some space on its disk, or set MODELLESS_STATE_DIR to another one",
        )
    elif not path.exists():
        yield fine(name, f"{path} will be made")
    elif full := _nearly_full(settings):
        yield from (warning(name, words, "free some space on it") for words in full)
    else:
        yield fine(name, str(path))


def _nearly_full(settings: Settings) -> list[str]:
    """What is to be said of disks that are nearly full, by the measure of `modelless status`."""
    from controlplane.machine import rooms_here
    from controlplane.views.storage_status import nearly_full, room_words

    return [room_words(room) for room in rooms_here(settings) if nearly_full(room)]


def secrets(settings: Settings) -> Iterator[Finding]:
    """The channel secret and Ray's token: for their owner only."""
    from controlplane.cluster.processes.ray_environment import TOKEN_FILE

    paths = [settings.secret_path, settings.state_dir / TOKEN_FILE]
    there = [path for path in paths if path.exists()]
    if not there:
        yield fine("secrets", "will be made at the first start")
    yield from _open_to_others(settings)
    yield from _other_secrets(settings)
    if not there:
        return
    wrong = {path: fault for path in there if (fault := _secret_fault(path))}
    if not wrong:
        yield fine("secrets", " and ".join(path.name for path in there) + ", for their owner only")
    for path, fault in wrong.items():
        yield problem(
            "secrets",
            f"{path} {fault}",
            f"chmod 600 {path}; if others could have read it, delete it while nothing runs",
        )


def _open_to_others(settings: Settings) -> Iterator[Finding]:
    """What an operator made and others can read or change: the directory, files with secrets."""
    path = settings.state_dir
    info = path.stat() if path.is_dir() else None
    mode = 0o700 if info is None else stat.S_IMODE(info.st_mode)
    if info is not None and mode & 0o002:
        what = f"{path} has mode {mode:04o}, so that others can replace what is in it"
        if os.geteuid() in (info.st_uid, 0):
            yield problem("secrets", what, f"chmod 700 {path}")
        else:  # as in a pod whose volume the kubelet made
            yield warning(
                "secrets",
                f"{what}, and belongs to another user, who alone can change that",
                f"none is needed where no other container has this volume; else chmod 700 {path} as"
                " its owner",
            )
    if not mode & 0o011:
        return
    for file in (path / FILE, settings.client_keys_path):
        if file.is_file() and (fault := _secret_fault(file)):
            yield warning("secrets", f"{file} {fault}", f"chmod 600 {file}")


def _other_secrets(settings: Settings) -> Iterator[Finding]:
    """Secrets that are others now than what runs here was started with."""
    from controlplane.access.client_keys import takes_token
    from controlplane.startup.presence import secret_digests

    told = (running_here(settings) or {}).get("secrets")
    now = secret_digests(settings)
    if takes_token(settings.client_keys_path, settings.api_token):
        now.pop("api_token", None)  # gateways that run go by it already
    for name, digest in now.items():
        if isinstance(told, dict) and told.get(name, digest) != digest:
            yield warning(
                "secrets",
                f"{PREFIX}{name.upper()} is not what runs here was started with, which goes on by "
                "the old one",
                "`modelless down` and `modelless up` take it in",
            )


def leftovers(settings: Settings) -> Iterator[Finding]:
    """Processes that a killed run has left."""
    from controlplane.startup.presence import read_state
    from controlplane.startup.processes import still_alive

    if running_here(settings) is not None:
        return
    state = read_state(settings) or {}
    known = state.get("processes")
    listed = known if isinstance(known, list) else ()
    alive = [
        str(process.pid)
        for process in still_alive((int(pid), float(created)) for pid, created in listed)
    ]
    if alive:
        yield problem(
            "leftovers",
            f"a killed run has left {counted(len(alive), 'process')}: {', '.join(alive[:8])}",
            "`modelless down` ends them",
        )
    else:
        yield fine("leftovers", "none")


def _secret_fault(path: Path) -> str:
    info = path.lstat()
    mode = stat.S_IMODE(info.st_mode)
    if not stat.S_ISREG(info.st_mode):
        return "is not a plain file"
    if mode & 0o077:
        return f"has mode {mode:04o}, so that others can read or write it"
    if info.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    return ""


def _closed(settings: Settings) -> Path | None:
    """The state directory, or the one above it or in it, that this user cannot write."""
    for path in (_nearest(settings.state_dir), settings.run_dir):
        if path.exists() and not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
            return path
    return None


def _nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else _nearest(path.parent)


def running_here(settings: Settings) -> dict[str, object] | None:
    """State of the `modelless up` that has this directory; looking leaves no file behind."""
    from controlplane.startup.presence import lock_path, running

    try:
        return running(settings) if lock_path(settings).exists() else None
    except (PermissionError, InvalidInput):  # `state_directory` says so
        return None
