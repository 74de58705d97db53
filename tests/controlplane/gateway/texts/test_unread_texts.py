"""Texts under pressure: who would be refused for want of time is, before his texts are read."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from controlplane.gateway.query.departures import Unread
from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.v2.parsing import parse_v2
from controlplane.gateway.texts.asked import AskedInText, likely_task
from planner.types import ANYBODY, Query
from tests.controlplane.gateway.texts.several_tokenizers import ECHOED
from tests.controlplane.gateway.texts.test_reading import TASKS, TOKENIZER, entry
from tests.controlplane.serving import LATE, Known, Served, post, serving, until
from tests.workers import gated
from variants.errors import InvalidInput
from variants.types import TaskName
from workers.runtimes.registry import RUNTIMES

OPINIONS = TASKS.bucketed[TaskName("opinions")]


@pytest.mark.parametrize(
    ("texts", "length"),
    [
        (["good"], 4),
        (["x" * 14], 4),
        (["x" * 15, "good"], 8),
        ([["x" * 10, "y" * 5]], 8),
        (["x" * 10_000], 8),
        ([7, ["a", None], {}], 4),
        ([], 4),
    ],
)
def test_a_text_has_about_as_many_tokens_as_is_usual(texts: list[Any], length: int) -> None:
    assert likely_task(OPINIONS, texts).name == f"opinions.{length}"
    six = TASKS[TaskName("six")]
    assert likely_task(six, texts) is six


def unread(parse: Any, document: Any, *rest: Any) -> AskedInText:
    with pytest.raises(AskedInText) as raised:
        parse(orjson.dumps(document), *rest, TASKS, 5.0, 9)
    return raised.value


def test_what_is_asked_for_is_known_before_texts_are_read() -> None:
    for name in ("opinions", "six"):
        body = {"task": name, "inputs": ["good", "bad"], "slo": {"latency_ms": 7}, "priority": 3}
        for document in (body, body | {"truncate": True}):
            found = unread(parse_v1, document)
            assert found.query is not None
            query = found.query()
            assert (query.rows, query.latency_ms, query.priority) == (2, 7.0, 3)
            assert query.task.startswith(name)
        request = {"inputs": [entry([2], ["a", "b"])], "parameters": {"latency_slo_ms": 7}}
        found = unread(parse_v2, request, name, None)
        assert found.query is not None
        assert (found.query().rows, found.query().latency_ms) == (2, 7.0)


@pytest.mark.parametrize(
    ("parse", "document", "rest"),
    [
        (parse_v1, {"task": "opinions", "inputs": "good"}, ()),
        (parse_v1, {"task": "opinions", "inputs": ["good"], "slo": {"latency_ms": -1}}, ()),
        (parse_v2, {"inputs": [entry([1], None)]}, ("six", None)),
        (parse_v2, {"inputs": [entry([1], [["a"]])]}, ("opinions", None)),
        (parse_v2, {"inputs": [7, entry([1], ["a"])]}, ("six", None)),
    ],
)
def test_what_is_wrong_is_found_when_it_is_read(parse: Any, document: Any, rest: Any) -> None:
    found = unread(parse, document, *rest)
    assert found.query is not None
    with pytest.raises(InvalidInput):
        found.query()
    assert unread(parse_v1, {"task": "no", "inputs": ["a"], "truncate": True}).query is None


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    known = Known(
        name=LATE, accuracy=0.9, p95_ms=150.0, options={"latency_ms": "150"}, tokenizer=TOKENIZER
    )
    async with serving(short_folder, live_url, known=[known], task=ECHOED) as running:
        yield running


@pytest.fixture
def gates() -> Iterator[gated.Gates]:
    yield gated.GATES
    gated.GATES.open()


@pytest.mark.slow
async def test_who_would_be_refused_is_not_read(
    served: Served, monkeypatch: pytest.MonkeyPatch, gates: gated.Gates
) -> None:
    """Forty wait, however long it takes until their texts are read."""
    monkeypatch.setattr("workers.runtimes.registry.RUNTIMES", {**RUNTIMES, "echo": gated.ENTRY})
    await served.worker("w1", LATE)
    body: dict[str, Any] = {"task": "opinions", "inputs": ["good"]}
    assert (await served.ask(body)).status == 200
    path, reader = served.gateway.path, served.gateway.path.text_reader
    assert reader is not None
    read: list[Any] = []
    through = reader.read

    def counted(*given: Any) -> None:
        read.append(given)
        through(*given)

    monkeypatch.setattr(reader, "read", counted)
    gates.runs.clear()
    long = [asyncio.create_task(served.ask(body)) for _ in range(40)]
    await until(lambda: served.in_flight == 40)
    assert len(read) == 40
    path._pressed_until_ms = path.clock_ms() + 60_000.0
    url = "/v2/models/opinions/infer"
    protocol = {"inputs": [entry([1], ["good"])], "parameters": {"latency_slo_ms": 200}}
    for document, where in ((body | {"slo": {"latency_ms": 200}}, {}), (protocol, {"path": url})):
        refused = await served.ask(document, **where)
        assert refused.error[:2] == (503, "OVERLOADED")
    told: list[int] = []
    path.handle_texts(
        orjson.dumps(protocol), "opinions", None, path.clock_ms(),
        path.enter(ANYBODY, lambda status, _body, _headers: told.append(status)),
        answered_as=lambda parsed: parsed,
    )  # fmt: skip
    assert told == [503]
    assert len(read) == 40
    gates.open()
    # Who has the time is read and answered.
    last = await served.ask(body)
    assert (last.status, len(read)) == (200, 41)
    assert {(await one).status for one in long} == {200}


@pytest.mark.slow
async def test_who_waits_too_long_for_others_is_not_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", LATE)
    body: dict[str, Any] = {"task": "opinions", "inputs": ["good"]}
    assert (await served.ask(body)).status == 200
    path = served.gateway.path
    assert path.text_reader is not None
    reader = path.text_reader._serving
    demand: list[Query] = []
    monkeypatch.setattr(path.demand, "count", demand.append)
    reader._busy = True  # as with a text of somebody else
    waiting = [
        asyncio.create_task(served.ask(asked))
        for asked in (body | {"slo": {"latency_ms": 200}}, body)
    ]
    await until(lambda: len(reader._waiting) == 2)
    await asyncio.sleep(0.3)
    read: list[Any] = []
    through = reader._answer

    def counted(found: Any) -> None:
        read.append(found)
        through(found)

    monkeypatch.setattr(reader, "_answer", counted)
    reader._busy = False
    reader._go_on()
    refused, answered = [await one for one in waiting]
    assert refused.error[:2] == (504, "DEADLINE_EXCEEDED")
    assert answered.status == 200
    # It was refused before it was read, and is demand all the same.
    assert len(read) == 1
    errors = {name: one.errors for name, one in path.counters.tasks.items() if one.errors}
    assert errors == {"opinions": {"DEADLINE_EXCEEDED": 1}}
    assert len(demand) == 2


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False], ids=["while it is read", "before its turn"])
async def test_the_texts_of_a_client_that_has_gone_are_not_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    await served.worker("w1", LATE)
    path, reader = served.gateway.path, served.gateway.path.text_reader
    assert reader is not None
    held: list[Any] = []
    through = reader.read
    monkeypatch.setattr(reader, "read", lambda *given: held.append(given))
    client = await served.client()
    client.send(post({"task": "opinions", "inputs": ["good"]}))
    await until(lambda: held)
    [unread] = path.departures.others
    assert isinstance(unread, Unread)
    client.close()
    await until(lambda: unread.left_ms)
    *_, is_over = held[0]
    if reads:
        through(*held[0])
        await until(lambda: not path.departures.others)
    else:
        assert is_over()
    counted = path.counters.task("opinions")
    assert counted.errors == {"CLIENT_GONE": 1}
    assert 0.0 < counted.gave_up_ms < counted.gave_up_of_ms
    assert (counted.variants, served.in_flight, path.departures.others) == ({}, 0, set())
