"""What tests of registration share."""

from pathlib import Path

import pytest

from tests.controlplane.registry.house import House
from tests.profiler.forked import children_are_forked
from variants.types import Slo


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    """With a model registered, not to be changed."""
    made = House(tmp_path_factory.mktemp("first"))
    with children_are_forked():
        made.register(labels=("a", "b", "c"), slo=Slo(latency_ms=50.0))
    return made


@pytest.fixture
def known(first: House, tmp_path: Path) -> House:
    """With that model in it."""
    return House.like(first, tmp_path)
