"""Alembic migrations of the SQL catalog, and the function that runs them."""

import os
import sqlite3
import time
from pathlib import Path
from threading import Lock

import alembic.command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from variants.catalog.database import (
    BUSY_TIMEOUT_S,
    failures_explained,
    make_engine,
    poller,
    shown,
    writer,
)
from variants.errors import Conflict, InvalidInput, StateUnavailable

_LOCK_KEY = 0x6D6F64656C6C6573
"""The advisory lock on PostgreSQL under which tables change."""

_migrating = Lock()
"""Alembic keeps its context in module globals: one migration at a time in a process."""


def upgrade(url: str, to: str = "head") -> None:
    """Create the catalog's tables, or bring those of an earlier version up to date.

    A SQLite file is created with its folder, readable by its owner only. Processes that start at
    the same time wait for each other.

    Args:
        to: the migration up to which; the newest one unless given.

    Raises:
        Conflict: the tables are of a newer version of the software. They were not touched.
        InvalidInput: the URL is of another kind of database, or there is no migration ``to``.
        StateUnavailable: the database cannot be reached or written.
    """
    engine = make_engine(url)
    try:
        if engine.dialect.name == "sqlite":
            _create_file(Path(str(engine.url.database)))
        with _migrating, failures_explained(engine.url):
            if engine.dialect.name == "sqlite":
                _use_write_ahead_log(engine)
                # A column may be added by copying its table: what refers to it stays meanwhile.
                event.listen(engine, "connect", _refer_to_nothing)
                engine.dispose()
            with writer(engine).begin() as connection:
                if engine.dialect.name == "postgresql":
                    lock = text("SELECT pg_advisory_xact_lock(:key)")
                    connection.execute(lock, {"key": _LOCK_KEY})
                _upgrade(connection, to)
    finally:
        engine.dispose()


def _refer_to_nothing(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.execute("PRAGMA foreign_keys=OFF")


def schema_versions(url: str) -> tuple[str | None, str]:
    """Which version the tables of a database are at (None: it has none), and the newest one.

    Changes nothing, and makes no SQLite file.

    Raises:
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database cannot be reached or read.
    """
    engine = make_engine(url)
    config = Config()
    config.set_main_option("script_location", "variants.catalog:migrations")
    newest = ScriptDirectory.from_config(config).get_current_head() or ""
    try:
        if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).exists():
            return None, newest
        with failures_explained(engine.url), engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision(), newest
    finally:
        engine.dispose()


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for a connection of ours."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "variants.catalog:migrations")
    return config


def _upgrade(connection: Connection, to: str) -> None:
    config = configuration(connection)
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    if to not in {"head", *known}:
        raise InvalidInput(
            f"tables at {to} are not known: this version of modelless makes them up to "
            f"{scripts.get_current_head()}"
        )
    present = MigrationContext.configure(connection).get_current_heads()
    if set(present) == set(scripts.get_heads()):
        return
    unknown = sorted(set(present) - known)
    if unknown:
        raise Conflict(
            f"the catalog at {shown(connection.engine.url)} was made by a newer "
            f"version of modelless (its tables are at {unknown[0]}, this version knows up to "
            f"{scripts.get_current_head()}); upgrade modelless or use another database"
        )
    alembic.command.upgrade(config, to)


def _create_file(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateUnavailable(
            f"the catalog cannot be kept in {path.parent}: {error.strerror}"
        ) from error
    try:
        # Opening and closing the file would drop the locks that SQLite holds on it elsewhere in
        # this process; making the node opens nothing.
        os.mknod(path, mode=0o600)
    except FileExistsError:
        if not path.is_file():
            raise StateUnavailable(f"the catalog cannot be kept at {path}: not a file") from None
    except OSError as error:
        raise StateUnavailable(
            f"the catalog cannot be created at {path}: {error.strerror}"
        ) from error


def _use_write_ahead_log(engine: Engine) -> None:
    """Switch the file to WAL, once and for all connections to come.

    SQLite does not wait here when another process is switching too, so this does.
    """
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with poller(engine).connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
        except DBAPIError as error:
            busy = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)
