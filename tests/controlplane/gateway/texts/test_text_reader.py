"""Queries with texts to a gateway: read in a process of their own, which has the tokenizers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from controlplane.gateway.protection import body_reader
from controlplane.gateway.protection.body_reader import BodyReader
from controlplane.gateway.query.parsing import ParsedQuery
from planner.types import Client
from tests.controlplane.gateway.texts.test_reading import TASKS, opinions
from tests.texts import BEGIN, END, FILM, GOOD, PAD, text_input, tokenizer_json
from variants.buckets import TaskTable
from variants.errors import Internal, InvalidInput, ModellessError, Overloaded
from variants.texts.inputs import packed
from variants.types import TaskName

pytestmark = pytest.mark.slow

V1 = {"task": None, "received_ms": 5.0, "draw": 9}
Found = ParsedQuery | ModellessError


@pytest.fixture
async def reader() -> AsyncIterator[BodyReader]:
    made = BodyReader(texts=True)
    yield made
    made.close()


async def read(reader: BodyReader, document: Any, tasks: TaskTable = TASKS) -> Found:
    found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    reader.read(orjson.dumps(document), V1, tasks, found.set_result)
    return await asyncio.wait_for(found, 90.0)


def asked(*texts: str, name: str = "opinions") -> dict[str, Any]:
    return {"task": name, "inputs": list(texts)}


async def test_texts_become_rows(reader: BodyReader) -> None:
    found = await read(reader, asked("good", "good film"))
    assert isinstance(found, ParsedQuery), found
    assert found.task is TASKS[TaskName("opinions.4")]
    assert found.tensors[0].tolist() == [[BEGIN, GOOD, END, PAD], [BEGIN, GOOD, FILM, END]]
    wrong = await read(reader, asked("good " * 9))
    assert isinstance(wrong, InvalidInput)
    assert "text 0 has 11 tokens" in wrong.message
    assert wrong.asked_task == ""  # no length holds it, so it is of none of the counted tasks
    of_one_length = await read(reader, asked("good " * 9, name="opinions.4"))
    assert isinstance(of_one_length, InvalidInput)
    assert of_one_length.asked_task == "opinions.4"


async def test_a_tokenizer_that_is_new_is_there_for_the_next_text(reader: BodyReader) -> None:
    assert isinstance(await read(reader, asked("good")), ParsedQuery)
    other = tokenizer_json(pad=FILM)
    text = text_input(other, pad=FILM)
    named = opinions(4, name="films", bucket=None, text=text)
    more = TaskTable([*TASKS.values(), named], {**TASKS.tokenizers, text.tokenizer: packed(other)})
    found = await read(reader, asked("good", name="films"), more)
    assert isinstance(found, ParsedQuery), found
    assert found.tensors[0].tolist() == [[BEGIN, GOOD, END, FILM]]
    assert isinstance(await read(reader, asked("good"), more), ParsedQuery)
    # And one that no task names any more is there no longer.
    gone = TaskTable(TASKS.values(), {text.tokenizer: packed(other)})
    lost = await read(reader, asked("good"), gone)
    assert isinstance(lost, Overloaded)
    assert "tokenizer is not there" in lost.message


async def test_what_cannot_be_loaded_is_told_to_who_asks(reader: BodyReader) -> None:
    damaged = TaskTable(TASKS.values(), dict.fromkeys(TASKS.tokenizers, b"damaged"))
    lost = await read(reader, asked("good"), damaged)
    assert isinstance(lost, Internal)
    assert "texts cannot be read here: a tokenizer is damaged" in lost.message


async def test_many_may_wait(reader: BodyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await asyncio.gather(*(read(reader, asked("good")) for _ in range(300)))
    assert all(isinstance(one, ParsedQuery) for one in found)
    monkeypatch.setattr(body_reader, "MOST_TEXTS", 2)
    other = BodyReader(texts=True)
    try:
        answers = await asyncio.gather(*(read(other, asked("good")) for _ in range(3)))
    finally:
        other.close()
    assert [type(one) for one in answers] == [ParsedQuery, ParsedQuery, Overloaded]


async def test_clients_take_turns(reader: BodyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_reader, "MOST_TEXTS", 8)
    told: list[tuple[str, Found]] = []
    done = asyncio.Event()

    def ask(client: str) -> None:
        def hear(found: Found) -> None:
            told.append((client, found))
            if len(told) == 10:
                done.set()

        reader.read(orjson.dumps(asked("good")), V1, TASKS, hear, Client(client))

    for client in ("many",) * 5 + ("few",) * 2 + ("many",) + ("few", "many"):
        ask(client)
    await asyncio.wait_for(done.wait(), 90.0)
    # Who has half of the places gets no more while others are there.
    refused = [client for client, found in told if isinstance(found, Overloaded)]
    assert refused == ["many", "many"]
    answered = [client for client, found in told if isinstance(found, ParsedQuery)]
    assert answered == ["many", "few", "many", "few", "many", "few", "many", "many"]


async def test_the_process_is_there_before_the_first_text(reader: BodyReader) -> None:
    reader.prepare(TaskTable([opinions(4, text=None)]))
    assert reader._starting is None
    reader.prepare(TASKS)
    assert reader._starting is not None
