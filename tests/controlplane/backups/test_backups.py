"""A backup that is restored is the same installation."""

import hashlib
import tarfile
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from sqlalchemy import MetaData, select, text

from controlplane.backups.reading import read_backup
from controlplane.backups.writing import write_backup
from tests.contracts.places import Place
from tests.controlplane.backups.saved import (
    Members,
    change_catalog,
    change_summary,
    filled,
    is_empty,
    read_members,
    restored,
    rewritten,
    saved,
    sqlite,
)
from tests.controlplane.fleet import register_echo
from tests.variants.catalog_builders import plan
from variants.artifacts.store import FileArtifactStore
from variants.catalog.database import make_engine
from variants.catalog.migrations import upgrade
from variants.catalog.sql import open_catalog
from variants.errors import Conflict, InvalidInput, StaleEpoch


def everything(url: str) -> list[object]:
    """What a catalog says, to all that can be asked."""
    with closing(open_catalog(url)) as catalog:
        return [
            catalog.snapshot(), catalog.marks(), catalog.inventory(), catalog.latest_plan(),
            catalog.ticks(100), catalog.events(100), catalog.peaks(), catalog.leader(),
            catalog.learned("forecast"),
        ]  # fmt: skip


def test_what_is_restored_is_the_same(
    here: Place, store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    """From SQLite or PostgreSQL into SQLite; artifacts with it."""
    filled(here.url, store, tmp_path)
    there = sqlite(tmp_path)

    summary = restored(saved(here.url, store, tmp_path), there, other, tmp_path)

    assert everything(there) == everything(here.url)
    assert sorted(other.digests()) == sorted(store.digests())
    assert (summary.tasks, summary.artifacts, summary.missing) == (1, 2, ())
    assert summary.release == "1.2.3"


def test_sqlite_is_restored_into_postgresql(
    postgres_url: str, store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    here = sqlite(tmp_path, "here")
    filled(here, store, tmp_path)

    restored(saved(here, store, tmp_path), postgres_url, other, tmp_path)

    assert everything(postgres_url) == everything(here)


def test_what_nobody_has_said_is_null_after_a_restore_too(
    here: Place, store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    """And no JSON that says so: queries of the catalog ask whether there is a value."""
    filled(here.url, store, tmp_path)
    restored(saved(here.url, store, tmp_path), sqlite(tmp_path), other, tmp_path)
    for url in (here.url, sqlite(tmp_path)):
        engine = make_engine(url)
        with engine.connect() as connection:
            said = connection.execute(
                text("SELECT count(image), count(bucket), count(text) FROM tasks")
            ).one()
            of_versions = connection.scalar(text("SELECT count(text) FROM versions"))
        engine.dispose()
        assert (tuple(said), of_versions) == ((0, 0, 0), 0), url


def test_numbers_go_on_growing(
    here: Place, store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    """Also those of the empty installation, some of whose processes may be there still."""
    filled(here.url, store, tmp_path)
    there = sqlite(tmp_path)
    with closing(open_catalog(there)) as catalog:
        for _ in range(7):
            epoch = catalog.acquire_leadership("there#1")

    restored(saved(here.url, store, tmp_path), there, other, tmp_path)

    with closing(open_catalog(there)) as catalog:
        with pytest.raises(StaleEpoch, match=f"epoch {epoch} led before a backup was restored"):
            catalog.put_plan(plan(epoch))
        assert catalog.acquire_leadership("there#2") == epoch + 1
        latest = catalog.latest_plan()
        assert latest is not None
        assert catalog.put_plan(plan(epoch + 1)).version == latest.version + 1


def test_a_backup_is_of_one_moment(
    here: Place, store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    """What is registered while artifacts are copied is not half in it."""
    filled(here.url, store, tmp_path)
    before = everything(here.url)

    def register(done: int, total: int) -> None:
        if done == 1:
            with closing(open_catalog(here.url)) as catalog:
                register_echo(catalog, store, tmp_path, "later")

    file = tmp_path / "backup.tar"
    write_backup(file, here.url, store, told=register)
    there = sqlite(tmp_path)
    restored(file, there, other, tmp_path)

    assert everything(there) == before
    assert everything(here.url) != before


def test_a_damaged_artifact_is_left_out_and_named(
    store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    here = sqlite(tmp_path, "here")
    filled(here, store, tmp_path)
    damaged, sound = sorted(store.digests())
    store.place(damaged).chmod(0o600)
    store.place(damaged).write_bytes(b"something else")

    file = tmp_path / "backup.tar"
    summary = write_backup(file, here, store)

    assert summary.missing == (damaged,)
    assert restored(file, sqlite(tmp_path), other, tmp_path).missing == (damaged,)
    assert list(other.digests()) == [sound]


def test_an_earlier_version_of_the_tables_is_brought_up_to_date(
    store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    here = sqlite(tmp_path, "here")
    filled(here, store, tmp_path)
    file = saved(here, store, tmp_path)
    older = "0007"
    upgrade(sqlite(tmp_path, "then"), older)
    engine = make_engine(sqlite(tmp_path, "then"))
    then = MetaData()
    then.reflect(engine)
    with engine.connect() as connection:
        counters = set(connection.scalars(select(then.tables["counters"].c.name)))
    engine.dispose()

    def as_then(members: Members) -> None:
        rows = [orjson.loads(line) for line in members["catalog.jsonl"].splitlines()]
        kept = [
            [table, {name: row[name] for name in row if name in then.tables[table].columns}]
            for table, row in rows
            if table in then.tables and (table != "counters" or row["name"] in counters)
        ]
        assert len(kept) > 10
        change_catalog(members, b"".join(orjson.dumps(row) + b"\n" for row in kept))
        change_summary(members, migration=older)

    restored(rewritten(file, as_then), sqlite(tmp_path), other, tmp_path)

    assert everything(sqlite(tmp_path)) == everything(here)


def test_keys_are_restored_where_there_are_none(
    store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    here, keys, there = sqlite(tmp_path, "here"), tmp_path / "keys", tmp_path / "new" / "keys"
    filled(here, store, tmp_path)
    keys.write_text(f"anna sha256:{64 * '0'} weight=2  # in May\n")
    file = tmp_path / "backup.tar"
    write_backup(file, here, store, keys=keys)

    read_backup(file, sqlite(tmp_path, "a"), other, keys=there, scratch=tmp_path)
    assert there.read_text() == keys.read_text()
    assert there.stat().st_mode & 0o777 == 0o600

    there.write_text("others\n")
    read_backup(file, sqlite(tmp_path, "b"), other, keys=there, scratch=tmp_path)
    assert there.read_text() == "others\n"


def test_no_key_is_in_a_backup(store: FileArtifactStore, tmp_path: Path) -> None:
    """The file of keys may hold keys themselves, also in lines that are wrong."""
    here, keys, file = sqlite(tmp_path, "here"), tmp_path / "keys", tmp_path / "backup.tar"
    filled(here, store, tmp_path)
    key = "sixteen-characters"
    keys.write_text(f"# ours\n{key}-shop {key}  weight=3 # in May\n{key}\n")

    write_backup(file, here, store, keys=keys)

    digest = hashlib.sha256(key.encode()).hexdigest()
    assert read_members(file)["client-keys"].decode() == (
        f"# ours\n{key}-shop sha256:{digest}  weight=3 # in May\n# a line that was wrong\n"
    )


def test_where_the_keys_cannot_be_written_nothing_is_restored(
    store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    """The catalog would be there without them, and nothing can be restored into it then."""
    here, keys = sqlite(tmp_path, "here"), tmp_path / "keys"
    filled(here, store, tmp_path)
    keys.write_text("anna sha256:00 weight=1\n")
    file = tmp_path / "backup.tar"
    write_backup(file, here, store, keys=keys)

    there = sqlite(tmp_path)
    with pytest.raises(InvalidInput, match="cannot be written"):
        read_backup(file, there, other, keys=file / "keys", scratch=tmp_path)

    assert is_empty(tmp_path)


def test_a_file_that_is_there_is_not_written_over(store: FileArtifactStore, tmp_path: Path) -> None:
    here = sqlite(tmp_path, "here")
    filled(here, store, tmp_path)
    file = tmp_path / "backup.tar"
    file.write_text("mine")

    with pytest.raises(Conflict, match="--replace"):
        saved(here, store, tmp_path)
    assert file.read_text() == "mine"
    saved(here, store, tmp_path, replace=True)
    assert tarfile.is_tarfile(file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_is_no_file(store: FileArtifactStore, tmp_path: Path) -> None:
    here = sqlite(tmp_path, "here")
    filled(here, store, tmp_path)
    (tmp_path / "backup.tar").mkdir()
    for replace_it in (False, True):
        with pytest.raises(InvalidInput, match="is a folder; name a file"):
            saved(here, store, tmp_path, replace=replace_it)


def test_nothing_is_left_of_a_backup_that_failed(store: FileArtifactStore, tmp_path: Path) -> None:
    here = sqlite(tmp_path, "here")
    filled(here, store, tmp_path)
    before = sorted(tmp_path.iterdir())

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_backup(tmp_path / "backup.tar", here, store, told=interrupt)

    assert sorted(tmp_path.iterdir()) == before


def test_what_is_registered_is_never_replaced(
    here: Place, store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    filled(here.url, store, tmp_path)
    before = everything(here.url)
    file = saved(here.url, store, tmp_path)

    with pytest.raises(Conflict, match="something is registered"):
        restored(file, here.url, other, tmp_path)

    assert everything(here.url) == before
    assert list(other.digests()) == []  # nothing was done for nothing


def test_a_restore_that_failed_can_be_done_again(
    store: FileArtifactStore, other: FileArtifactStore, tmp_path: Path
) -> None:
    here, there = sqlite(tmp_path, "here"), sqlite(tmp_path)
    filled(here, store, tmp_path)
    file = saved(here, store, tmp_path)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_backup(file, there, other, scratch=tmp_path, told=interrupt)
    restored(file, there, other, tmp_path)

    assert everything(there) == everything(here)


def test_an_empty_catalog_can_be_saved(store: FileArtifactStore, tmp_path: Path) -> None:
    here = sqlite(tmp_path, "here")
    upgrade(here)

    summary = write_backup(tmp_path / "backup.tar", here, store)

    assert (summary.tasks, summary.artifacts) == (0, 0)
    restored(tmp_path / "backup.tar", sqlite(tmp_path), store, tmp_path)
