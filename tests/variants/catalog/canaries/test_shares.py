"""A canary's share of the queries, and who ends it."""

from dataclasses import replace

import pytest

from tests.variants.catalog.canaries.of_digits import (
    CNN,
    DIGITS,
    LETTERS,
    MLP,
    canary,
    in_letters,
    stages,
)
from tests.variants.catalog_builders import registration, version
from variants.catalog.protocol import Catalog
from variants.errors import Conflict, InvalidInput, NotFound, StaleEpoch
from variants.types import Stage


def test_a_share_is_kept_under_the_revision_that_set_it(catalog: Catalog) -> None:
    (stored,) = catalog.set_canary(canary())
    assert stored == replace(canary(), number=3)
    assert catalog.snapshot().canaries == (stored,)
    assert catalog.revision() == catalog.marks().revision == 3


def test_a_new_share_replaces_the_one_before(catalog: Catalog) -> None:
    catalog.set_canary(canary())
    (stored,) = catalog.set_canary(canary(share=0.5))
    assert catalog.snapshot().canaries == (stored,)
    assert stored.number == 4


def test_a_retired_version_becomes_a_canary(catalog: Catalog) -> None:
    catalog.set_stage([DIGITS], MLP, 2, Stage.RETIRED)
    catalog.set_canary(canary())
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.CANARY}


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(catalog: Catalog, share: float) -> None:
    with pytest.raises(InvalidInput, match="share"):
        catalog.set_canary(canary(share=share))


def test_a_live_version_and_an_unknown_one_get_no_share(catalog: Catalog) -> None:
    with pytest.raises(Conflict, match="mlp-v1 of task 'digits' is live"):
        catalog.set_canary(canary(1))
    with pytest.raises(NotFound, match="has no version mlp-v3"):
        catalog.set_canary(canary(3))
    assert catalog.revision() == 2


def test_a_task_has_one_canary_at_a_time(catalog: Catalog) -> None:
    (first,) = catalog.set_canary(canary())
    other = version("cnn", stage=Stage.CANARY)
    catalog.register(replace(registration("cnn"), version=other))
    with pytest.raises(Conflict, match="mlp-v2 of task 'digits' has a share"):
        catalog.set_canary(canary(1, model=CNN))
    assert catalog.end_canary([DIGITS], MLP) == (first,)
    assert catalog.set_canary(canary(1, model=CNN))[0].model == CNN


def test_a_share_that_is_not_there_cannot_be_ended(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="no version of model 'mlp'"):
        catalog.end_canary([DIGITS], MLP)


@pytest.mark.parametrize("stage", [Stage.LIVE, Stage.RETIRED])
def test_what_is_no_canary_any_more_has_no_share(catalog: Catalog, stage: Stage) -> None:
    catalog.set_canary(canary())
    catalog.set_stage([DIGITS], MLP, 2, stage)
    assert catalog.snapshot().canaries == ()


def test_a_stage_that_was_decided_by_an_older_revision_is_not_set(catalog: Catalog) -> None:
    decided_at = revision, mark = catalog.marks().state
    for other in ((revision - 1, mark), (revision, f"{mark}x")):
        assert not catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED, decided_at=other)
    assert catalog.revision() == revision
    assert catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED, decided_at=decided_at)
    assert not catalog.set_stage([DIGITS], MLP, 1, Stage.LIVE, decided_at=decided_at)
    assert catalog.set_stage([DIGITS], MLP, 1, Stage.LIVE)


def test_a_share_goes_with_its_task(catalog: Catalog) -> None:
    catalog.set_canary(canary())
    catalog.remove_task(DIGITS)
    catalog.register(registration(number=1))
    catalog.register(replace(registration(number=2), version=version(number=2, stage=Stage.CANARY)))
    assert catalog.snapshot().canaries == ()


def test_what_the_control_loop_ends_stays_to_be_read(catalog: Catalog) -> None:
    (stored,) = catalog.set_canary(canary())
    epoch = catalog.acquire_leadership("here")
    assert catalog.settle_canary(stored, promote=False, why="it was late", epoch=epoch)
    ended = replace(stored, share=0.0, ended="it was late")
    assert catalog.snapshot().canaries == (ended,)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.CANARY}
    assert not catalog.settle_canary(stored, promote=False, why="again", epoch=epoch)
    with pytest.raises(NotFound):
        catalog.end_canary([DIGITS], MLP)
    assert catalog.set_canary(canary())[0].ended == ""


def test_what_the_control_loop_promotes_is_live(catalog: Catalog) -> None:
    (stored,) = catalog.set_canary(canary())
    epoch = catalog.acquire_leadership("here")
    assert catalog.settle_canary(stored, promote=True, why="it is as good", epoch=epoch)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.LIVE}
    assert catalog.snapshot().canaries == ()


def test_only_the_leader_settles_and_only_what_it_judged(catalog: Catalog) -> None:
    (before,) = catalog.set_canary(canary())
    epoch = catalog.acquire_leadership("here")
    (now,) = catalog.set_canary(canary(share=0.5))
    assert not catalog.settle_canary(before, promote=True, why="", epoch=epoch)
    with pytest.raises(StaleEpoch):
        catalog.settle_canary(now, promote=True, why="", epoch=epoch - 1)
    assert catalog.snapshot().canaries == (now,)


def test_in_several_tasks_a_share_is_given_and_ended_at_once(catalog: Catalog) -> None:
    catalog.register(in_letters(2, Stage.LIVE))
    asked = [canary(), replace(canary(), task=LETTERS)]
    before = catalog.snapshot()
    with pytest.raises(Conflict, match="mlp-v2 of task 'letters' is live"):
        catalog.set_canary(*asked)
    assert catalog.snapshot() == before
    catalog.set_stage([LETTERS], MLP, 2, Stage.RETIRED)
    given = catalog.set_canary(*asked)
    assert catalog.snapshot().canaries == given
    assert [one.number for one in given] == [catalog.revision()] * 2
    assert catalog.end_canary([LETTERS, DIGITS], MLP) == given[::-1]
    assert catalog.snapshot().canaries == ()
