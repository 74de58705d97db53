"""A database that goes back: its replica takes over without the newest writes, and gives their
numbers to others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.places import Place, migrated_place
from tests.variants.catalog.copies import fail_over, rows_of
from tests.variants.catalog_builders import plan, registration
from variants.errors import StaleEpoch
from variants.types import Canary, ModelName, Stage, TaskName

DIGITS, MLP = TaskName("digits"), ModelName("mlp")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with migrated_place(request.param, request, tmp_path) as made:
        yield made


def test_of_two_leaders_of_one_epoch_the_database_follows_the_one_that_it_knows(
    somewhere: Place,
) -> None:
    """The increment of the first was lost, so the second got the same number."""
    lost, known = somewhere.open(), somewhere.open()
    lost.register(registration())
    lost.acquire_leadership("here before")
    lagging = rows_of(somewhere.url)
    epoch = lost.acquire_leadership("here lost")
    lost.put_plan(plan(epoch))

    fail_over(somewhere.url, lagging)
    assert known.acquire_leadership("here known") == epoch
    before = known.put_plan(plan(epoch))

    with pytest.raises(StaleEpoch, match="a plan of epoch 2 came, which another one leads in"):
        lost.put_plan(plan(epoch))
    with pytest.raises(StaleEpoch):
        lost.put_learned("demand", 1.0, b"lost", epoch=epoch)
    canary = Canary(task=DIGITS, model=MLP, version=1, share=0.5)
    with pytest.raises(StaleEpoch):
        lost.settle_canary(canary, promote=True, why="good", epoch=epoch)
    assert (known.latest_plan(), known.learned("demand")) == (before, None)
    known.put_learned("demand", 1.0, b"known", epoch=epoch)
    assert known.put_plan(plan(epoch)).version == before.version + 1
    assert known.acquire_leadership("here next") == epoch + 1


def test_a_leader_whose_increment_was_lost_writes_no_more_where_nobody_else_leads(
    somewhere: Place,
) -> None:
    lost = somewhere.open()
    lost.register(registration())
    lagging = rows_of(somewhere.url)
    epoch = lost.acquire_leadership("here")
    fail_over(somewhere.url, lagging)
    with pytest.raises(StaleEpoch):
        lost.put_plan(plan(epoch))


def test_a_leader_of_an_earlier_release_may_write_and_is_told_apart(somewhere: Place) -> None:
    """It writes no mark."""
    lost, known = somewhere.open(), somewhere.open()
    lost.register(registration())
    epoch = lost.acquire_leadership("here lost")
    rows = rows_of(somewhere.url)
    leaders = [dict(row) | {"mark": None} for row in rows["leaders"]]
    fail_over(somewhere.url, {**rows, "leaders": leaders})
    known.put_plan(plan(epoch))
    with pytest.raises(StaleEpoch):
        lost.put_plan(plan(epoch))


def test_who_decided_by_a_lost_revision_decides_nothing(somewhere: Place) -> None:
    """Its number is that of another one, by which something else may have to be decided."""
    here, elsewhere = somewhere.open(), somewhere.open()
    here.register(registration())
    lagging = rows_of(somewhere.url)
    here.register(registration(of="lost"))
    decided_at = here.snapshot().state

    fail_over(somewhere.url, lagging)
    elsewhere.register(registration(of="letters"))

    assert elsewhere.revision() == decided_at[0]
    assert not here.set_stage([DIGITS], MLP, 1, Stage.RETIRED, decided_at=decided_at)
    now = here.snapshot().state
    assert here.set_stage([DIGITS], MLP, 1, Stage.RETIRED, decided_at=now)
