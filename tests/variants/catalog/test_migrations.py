"""The migrations make the tables that the catalog expects, from every state they can meet."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, inspect, select, text

from controlplane.cli.upgrading import migrated
from controlplane.settings import load_settings
from controlplane.startup.checks.services import database
from tests.contracts.places import place
from variants.catalog import migrations
from variants.catalog.database import NEWEST, SINCE, goes_on_beside, is_newest, make_engine, writer
from variants.catalog.migrations import configuration, schema_versions
from variants.catalog.sql import migrate, open_catalog
from variants.catalog.tables import counters, metadata
from variants.errors import Conflict, StateUnavailable
from variants.types import Plan

NUMBER = NEWEST.partition(SINCE)[0]
"""Of the newest migration, whatever it goes on beside."""
COUNTERS = {"revision", "inventory", "epoch", "plan", "tick", "event", "peak", "rule"}
pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with place(request.param, request, tmp_path) as made:
        migrate(made.url)
        yield made.url


def test_migrations_and_tables_agree(url: str) -> None:
    engine = make_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        assert set(connection.scalars(select(counters.c.name))) == COUNTERS
    engine.dispose()


def test_foreign_keys_agree(url: str) -> None:
    """The comparison above does not look at what happens when a referred row is deleted."""
    engine = make_engine(url)
    found = {
        (
            name,
            tuple(key["constrained_columns"]),
            key["referred_table"],
            key["options"].get("ondelete"),
        )
        for name in metadata.tables
        for key in inspect(engine).get_foreign_keys(name)
    }
    engine.dispose()
    assert found == {
        (name, tuple(key.column_keys), key.referred_table.name, key.ondelete)
        for name, table in metadata.tables.items()
        for key in table.foreign_key_constraints
    }


def test_migrating_again_changes_nothing(url: str) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(counters.update().values(value=7))
    migrate(url)
    with engine.connect() as connection:
        assert set(connection.scalars(select(counters.c.value))) == {7}
    engine.dispose()


def test_a_database_of_an_earlier_version_is_migrated_when_it_is_opened(url: str) -> None:
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        alembic.command.downgrade(configuration(connection), "0005")
    engine.dispose()

    catalog = open_catalog(url)

    assert catalog.quarantine_lifts() == ()
    catalog.close()


OLDER = [f"{n:04}" for n in range(1, int(NUMBER))]


@pytest.mark.parametrize(
    "version",
    [
        version
        if version in (OLDER[0], OLDER[-1])
        else pytest.param(version, marks=pytest.mark.campaign)
        for version in OLDER
    ],
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_is_lost_where_a_database_of_an_earlier_version_is_opened(
    kind: str, version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with place(kind, request, tmp_path) as made:
        if kind == "sqlite":
            migrate(made.url)  # the file, and then no table in it
        engine = make_engine(made.url)
        with writer(engine).begin() as connection:
            if kind == "sqlite":
                alembic.command.downgrade(configuration(connection), "base")
            alembic.command.upgrade(configuration(connection), version)
        before = filled(engine)
        assert {"tasks", "variants", "profiles", "profile_points", "plans"} <= before.keys()

        migrate(made.url)

        assert is_newest(made.url)
        now = rows_of(engine, before)
        engine.dispose()
    for name, rows in before.items():
        both = zip(rows, now[name], strict=True)
        assert [{column: row[column] for column in one} for one, row in both] == rows, name


def rows_of(engine: Engine, names: Iterable[str]) -> dict[str, list[dict[str, object]]]:
    with engine.connect() as connection:
        return {
            name: [
                dict(row) for row in connection.execute(text(f"SELECT * FROM {name}")).mappings()
            ]
            for name in names
        }


FILLING: dict[type, object] = {str: "1", bool: True, float: 1.0, bytes: b"1", dict: {}}


def filled(engine: Engine) -> dict[str, list[dict[str, object]]]:
    """A row in each table that has none, with the same in all columns, so that each refers to
    another; all rows, by table."""
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        for table in tables.sorted_tables:
            if table.name == "alembic_version" or connection.execute(select(table)).first():
                continue
            values = {
                column.name: FILLING.get(column.type.python_type, 1) for column in table.columns
            }
            connection.execute(table.insert().values(values))
    kept = ("alembic_version", "counters")
    return rows_of(engine, [t.name for t in tables.sorted_tables if t.name not in kept])


def test_the_newest_tables_are_known_without_alembic(url: str) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        assert ScriptDirectory.from_config(configuration(connection)).get_heads() == [NEWEST]
        assert is_newest(url)
        connection.execute(text("DELETE FROM alembic_version"))
    assert not is_newest(url)
    engine.dispose()


def test_tables_that_are_not_there_are_not_the_newest(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_text("no database, but something else " * 100)
    for name in ("empty", "other", "missing"):
        assert not is_newest(f"sqlite:///{tmp_path / name}")
    assert not (tmp_path / "missing").exists()


def test_a_newer_database_is_refused_and_not_touched(url: str) -> None:
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Conflict, match=r"newer version of modelless \(its tables are at 9999"):
        migrate(url)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
    engine.dispose()


def test_a_migration_that_fails_leaves_no_table(url: str) -> None:
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        alembic.command.downgrade(configuration(connection), "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE plans (mine INTEGER)"))
    with pytest.raises(StateUnavailable, match="plans"):
        migrate(url)
    assert sorted(inspect(engine).get_table_names()) == ["alembic_version", "plans"]
    engine.dispose()


def later(by: int, since: int | None = None) -> str:
    """The name of a migration after the newest, and of the one that it goes on beside."""
    number = f"{int(NUMBER) + by:04}"
    return number if since is None else f"{number}{SINCE}{int(NUMBER) + since:04}"


ADDED = {
    later(1, since=0): True,
    later(4, since=-1): True,
    later(1, since=1): False,
    later(1): False,
    later(4, since=2): False,
}


ADDING = """
import sqlalchemy as sa
from alembic import op

revision = "0099_since_NUMBER"
down_revision = "NEWEST"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table("more", sa.Column("name", sa.Text()))
"""


def test_a_migration_that_only_adds_can_be_written_and_run(url: str, tmp_path: Path) -> None:
    """With the name that says so, as a script that Alembic loads."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    (folder / "versions" / "0099_more.py").write_text(
        ADDING.replace("NEWEST", NEWEST).replace("NUMBER", NUMBER)
    )
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        config = configuration(connection)
        config.set_main_option("script_location", str(folder))
        alembic.command.upgrade(config, "head")
    assert "more" in inspect(engine).get_table_names()
    engine.dispose()
    assert schema_versions(url) == (f"0099_since_{NUMBER}", NEWEST)
    assert is_newest(url)
    open_catalog(url).close()
    settings = load_settings(state_dir=tmp_path, database_url=url)
    assert "go on beside them" in migrated(settings)
    [said] = database(settings)
    assert said.remedy == ""


@pytest.mark.parametrize("newer", ADDED)
def test_beside_tables_that_were_only_added_to_a_process_goes_on(newer: str, url: str) -> None:
    """It reads and writes; other newer tables are refused, as they may mean something else."""
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        connection.execute(text("ALTER TABLE tasks ADD COLUMN colour VARCHAR"))
        connection.execute(text("CREATE TABLE more (name VARCHAR)"))
        connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": newer})
    engine.dispose()
    if ADDED[newer]:
        with closing(open_catalog(url)) as catalog:
            epoch = catalog.acquire_leadership("here there it")
            plan = catalog.put_plan(Plan(version=0, epoch=epoch, placements=(), workers={}))
            assert catalog.latest_plan() == plan
    else:
        with pytest.raises(Conflict, match="newer version"):
            open_catalog(url)


def test_an_upgrade_beside_what_runs_needs_a_migration_that_says_so() -> None:
    assert goes_on_beside("0007", "0009_since_0007")
    assert goes_on_beside("0008_since_0007", "0009_since_0007")
    assert not goes_on_beside("0006", "0009_since_0007")
    assert not goes_on_beside("0006", "0007")
