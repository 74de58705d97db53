"""A state directory in which nothing can be written: what commands say of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controlplane.access import key_changes
from controlplane.backups.writing import write_backup
from controlplane.settings import load_settings
from controlplane.startup.checks import services
from tests.disks import without_rights
from variants.artifacts.store import FileArtifactStore
from variants.catalog.migrations import upgrade
from variants.catalog.sql import open_catalog
from variants.errors import InvalidInput, StateUnavailable


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A folder with a catalog, which can be read."""
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        folder = Path(name)
        upgrade(f"sqlite:///{folder / 'catalog.db'}")
        open_catalog(f"sqlite:///{folder / 'catalog.db'}").close()
        (folder / "catalog.db").chmod(0o644)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def test_a_backup_says_that_the_folder_cannot_be_written(unwritable: Path) -> None:
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as name:
        os.chmod(name, 0o777)
        store = FileArtifactStore(Path(name) / "artifacts")
        with pytest.raises(StateUnavailable) as refused, without_rights():
            write_backup(Path(name) / "b.tar", f"sqlite:///{unwritable / 'catalog.db'}", store)

        assert str(refused.value).endswith(
            f"is not available: its folder {unwritable} cannot be written, "
            "which SQLite needs even to read it"
        )
        assert not (Path(name) / "b.tar").exists()


def test_the_doctor_advises_to_make_it_writable(unwritable: Path) -> None:
    settings = load_settings(state_dir=unwritable)
    list(services.database(settings))  # imports what only root may read
    with without_rights():
        [found] = services.database(settings)

    assert (found.ok, f"its folder {unwritable} cannot be written" in found.message) == (
        False,
        True,
    )
    assert found.remedy == (
        "make the file readable and its folder writable, or correct MODELLESS_DATABASE_URL"
    )


def test_a_file_that_is_no_catalog_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, but long enough to be taken for one")

    with pytest.raises(StateUnavailable, match="file is not a database"):
        write_backup(
            tmp_path / "b.tar",
            f"sqlite:///{tmp_path / 'catalog.db'}",
            FileArtifactStore(tmp_path / "artifacts"),
        )


def test_keys_that_cannot_be_written_are_told_in_a_sentence(unwritable: Path) -> None:
    path = unwritable / "client-keys"
    with pytest.raises(InvalidInput, match=f"{path} cannot be written: "), without_rights():
        key_changes.add(path, "shop")
    with pytest.raises(InvalidInput, match=f"{path} cannot be written: "), without_rights():
        key_changes.remove(path, "shop")
