"""What a catalog says of canaries and of the way back, wherever it is kept."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.places import migrated_place
from tests.variants.catalog_builders import registration, version
from variants.catalog.protocol import Catalog
from variants.catalog.validity.canaries import RolledBack
from variants.errors import Conflict, InvalidInput, NotFound, SeveralMeant, StaleEpoch
from variants.types import Canary, ModelName, Registration, Stage, TaskName

DIGITS, LETTERS = TaskName("digits"), TaskName("letters")
MLP, CNN = ModelName("mlp"), ModelName("cnn")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """``mlp-v1`` is live, ``mlp-v2`` a canary, at revision 2."""
    with migrated_place(request.param, request, tmp_path) as made:
        opened = made.open()
        opened.register(registration())
        opened.register(
            replace(registration(number=2), version=version(number=2, stage=Stage.CANARY))
        )
        yield opened


def canary(number: int = 2, share: float = 0.05, model: ModelName = MLP) -> Canary:
    return Canary(task=DIGITS, model=model, version=number, share=share, set_at="now")


def stages(catalog: Catalog, model: ModelName = MLP) -> dict[int, Stage]:
    versions = (one for one in catalog.snapshot().versions if one.model == model)
    return {one.version: one.stage for one in versions}


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
    decided_at = catalog.revision()
    assert not catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED, decided_at=decided_at - 1)
    assert catalog.revision() == decided_at
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


def later(catalog: Catalog, number: int, stage: Stage) -> None:
    """One more version."""
    catalog.register(
        replace(registration(number=number), version=version(number=number, stage=stage))
    )


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


def test_in_several_tasks_a_version_moves_in_all_or_in_none(catalog: Catalog) -> None:
    catalog.register(in_letters(1, Stage.LIVE))
    before = catalog.snapshot()
    with pytest.raises(NotFound, match="'letters' has no version mlp-v2"):
        catalog.set_stage([DIGITS, LETTERS], MLP, 2, Stage.LIVE)
    assert catalog.snapshot() == before
    catalog.set_stage([DIGITS, LETTERS], MLP, 1, Stage.RETIRED)
    assert catalog.revision() == before.revision + 1
    assert {v.stage for v in catalog.snapshot().versions if v.version == 1} == {Stage.RETIRED}


def in_letters(number: int, stage: Stage) -> Registration:
    """The same model in another task."""
    return registration(
        number=number, of=LETTERS, version=version(number=number, of=LETTERS, stage=stage)
    )


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
