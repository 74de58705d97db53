"""Where a catalog can be kept, for the suites that run over all places."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Placeholder

from variants.catalog.protocol import Catalog
from variants.catalog.sql import open_catalog
from variants.catalog.tables import metadata

MEMORY_IN_EACH_RUN = pytest.mark.parametrize(
    "somewhere",
    [
        "memory",
        pytest.param("sqlite", marks=pytest.mark.campaign),
        pytest.param("postgresql", marks=[pytest.mark.campaign, pytest.mark.slow]),
    ],
    indirect=True,
)
"""A mark of tests whose code is the same in all places: the databases are for ``make campaign``."""


@dataclass(slots=True)
class Place:
    """Opens any number of handles on the same catalog."""

    url: str
    handles: list[Catalog] = field(default_factory=list)

    def open(self) -> Catalog:
        """Another handle; for a catalog in memory the only one there is."""
        if not self.in_database and self.handles:
            return self.handles[0]
        self.handles.append(open_catalog(self.url))
        return self.handles[-1]

    @property
    def in_database(self) -> bool:
        return self.url != "memory://"


class Emptied:
    """A PostgreSQL database that is as its migration has left it whenever a test begins."""

    def __init__(self, url: str) -> None:
        self._url = url
        with psycopg.connect(url) as connection:
            self._first = {name: _rows(connection, name) for name in _tables()}

    def url(self) -> str:
        """Where it is; empty, if nobody holds what is in it any more."""
        with psycopg.connect(self._url) as connection:
            for name in reversed(_tables()):
                connection.execute(SQL("DELETE FROM {}").format(Identifier(name)))
            for name, rows in self._first.items():
                for row in rows:
                    values = SQL(", ").join([Placeholder()] * len(row))
                    add = SQL("INSERT INTO {} VALUES ({})").format(Identifier(name), values)
                    connection.execute(add, row)
        return self._url


def _tables() -> list[str]:
    """Those of a catalog; each refers only to those before it."""
    return [table.name for table in metadata.sorted_tables]


def _rows(
    connection: "psycopg.Connection[tuple[object, ...]]", name: str
) -> list[tuple[object, ...]]:
    return connection.execute(SQL("SELECT * FROM {}").format(Identifier(name))).fetchall()


@contextmanager
def place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """A new, empty place of a kind: ``memory``, ``sqlite`` or ``postgresql``. It has no tables."""
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder / 'state' / 'catalog.db'}"}
    yield from _used(urls.get(kind) or request.getfixturevalue("postgres_url"))


@contextmanager
def migrated_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """A new place of a kind that has the tables already, which saves most of the time."""
    if kind == "memory":
        yield from _used("memory://")
    elif kind == "sqlite":
        file = shutil.copy(request.getfixturevalue("migrated_sqlite"), folder / "catalog.db")
        yield from _used(f"sqlite:///{file}")
    else:
        yield from _used(request.getfixturevalue("migrated_postgres").url())


def _used(url: str) -> Iterator[Place]:
    made = Place(url)
    yield made
    for handle in made.handles:
        handle.close()
