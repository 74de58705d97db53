"""Reaching the database of the SQL catalog: URLs, engines, transactions, failures."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from variants.errors import Conflict, InvalidInput, StateUnavailable

if TYPE_CHECKING:
    import psycopg

NEWEST = "0019_since_0007"
"""The migration that makes the tables as ``variants.catalog.tables`` has them."""

SINCE = "_since_"
"""In the name of a migration, before the oldest one whose users go on beside it. Alembic allows no
hyphen there."""

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for other writers before it gives up."""
SERVING_TIMEOUT_S = 2.0
"""The same in processes that have other things to do meanwhile, and try again: a control loop that
waits tells no gateway of a new worker."""

CONNECT_TIMEOUT_S = 5

SILENCE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""In libpq's options: a PostgreSQL that was cut off counts as gone after about ten seconds."""


DISK_FULL = "53100"
"""PostgreSQL's code of an error for want of space."""
FILLS_ROOM = "INSERT INTO modelless_room SELECT generate_series(1, 8000)"

ANSWER_S = 10.0
"""How long an answer of PostgreSQL may take beside waiting for other writers."""


def parse_url(url: str) -> URL:
    """The URL with its driver named.

    Raises:
        InvalidInput: it is no URL, or not one of SQLite (with a file) or PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # a port that is no number
        # Not shown: it may hold a password, and where is unknown.
        raise InvalidInput(
            "the catalog's address is not a database URL, such as postgresql://HOST/NAME"
        ) from error
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidInput(
        f"the catalog cannot be kept at {shown(parsed)}; "
        "use sqlite:///FILE, postgresql://HOST/NAME or memory://"
    )


def kind_of(url: str) -> str:
    """What people call the database of a catalog."""
    return "SQLite" if url.startswith("sqlite") else "PostgreSQL"


def shown(url: URL) -> str:
    """The URL without secrets: libpq takes a password among the options behind the ``?``, too."""
    hidden = {name: "***" for name in url.query if "password" in name.lower()}
    return url.update_query_dict(hidden).render_as_string()


def make_engine(url: str, patience_s: float = BUSY_TIMEOUT_S, answer_s: float = ANSWER_S) -> Engine:
    """An engine that connects when it is first used.

    Args:
        patience_s: how long a writer waits for other writers, and anybody for a connection where
            all are busy.
        answer_s: how long PostgreSQL may be silent beside that, until the connection is given up.

    Raises:
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database's driver is not installed.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(
            parsed, pool_timeout=patience_s, connect_args={"timeout": patience_s}
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        engine = create_engine(
            parsed,
            pool_pre_ping=True,
            pool_timeout=patience_s,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "client_encoding": "utf8",
                **SILENCE,
            },
        )
    except ModuleNotFoundError as error:
        raise StateUnavailable(
            "a catalog on PostgreSQL needs psycopg: pip install 'modelless[postgres]'"
        ) from error
    event.listen(engine, "do_connect", partial(_connect_postgresql, patience_s + answer_s))
    event.listen(engine, "connect", partial(_set_up_postgresql, patience_s))
    return engine


def goes_on_beside(older: str, newer: str) -> bool:
    """Whether processes that know the tables of a migration go on beside those of a newer one.

    They do where all since only add, and no write has to know of it. The name of a migration says
    so: of ``0009_since_0007``, those that know 0007 or 0008 may use the tables.
    """
    number, since, oldest = newer.partition(SINCE)
    known = older.partition(SINCE)[0]
    return bool(since) and oldest <= known <= number


def is_newest(url: str) -> bool:
    """Whether a catalog's tables are there and as this version makes them, or only added to since.

    False also when that cannot be read; changes nothing, and makes no SQLite file.

    Raises:
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database's driver is not installed.
    """
    engine = make_engine(url)
    if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).is_file():
        return False
    try:
        with poller(engine).connect() as connection:
            found = connection.scalars(text("SELECT version_num FROM alembic_version")).all()
    except DBAPIError:
        return False
    finally:
        engine.dispose()
    return list(found) == [NEWEST] or (len(found) == 1 and goes_on_beside(NEWEST, str(found[0])))


def is_read_only(url: str) -> bool:
    """Whether a PostgreSQL that answers takes no writes, as a standby; False also when that cannot
    be read, and of SQLite.

    Raises:
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database's driver is not installed.
    """
    engine = make_engine(url)
    if engine.dialect.name == "sqlite":
        return False
    try:
        with poller(engine).connect() as connection:
            return bool(connection.scalar(text("SHOW transaction_read_only")) == "on")
    except DBAPIError:
        return False
    finally:
        engine.dispose()


def why_full(url: str) -> str:
    """What a PostgreSQL says that can be read and has no space left for what is written; empty
    where it has, where that cannot be tried, and of SQLite.

    A temporary table of a quarter of a MiB is written and taken back.

    Raises:
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database's driver is not installed.
    """
    engine = make_engine(url)
    if engine.dialect.name == "sqlite":
        return ""
    try:
        with engine.connect() as connection:  # in one transaction, which drops it
            connection.execute(text("CREATE TEMP TABLE modelless_room (number int) ON COMMIT DROP"))
            connection.execute(text(FILLS_ROOM))
            connection.rollback()
    except DBAPIError as error:
        full = getattr(error.orig, "sqlstate", "") == DISK_FULL
        return str(error.orig).splitlines()[0] if full else ""
    finally:
        engine.dispose()
    return ""


def why_locked(url: str, patience_s: float = BUSY_TIMEOUT_S) -> str:
    """What a SQLite says that another program keeps for itself; empty where it does not, and of
    PostgreSQL, whose writers wait for each other.

    Args:
        patience_s: how long it is waited for.

    Raises:
        InvalidInput: the URL is of another kind of database.
    """
    engine = make_engine(url, patience_s)
    if engine.dialect.name != "sqlite" or not Path(str(engine.url.database)).exists():
        return ""
    try:
        with writer(engine).connect() as connection:
            connection.execute(text("SELECT 1"))
            connection.rollback()
    except DBAPIError as error:
        said = str(error.orig)
        return said if "locked" in said else ""
    finally:
        engine.dispose()
    return ""


def writer(engine: Engine) -> Engine:
    """The same engine for transactions that write: on SQLite they queue up when they begin.

    A transaction that reads first and writes later cannot wait for another writer: SQLite
    refuses it at once, because what it has read may be stale by then.
    """
    return engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")


def snapshot_reader(engine: Engine) -> Engine:
    """The same engine for transactions that read one state of the whole database."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def poller(engine: Engine) -> Engine:
    """The same engine for single statements, without the round trips of a transaction."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(sqlite_begin="")
    return engine.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def failures_explained(url: URL) -> Iterator[None]:
    """Turn a database's failures into the error tree.

    Raises:
        Conflict: a constraint was violated.
        InvalidInput: no row can hold a value that was written or looked for.
        StateUnavailable: the database cannot be reached, is full, locked, or no database.
    """
    try:
        yield
    except IntegrityError as error:
        raise Conflict(f"the catalog refused a contradiction: {_first_line(error.orig)}") from error
    except DataError as error:
        raise InvalidInput(f"no catalog holds such a value: {_first_line(error.orig)}") from error
    except DBAPIError as error:
        why = _unwritable_folder(url) or _first_line(error.orig)
        raise StateUnavailable(f"the catalog at {shown(url)} is not available: {why}") from error
    except (StatementError, OverflowError) as error:  # SQLAlchemy and sqlite3, before they ask
        cause = error.orig if isinstance(error, StatementError) else error
        raise InvalidInput(f"no catalog holds such a value: {_first_line(cause)}") from error
    except PoolTimeout as error:
        raise StateUnavailable(
            f"the catalog at {shown(url)} is not available: all connections are busy"
        ) from error


def _unwritable_folder(url: URL) -> str:
    """That a SQLite file stands where nothing can be written: SQLite says only that it cannot be
    opened. Empty where that is not so."""
    if url.get_backend_name() != "sqlite":
        return ""
    folder = Path(str(url.database)).absolute().parent
    if not folder.is_dir() or os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return ""
    return f"its folder {folder} cannot be written, which SQLite needs even to read it"


def _set_up_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where we say, not where sqlite3 guesses
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")  # an epoch given out survives a power cut


def _connect_postgresql(
    longest_s: float, _dialect: Any, _entry: Any, arguments: Any, options: Any
) -> "psycopg.Connection[Any]":
    from variants.catalog.postgresql.bounded_connection import BoundedConnection

    connection = BoundedConnection.connect(*arguments, **options)
    connection.longest_s = longest_s
    return connection


def _set_up_postgresql(
    patience_s: float,
    connection: "psycopg.Connection[tuple[object, ...]]",
    _entry: ConnectionPoolEntry,
) -> None:
    connection.execute(f"SET lock_timeout = {round(1_000 * patience_s)}")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    statement = connection.get_execution_options().get("sqlite_begin", "BEGIN")
    if statement:
        connection.exec_driver_sql(statement)


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
