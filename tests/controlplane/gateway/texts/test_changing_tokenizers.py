"""A large tokenizer comes: it is loaded beside the process that reads texts, which goes on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from controlplane.gateway.protection import text_reader
from controlplane.gateway.protection.body_reader import BodyReader
from controlplane.gateway.protection.text_reader import TextReader
from controlplane.gateway.query.parsing import ParsedQuery
from tests.controlplane.gateway.texts.several_tokenizers import IN_BOTH, OTHER, OTHER_TOKENIZER
from tests.controlplane.gateway.texts.test_reading import TASKS, opinions
from tests.controlplane.serving import until
from tests.texts import BEGIN, END, GOOD, PAD
from variants.buckets import TaskTable
from variants.errors import ModellessError
from variants.texts.inputs import packed

pytestmark = pytest.mark.slow

V1 = {"task": None, "received_ms": 5.0, "draw": 9}
Found = ParsedQuery | ModellessError
OTHERS = opinions(4, name="others", bucket=None, text=OTHER)
MORE = TaskTable(
    [*TASKS.values(), OTHERS],
    {**TASKS.tokenizers, OTHER.tokenizer: packed(OTHER_TOKENIZER)},
)


@pytest.fixture
async def reader(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TextReader]:
    monkeypatch.setattr(text_reader, "LARGE_BYTES", 1)  # any tokenizer is large
    made = TextReader()
    yield made
    made.close()


async def read(reader: TextReader, tasks: TaskTable, name: str = "opinions") -> Found:
    found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
    body = orjson.dumps({"task": name, "inputs": ["good"]})
    reader.read(body, V1, tasks, found.set_result)
    return await asyncio.wait_for(found, 90.0)


def rows(found: Found) -> Any:
    assert isinstance(found, ParsedQuery), found
    return found.tensors[0].tolist()


def serves(reader: TextReader) -> BodyReader:
    return reader._serving


def being_replaced(reader: TextReader) -> bool:
    return reader._next is not None


FIRST, SECOND = [[BEGIN, GOOD, END, PAD]], [[0, 0, 7, 2]]


async def test_others_are_read_while_it_is_loaded(reader: TextReader) -> None:
    assert rows(await read(reader, TASKS)) == FIRST
    before = reader._serving
    reader.prepare(MORE)
    assert being_replaced(reader)
    assert rows(await read(reader, MORE)) == FIRST
    assert serves(reader) is before  # the other one is not there yet
    assert rows(await read(reader, MORE, "others")) == SECOND
    assert serves(reader) is not before
    assert not being_replaced(reader)
    assert before._process is None
    assert rows(await read(reader, MORE)) == FIRST


async def test_models_that_were_there_answer_until_it_is_loaded(reader: TextReader) -> None:
    alone = TaskTable(IN_BOTH.values(), {one: IN_BOTH.tokenizers[one] for one in TASKS.tokenizers})
    assert rows(await read(reader, alone)) == FIRST
    found = await read(reader, IN_BOTH)
    assert rows(found) == FIRST
    assert isinstance(found, ParsedQuery)
    why = "cannot be asked with texts yet: its tokenizer is being loaded"
    assert found.query.unread == ((OTHER.tokenizer, why),)
    assert found.rows_for(OTHER.way) is None
    await until(lambda: not being_replaced(reader))
    found = await read(reader, IN_BOTH)
    assert isinstance(found, ParsedQuery)
    assert found.query.unread == ()
    assert found.rows_for(OTHER.way) is not None


async def test_small_ones_are_loaded_where_the_others_are(
    reader: TextReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_reader, "LARGE_BYTES", 2**19)
    assert rows(await read(reader, TASKS)) == FIRST
    before = reader._serving
    assert rows(await read(reader, MORE, "others")) == SECOND
    assert serves(reader) is before
    assert not being_replaced(reader)


async def test_what_cannot_be_loaded_beside_is_loaded_in_place(
    reader: TextReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows(await read(reader, TASKS)) == FIRST
    before = reader._serving
    reader.prepare(MORE)
    waiting = asyncio.create_task(read(reader, MORE, "others"))
    await until(lambda: reader._next is not None and bool(reader._next._waiting))
    reader._give_up()
    assert rows(await waiting) == SECOND
    assert serves(reader) is before
    assert not being_replaced(reader)
