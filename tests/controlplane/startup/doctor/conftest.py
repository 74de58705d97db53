"""An empty state directory."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.settings import Settings, load_settings


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """Short enough for sockets, which a test's own folder need not be."""
    with TemporaryDirectory(prefix="doctor-") as folder:
        yield Path(folder) / "state"


@pytest.fixture
def settings(state_dir: Path) -> Settings:
    return load_settings(state_dir=state_dir, redis_url="", database_url="")
