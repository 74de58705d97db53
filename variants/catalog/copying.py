"""Copying a whole catalog, row by row: out of a database that is in use, and into an empty one.

Rows come as plain values, so that a copy of SQLite can be read into PostgreSQL, and a copy of an
earlier version of the tables into this one: the tables are made as they were then, filled, and
brought up to date.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    LargeBinary,
    MetaData,
    Table,
    delete,
    func,
    insert,
    select,
    text,
)

from variants.catalog import tables
from variants.catalog.database import (
    failures_explained,
    is_newest,
    make_engine,
    shown,
    snapshot_reader,
    writer,
)
from variants.errors import Conflict, InvalidInput

AT_ONCE = 500
"""Rows that are inserted with one statement."""

Row = tuple[str, Mapping[str, Any]]
"""The name of a table, and the values of its columns; bytes are written in base64."""


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """All rows of a catalog, as they were at one moment."""

    migration: str
    """The name of the migration that has made the tables."""
    rows: Iterator[Row]
    """Tables that others refer to come first."""


@contextmanager
def all_rows(url: str) -> Iterator[CatalogRows]:
    """Read the rows of a catalog whose tables are up to date; others may write meanwhile.

    Raises:
        Conflict: its tables are not those of this version, or there are none. Nothing is changed.
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database cannot be read.
    """
    engine = make_engine(url)
    try:
        if not is_newest(url):
            raise Conflict(
                f"the catalog at {shown(engine.url)} has no tables as this version of "
                f"modelless makes them: {_other_tables(url)}"
            )
        with failures_explained(engine.url), snapshot_reader(engine).connect() as connection:
            migration = connection.scalar(text("SELECT version_num FROM alembic_version"))
            yield CatalogRows(str(migration), _rows(connection))
    finally:
        engine.dispose()


def _other_tables(url: str) -> str:
    """Which tables a catalog has that are not those of this version, and what to do about it.

    Raises:
        StateUnavailable: the database cannot be read.
    """
    from variants.catalog.migrations import schema_versions  # imports Alembic

    present, newest = schema_versions(url)
    if present is None:
        return "it has none, as nothing was ever started with it"
    if present > newest:  # their names begin with ascending numbers
        return f"they are at {present}, made by a newer one; upgrade modelless"
    return (
        f"they are at {present}, this one makes them at {newest}; use the version that it is used "
        "by, or start this one first"
    )


def _rows(connection: Connection) -> Iterator[Row]:
    for table in tables.metadata.sorted_tables:
        for row in connection.execute(select(table)).mappings():
            yield table.name, {str(column.name): _plain(row[column]) for column in table.columns}


def _plain(value: Any) -> Any:
    return b64encode(value).decode() if isinstance(value, bytes) else value


def check_empty(url: str) -> None:
    """Refuse a catalog that a copy could not be read into, before anything else is done for it.

    Raises:
        Conflict: something is registered in the catalog.
        InvalidInput: the URL is of another kind of database.
        StateUnavailable: the database cannot be reached.
    """
    from variants.catalog.migrations import schema_versions  # imports Alembic

    if schema_versions(url)[0] is None:
        return
    engine = make_engine(url)
    try:
        with failures_explained(engine.url), engine.connect() as connection:
            there = MetaData()
            there.reflect(connection, only=["tasks"])
            _refuse_tasks(engine, connection, there)
    finally:
        engine.dispose()


def _refuse_tasks(engine: Engine, connection: Connection, there: MetaData) -> None:
    if connection.scalar(select(func.count()).select_from(there.tables["tasks"])):
        raise Conflict(
            f"something is registered in the catalog at {shown(engine.url)}; "
            "a copy can only be read into an empty one"
        )


def fill(url: str, migration: str, rows: Iterable[Row]) -> None:
    """Make a catalog of what ``all_rows`` gave: all of it, or nothing.

    Args:
        migration: of the tables that the rows are from.
        rows: an error that is raised by it passes through, and nothing is stored then.

    Raises:
        Conflict: something is registered in the catalog.
        InvalidInput: the tables are of a newer version of the software, or a row fits none of them.
        StateUnavailable: the database cannot be reached or written.
    """
    from variants.catalog.migrations import schema_versions, upgrade  # imports Alembic

    if schema_versions(url)[0] is None:
        upgrade(url, migration)
    present = schema_versions(url)[0]
    engine = make_engine(url)
    try:
        with failures_explained(engine.url), writer(engine).begin() as connection:
            there = MetaData()
            there.reflect(connection)
            _have_null_be_null(there)
            _refuse_tasks(engine, connection, there)
            if present != migration:
                raise Conflict(
                    f"the catalog at {shown(engine.url)} has other tables ({present}) "
                    f"than the copy ({migration}); use a new database"
                )
            counted = _counted(connection, there.tables["counters"])
            for table in reversed(there.sorted_tables):
                if table.name != "alembic_version":
                    connection.execute(delete(table))
            _insert(connection, there, rows)
            _keep_growing(connection, there.tables["counters"], counted)
    finally:
        engine.dispose()
    upgrade(url)


def _have_null_be_null(there: MetaData) -> None:
    """Have columns of JSON store None as NULL, as those of ``tables`` do, and not as JSON's null:
    the database would take that for a value."""
    for table in there.tables.values():
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type.none_as_null = True


def _insert(connection: Connection, there: MetaData, rows: Iterable[Row]) -> None:
    waiting: list[dict[str, Any]] = []
    filling: Table | None = None

    def flush() -> None:
        if filling is not None and waiting:
            connection.execute(insert(filling), waiting)
            waiting.clear()

    for name, row in rows:
        table = there.tables.get(name)
        if table is None or name == "alembic_version":
            raise InvalidInput(f"the copy has rows of {name!r}, which is no table of a catalog")
        if filling is not table or len(waiting) >= AT_ONCE:
            flush()
            filling = table
        waiting.append(_values(table, row))
    flush()


def _values(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := row.keys() - {column.name for column in table.columns}:
        raise InvalidInput(f"the copy has a column {sorted(unknown)[0]!r} that {table.name} lacks")
    return {name: _stored(table.columns[name], value) for name, value in row.items()}


def _stored(column: Column[Any], value: Any) -> Any:
    if value is None or not isinstance(column.type, LargeBinary):
        return value
    try:
        return b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the copy's {column.table.name}.{column.name} is no base64") from error


def _keep_growing(connection: Connection, counters: Table, before: Mapping[str, int]) -> None:
    """Numbers of the former, empty catalog are given to nothing else: processes may know them."""
    after = _counted(connection, counters)
    for name, value in before.items():
        if name not in after:
            connection.execute(insert(counters), {"name": name, "value": value})
        elif after[name] < value:
            changed = counters.update().where(counters.c.name == name).values(value=value)
            connection.execute(changed)


def _counted(connection: Connection, counters: Table) -> dict[str, int]:
    try:
        return {row.name: int(row.value) for row in connection.execute(select(counters))}
    except (TypeError, ValueError) as error:
        raise InvalidInput("the copy has a counter that is no number") from error
