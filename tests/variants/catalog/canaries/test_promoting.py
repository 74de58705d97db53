"""Which version is promoted where none is named."""

import pytest

from tests.variants.catalog.canaries.of_digits import (
    CNN,
    DIGITS,
    LETTERS,
    MLP,
    canary,
    later,
    stages,
)
from tests.variants.catalog_builders import registration
from variants.catalog.protocol import Catalog
from variants.errors import NotFound, SeveralMeant
from variants.types import Stage


def test_promoting_without_a_number_takes_the_newest(catalog: Catalog) -> None:
    later(catalog, 3, Stage.CANARY)
    (before,) = catalog.promote([DIGITS], MLP)
    assert (before.version, before.stage) == (3, Stage.CANARY)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.CANARY, 3: Stage.LIVE}
    revision = catalog.revision()
    (again,) = catalog.promote([DIGITS], MLP)  # two who do it at the same time
    assert (again.stage, catalog.revision()) == (Stage.LIVE, revision)


def test_what_was_rolled_back_is_not_promoted_by_guessing(catalog: Catalog) -> None:
    catalog.set_stage([DIGITS], MLP, 2, Stage.LIVE)
    catalog.roll_back([DIGITS], MLP)
    before = catalog.snapshot()
    with pytest.raises(SeveralMeant) as raised:
        catalog.promote([DIGITS], MLP)
    assert raised.value.message == (
        "nothing was changed: mlp-v2, the newest version, is retired; name the version of"
        " task 'digits' that is to be live, `modelless promote digits mlp VERSION`, over REST"
        " `version`"
    )
    assert raised.value.choices == {
        2: "mlp-v2 becomes live, which is retired",
        1: "nothing: mlp-v1 is live",
    }
    assert catalog.snapshot() == before
    catalog.promote([DIGITS], MLP, 2)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.LIVE}


def test_what_was_found_worse_is_not_promoted_by_guessing(catalog: Catalog) -> None:
    (stored,) = catalog.set_canary(canary())
    epoch = catalog.acquire_leadership("here")
    assert catalog.settle_canary(stored, promote=False, why="it was late", epoch=epoch)
    with pytest.raises(SeveralMeant, match=r"share of the queries any more: it was late; name"):
        catalog.promote([DIGITS], MLP)
    assert stages(catalog) == {1: Stage.LIVE, 2: Stage.CANARY}
    catalog.promote([DIGITS], MLP, 2)
    assert stages(catalog)[2] is Stage.LIVE
    assert catalog.snapshot().canaries == ()


def test_a_version_that_came_after_the_canary_is_not_promoted_by_guessing(
    catalog: Catalog,
) -> None:
    catalog.set_canary(canary(2))
    later(catalog, 3, Stage.CANARY)
    with pytest.raises(SeveralMeant, match=r"mlp-v3, the newest.*mlp-v2 has a share") as told:
        catalog.promote([DIGITS], MLP)
    assert list(told.value.choices) == [3, 2, 1]
    catalog.promote([DIGITS], MLP, 2)
    assert catalog.promote([DIGITS], MLP)[0].version == 3  # no canary has a share any more


def test_the_canary_itself_and_the_only_version_are_promoted_without_a_number(
    catalog: Catalog,
) -> None:
    catalog.set_canary(canary())
    catalog.promote([DIGITS], MLP)
    assert (stages(catalog)[2], catalog.snapshot().canaries) == (Stage.LIVE, ())
    catalog.register(registration("cnn"))
    catalog.set_stage([DIGITS], CNN, 1, Stage.RETIRED)
    catalog.promote([DIGITS], CNN)  # nothing else can be meant
    assert stages(catalog, CNN) == {1: Stage.LIVE}


def test_a_refusal_names_a_few_versions_the_newest_first(catalog: Catalog) -> None:
    for number in range(3, 12):
        later(catalog, number, Stage.RETIRED)
    with pytest.raises(SeveralMeant) as raised:
        catalog.promote([DIGITS], MLP)
    assert list(raised.value.choices) == [11, 10, 9, 8, 7]


def test_what_is_not_there_cannot_be_promoted(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="task 'digits' has no model 'cnn'"):
        catalog.promote([DIGITS], CNN)
    with pytest.raises(NotFound, match="task 'digits' has no version mlp-v9"):
        catalog.promote([DIGITS], MLP, 9)
    assert catalog.revision() == 2


def test_buckets_are_promoted_together_or_not_at_all(catalog: Catalog) -> None:
    for number in (1, 2):
        catalog.register(registration(number=number, of="letters"))
    catalog.set_stage([LETTERS], MLP, 2, Stage.RETIRED)
    before = catalog.snapshot()
    with pytest.raises(SeveralMeant, match="of task 'letters'"):
        catalog.promote([DIGITS, LETTERS], MLP)
    assert catalog.snapshot() == before
    catalog.promote([DIGITS, LETTERS], MLP, 2)
    known = catalog.snapshot()
    assert {v.stage for v in known.versions} == {Stage.LIVE}
    assert known.revision == before.revision + 1
