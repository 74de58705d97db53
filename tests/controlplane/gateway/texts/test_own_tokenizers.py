"""Texts for models with different tokenizers: each gets the numbers that it reads."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from controlplane.gateway.query.parsing import ParsedQuery, asked_v1
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.sharing.content import content_key
from controlplane.gateway.texts.asked import check_numbers
from controlplane.gateway.texts.reading import Tokenisers
from tests.controlplane.gateway.canaries.test_diversions import share
from tests.controlplane.gateway.texts.test_reading import NAMES, TEXT, TOKENIZER, opinions
from tests.controlplane.gateway.texts.test_reading import TAGS as TAGGING
from tests.controlplane.serving import FAST, SLOW, Known, Served, serving, until
from tests.planner.builders import catalog, kind, profile, snapshot, variant, worker
from tests.texts import BEGIN, END, FILM, GOOD, PAD, other_tokenizer_json
from tests.variants.catalog_builders import set_sharing
from variants.buckets import TaskTable, own_texts_of, tasks_of_other_texts
from variants.catalog.validity.texts import tokenizers_read
from variants.errors import InvalidInput, ModellessError
from variants.texts.inputs import digest_of_text, packed
from variants.types import (
    TYPE_UNIT,
    Digest,
    ModelName,
    ModelVersion,
    Sharing,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
    VariantName,
)

OTHER_TOKENIZER = other_tokenizer_json()
OTHER = replace(TEXT, tokenizer=digest_of_text(OTHER_TOKENIZER), pad=1)
BOTH: dict[Any, bytes] = {
    TEXT.tokenizer: packed(TOKENIZER),
    OTHER.tokenizer: packed(OTHER_TOKENIZER),
}
OWN = {(TaskName("opinions.4"), "view-v1"): OTHER, (TaskName("tags.8"), "view-v1"): OTHER}
TASKS = TaskTable([opinions(4), opinions(8), TAGGING], BOTH, OWN)
IN_BOTH = TaskTable(
    [opinions(4), opinions(8)],
    BOTH,
    {(TaskName(f"opinions.{length}"), "view-v1"): OTHER for length in (4, 8)},
)
THE_OTHER_WAY_ROUND = TaskTable(
    [replace(opinions(length), text=OTHER) for length in (4, 8)],
    BOTH,
    {(TaskName(f"opinions.{length}"), "view-v1"): TEXT for length in (4, 8)},
)


@pytest.fixture(scope="module")
def tokenisers() -> Tokenisers:
    made = Tokenisers()
    made.follow(BOTH, BOTH)
    return made


def asked(
    tokenisers: Tokenisers,
    *texts: str,
    name: str = "opinions",
    tasks: TaskTable = TASKS,
    **fields: Any,
) -> Any:
    body = bytearray(orjson.dumps({"task": name, "inputs": texts, **fields}))
    return read(body, {"task": None, "received_ms": 5.0, "draw": 9}, tasks, tokenisers)


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


# -- through a gateway and workers -----------------------------------------------------------------

ECHOED = Task(
    name=TaskName("opinions"),
    inputs=tuple(TensorSpec(name=name, dtype="int64", shape=(8,)) for name in NAMES),
    outputs=(TensorSpec(name="seen", dtype="float32", shape=(8,)),),
    metric="r2",
    slo=Slo(latency_ms=60_000.0),
    text=TEXT,
)
"""Its variants answer with the numbers that they were asked with."""
FIRST, SECOND = [2, 4, 3, 0, 0, 0, 0, 0], [0, 0, 7, 2, 1, 1, 1, 1]
"""What ``good`` is to each tokenizer."""


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    known = (
        Known(name=FAST, accuracy=0.9, p95_ms=1.0, tokenizer=TOKENIZER),
        Known(name=SLOW, accuracy=0.99, p95_ms=2.0, text=OTHER, tokenizer=OTHER_TOKENIZER),
    )
    async with serving(short_folder, live_url, known=known, task=ECHOED) as running:
        yield running


def good(**fields: Any) -> dict[str, Any]:
    return {"task": "opinions", "inputs": ["good"], **fields}


MORE = {"slo": {"accuracy": 0.95}}


@pytest.mark.slow
async def test_each_model_is_asked_with_its_own_numbers(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    first, second = await served.ask(good()), await served.ask(good(**MORE))
    assert (first.json["variant"], first.json["outputs"]) == (FAST, [FIRST])
    assert (second.json["variant"], second.json["outputs"]) == (SLOW, [SECOND])
    numbers = {"input_ids": [SECOND], "attention_mask": [[1] * 8]}
    refused = await served.ask({"task": "opinions", "inputs": numbers})
    assert refused.error[:2] == (400, "INVALID_INPUT")
    named = await served.ask({"task": "opinions", "inputs": numbers, "variant": SLOW})
    assert named.json["outputs"] == [SECOND]
    # What is retired reads nothing any more, and numbers have one meaning again.
    served.gateway.catalog.set_stage([ECHOED.name], ModelName("slow"), 1, Stage.RETIRED)
    await until(lambda: not served.gateway.path.tasks.texts)  # type: ignore[attr-defined]
    numbers["input_ids"] = [FIRST]
    answer = await served.ask({"task": "opinions", "inputs": numbers})
    assert (answer.json["variant"], answer.json["outputs"]) == (FAST, [FIRST])


@pytest.mark.slow
async def test_a_task_whose_first_models_are_retired_is_read_by_the_others_alone(
    served: Served,
) -> None:
    await served.worker("w1", FAST, SLOW)
    served.gateway.catalog.set_stage([ECHOED.name], ModelName("fast"), 1, Stage.RETIRED)
    await until(lambda: bool(served.gateway.path.tasks.unread))  # type: ignore[attr-defined]
    tokenizers = served.gateway.path.tasks.tokenizers  # type: ignore[attr-defined]
    assert list(tokenizers) == [OTHER.tokenizer]
    assert (await served.ask(good())).json["outputs"] == [SECOND]
    # By the task's own tokenizer it has eight tokens.
    refused = await served.ask({"task": "opinions", "inputs": ["good " * 6]})
    assert refused.error[:2] == (400, "INVALID_INPUT")
    assert refused.error[2].startswith("text 0 has 9 tokens, and at most 8 are taken")
    # It is read by both again once the first is back.
    served.gateway.catalog.set_stage([ECHOED.name], ModelName("fast"), 1, Stage.LIVE)
    await until(lambda: not served.gateway.path.tasks.unread)  # type: ignore[attr-defined]
    assert (await served.ask(good())).json["outputs"] == [FIRST]


@pytest.mark.slow
async def test_equal_texts_share_an_answer_whoever_reads_them(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    sharing = Sharing(ttl_s=60.0, memory_mib=8.0)
    set_sharing(served.gateway.catalog, ECHOED.name, sharing)
    await until(lambda: served.gateway.path.tasks[ECHOED.name].sharing == sharing)
    answers = [await served.ask(good(**MORE)) for _ in range(2)]
    assert [one.json["outputs"] for one in answers] == [[SECOND]] * 2
    assert answers[1].headers["cache-status"].startswith("modelless; hit")


@pytest.mark.slow
async def test_what_was_read_before_a_model_came_is_not_sent_to_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", FAST, SLOW)
    await served.ask(good())
    reader = served.gateway.path.text_reader
    assert reader is not None
    read = reader.read

    def as_if_before(body: Any, asked: Any, tasks: Any, done: Any, *rest: Any) -> None:
        def first(found: ParsedQuery | ModellessError) -> None:
            assert isinstance(found, ParsedQuery)
            assert found.read_as is not None
            done(found._replace(read_as={None: found.read_as[None]}))

        read(body, asked, tasks, first, *rest)

    monkeypatch.setattr(reader, "read", as_if_before)
    for needs in (MORE, {"variant": SLOW}):
        status, code, said = (await served.ask(good(**needs))).error
        assert (status, code) == (503, "OVERLOADED")
        assert "another tokenizer since the query was read: ask again" in said
    # They are no numbers, and whom the task's own tokenizer serves answers them.
    assert (await served.ask(good())).json["outputs"] == [FIRST]


@pytest.mark.slow
async def test_who_does_not_hold_a_text_is_left_out(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    accurate = {"slo": {"prefer": "accuracy"}}
    assert (await served.ask(good(**accurate))).json["variant"] == SLOW
    long = {"task": "opinions", "inputs": ["good " * 6]}
    answer = await served.ask(long | accurate)
    assert (answer.json["variant"], answer.json["outputs"]) == (FAST, [[2, *[4] * 6, 3]])
    why = "makes 9 tokens of text 0, and takes 8 at most"
    refused = await served.ask(long | MORE)
    assert refused.error[:2] == (422, "SLO_INFEASIBLE")
    assert refused.json["reasons"][SLOW] == why
    refused = await served.ask(long | {"variant": SLOW})
    assert refused.error == (
        400,
        "INVALID_INPUT",
        f"variant {SLOW!r} {why}; 'truncate' cuts texts off, and other variants hold this one",
    )
    cut = await served.ask(long | {"variant": SLOW, "truncate": True})
    assert cut.json["outputs"] == [[0, 0, 7, 7, 7, 7, 7, 2]]
    told = (await served.ask(long | accurate, path="/v1/explain")).json
    assert told["answer"]["variant"] == FAST
    assert told["too_long_for"] == [SLOW]
    assert {one["variant"]: one["why"] for one in told["variants"]}[SLOW] == why
    assert told["plan"] == (
        "Not every model holds this: such queries take what they prefer of what fits, and plans"
        f" count them for {FAST}."
    )
    none = await served.ask({"task": "opinions", "inputs": ["good " * 7]})
    assert none.error[2].startswith("text 0 has 9 tokens, and at most 8 are taken")


@pytest.mark.slow
async def test_a_text_that_only_a_canary_holds_is_too_long(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    long: dict[str, Any] = {"task": "opinions", "inputs": ["good " * 6]}
    assert (await served.ask(long)).json["variant"] == FAST
    await share(served, "fast", 1.0, TaskName("opinions"))
    # What both hold goes to the canary, and what it alone holds is answered as before it came.
    assert (await served.ask(good())).json["variant"] == FAST
    said = (
        400,
        "INVALID_INPUT",
        f"too long for variant {SLOW!r}, which makes 9 tokens of text 0, and takes 8 at most;"
        " 'truncate' cuts texts off",
    )
    assert (await served.ask(long)).error == said
    assert (await served.ask(long, path="/v1/explain")).error == said
    assert (await served.ask(long | {"variant": FAST})).json["outputs"] == [[2, *[4] * 6, 3]]
    assert (await served.ask(long | {"truncate": True})).status == 200


def test_who_reads_a_text_differently_has_other_content(tokenisers: Tokenisers) -> None:
    keys = {content_key(asked(tokenisers, text).all_tensors) for text in ("great", "the", "GREAT")}
    assert len(keys) == 2
