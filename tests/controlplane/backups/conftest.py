"""Stores and databases to save and to restore."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.places import Place, place
from tests.controlplane.backups.saved import filled, saved, sqlite
from variants.artifacts.store import FileArtifactStore


@pytest.fixture(params=["sqlite", "postgresql"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "here").mkdir()
    with place(request.param, request, tmp_path / "here") as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> FileArtifactStore:
    return FileArtifactStore(tmp_path / "artifacts")


@pytest.fixture
def other(tmp_path: Path) -> FileArtifactStore:
    return FileArtifactStore(tmp_path / "other-artifacts")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A backup, made once."""
    folder = tmp_path_factory.mktemp("made")
    store = FileArtifactStore(folder / "artifacts")
    filled(sqlite(folder), store, folder)
    return saved(sqlite(folder), store, folder).read_bytes()
