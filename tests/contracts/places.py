"""Where a catalog can be kept, for the suites that run over all places."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from variants.catalog import Catalog
from variants.sql import open_catalog


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
    """A new, empty place of a kind: ``memory``, ``sqlite`` or ``postgresql``."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{folder / 'state' / 'catalog.db'}"}.get(
        kind
    )
    made = Place(url or request.getfixturevalue("postgres_url"))
    yield made
    for handle in made.handles:
        handle.close()
