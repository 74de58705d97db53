"""What `modelless up` needs, looked at one by one without starting or changing anything.

Each check returns findings; one that is a problem says what to do about it. Heavy packages are
imported in processes of their own, so that a broken one can neither slow down nor end this one.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from controlplane.settings import Settings
from variants.errors import ModellessError

PYTHON = (3, 11)
PACKAGES = ("ray", "onnxruntime", "onnx", "ortools", "sklearn", "uvloop", "httptools")
"""What is imported by name, and may be broken though it is installed."""
DISTRIBUTIONS = {"sklearn": "scikit-learn"}
IMPORT_S = 60.0
CONNECT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's report."""

    name: str
    ok: bool
    message: str
    remedy: str = ""
    """What to do; empty when it is fine."""


Check = Callable[[Settings], Iterator[Finding]]


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, in the order in which one would mend them."""
    for check in CHECKS:
        yield from check(settings)


def fine(name: str, message: str) -> Finding:
    return Finding(name=name, ok=True, message=message)


def problem(name: str, message: str, remedy: str) -> Finding:
    return Finding(name=name, ok=False, message=message, remedy=remedy)


# -- this installation --------------------------------------------------------------------------


def python(_: Settings) -> Iterator[Finding]:
    have = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= PYTHON:
        yield fine("python", have)
    else:
        needed = ".".join(map(str, PYTHON))
        yield problem("python", have, f"use Python {needed} or newer")


def packages(_: Settings, names: tuple[str, ...] = PACKAGES) -> Iterator[Finding]:
    """One finding for all that are fine, and one for each that is not."""
    with ThreadPoolExecutor(4) as pool:
        faults = dict(zip(names, pool.map(_import_fault, names), strict=True))
    good = [f"{name} {_version(name)}" for name in names if not faults[name]]
    if good:
        yield fine("packages", ", ".join(good))
    for name in names:
        if faults[name]:
            yield problem(
                "packages",
                f"{name} cannot be imported: {faults[name]}",
                "install modelless again, in a virtual environment of its own",
            )


def torch(_: Settings) -> Iterator[Finding]:
    """Optional: only the example models and PyTorch sources need it."""
    if find_spec("torch") is None:
        yield fine("torch", "not installed; needed only to train the example models")
    else:
        yield fine("torch", _version("torch"))


def _import_fault(name: str) -> str:
    """Why a package cannot be imported; empty when it can."""
    if find_spec(name) is None:
        return "it is not installed"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"import {name}"],
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {IMPORT_S:g} s"
    if ran.returncode == 0:
        return ""
    lines = ran.stderr.strip().splitlines()
    return lines[-1] if lines else f"the import ended with status {ran.returncode}"


def _version(name: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(name, name))
    except PackageNotFoundError:
        return "of unknown version"


# -- the state directory ------------------------------------------------------------------------


def state_directory(settings: Settings) -> Iterator[Finding]:
    from controlplane.supervisor import path_excess

    path, name = settings.state_dir, "state"
    excess = path_excess(settings)
    if excess > 0:
        yield problem(
            name,
            f"the path of {path} is {excess} characters too long for Unix sockets",
            "set MODELLESS_STATE_DIR to a shorter one",
        )
    elif path.exists() and not path.is_dir():
        yield problem(name, f"{path} is not a directory", "set MODELLESS_STATE_DIR to another one")
    elif not os.access(_nearest(path), os.W_OK | os.X_OK):
        yield problem(
            name, f"{_nearest(path)} cannot be written", "set MODELLESS_STATE_DIR to another one"
        )
    elif not path.exists():
        yield fine(name, f"{path} will be made")
    else:
        yield fine(name, str(path))


def secrets(settings: Settings) -> Iterator[Finding]:
    """The channel secret and Ray's token: for their owner only."""
    paths = [settings.secret_path, settings.state_dir / "ray.token"]
    there = [path for path in paths if path.exists()]
    if not there:
        yield fine("secrets", "will be made at the first start")
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


def leftovers(settings: Settings) -> Iterator[Finding]:
    """Processes that a killed run has left."""
    from controlplane.presence import read_state
    from controlplane.supervisor import is_alive

    if _running(settings) is not None:
        return
    state = read_state(settings) or {}
    known = state.get("processes")
    alive = []
    for pid, created in known if isinstance(known, list) else ():
        try:
            process = psutil.Process(int(pid))
            # A pid may have been given to somebody else since.
            if abs(process.create_time() - float(created)) < 0.5 and is_alive(process):
                alive.append(str(pid))
        except psutil.Error:
            continue
    if alive:
        yield problem(
            "leftovers",
            f"a killed run has left {len(alive)} processes: {', '.join(alive[:8])}",
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


def _nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else _nearest(path.parent)


def _running(settings: Settings) -> dict[str, object] | None:
    """State of the `modelless up` that has this directory; looking leaves no file behind."""
    from controlplane.presence import running

    return running(settings) if (settings.run_dir / "up.lock").exists() else None


# -- what it talks to ---------------------------------------------------------------------------


def port(settings: Settings) -> Iterator[Finding]:
    from controlplane.gateway import bind
    from controlplane.presence import base_url

    where = f"{settings.host}:{settings.port}"
    ours = _running(settings)
    if ours is not None and ours["url"] == base_url(settings):
        yield fine("port", f"{where} is served by process {ours['pid']}")
        return
    try:
        bind(settings, alone=True).close()
    except OSError as error:
        yield problem(
            "port",
            f"{where} cannot be used: {error.strerror}",
            "choose another port with --port or MODELLESS_PORT",
        )
    else:
        yield fine("port", f"{where} is free")


def live_state(settings: Settings) -> Iterator[Finding]:
    """The Redis that was named, or else the embedded Valkey's program."""
    if not settings.redis_url:
        yield _valkey()
        return
    from redis import Redis
    from redis.exceptions import RedisError

    parts = urlsplit(settings.redis_url)
    where = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    where += parts.path  # without its user and password
    try:
        with Redis.from_url(
            settings.redis_url, socket_connect_timeout=CONNECT_S, socket_timeout=CONNECT_S
        ) as client:
            client.ping()
    except (RedisError, OSError, ValueError) as error:
        yield problem(
            "live state",
            f"{where} does not answer: {str(error).rstrip('.')}",
            "start it, correct MODELLESS_REDIS_URL, or leave it empty for the embedded Valkey",
        )
    else:
        yield fine("live state", f"{where} answers")


def _valkey() -> Finding:
    from controlplane.valkey import find_binary

    remedy = "install modelless again, or set MODELLESS_REDIS_URL"
    try:
        binary = find_binary()
        ran = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except ModellessError as error:
        return problem("live state", error.message.partition(":")[0], remedy)
    except (OSError, subprocess.SubprocessError) as error:
        return problem("live state", f"the embedded Valkey cannot be run: {error}", remedy)
    words = dict(word.split("=", 1) for word in ran.stdout.split() if "=" in word)
    return fine("live state", f"embedded Valkey {words.get('v', '')}".rstrip())


def database(settings: Settings) -> Iterator[Finding]:
    from variants.migrations import schema_versions

    try:
        present, newest = schema_versions(settings.catalog_url)
    except ModellessError as error:
        yield problem("database", error.message, "start it, or correct MODELLESS_DATABASE_URL")
        return
    kind = "SQLite" if settings.catalog_url.startswith("sqlite") else "PostgreSQL"
    if present is None:
        yield fine("database", f"{kind}, without tables; `modelless up` makes them")
    elif present == newest:
        yield fine("database", f"{kind}, tables at {present}")
    elif present < newest:  # their names begin with ascending numbers
        yield fine(
            "database", f"{kind}, tables at {present}; `modelless up` brings them to {newest}"
        )
    else:
        yield problem(
            "database",
            f"{kind}, tables at {present}, made by a newer modelless; this one knows {newest}",
            "upgrade modelless, or set MODELLESS_DATABASE_URL to another database",
        )


# -- the machine --------------------------------------------------------------------------------


def memory(settings: Settings) -> Iterator[Finding]:
    """Whether variants could fill the workers; not asked while they do it."""
    needed = settings.memory_mib * settings.workers
    free = psutil.virtual_memory().available / 2**20
    said = f"{free:,.0f} MiB free, workers may fill {needed:,.0f} MiB"
    if _running(settings) is not None or free >= needed:
        yield fine("memory", said)
    else:
        yield problem(
            "memory", said, "end other programs, or set MODELLESS_WORKER_MEMORY_MIB lower"
        )


CHECKS: tuple[Check, ...] = (
    python, packages, torch, state_directory, secrets, leftovers, port,
    live_state, database, memory,
)  # fmt: skip
