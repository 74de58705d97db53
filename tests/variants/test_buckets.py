"""Buckets: what clients see of them, and which of them takes a row."""

import json
from dataclasses import asdict, replace

import pytest

from tests.variants.buckets import AXES, bucket
from tests.variants.catalog_builders import task
from tests.variants.tagging import tagging
from variants.buckets import (
    TaskTable,
    bucketed_named,
    bucketed_tasks,
    following_axes,
    in_order,
    positions_axis,
    read_bucket,
)
from variants.catalog.validity.buckets import check_bucket
from variants.errors import InvalidInput
from variants.types import FollowingAxis, LengthBucket, OpenAxis, TaskName


def test_buckets_of_one_name_are_one_task_to_its_clients() -> None:
    found = bucketed_tasks([bucket(8), task("digits"), bucket(4), bucket(6, of="words")])
    assert found.keys() == {"texts", "words"}
    texts = found[TaskName("texts")]
    assert [one.name for one in texts.buckets] == ["texts.4", "texts.8"]
    assert texts.lengths == (4, 8)
    assert [spec.shape for spec in texts.face.inputs] == [(-1,), (-1,), (2,)]
    assert (texts.face.name, texts.face.bucket) == ("texts", None)


@pytest.mark.parametrize(
    ("length", "name"), [(1, "texts.4"), (4, "texts.4"), (5, "texts.8"), (8, "texts.8")]
)
def test_the_shortest_bucket_that_holds_a_row_takes_it(length: int, name: str) -> None:
    texts = bucketed_named([bucket(8), bucket(4)], "texts")
    assert texts is not None
    assert texts.holding(length).name == name


def test_a_row_longer_than_all_buckets_is_told_how_long_rows_may_be() -> None:
    texts = bucketed_named([bucket(8), bucket(4)], "texts")
    assert texts is not None
    with pytest.raises(InvalidInput, match="length 9, and task 'texts' takes rows of up to 8"):
        texts.holding(9)


def test_one_length_is_enough() -> None:
    texts = bucketed_named([bucket(8)], "texts")
    assert texts is not None
    assert texts.holding(3).name == "texts.8"


def test_a_table_finds_tasks_and_keeps_bucketed_ones_beside_them() -> None:
    table = TaskTable([bucket(4), task("digits")])
    assert table.keys() == {"texts.4", "digits"}
    assert table.bucketed.keys() == {"texts"}


def test_a_bucket_is_read_back_from_json() -> None:
    own = bucket(4).bucket
    assert own is not None
    assert read_bucket(json.loads(json.dumps(asdict(own)))) == own
    assert read_bucket(None) is None


def test_a_bucket_of_outputs_that_are_as_long_is_read_back_and_one_from_before_has_none() -> None:
    own = tagging(4).bucket
    assert own is not None
    document = json.loads(json.dumps(asdict(own)))
    assert read_bucket(document) == own
    del document["outputs"]
    assert read_bucket(document) == replace(own, outputs=())


def test_outputs_that_are_as_long_are_open_to_clients_and_of_one_size_in_a_bucket() -> None:
    tags = bucketed_named([tagging(8), tagging(4)], "tags")
    assert tags is not None
    assert [spec.shape for spec in tags.face.outputs] == [(-1, 3), (1,), (2, -1)]
    for one in (tags.face, *tags.buckets):
        assert following_axes(one) == {"scores": 0, "turned": 1}
        assert positions_axis(one) == 0
    assert following_axes(bucket(4)) == following_axes(task("digits")) == {}
    assert positions_axis(bucket(4)) is None


def test_who_judges_a_row_as_a_whole_may_give_more_for_its_positions() -> None:
    scores, whole, turned = tagging(4).outputs
    assert positions_axis(tagging(4, outputs=(whole, scores, turned))) is None


@pytest.mark.parametrize(
    "wrong",
    [
        FollowingAxis(output="no", axis=0),
        FollowingAxis(output="scores", axis=1),
        FollowingAxis(output="whole", axis=0),
        FollowingAxis(output="turned", axis=2),
    ],
)
def test_an_output_that_is_not_as_long_is_refused(wrong: FollowingAxis) -> None:
    own = tagging(4).bucket
    assert own is not None
    with pytest.raises(InvalidInput, match=f"no output {wrong.output!r} with an axis {wrong.axis}"):
        check_bucket(tagging(4, bucket=replace(own, outputs=(wrong,))))


def test_other_axes_than_the_first_may_be_open() -> None:
    axes = (OpenAxis(input="x", axis=1),)
    inputs = (replace(bucket(4).inputs[0], name="x", shape=(3, 4, 2)),)
    sound = bucketed_named([bucket(4, axes=axes, inputs=inputs)], "texts")
    assert sound is not None
    assert sound.inputs_at(7)[0].shape == (3, 7, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": TaskName("other")}, "which is called 'texts.4'"),
        (
            {"bucket": LengthBucket(of=TaskName("texts"), length=4, axes=())},
            "without an open axis",
        ),
        ({"axes": (OpenAxis(input="no", axis=0),)}, "has no input 'no'"),
        ({"axes": (OpenAxis(input="ids", axis=1),)}, "no axis 1 of the length 4"),
        ({"axes": (OpenAxis(input="weight", axis=0),)}, "no axis 0 of the length 4"),
        ({"axes": (OpenAxis(input="ids", axis=0, pad=0.5),)}, "cannot be filled up with 0.5"),
        ({"axes": (OpenAxis(input="ids", axis=0, pad=1e30),)}, "cannot be filled up"),
        ({"axes": (OpenAxis(input="ids", axis=0, pad=float("nan")),)}, "cannot be filled up"),
    ],
)
def test_a_bucket_that_contradicts_its_task_is_refused(
    changes: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_bucket(bucket(4, **changes))  # type: ignore[arg-type]


def test_a_sound_bucket_and_no_bucket_are_fine() -> None:
    check_bucket(bucket(4))
    check_bucket(tagging(4))
    check_bucket(task("digits"))
    assert bucket(4).bucket == LengthBucket(of=TaskName("texts"), length=4, axes=AXES)


def test_people_read_the_shortest_length_first() -> None:
    names = ["texts.128", "texts.32", "letters", "texts", "texts-2", "v1.x", "texts.512"]
    assert sorted(names, key=in_order) == [
        "letters", "texts", "texts.32", "texts.128", "texts.512", "texts-2", "v1.x",
    ]  # fmt: skip
