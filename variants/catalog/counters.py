"""Counters of the SQL catalog: numbers that only grow.

Writers of one kind queue up behind the row of their counter.
"""

from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from variants.catalog import tables
from variants.errors import StateUnavailable


def value_of(connection: Connection, name: str) -> int:
    """The number that a counter is at.

    Raises:
        StateUnavailable: the table has lost the counter.
    """
    return values_of(connection, name)[name]


def values_of(connection: Connection, *names: str) -> dict[str, int]:
    """The numbers that several counters are at, read at once.

    Raises:
        StateUnavailable: the table has lost one of them.
    """
    name, value = tables.counters.c.name, tables.counters.c.value
    rows = connection.execute(select(name, value).where(name.in_(names)))
    found = {row.name: int(row.value) for row in rows}
    for lost in names:
        if lost not in found:
            raise StateUnavailable(f"the catalog has lost its counter {lost!r}")
    return found


def advance(connection: Connection, name: str) -> int:
    """The next number of a counter; other transactions wait for theirs until this one is over."""
    return int(
        connection.execute(
            update(tables.counters)
            .where(tables.counters.c.name == name)
            .values(value=tables.counters.c.value + 1)
            .returning(tables.counters.c.value)
        ).scalar_one()
    )


def lock(connection: Connection, name: str) -> None:
    """Queue up behind a counter without advancing it."""
    same = tables.counters.c.name == name
    connection.execute(update(tables.counters).where(same).values(value=tables.counters.c.value))


def append(
    connection: Connection, table: Table, counter: str, row: dict[str, Any], *, keep: int
) -> None:
    """Insert a row under the next number of a counter; only the newest ``keep`` rows stay."""
    seq = advance(connection, counter)
    connection.execute(insert(table), row | {"seq": seq})
    connection.execute(delete(table).where(table.c.seq <= seq - keep))
