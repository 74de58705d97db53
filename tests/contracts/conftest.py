"""A new catalog of each kind: in memory, on SQLite, on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.places import Place, migrated_place
from variants.catalog.protocol import Catalog


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with migrated_place(request.param, request, tmp_path) as made:
        yield made


@pytest.fixture
def catalog(somewhere: Place) -> Catalog:
    return somewhere.open()
