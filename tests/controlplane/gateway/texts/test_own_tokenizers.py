"""Texts for models with different tokenizers: each gets the numbers that it reads."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from controlplane.gateway.lengths.named import at_other_lengths
from controlplane.gateway.protection.body_frames import (
    described,
    own_texts_as_json,
    parsed_of,
    tasks_as_json,
    tasks_of,
)
from controlplane.gateway.protection.read_bodies import read
from controlplane.gateway.query.one_answer import encode
from controlplane.gateway.query.parsing import asked_v1
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.sharing.content import content_key
from controlplane.gateway.texts.asked import check_numbers
from controlplane.gateway.texts.reading import Tokenisers
from tests.controlplane.gateway.texts.several_tokenizers import BOTH, IN_BOTH, OTHER, TASKS, asked
from tests.controlplane.gateway.texts.test_reading import TEXT, TOKENIZER, opinions
from tests.planner.builders import catalog, kind, profile, snapshot, variant, worker
from tests.texts import BEGIN, END, FILM, GOOD, PAD
from variants.buckets import TaskTable, own_texts_of, tasks_of_other_texts
from variants.catalog.validity.texts import tokenizers_read
from variants.errors import InvalidInput
from variants.texts.inputs import packed
from variants.types import TYPE_UNIT, Digest, ModelName, ModelVersion, Stage, TaskName, VariantName

THE_OTHER_WAY_ROUND = TaskTable(
    [replace(opinions(length), text=OTHER) for length in (4, 8)],
    BOTH,
    {(TaskName(f"opinions.{length}"), "view-v1"): TEXT for length in (4, 8)},
)


def test_texts_are_read_by_each_tokenizer(tokenisers: Tokenisers) -> None:
    found = asked(tokenisers, "good")
    assert found.task.name == "opinions.4"
    assert found.tensors[0].tolist() == [[BEGIN, GOOD, END, PAD]]
    own = found.rows_for(OTHER.tokenizer)
    assert own is not None
    assert [one.tolist() for one in own.tensors] == [[[0, 0, 7, 2]], [[1] * 4]]
    assert found.rows_for(None).tensors[0].tolist() == found.tensors[0].tolist()
    assert found.rows_for(Digest("0" * 64)) is None
    assert len(found.all_tensors) == 4


def test_the_longest_says_to_which_length_they_go(tokenisers: Tokenisers) -> None:
    # Four tokens by the first tokenizer, five by the second.
    found = asked(tokenisers, "good film", tasks=IN_BOTH)
    assert found.task.name == "opinions.8"
    assert found.tensors[0].shape == (1, 8)
    with pytest.raises(InvalidInput, match="text 0 has 9 tokens, and at most 8 are taken"):
        asked(tokenisers, "good " * 7, tasks=IN_BOTH)
    cut = asked(tokenisers, "good " * 30, truncate=True, tasks=IN_BOTH)
    assert cut.rows_for(OTHER.tokenizer).tensors[0].tolist() == [[0, 0, 7, 7, 7, 7, 7, 2]]
    assert cut.query.unread == ()


TOO_LONG = "makes 9 tokens of text 1, and takes 8 at most"


def test_a_text_is_read_by_the_tokenizers_that_hold_it(tokenisers: Tokenisers) -> None:
    found = asked(tokenisers, "good", "good " * 6, tasks=IN_BOTH)
    assert found.query.unread == ((OTHER.tokenizer, TOO_LONG),)
    assert found.rows_for(OTHER.tokenizer) is None
    assert found.rows_for(None).tensors[0][1].tolist() == [BEGIN, *[GOOD] * 6, END]
    # The same where the task's own tokenizer is the one that does not.
    found = asked(tokenisers, "good", "good " * 6, tasks=THE_OTHER_WAY_ROUND)
    assert found.query.unread == ((None, TOO_LONG),)
    assert found.rows_for(None) is None
    assert found.tensors[0][1].tolist() == [BEGIN, *[GOOD] * 6, END]
    answer, chunks = described(found)
    told = parsed_of(
        orjson.loads(orjson.dumps(answer)), bytearray(b"".join(chunks)), THE_OTHER_WAY_ROUND
    )
    assert told.query == found.query
    np.testing.assert_array_equal(told.tensors[0], found.tensors[0])


def test_types_come_beside_numbers_to_who_takes_them(tokenisers: Tokenisers) -> None:
    typed = replace(TEXT, packed_types=True)
    own = {(TaskName("opinions.8"), "view-v1"): typed}
    tasks = TaskTable([opinions(8)], {TEXT.tokenizer: packed(TOKENIZER)}, own)
    body = orjson.dumps({"task": "opinions", "inputs": [["good", "film"]]})
    asked_by = {"task": None, "received_ms": 5.0, "draw": 9}
    found = read(bytearray(body), asked_by, tasks, tokenisers)
    numbers = [BEGIN, GOOD, END, FILM, END, PAD, PAD, PAD]
    types = np.array([0, 0, 0, 1, 1, 0, 0, 0])
    assert found.tensors[0].tolist() == [numbers]
    with_types = found.rows_for(typed.way)
    assert with_types is not None
    assert with_types.tensors[0].tolist() == [(numbers + types * TYPE_UNIT).tolist()]
    # Both read the same numbers, so these may come as such.
    check_numbers(tasks[TaskName("opinions.8")], None, tasks)
    told = orjson.loads(orjson.dumps(own_texts_as_json(tasks.own_texts)))
    assert tasks_of([], told).own_texts == own


def test_a_model_of_fewer_lengths_holds_what_these_do(tokenisers: Tokenisers) -> None:
    # The second tokenizer is that of a model which is there at length 4 only.
    found = asked(tokenisers, "good film")
    assert found.task.name == "opinions.4"
    why = "makes 5 tokens of text 0, and takes 4 at most"
    assert found.query.unread == ((OTHER.tokenizer, why),)


def test_nobody_reads_by_a_tokenizer_of_no_version_that_may_answer(tokenisers: Tokenisers) -> None:
    names = [TaskName("opinions.4"), TaskName("opinions.8")]

    def left(*unread: TaskName) -> TaskTable:
        tasks, own_texts = THE_OTHER_WAY_ROUND.values(), THE_OTHER_WAY_ROUND.own_texts
        return TaskTable(tasks, BOTH, own_texts, unread)

    # By the task's own tokenizer five tokens, which take the longer bucket; by the others' four.
    assert asked(tokenisers, "good film", tasks=left()).task.name == "opinions.8"
    found = asked(tokenisers, "good film", tasks=left(*names))
    assert found.task.name == "opinions.4"
    assert list(found.read_as) == [TEXT.way]
    # By the task's own nine tokens, of which nobody has to be told.
    assert asked(tokenisers, "good " * 6, tasks=left(*names)).query.unread == ()
    # Where somebody reads by it at the shorter length alone, it takes no more than that.
    found = asked(tokenisers, "good film", tasks=left(names[1]))
    assert found.task.name == "opinions.4"
    assert found.query.unread == ((None, "makes 5 tokens of text 0, and takes 4 at most"),)
    tasks = left(*names)
    with pytest.raises(InvalidInput, match="no model of task 'opinions' that is live has the task"):
        check_numbers(tasks[names[0]], None, tasks)
    told = orjson.loads(orjson.dumps(list(tasks.unread)))
    assert tasks_of([], unread=told).unread == tasks.unread


def test_where_no_version_may_answer_the_tokenizer_of_the_task_reads(
    tokenisers: Tokenisers,
) -> None:
    version = ModelVersion(
        task=TaskName("opinions.4"), model=ModelName("view"), version=1, stage=Stage.RETIRED,
        source=Digest("0" * 64), text=OTHER,
    )  # fmt: skip
    tasks, other = [opinions(4)], replace(version, model=ModelName("look"), text=None)
    cases: list[tuple[list[ModelVersion], set[str], set[Digest]]] = [
        ([version], set(), {TEXT.tokenizer}),
        ([replace(version, stage=Stage.LIVE), other], {"opinions.4"}, {OTHER.tokenizer}),
        (
            [replace(version, stage=Stage.CANARY), replace(other, stage=Stage.LIVE)],
            set(),
            set(BOTH),
        ),
    ]
    for versions, unread, named in cases:
        assert tasks_of_other_texts(versions) == unread
        assert tokenizers_read(tasks, versions) == named
    table = TaskTable(tasks, BOTH, own_texts_of([version]), tasks_of_other_texts([version]))
    assert list(asked(tokenisers, "good", tasks=table).read_as) == [None]


def test_a_variant_of_a_shorter_length_may_hold_what_went_to_a_longer_one(
    tokenisers: Tokenisers,
) -> None:
    """Four tokens by its own tokenizer, five by another: it was said that no shorter length holds
    the text."""
    parsed = asked(tokenisers, "good film", tasks=IN_BOTH, variant="view-v1-onnx-fp32")
    name, shorter = "view-v1-onnx-fp32", "opinions.4"
    known = catalog([variant(name, task=shorter)], [profile(name, task=shorter)], kinds=[kind()])
    there = snapshot(known, (worker(), {(TaskName(shorter), VariantName(name))}))
    error = at_other_lengths(IN_BOTH, there, parsed.query)
    assert error is not None
    assert error.message == (
        "variant 'view-v1-onnx-fp32' is there for the length 4 of task 'opinions', and not for 8,"
        " the shortest that holds this query by all tokenizers of the task that hold it: name"
        " another variant, or none, or ask task 'opinions.4', which takes what is short enough for"
        " this one"
    )


def test_where_tokens_stand_is_told_of_those_that_were_answered(tokenisers: Tokenisers) -> None:
    found = asked(tokenisers, "good film", name="tags")
    assert found.lengths == (4,)
    own = found.rows_for(OTHER.tokenizer)
    assert own.lengths == (5,)
    metadata = ReplyMetadata("v", "m-v1", "w", 1, 0.0, 1.0, 0.9, 0.1, True)
    body, _ = encode(own, [np.zeros((1, 8, 3), np.float32)], metadata)
    answer = orjson.loads(body)
    assert answer["spans"] == [[[0, 0], [0, 0], [0, 4], [5, 9], [0, 0]]]
    assert len(answer["outputs"][0]) == 5


def test_the_gateway_gets_all_that_was_read(tokenisers: Tokenisers) -> None:
    for parsed in (asked(tokenisers, "good"), asked(tokenisers, "good film", name="tags")):
        answer, chunks = described(parsed)
        found = parsed_of(orjson.loads(orjson.dumps(answer)), bytearray(b"".join(chunks)), TASKS)
        for name in (None, OTHER.tokenizer):
            one, other = found.rows_for(name), parsed.rows_for(name)
            assert one is not None
            assert (one.lengths, one.spans) == (other.lengths, other.spans)
            for mine, its in zip(one.tensors, other.tensors, strict=True):
                np.testing.assert_array_equal(mine, its)
    told = orjson.dumps([tasks_as_json(TASKS.values()), own_texts_as_json(TASKS.own_texts)])
    known = tasks_of(*orjson.loads(told))
    assert (known, known.texts) == (TASKS, TASKS.texts)


def test_numbers_are_taken_of_who_says_whose_they_are() -> None:
    task = TASKS[TaskName("opinions.4")]
    with pytest.raises(InvalidInput, match="the models of task 'opinions' have different token"):
        check_numbers(task, None, TASKS)
    check_numbers(task, "view-v1-onnx-fp32", TASKS)
    check_numbers(TASKS[TaskName("opinions.8")], None, TASKS)
    check_numbers(task, None, dict(TASKS))
    body = orjson.dumps(
        {"task": "opinions", "inputs": {"input_ids": [[GOOD]], "attention_mask": [[1]]}}
    )
    with pytest.raises(InvalidInput, match="have different tokenizers"):
        asked_v1(body, TASKS, 5.0, 9)


@pytest.mark.parametrize(
    ("stage", "counts"),
    [(Stage.LIVE, True), (Stage.CANARY, True), (Stage.CANDIDATE, False), (Stage.RETIRED, False)],
)
def test_only_versions_that_may_answer_count(stage: Stage, counts: bool) -> None:
    version = ModelVersion(
        task=TaskName("opinions.4"), model=ModelName("view"), version=1, stage=stage,
        source=Digest("0" * 64), text=OTHER,
    )  # fmt: skip
    assert bool(own_texts_of([version])) is counts


def test_who_reads_a_text_differently_has_other_content(tokenisers: Tokenisers) -> None:
    keys = {content_key(asked(tokenisers, text).all_tensors) for text in ("great", "the", "GREAT")}
    assert len(keys) == 2
