"""A snapshot that goes on from an earlier one is the same as one that is read anew, whatever was
done in between and by whom."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, Executable, delete, select, update

from tests.contracts.catalog.test_catalogs_agree import Step, steps
from tests.contracts.places import Emptied, migrated_place
from tests.variants.catalog_builders import points, profile, registration, variant
from variants.catalog import tables
from variants.catalog.changes import CHANGES_KEPT, advance_revision
from variants.catalog.database import make_engine, writer
from variants.catalog.protocol import Catalog
from variants.catalog.sql import open_catalog
from variants.errors import ModellessError
from variants.types import CatalogSnapshot, ModelName, Stage, TaskName

Elsewhere = Callable[[Engine], None]
"""What another process does to the tables."""
History = list[tuple[Step | Elsewhere, bool]]
"""What is done, and whether it is looked at then."""


def read_anew(url: str) -> CatalogSnapshot:
    catalog = open_catalog(url)
    try:
        return catalog.snapshot()
    finally:
        catalog.close()


def unnoted_retirement(engine: Engine) -> None:
    """As a process of an earlier release retires all versions: it knows no notes."""
    counter = tables.counters.c
    with writer(engine).begin() as connection:
        advanced = update(tables.counters).where(counter.name == "revision")
        connection.execute(advanced.values(value=counter.value + 1))
        connection.execute(update(tables.versions).values(stage=Stage.RETIRED))


def forgotten_notes(engine: Engine) -> None:
    """As after so many revisions that those of before are noted no more."""
    with writer(engine).begin() as connection:
        connection.execute(delete(tables.changes))


ELSEWHERE: list[Step | Elsewhere] = [unnoted_retirement, forgotten_notes]
histories = st.lists(
    st.tuples(st.one_of(steps, steps, steps, st.sampled_from(ELSEWHERE)), st.booleans()),
    min_size=5,
    max_size=30,
)


def follow(url: str, history: History) -> None:
    engine = make_engine(url)
    by, reader = open_catalog(url), open_catalog(url)
    try:
        for step, looked in history:
            with suppress(ModellessError):
                step(engine if step in ELSEWHERE else by)  # type: ignore[arg-type]
            if looked:
                assert reader.snapshot() == read_anew(url)
        assert reader.snapshot() == read_anew(url)
    finally:
        by.close()
        reader.close()
        engine.dispose()


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(histories)
def test_on_sqlite(migrated_sqlite: Path, history: History) -> None:
    with TemporaryDirectory() as folder:
        file = shutil.copy(migrated_sqlite, Path(folder) / "catalog.db")
        follow(f"sqlite:///{file}", history)


@pytest.mark.slow
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(histories)
def test_on_postgresql(migrated_postgres: Emptied, history: History) -> None:
    follow(migrated_postgres.url(), history)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with migrated_place(request.param, request, tmp_path) as made:
        yield made.url


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    """With two tasks; digits has two variants."""
    made = open_catalog(url)
    both = variant(), variant(name="mlp-v1-onnx-int8")
    made.register(registration(variants=both))
    made.register(registration(of="letters"))
    yield made
    made.close()


def execute(url: str, statement: Executable) -> None:
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        connection.execute(statement)
    engine.dispose()


LETTERS_UNSEEN = update(tables.variants).where(tables.variants.c.task == "letters")
"""Of which no note tells, so that only who reads everything finds out."""


def test_what_is_not_changed_is_the_same_object(catalog: Catalog) -> None:
    before = catalog.snapshot()

    catalog.put_profiles((profile(points=points((1, 7.0))),))

    after = catalog.snapshot()
    assert after.profiles[0].points[0].p50_ms == 7.0
    assert list(map(id, after.variants)) == list(map(id, before.variants))
    assert list(map(id, after.versions)) == list(map(id, before.versions))
    assert list(map(id, after.tasks)) == list(map(id, before.tasks))
    assert after.profiles[1] is before.profiles[1]
    assert catalog.snapshot() is after


def test_only_tasks_that_have_changed_are_read_again(catalog: Catalog, url: str) -> None:
    before = catalog.snapshot()
    execute(url, LETTERS_UNSEEN.values(accuracy=0.1))

    catalog.set_stage([TaskName("digits")], ModelName("mlp"), 1, Stage.RETIRED)

    after = catalog.snapshot()
    assert [version.stage for version in after.versions] == [Stage.RETIRED, Stage.LIVE]
    assert after.variants == before.variants
    assert read_anew(url).variants[-1].accuracy == 0.1


def test_all_is_read_where_the_database_has_another_history(catalog: Catalog, url: str) -> None:
    catalog.snapshot()
    execute(url, LETTERS_UNSEEN.values(accuracy=0.1))
    revision = catalog.revision()
    execute(
        url,
        update(tables.changes).where(tables.changes.c.revision == revision).values(mark="another"),
    )

    catalog.put_profiles((profile(),))

    assert catalog.snapshot().variants[-1].accuracy == 0.1


def test_all_is_read_where_a_revision_has_no_note(catalog: Catalog, url: str) -> None:
    catalog.snapshot()
    execute(url, LETTERS_UNSEEN.values(accuracy=0.1))
    catalog.put_profiles((profile(),))
    execute(url, delete(tables.changes).where(tables.changes.c.revision == catalog.revision()))

    catalog.put_profiles((profile(),))

    assert catalog.snapshot().variants[-1].accuracy == 0.1


def test_all_is_read_where_the_database_is_an_older_one(catalog: Catalog, url: str) -> None:
    catalog.put_profiles((profile(),))
    catalog.snapshot()
    execute(url, LETTERS_UNSEEN.values(accuracy=0.1))
    execute(
        url, update(tables.counters).where(tables.counters.c.name == "revision").values(value=2)
    )

    assert catalog.snapshot().revision == 2
    assert catalog.snapshot().variants[-1].accuracy == 0.1


def test_many_tasks_that_change_at_once_are_all_found(catalog: Catalog) -> None:
    for number in range(3):
        catalog.register(registration(of=f"task-{number}"))
    catalog.snapshot()

    slower = tuple(
        profile(of=of, points=points((1, 7.0))) for of in ("task-2", "letters", "task-0")
    )
    catalog.put_profiles(slower)

    found = {p.task: p.points[0].p50_ms for p in catalog.snapshot().profiles}
    assert found == {"digits": 1.0, "letters": 7.0, "task-0": 7.0, "task-1": 1.0, "task-2": 7.0}


def test_notes_of_old_revisions_are_forgotten(catalog: Catalog, url: str) -> None:
    engine = make_engine(url)
    with writer(engine).begin() as connection:
        for _ in range(CHANGES_KEPT):
            newest = advance_revision(connection)
        noted = sorted(connection.scalars(select(tables.changes.c.revision)))
    engine.dispose()

    assert noted == list(range(newest - CHANGES_KEPT + 1, newest + 1))
    assert catalog.snapshot() == read_anew(url)
