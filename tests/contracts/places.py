"""Where a catalog can be kept, for the suites that run over all places."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.services import drop_database, fresh_database
from variants.catalog.protocol import Catalog
from variants.catalog.sql import open_catalog

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
        server = request.getfixturevalue("postgres_server_url")
        url = fresh_database(server, like=request.getfixturevalue("migrated_postgres_url"))
        yield from _used(url)
        drop_database(server, url)


def _used(url: str) -> Iterator[Place]:
    made = Place(url)
    yield made
    for handle in made.handles:
        handle.close()
