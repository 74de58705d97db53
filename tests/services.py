"""Real services for tests: a private PostgreSQL and a private Redis, gone when the test is.

``MODELLESS_TEST_POSTGRES_URL`` and ``MODELLESS_TEST_REDIS_URL`` name servers to use instead. Where
neither a server nor its programs are there, the test skips; with ``CI=true`` it fails.
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple, NoReturn

import psycopg
import pytest
import redis
from sqlalchemy import make_url

from workers.channel.shared_memory import CAN_SHARE

START_S = 300
STOP_S = 20


def missing(service: str, why: str = "is not installed") -> NoReturn:
    """Skip the test at home, fail it where every service has to be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{service} {why}, and CI=true demands it")
    pytest.skip(f"{service} {why}")


SHARED_MEMORY = pytest.mark.skipif(
    not CAN_SHARE and os.environ.get("CI") != "true", reason="this Python cannot share memory"
)
"""For tests of memory that processes share: skipped at home where there is none, failing in CI."""


@contextmanager
def short_folder(prefix: str) -> Iterator[str]:
    """A folder with a short path, gone afterwards with all that is in it.

    What tests that were killed left of such folders goes too: each has the process in its name.
    """
    for left in Path(gettempdir()).glob(f"{prefix}*-*"):
        pid = left.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", dir=gettempdir()) as folder:
        yield folder


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server on which databases can be created."""
    given = os.environ.get("MODELLESS_TEST_POSTGRES_URL")
    if given:
        yield given.replace("+psycopg", "")
        return
    programs = _postgres_programs()
    if programs is None:
        missing("PostgreSQL")
    user = _unprivileged_user()
    # A socket's path may hold 107 bytes, too few for a test's own folder.
    with short_folder("modelless-pg-") as folder:
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data = Path(folder) / "data"
        _init_postgres(programs, data, user)
        options = {
            "listen_addresses": "",
            "unix_socket_directories": folder,
            # Nothing of it has to outlive the test.
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "autovacuum": "off",
            "shared_buffers": "16MB",
        }
        command: list[str | Path] = [programs / "postgres", "-D", data]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        url = f"postgresql://modelless@/postgres?host={folder}"
        with _running(command, folder, user, lambda: psycopg.connect(url).close()):
            yield url


def fresh_database(server_url: str, encoding: str = "") -> str:
    """The URL of a new, empty database on a server, in the server's encoding unless told."""
    name = f"modelless_test_{secrets.token_hex(8)}"
    made = f" ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0" if encoding else ""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}{made}".encode())
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


def drop_database(server_url: str, url: str) -> None:
    """Remove a database that ``fresh_database`` made, even while clients are connected to it."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(
            f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)".encode()
        )


class Prepared(NamedTuple):
    """A server that is ready to be started somewhere."""

    command: list[str]
    user: Mapping[str, Any]
    """What makes its process run as the user that has to run it."""


def prepared_postgres(folder: Path, address: str, password: str) -> Prepared:
    """A PostgreSQL that will listen on an address, and on a socket in ``folder``."""
    programs = _postgres_programs()
    if programs is None:
        missing("PostgreSQL")
    user = _unprivileged_user()
    if user:
        os.chown(folder, user.pw_uid, user.pw_gid)
    _init_postgres(programs, folder / "data", user, password)
    command = [str(programs / "postgres"), "-D", str(folder / "data")]
    for option in (f"listen_addresses={address}", f"unix_socket_directories={folder}", "fsync=off"):
        command += ["-c", option]
    return Prepared(command, _as_user(user))


def prepared_redis(folder: Path, address: str, port: int, password: str) -> Prepared:
    """A Redis that will listen on an address."""
    program = shutil.which("redis-server")
    if program is None:
        missing("redis-server")
    options = {"bind": address, "port": port, "requirepass": password, "save": "", "dir": folder}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return Prepared([program, *words], {})


def _init_postgres(
    programs: Path, data: Path, user: pwd.struct_passwd | None, password: str = ""
) -> None:
    """Make a data folder; ``password``: the one of its user, if it shall have one."""
    init: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "modelless",
        "-N",
        "-E",
        "UTF8",
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "password"
        file.write_text(password)
        if user:
            for path in (folder, file):
                os.chown(path, user.pw_uid, user.pw_gid)
        init += ["-A", "scram-sha-256", "--pwfile", file] if password else ["-A", "trust"]
        subprocess.run(
            init,
            cwd=data.parent,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=START_S,
            **_as_user(user),
        )


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of an empty ``redis-server``."""
    given = os.environ.get("MODELLESS_TEST_REDIS_URL")
    if given:
        yield given
        return
    program = shutil.which("redis-server")
    if program is None:
        missing("redis-server")
    with short_folder("modelless-redis-") as folder:
        socket = f"{folder}/redis.sock"
        command = [program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        with _running(command, folder, None, lambda: _ping(socket)):
            yield f"unix://{socket}"


def _ping(socket: str) -> None:
    client = redis.Redis(unix_socket_path=socket)
    try:
        client.ping()
    finally:
        client.close()


def _postgres_programs() -> Path | None:
    """The newest PostgreSQL's folder of programs, as Debian lays them out, or the one on PATH."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
    if newest is None and (on_path := shutil.which("initdb")):
        newest = Path(on_path).resolve()
    return newest.parent if newest else None


def _unprivileged_user() -> pwd.struct_passwd | None:
    """The account to run PostgreSQL, which refuses root; None where we are another one already."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres", known["nobody"])


def _as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """What makes a child process run as a user."""
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


@contextmanager
def _running(
    command: Sequence[str | Path],
    folder: str,
    user: pwd.struct_passwd | None,
    probe: Callable[[], None],
) -> Iterator[None]:
    """A server that answers its probe; ended, and waited for, afterwards."""
    log = Path(folder) / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            **_as_user(user),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(probe, lambda: process.poll() is not None, lambda: log.read_text(errors="replace"))
        yield
    finally:
        process.send_signal(signal.SIGINT)  # PostgreSQL: end all sessions and stop; Redis: stop
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(probe: Callable[[], None], ended: Callable[[], bool], said: Callable[[], str]) -> None:
    """Return when a server answers its probe."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            return probe()
        except (psycopg.OperationalError, redis.RedisError, OSError) as error:
            if ended() or time.monotonic() > deadline_s:
                raise RuntimeError(f"the server did not start: {said()}") from error
        time.sleep(0.05)
