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
    return complete({row.name: int(row.value) for row in rows}, *names)


def complete(found: dict[str, int], *names: str) -> dict[str, int]:
    """The counters that were found, if these are among them.

    Raises:
        StateUnavailable: the table has lost one of them.
    """
    for lost in names:
        if lost not in found:
            raise StateUnavailable(f"the catalog has lost its counter {lost!r}")
    return found


def advance(connection: Connection, name: str, by: int = 1) -> int:
    """The next number of a counter; other transactions wait for theirs until this one is over.

    Args:
        by: how many numbers are taken; the last one is returned.
    """
    return int(
        connection.execute(
            update(tables.counters)
            .where(tables.counters.c.name == name)
            .values(value=tables.counters.c.value + by)
            .returning(tables.counters.c.value)
        ).scalar_one()
    )


def lock(connection: Connection, name: str) -> None:
    """Queue up behind a counter without advancing it."""
    same = tables.counters.c.name == name
    connection.execute(update(tables.counters).where(same).values(value=tables.counters.c.value))


def append(
    connection: Connection, table: Table, counter: str, rows: list[dict[str, Any]], *, keep: int
) -> int:
    """Insert rows under the next numbers of a counter; only the newest ``keep`` rows stay. The
    number of the last one is returned."""
    newest = advance(connection, counter, len(rows))
    first = newest - len(rows) + 1
    numbered = [row | {"seq": seq} for seq, row in enumerate(rows, start=first)]
    connection.execute(insert(table), numbered)
    connection.execute(delete(table).where(table.c.seq <= newest - keep))
    return newest
