"""What only a catalog in a database can get wrong: failures, processes, files."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.event import listens_for, remove
from sqlalchemy.exc import IntegrityError

from tests.contracts.places import Place, place
from tests.services import drop_database, fresh_database
from tests.variants.catalog_builders import (
    event,
    kind,
    profile,
    registration,
    set_labels,
    variant,
)
from variants.catalog.database import failures_explained, make_engine, parse_url
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Marks
from variants.catalog.sql import SqlCatalog, open_catalog
from variants.errors import Conflict, InvalidInput, StateUnavailable
from variants.types import DeviceKindName

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, request, tmp_path) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "catalog.db"


def child(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def execute(url: str, statement: str) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


# -- what is asked in passing ---------------------------------------------------------------------


def test_the_marks_are_read_by_one_statement(somewhere: Place) -> None:
    """Each gateway reads them twice a second, and the control loop once."""
    said: list[str] = []

    @listens_for(Engine, "before_cursor_execute")
    def note(_: Connection, __: object, statement: str, *___: object) -> None:
        said.append(statement)

    try:
        catalog = somewhere.open()
        catalog.set_inventory(DeviceKindName("plan"), 2)  # named as a counter is
        catalog.set_inventory(DeviceKindName("cpu-1"), 0)
        said.clear()
        asked = {DeviceKindName("cpu-1"): 0, DeviceKindName("plan"): 2}
        assert catalog.marks() == Marks(revision=0, plan_version=0, inventory=asked)
        assert [one for one in said if one != "BEGIN"] == [one for one in said if "UNION" in one]
        assert len(said) <= 2
    finally:
        remove(Engine, "before_cursor_execute", note)


def test_without_a_counter_there_are_no_marks(path: Path) -> None:
    url = f"sqlite:///{path}"
    catalog = open_catalog(url)
    execute(url, "DELETE FROM counters WHERE name = 'plan'")
    with pytest.raises(StateUnavailable, match="counter 'plan'"):
        catalog.marks()


# -- atomicity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["versions", "variants", "profiles"])
def test_a_registration_that_the_database_stops_half_way_leaves_nothing(
    somewhere: Place, table: str
) -> None:
    catalog = somewhere.open()
    catalog.register(registration())
    before = catalog.snapshot()
    column = {"versions": "stage", "variants": "accuracy", "profiles": "load_s"}[table]
    execute(somewhere.url, f"CREATE UNIQUE INDEX injected ON {table} ({column})")
    second = registration(
        "cnn",
        variants=(variant("cnn"), variant("cnn", name="other")),
        profiles=(profile("cnn-v1-onnx-fp32", memory_mib=1.0),),
        device_kinds=(kind(), kind("cpu-2")),
    )
    with pytest.raises(Conflict):
        catalog.register(second)
    assert catalog.snapshot() == before
    execute(somewhere.url, "DROP INDEX injected")
    catalog.register(second)
    assert catalog.revision() == 2


def test_a_profile_of_nothing_cannot_be_stored_behind_the_catalog(somewhere: Place) -> None:
    somewhere.open()
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"):
        execute(
            somewhere.url,
            "INSERT INTO profiles (task, variant, device_kind, memory_mib, load_s, source,"
            " host, measured_at) VALUES"
            " ('digits', 'nobody', 'cpu-1', 1, 1, 'measured', '', '')",
        )


# -- processes ----------------------------------------------------------------------------------

WRITER = """
import sys
from tests.variants.catalog_builders import event, registration
from variants.catalog.sql import open_catalog
catalog = open_catalog(sys.argv[1])
for number in range(1, 11):
    catalog.register(registration(sys.argv[2], number))
    catalog.add_event(event(sys.argv[2]))
catalog.close()
"""


def test_processes_that_start_and_write_at_once_all_succeed(somewhere: Place) -> None:
    names = ("a", "b", "c")
    children = [child(WRITER, somewhere.url, name) for name in names]
    said = [process.communicate(timeout=300)[0] for process in children]
    assert (said, [process.returncode for process in children]) == ([""] * 3, [0] * 3)
    catalog = somewhere.open()
    assert catalog.revision() == 30
    assert len(catalog.snapshot().versions) == 30
    assert [e.seq for e in catalog.events(100)] == list(range(30, 0, -1))


def test_handles_that_open_a_new_place_at_once_all_succeed(somewhere: Place) -> None:
    with ThreadPoolExecutor(4) as threads:
        handles = list(threads.map(lambda _: somewhere.open(), range(4)))
    assert [handle.revision() for handle in handles] == [0] * 4


def test_a_writer_waits_for_another_one_and_a_reader_does_not(path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{path}")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE counters SET value = 41 WHERE name = 'event'")
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(catalog.add_event, event("waited"))
        assert catalog.snapshot().revision == 0
        assert catalog.events(1) == ()
        assert not writing.done()
        other.execute("COMMIT")
        writing.result(60)
    assert catalog.events(1) == (event("waited", seq=42),)
    other.close()
    catalog.close()


def test_a_writer_gives_up_when_its_patience_is_over_and_a_reader_goes_on(path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{path}", patience_s=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StateUnavailable, match="database is locked"):
        catalog.add_event(event("waited"))
    assert catalog.snapshot().revision == 0
    other.execute("ROLLBACK")
    catalog.add_event(event("stored"))
    assert [one.kind for one in catalog.events(10)] == [event("stored").kind]
    other.close()
    catalog.close()


def test_who_finds_all_connections_busy_is_told_when_its_patience_is_over(
    somewhere: Place,
) -> None:
    """SQLAlchemy's own patience is half a minute, in which a gateway is asked again and again."""
    catalog = open_catalog(somewhere.url, 0.5)
    somewhere.handles.append(catalog)
    assert isinstance(catalog, SqlCatalog)
    assert catalog._engine.pool.timeout() == 0.5  # type: ignore[attr-defined]
    with ExitStack() as busy:
        for _ in range(15):
            busy.enter_context(catalog._engine.connect())
        with pytest.raises(StateUnavailable, match="all connections are busy"):
            catalog.revision()
    assert catalog.revision() == 0


def test_a_process_that_only_reads_never_imports_alembic(path: Path) -> None:
    open_catalog(f"sqlite:///{path}").close()
    code = """
import sys
from variants.catalog.sql import SqlCatalog
print(SqlCatalog(sys.argv[1]).revision(), "alembic" in sys.modules)
"""
    assert child(code, f"sqlite:///{path}").communicate(timeout=300)[0] == "0 False\n"


# -- files --------------------------------------------------------------------------------------


def test_the_file_and_its_companions_are_private_and_in_wal_mode(path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{path}")
    catalog.register(registration())
    modes = {p.name: oct(stat.S_IMODE(p.stat().st_mode)) for p in path.parent.iterdir()}
    assert modes == {
        "catalog.db": "0o600",
        "catalog.db-wal": "0o600",
        "catalog.db-shm": "0o600",
        "catalog.db-next": "0o600",
        "catalog.db-turn": "0o600",
    }
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    catalog.close()
    # The last two are empty, and stay: a process may be about to lock one.
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "catalog.db", "catalog.db-next", "catalog.db-turn",
    ]  # fmt: skip


# -- failures -----------------------------------------------------------------------------------


def test_a_place_that_cannot_be_a_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "noise").write_bytes(b"this is no database, and long enough to see it" * 100)
    for name, reason in {
        "folder": "not a file",
        "noise": "file is not a database",
        "noise/catalog.db": "File exists",
        "noise/state/catalog.db": "Not a directory",
    }.items():
        with pytest.raises(StateUnavailable, match=reason):
            open_catalog(f"sqlite:///{tmp_path / name}")


def test_a_file_without_tables_is_said(path: Path) -> None:
    path.parent.mkdir()
    catalog = SqlCatalog(f"sqlite:///{path}")
    with pytest.raises(StateUnavailable, match="no such table"):
        catalog.revision()
    catalog.close()


def test_a_folder_that_is_gone_is_said(path: Path) -> None:
    catalog = SqlCatalog(f"sqlite:///{path}")
    for call in (catalog.revision, catalog.snapshot, catalog.latest_plan):
        with pytest.raises(StateUnavailable, match="unable to open database file"):
            call()
    catalog.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@/catalog?host={}",
        "postgresql:///catalog?host={}&user=me&password=secret&sslpassword=secret",
    ],
)
def test_a_server_that_is_not_there_is_said_without_the_password(url: str, tmp_path: Path) -> None:
    url = url.format(tmp_path)
    with pytest.raises(StateUnavailable) as caught:
        open_catalog(url)
    assert "is not available" in caught.value.message
    assert "secret" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_server_without_an_encoding_keeps_the_catalog(postgres_server_url: str) -> None:
    """As a PostgreSQL that was made where no locale is set, which knows bytes alone."""
    url = fresh_database(postgres_server_url, encoding="SQL_ASCII")
    try:
        catalog = open_catalog(url)
        catalog.register(registration())
        set_labels(catalog, "digits", ("größer", "b", "小"))
        assert catalog.snapshot().tasks[0].labels == ("größer", "b", "小")
        catalog.close()
    finally:
        drop_database(postgres_server_url, url)


def test_a_database_that_goes_away_is_said(postgres_url: str, postgres_server_url: str) -> None:
    catalog = open_catalog(postgres_url)
    catalog.register(registration())
    drop_database(postgres_server_url, postgres_url)
    with pytest.raises(StateUnavailable, match="does not exist"):
        catalog.revision()
    with pytest.raises(StateUnavailable):
        catalog.register(registration(number=2))
    catalog.close()


def test_connections_that_broke_are_replaced(postgres_url: str, postgres_server_url: str) -> None:
    catalog = open_catalog(postgres_url)
    catalog.register(registration())
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
            (parse_url(postgres_url).database,),
        ).fetchone()
    assert ended is not None
    assert ended[0] >= 1
    assert catalog.revision() == 1
    catalog.close()


# -- addresses ----------------------------------------------------------------------------------


def test_memory_is_a_catalog_of_its_own_each_time() -> None:
    first, second = open_catalog("memory://"), open_catalog("memory://")
    assert isinstance(first, MemoryCatalog)
    first.register(registration())
    assert second.revision() == 0


@pytest.mark.parametrize(
    "url",
    [
        "",
        "catalog.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://me:secret@host/db",
        "redis://x",
        "postgresql://me:secret@host:port/db",
        "postgresql//me:secret@host/db",
    ],
)
def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_catalog(url)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:////tmp/catalog.db", "sqlite+pysqlite"),
        ("postgres://host/db", "postgresql+psycopg"),
        ("postgresql://host/db", "postgresql+psycopg"),
        ("postgresql+psycopg://host/db", "postgresql+psycopg"),
    ],
)
def test_the_driver_is_ours_to_choose(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver


def test_a_postgresql_that_answers_nothing_is_given_up_and_reached_again(
    postgres_url: str,
) -> None:
    """Its connections are there and silent, as where its disk hangs: a statement never ended."""
    engine = make_engine(postgres_url, patience_s=0.1, answer_s=0.4)
    number = text("SELECT pg_backend_pid()")
    with engine.connect() as connection:
        server = int(connection.scalar(number) or 0)
        os.kill(server, signal.SIGSTOP)
        try:
            with (
                pytest.raises(StateUnavailable, match=r"not available: no answer within 0\.5 s"),
                failures_explained(engine.url),
            ):
                connection.scalar(number)
        finally:
            os.kill(server, signal.SIGCONT)

    with engine.connect() as connection:
        assert int(connection.scalar(number) or 0) != server
    engine.dispose()


def test_an_answer_of_postgresql_that_comes_in_pieces_may_take_long(postgres_url: str) -> None:
    engine = make_engine(postgres_url, patience_s=0.0, answer_s=0.5)
    with engine.connect() as connection:
        piece = "SELECT repeat('x', 200000), pg_sleep(0.04) FROM generate_series(1, 30)"
        assert len(connection.execute(text(piece)).all()) == 30
    engine.dispose()
