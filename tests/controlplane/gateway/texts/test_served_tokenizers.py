"""Models with tokenizers of their own, through a gateway and workers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.gateway.query.parsing import ParsedQuery
from tests.controlplane.gateway.canaries.test_diversions import share
from tests.controlplane.gateway.texts.several_tokenizers import ECHOED, OTHER, OTHER_TOKENIZER
from tests.controlplane.gateway.texts.test_reading import TOKENIZER
from tests.controlplane.serving import FAST, SLOW, Known, Served, serving, until
from tests.variants.catalog_builders import set_sharing
from variants.errors import ModellessError
from variants.types import ModelName, Sharing, Stage, TaskName

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
