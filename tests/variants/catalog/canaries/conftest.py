"""A catalog with a canary, wherever it is kept."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.places import migrated_place
from tests.variants.catalog_builders import registration, version
from variants.catalog.protocol import Catalog
from variants.types import Stage


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """``mlp-v1`` is live, ``mlp-v2`` a canary, at revision 2."""
    with migrated_place(request.param, request, tmp_path) as made:
        opened = made.open()
        opened.register(registration())
        opened.register(
            replace(registration(number=2), version=version(number=2, stage=Stage.CANARY))
        )
        yield opened
