"""A backup that is restored is the same installation."""

import hashlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import MetaData, select

from controlplane.backups.archive import Summary
from controlplane.backups.reading import read_backup
from controlplane.backups.writing import write_backup
from tests.contracts.places import Place, place
from tests.controlplane.fleet import register_echo
from tests.variants.catalog_builders import event, plan, tick
from variants.artifacts.store import FileArtifactStore
from variants.catalog.database import make_engine
from variants.catalog.migrations import upgrade
from variants.catalog.sql import open_catalog
from variants.errors import Conflict, InvalidInput, ModellessError, StaleEpoch
from variants.types import DeviceKindName, Peak, TaskName

Members = dict[str, bytes]


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


def sqlite(folder: Path, name: str = "there") -> str:
    return f"sqlite:///{folder / f'{name}.db'}"


def filled(url: str, store: FileArtifactStore, folder: Path) -> None:
    """A catalog with something in nearly all of its tables."""
    with closing(open_catalog(url)) as catalog:
        for model in ("a", "b"):
            register_echo(catalog, store, folder, model)
        catalog.set_inventory(DeviceKindName("cpu-1"), 2)
        epoch = catalog.acquire_leadership("here#1")
        stored = catalog.put_plan(plan(epoch))
        catalog.add_tick(tick(stored.version, why=["demand", 1.5, None]))
        catalog.add_event(event('it has "quotes", é and\na second line'))
        catalog.put_learned("forecast", 12.5, bytes(range(256)), epoch=epoch)
        catalog.add_peak(Peak(task=TaskName("digits"), factor=2.0, start_s=1e9, end_s=1e9 + 60))


def everything(url: str) -> list[object]:
    """What a catalog says, to all that can be asked."""
    with closing(open_catalog(url)) as catalog:
        return [
            catalog.snapshot(), catalog.marks(), catalog.inventory(), catalog.latest_plan(),
            catalog.ticks(100), catalog.events(100), catalog.peaks(), catalog.leader(),
            catalog.learned("forecast"),
        ]  # fmt: skip


def saved(url: str, store: FileArtifactStore, folder: Path, *, replace: bool = False) -> Path:
    file = folder / "backup.tar"
    write_backup(file, url, store, release="1.2.3", replace=replace)
    return file


def restored(file: Path, url: str, store: FileArtifactStore, folder: Path) -> Summary:
    return read_backup(file, url, store, scratch=folder)


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


# -- files that are not what they should be -----------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A backup, made once."""
    folder = tmp_path_factory.mktemp("made")
    store = FileArtifactStore(folder / "artifacts")
    filled(sqlite(folder), store, folder)
    return saved(sqlite(folder), store, folder).read_bytes()


def is_empty(folder: Path) -> bool:
    """Whether nothing is registered where a backup was to be restored."""
    if not (folder / "there.db").exists():
        return True
    with closing(open_catalog(sqlite(folder))) as catalog:
        return catalog.snapshot().tasks == ()


def read_members(file: Path) -> Members:
    with tarfile.open(file) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]


def rewritten(file: Path, change: Callable[[Members], None]) -> Path:
    """The backup with changed members."""
    members = read_members(file)
    change(members)
    with tarfile.open(file, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file


def change_summary(members: Members, **changes: object) -> None:
    members["backup.json"] = orjson.dumps(orjson.loads(members["backup.json"]) | changes)


def change_catalog(members: Members, rows: bytes) -> None:
    """Other rows, of which the summary knows."""
    members["catalog.jsonl"] = rows
    change_summary(members, catalog_sha256=hashlib.sha256(rows).hexdigest())


def cut_artifact(members: Members) -> None:
    name = next(name for name in members if name.startswith("artifacts/"))
    members[name] = members[name] + b"more"


def change_row(members: Members, of: str, change: Callable[[dict[str, Any]], object]) -> None:
    """The last row of a table, changed; the summary knows."""
    rows = [orjson.loads(line) for line in members["catalog.jsonl"].splitlines()]
    change([row for table, row in rows if table == of][-1])
    change_catalog(members, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def drop_table(members: Members, of: str) -> None:
    rows = members["catalog.jsonl"].splitlines(keepends=True)
    change_catalog(members, b"".join(row for row in rows if orjson.loads(row)[0] != of))


def drop_artifact(members: Members) -> None:
    del members[next(name for name in members if name.startswith("artifacts/"))]


WRONG: dict[str, tuple[Callable[[Members], None], str]] = {
    "rows were changed": (
        lambda m: m.update({"catalog.jsonl": m["catalog.jsonl"].replace(b"digits", b"dogits")}),
        "is damaged",
    ),
    "an artifact was changed": (cut_artifact, "is damaged"),
    "an artifact lacks": (drop_artifact, "1 of 2 artifacts are not in it"),
    "the catalog lacks": (lambda m: m.__delitem__("catalog.jsonl"), "it holds no catalog"),
    "the summary lacks": (lambda m: m.__delitem__("backup.json"), "is no backup"),
    "the summary is something else": (lambda m: m.update({"backup.json": b"[]"}), "is no backup"),
    "a later form": (lambda m: change_summary(m, format=2), "has the format 2"),
    "later tables": (lambda m: change_summary(m, migration="9999_x"), "tables at 9999_x"),
    "a stranger's file": (lambda m: m.update({"../../etc/x": b""}), "belongs to no backup"),
    "a wrong name": (lambda m: m.update({"artifacts/../x": b""}), "is not a digest"),
    "an unknown table": (lambda m: change_catalog(m, b'["sqlite_master",{}]\n'), "no table"),
    "an unknown column": (lambda m: change_catalog(m, b'["events",{"x":1}]\n'), "a column 'x'"),
    "no rows at all": (lambda m: change_catalog(m, b"nonsense\n"), "is damaged"),
    "a number that none holds": (
        lambda m: change_row(m, "variants", lambda row: row.update(size_bytes=2**63)),
        "no catalog holds such a value",
    ),
    "a row that lacks a column": (
        lambda m: change_row(m, "profile_points", lambda row: row.pop("p50_ms")),
        "no catalog holds such a value",
    ),
    "text for a number": (
        lambda m: change_row(m, "profiles", lambda row: row.update(load_s="soon")),
        "no catalog holds such a value",
    ),
    "a counter of text": (
        lambda m: change_row(m, "counters", lambda row: row.update(value="many")),
        "a counter that is no number",
    ),
    "a precision that there is not": (
        lambda m: change_row(m, "variants", lambda row: row.update(precision="fp7")),
        "cannot be read: ValueError, 'fp7' is not a valid Precision",
    ),
    "an input without a name": (
        lambda m: change_row(m, "tasks", lambda row: row.update(inputs=[{}])),
        "cannot be read: KeyError, 'name'",
    ),
    "a plan without placements": (
        lambda m: change_row(m, "plans", lambda row: row.update(body={"x": 1})),
        "cannot be read: KeyError, 'placements'",
    ),
    "a tick at no time": (
        lambda m: change_row(m, "ticks", lambda row: row.update(at="whenever")),
        "cannot be read: ValueError",
    ),
    "no counters": (lambda m: drop_table(m, "counters"), "contradicts itself: .*UNIQUE"),
    "no versions": (lambda m: drop_table(m, "versions"), "contradicts itself: .*FOREIGN KEY"),
    "no latencies": (lambda m: drop_table(m, "profile_points"), "without a latency"),
    "tables without a name": (lambda m: change_summary(m, migration=[]), r"tables at \[\]"),
    "rows of another shape": (lambda m: change_catalog(m, b"[1,2,3]\n"), "is damaged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_and_restores_nothing(
    name: str, made: bytes, other: FileArtifactStore, tmp_path: Path
) -> None:
    change, said = WRONG[name]
    file = tmp_path / "backup.tar"
    file.write_bytes(made)

    with pytest.raises(InvalidInput, match=said):
        restored(rewritten(file, change), sqlite(tmp_path), other, tmp_path)

    assert is_empty(tmp_path)
    assert not list(tmp_path.glob("restore-*"))


@pytest.mark.parametrize("part", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_file_that_is_cut_off_restores_nothing(
    part: float, made: bytes, other: FileArtifactStore, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    # Tar pads its end with zeros, which may be missing.
    file.write_bytes(made[: int(part * len(made.rstrip(b"\0")))])

    with pytest.raises(ModellessError):
        restored(file, sqlite(tmp_path), other, tmp_path)

    assert is_empty(tmp_path)


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


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("", "it has none, as nothing was ever started with it"),
        (
            "0007",
            "they are at 0007, .* use the version that it is used by, or start this one first",
        ),
        ("9999", "they are at 9999, made by a newer one; upgrade modelless"),
    ],
)
def test_tables_of_another_version_are_left_alone(
    other: str, advice: str, store: FileArtifactStore, tmp_path: Path
) -> None:
    here = sqlite(tmp_path, "here")
    if other == "9999":
        upgrade(here)
        with closing(sqlite3.connect(tmp_path / "here.db")) as tables, tables:
            tables.execute("UPDATE alembic_version SET version_num = '9999'")
    elif other:
        upgrade(here, other)

    begin = "has no tables as this version of modelless makes them: "
    with pytest.raises(Conflict, match=begin + advice):
        saved(here, store, tmp_path)

    assert (tmp_path / "here.db").exists() is bool(other)
    assert not (tmp_path / "backup.tar").exists()
