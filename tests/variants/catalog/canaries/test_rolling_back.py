"""The way back: to the version before, or to one that is named."""

from contextlib import suppress
from dataclasses import replace

import pytest

from tests.variants.catalog.canaries.of_digits import (
    CNN,
    DIGITS,
    LETTERS,
    MLP,
    canary,
    in_letters,
    later,
    stages,
)
from tests.variants.catalog_builders import registration, version
from variants.catalog.protocol import Catalog
from variants.catalog.validity.canaries import RolledBack
from variants.errors import Conflict, NotFound, SeveralMeant
from variants.types import Stage


def test_rolling_back_ends_a_share_first(catalog: Catalog) -> None:
    (stored,) = catalog.set_canary(canary())
    assert catalog.roll_back([DIGITS], MLP) == (RolledBack(canary=stored),)
    assert catalog.snapshot().canaries == ()
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.CANARY}


def test_rolling_back_brings_the_version_before_back(catalog: Catalog) -> None:
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    revision = catalog.revision()
    (done,) = catalog.roll_back([DIGITS], MLP)
    assert (done.retired, done.restored) == (
        version(number=2, stage=Stage.LIVE),
        version(number=1, stage=Stage.RETIRED),
    )
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.RETIRED}
    assert catalog.revision() == revision + 1
    with pytest.raises(Conflict, match="was live before mlp-v1"):
        catalog.roll_back([DIGITS], MLP)


def test_a_version_that_was_never_live_is_not_gone_back_to(catalog: Catalog) -> None:
    catalog.register(replace(registration(number=3), version=version(number=3, stage=Stage.LIVE)))
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    catalog.set_stage([DIGITS], MLP, 2, Stage.RETIRED)
    (done,) = catalog.roll_back([DIGITS], MLP)
    assert done.restored is not None
    assert done.restored.version == 1


def test_where_nothing_is_live_or_known_there_is_no_way_back(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="has no model 'cnn'"):
        catalog.roll_back([DIGITS], CNN)
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    with pytest.raises(Conflict, match="neither a canary with a share nor a live version"):
        catalog.roll_back([DIGITS], MLP)


def test_a_live_version_is_not_rolled_back_for_a_canary_that_lost_its_share(
    catalog: Catalog,
) -> None:
    catalog.register(replace(registration(number=3), version=version(number=3, stage=Stage.CANARY)))
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    (stored,) = catalog.set_canary(canary(3))
    epoch = catalog.acquire_leadership("here")
    assert catalog.settle_canary(stored, promote=False, why="it was late", epoch=epoch)
    before = catalog.snapshot()
    with pytest.raises(SeveralMeant) as raised:
        catalog.roll_back([DIGITS], MLP)
    assert raised.value.choices == {
        2: "mlp-v2 is retired, and mlp-v1 stays live",
        3: "nothing: mlp-v3 is a canary without a share of the queries any more: it was late",
    }
    assert raised.value.message == (
        "nothing was changed: mlp-v2 of task 'digits' is live, and mlp-v3 is a canary without a"
        " share of the queries any more; name the version that is to be taken back (`--version 2`,"
        " over REST `version`)"
    )
    with pytest.raises(
        Conflict, match="live is mlp-v2; mlp-v3 of task 'digits' is a canary without"
    ):
        catalog.roll_back([DIGITS], MLP, 3)
    assert catalog.snapshot() == before
    catalog.roll_back([DIGITS], MLP, 2)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.RETIRED, 3: Stage.CANARY}


def test_rolling_back_twice_ends_a_share_and_nothing_else(catalog: Catalog) -> None:
    catalog.register(replace(registration(number=3), version=version(number=3, stage=Stage.CANARY)))
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    catalog.set_canary(canary(3))
    catalog.roll_back([DIGITS], MLP)
    with pytest.raises(SeveralMeant, match="mlp-v3 is a canary without a share of the queries"):
        catalog.roll_back([DIGITS], MLP)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.LIVE, 3: Stage.CANARY}


def test_rolling_back_twice_goes_back_by_one_version(catalog: Catalog) -> None:
    catalog.register(replace(registration(number=3), version=version(number=3, stage=Stage.LIVE)))
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    for _ in range(2):  # two who are called at the same time
        with suppress(SeveralMeant):
            catalog.roll_back([DIGITS], MLP)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.LIVE, 3: Stage.RETIRED}
    for _ in range(2):
        with suppress(Conflict):
            catalog.roll_back([DIGITS], MLP, 2)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.RETIRED, 3: Stage.RETIRED}


def test_a_version_that_is_named_is_the_one_that_is_taken_back(catalog: Catalog) -> None:
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    with pytest.raises(Conflict, match="mlp-v1 of task 'digits' is live, and so is mlp-v2"):
        catalog.roll_back([DIGITS], MLP, 1)
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    with pytest.raises(Conflict, match=r"live is mlp-v2; .*; mlp-v1 of task 'digits' is retired"):
        catalog.roll_back([DIGITS], MLP, 1)
    with pytest.raises(NotFound, match="no version mlp-v7"):
        catalog.roll_back([DIGITS], MLP, 7)
    assert stages(catalog) == {1: Stage.RETIRED, 2: Stage.LIVE}


def test_beside_a_canary_with_a_share_the_live_version_can_be_named(catalog: Catalog) -> None:
    catalog.register(replace(registration(number=3), version=version(number=3, stage=Stage.CANARY)))
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    (stored,) = catalog.set_canary(canary(3))
    catalog.roll_back([DIGITS], MLP, 2)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.RETIRED, 3: Stage.CANARY}
    assert catalog.snapshot().canaries == (stored,)
    assert catalog.roll_back([DIGITS], MLP, 3) == (RolledBack(canary=stored),)


def test_a_candidate_leaves_no_doubt_and_a_canary_that_was_retired_does(catalog: Catalog) -> None:
    later(catalog, 3, Stage.CANDIDATE)
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    catalog.roll_back([DIGITS], MLP)
    assert stages(catalog)[2] is Stage.RETIRED
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    catalog.set_stage([DIGITS], MLP, 3, Stage.RETIRED)
    with pytest.raises(SeveralMeant, match="mlp-v2 of task 'digits' is live, and mlp-v3 is ret"):
        catalog.roll_back([DIGITS], MLP)


def test_what_was_taken_back_is_not_gone_back_to(catalog: Catalog) -> None:
    """Version 2 is bad, and so is 4: version 1 is good."""
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    catalog.roll_back([DIGITS], MLP)
    later(catalog, 4, Stage.LIVE)
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    catalog.roll_back([DIGITS], MLP)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.RETIRED, 4: Stage.RETIRED}
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)  # it was put right
    catalog.set_stage([DIGITS], MLP, 4, Stage.LIVE)
    for number in (1, 2):
        catalog.set_stage([DIGITS], MLP, number, Stage.RETIRED)
    (done,) = catalog.roll_back([DIGITS], MLP)
    assert done.restored is not None
    assert done.restored.version == 2


def test_what_is_live_is_gone_back_to_before_what_was(catalog: Catalog) -> None:
    """Somebody has retired version 2, which is bad, by hand; version 1 answers beside version 3."""
    for number, stage in ((2, Stage.LIVE), (2, Stage.RETIRED)):
        catalog.set_stage([DIGITS], MLP, number, stage)
    later(catalog, 3, Stage.LIVE)
    catalog.roll_back([DIGITS], MLP)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.RETIRED, 3: Stage.RETIRED}


def test_in_several_tasks_a_version_moves_in_all_or_in_none(catalog: Catalog) -> None:
    catalog.register(in_letters(1, Stage.LIVE))
    before = catalog.snapshot()
    with pytest.raises(NotFound, match="'letters' has no version mlp-v2"):
        catalog.set_stage([DIGITS, LETTERS], MLP, 2, Stage.LIVE)
    assert catalog.snapshot() == before
    catalog.set_stage([DIGITS, LETTERS], MLP, 1, Stage.RETIRED)
    assert catalog.revision() == before.revision + 1
    assert {v.stage for v in catalog.snapshot().versions if v.version == 1} == {Stage.RETIRED}


def test_in_several_tasks_all_is_rolled_back_or_nothing(catalog: Catalog) -> None:
    catalog.register(in_letters(1, Stage.LIVE))
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    before = catalog.snapshot()
    with pytest.raises(Conflict, match="'letters' was live before mlp-v1"):
        catalog.roll_back([DIGITS, LETTERS], MLP)
    assert catalog.snapshot() == before
    catalog.register(in_letters(2, Stage.LIVE))
    done = catalog.roll_back([DIGITS, LETTERS], MLP)
    assert [one.restored and one.restored.task for one in done] == [DIGITS, LETTERS]
    assert catalog.revision() == before.revision + 2
    found = {(v.task, v.version): v.stage for v in catalog.snapshot().versions}
    assert {key for key, stage in found.items() if stage is Stage.LIVE} == {
        (DIGITS, 1), (LETTERS, 1),
    }  # fmt: skip


def test_where_some_tasks_share_only_shares_end(catalog: Catalog) -> None:
    for number in (1, 2):
        catalog.register(in_letters(number, Stage.LIVE))
    (stored,) = catalog.set_canary(canary())
    assert catalog.roll_back([LETTERS, DIGITS], MLP) == (RolledBack(canary=stored),)
    assert catalog.snapshot().canaries == ()
    of_letters = [v.stage for v in catalog.snapshot().versions if v.task == LETTERS]
    assert of_letters == [Stage.LIVE, Stage.LIVE]
