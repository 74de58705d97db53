"""``modelless artifacts unused``: what it finds, and what it refuses to delete."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from controlplane.cluster.head import notes_of, store_of
from controlplane.settings import Settings, load_settings
from tests.controlplane.cli.shell import Shell
from tests.controlplane.fleet import register_echo
from tests.services import missing
from tests.variants.artifacts.s3_emulator import Bucket, s3_emulator
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog
from variants.types import Digest

TWO_DAYS_S = 2 * 86_400


def registered(folder: Path, name: str) -> Settings:
    """A state directory with one registered model, whose artifacts are where the settings say."""
    settings = load_settings(state_dir=folder)
    drafts = FileArtifactStore(folder / "drafts")
    with closing(open_catalog(settings.catalog_url)) as catalog:
        register_echo(catalog, drafts, folder, name)
        (variant,) = catalog.snapshot().variants
    store_of(settings).put(drafts.path(variant.artifact))
    return settings


def left_by_nobody(settings: Settings) -> Digest:
    path = settings.state_dir / "left"
    path.write_bytes(b"a registration that was killed had stored this")
    return store_of(settings).put(path)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    return registered(tmp_path, "a")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Of which the environment tells."""
    if find_spec("obstore") is None:
        missing("obstore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    with s3_emulator() as bucket:
        where = f"s3://models/kept?endpoint={bucket.endpoint}&region=here"
        monkeypatch.setenv("MODELLESS_ARTIFACTS_URL", where)
        yield bucket


def test_what_was_left_a_day_ago_is_listed_and_removed_when_told(
    shell: Shell, settings: Settings
) -> None:
    left = left_by_nobody(settings)
    place = FileArtifactStore(settings.artifacts_dir).place(left)
    young = shell("artifacts", "unused", "-o", "json").json()
    assert (young["stored"], young["named"], young["younger"], young["unused"]) == (2, 1, 1, [])
    assert (
        "1 not named yet and stored within 1d; none is unused" in shell("artifacts", "unused").out
    )

    os.utime(place, (time.time() - TWO_DAYS_S,) * 2)
    [row] = shell("artifacts", "unused", "-o", "json").json()["unused"]
    assert (row["artifact"], row["size_bytes"], row["removed"]) == (left, 46, False)
    assert place.exists()
    assert "nobody can be asked here" in shell("artifacts", "unused", "--remove").err
    assert place.exists()

    ended = shell("artifacts", "unused", "--remove", "--yes")
    assert ended.code == 0
    assert left in ended.out
    assert not place.exists()
    assert "1 artifact stored, 1 of them named; none is unused" in shell("artifacts", "unused").out


def test_where_another_catalog_has_stored_it_has_to_be_named(
    shell: Shell, settings: Settings, tmp_path: Path
) -> None:
    left = left_by_nobody(settings)
    os.utime(FileArtifactStore(settings.artifacts_dir).place(left), (1e9, 1e9))
    for url in (settings.database_url, "postgresql://db/theirs"):
        notes = notes_of(settings.model_copy(update={"database_url": url}))
        assert notes is not None
        with notes.noted([left]) as note:
            note.forget()
    ended = shell("artifacts", "unused", "--remove", "--yes")
    assert ended.code == 2
    assert "is not known, and something does: name the database of each" in ended.err
    none = shell(
        "artifacts", "unused", "--remove", "--yes", "--also-used-by", f"sqlite:///{tmp_path}/none"
    )
    assert "it does not answer, or holds no catalog" in none.err
    assert not (tmp_path / "none").exists()
    assert FileArtifactStore(settings.artifacts_dir).place(left).exists()


def test_in_a_bucket_that_two_catalogs_share_only_what_neither_names_is_removed(
    shell: Shell, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = registered(tmp_path / "a", "a"), registered(tmp_path / "b", "b")
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(ours.state_dir))
    left = left_by_nobody(ours)
    before = set(bucket.objects)
    asked = ("artifacts", "unused", "--remove", "--yes")

    assert "at s3://models/kept is not known: name the database" in shell(*asked).err
    both = shell(*asked, "--alone", "--also-used-by", theirs.catalog_url)
    assert "--alone says that there is no other catalog" in both.err
    assert set(bucket.objects) == before

    ended = shell(*asked, "--also-used-by", theirs.catalog_url, "-o", "json")
    assert [row["removed"] for row in ended.json()["unused"]] == [True]
    assert before - set(bucket.objects) == {f"/models/kept/{left}"}


def test_a_catalog_that_names_nothing_there_removes_nothing(
    shell: Shell, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings lead to the bucket of another installation."""
    registered(tmp_path / "a", "a")
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path / "empty"))
    ended = shell("artifacts", "unused", "--remove", "--yes", "--alone")
    assert ended.code == 2
    assert "so they are hardly its own. Nothing was removed" in ended.err
    assert bucket.objects
