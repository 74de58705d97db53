"""Vectors of texts as clients of OpenAI's API ask for them, through a gateway and workers."""

from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from controlplane.gateway.embeddings import answering
from planner.types import ANYBODY
from tests.controlplane.gateway.texts.several_tokenizers import ECHOED, OTHER, OTHER_TOKENIZER
from tests.controlplane.gateway.texts.test_reading import TOKENIZER
from tests.controlplane.serving import FAST, SLOW, Known, Served, post, serving, until
from variants.types import TaskName

VECTORS = replace(ECHOED, name=TaskName("search"), metric="nearest")
"""Its vectors are the numbers of tokens, 8 for each text."""
PATH = "/v1/embeddings"


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    known = (
        Known(name=FAST, accuracy=0.9, p95_ms=1.0, tokenizer=TOKENIZER),
        Known(name=SLOW, accuracy=0.99, p95_ms=2.0, text=OTHER, tokenizer=OTHER_TOKENIZER),
    )
    async with serving(short_folder, live_url, known=known, task=VECTORS) as running:
        yield running


def row(*words: int) -> list[float]:
    """The numbers of a text by the task's own tokenizer."""
    return [2, *words, 3, *[0] * (6 - len(words))]


@pytest.mark.slow
async def test_texts_become_vectors_in_their_order(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    texts = ["good film", "bad", "the film"]
    answer = await served.ask({"model": "search", "input": texts}, path=PATH)
    assert answer.status == 200, answer
    said = answer.json
    assert (said["object"], said["model"]) == ("list", "search/fast-v1")
    assert [one["index"] for one in said["data"]] == [0, 1, 2]
    assert {one["object"] for one in said["data"]} == {"embedding"}
    assert [one["embedding"] for one in said["data"]] == [row(4, 6), row(5), row(7, 6)]
    assert said["usage"] == {"prompt_tokens": 11, "total_tokens": 11}
    assert (said["variants"], said["accuracy"], said["slo_met"]) == ([FAST], 0.9, True)
    one = await served.ask({"model": "search", "input": "bad", "user": "me"}, path=PATH)
    assert [each["embedding"] for each in one.json["data"]] == [row(5)]


@pytest.mark.slow
async def test_vectors_may_come_as_base64(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    body = {"model": "search", "input": ["bad"], "encoding_format": "base64", "dimensions": 8}
    [entry] = (await served.ask(body, path=PATH)).json["data"]
    assert np.frombuffer(b64decode(entry["embedding"]), "<f4").tolist() == row(5)


@pytest.mark.slow
async def test_needs_stand_in_headers_or_in_the_body(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    asked = {"model": "search", "input": ["bad"]}
    by_header = await served.ask(asked, path=PATH, headers=[("SLO-Accuracy", "0.95")])
    by_body = await served.ask(asked | {"slo": {"accuracy": 0.95}}, path=PATH)
    named = await served.ask(asked | {"model": "search/slow-v1"}, path=PATH)
    version = await served.ask(asked | {"model_version": "slow-v1"}, path=PATH)
    for answer in (by_header, by_body, named, version):
        assert answer.status == 200, answer
        assert answer.json["model"] == "search/slow-v1"
        # Its own tokenizer makes four tokens of the text, and others around it.
        assert answer.json["data"][0]["embedding"] == by_body.json["data"][0]["embedding"]
        assert answer.json["usage"] == by_body.json["usage"]
    twice = await served.ask(
        asked | {"slo": {"accuracy": 0.95}}, path=PATH, headers=[("SLO-Accuracy", "0.9")]
    )
    assert twice.status == 400
    assert "slo.accuracy stands in the body and in a header" in twice.json["error"]["message"]


@pytest.mark.slow
async def test_many_texts_are_cut_into_queries_of_one_version(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", FAST, SLOW)
    asked: list[Any] = []
    handle = served.gateway.path.handle_texts

    def seen(*given: Any, **named: Any) -> None:
        asked.append(given[0])
        handle(*given, **named)

    monkeypatch.setattr(served.gateway.path, "handle_texts", seen)
    texts = [f"{word} " * times for times in (5, 1, 3) for word in ("good", "bad", "film")] * 5
    answer = await served.ask({"model": "search", "input": texts}, path=PATH)
    assert answer.status == 200, answer
    numbers = {"good": 4, "bad": 5, "film": 6}
    expected = [row(*[numbers[word] for word in text.split()]) for text in texts]
    assert [one["embedding"] for one in answer.json["data"]] == expected
    assert len(asked) == 6  # of 45 texts, at most 8 in a batch
    assert sum(b'"model_version":"fast-v1"' in body for body in asked) == 5


@pytest.mark.slow
async def test_a_query_of_several_is_asked_again_where_there_was_no_room(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", FAST, SLOW)
    handle, asked = served.gateway.path.handle_texts, []

    def busy(*given: Any, **named: Any) -> None:
        asked.append(given)
        if len(asked) in (2, 3):
            told = b'{"error":"busy","code":"OVERLOADED","retryable":true,"retry_after_s":0.01}'
            given[4](503, told, b"content-type: application/json\r\n")
        else:
            handle(*given, **named)

    monkeypatch.setattr(served.gateway.path, "handle_texts", busy)
    body = {"model": "search", "input": ["bad"] * 20}
    answer = await served.ask(body, path=PATH)
    assert [one["embedding"] for one in answer.json["data"]] == [row(5)] * 20
    assert len(asked) == 5
    monkeypatch.setattr(answering, "PATIENCE_MS", 0.0)
    asked.clear()
    refused = await served.ask(body, path=PATH)
    assert refused.status == 503
    assert refused.json["error"] == {
        "message": "busy", "type": "OVERLOADED", "param": None, "code": "OVERLOADED",
    }  # fmt: skip
    assert (refused.json["code"], refused.json["retry_after_s"]) == ("OVERLOADED", 0.01)


@pytest.mark.slow
async def test_a_query_of_several_that_is_late_is_asked_again_a_few_times(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", FAST, SLOW)
    handle, asked = served.gateway.path.handle_texts, []
    late = answering.MOST_LATE - 1

    def slow(*given: Any, **named: Any) -> None:
        asked.append(given)
        if 2 <= len(asked) < 2 + late:
            told = b'{"error":"not in time","code":"DEADLINE_EXCEEDED","retryable":true}'
            given[4](504, told, b"content-type: application/json\r\n")
        else:
            handle(*given, **named)

    monkeypatch.setattr(served.gateway.path, "handle_texts", slow)
    monkeypatch.setattr(answering, "AT_ONCE", 1)
    monkeypatch.setattr(answering, "MOST_WAIT_S", 0.02)
    body = {"model": "search", "input": ["bad"] * 16, "slo": {"latency_ms": 20_000}}
    answer = await served.ask(body, path=PATH)
    assert [one["embedding"] for one in answer.json["data"]] == [row(5)] * 16
    assert len(asked) == 2 + late
    asked.clear()
    late += 1
    assert (await served.ask(body, path=PATH)).status == 504
    asked.clear()
    monkeypatch.setattr(answering, "PATIENCE_MS", 0.0)
    assert (await served.ask(body, path=PATH)).status == 504
    assert len(asked) == 2


@pytest.mark.slow
async def test_texts_that_are_longer_than_was_likely_are_asked_in_smaller_queries(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", FAST, SLOW)
    handle, asked = served.gateway.path.handle_texts, []

    def counted(*given: Any, **named: Any) -> None:
        rows = orjson.loads(given[0])["inputs"][0]["shape"][0]
        asked.append(rows)
        if rows > 2:
            told = b'{"error":"too slow","code":"SLO_INFEASIBLE","retryable":false}'
            given[4](422, told, b"content-type: application/json\r\n")
        else:
            handle(*given, **named)

    monkeypatch.setattr(served.gateway.path, "handle_texts", counted)
    texts = ["bad", "film", "good"] * 4
    answer = await served.ask({"model": "search", "input": texts}, path=PATH)
    numbers = {"good": 4, "bad": 5, "film": 6}
    assert [one["embedding"] for one in answer.json["data"]] == [row(numbers[one]) for one in texts]
    assert answer.json["usage"] == {"prompt_tokens": 36, "total_tokens": 36}
    # Of 8 and 4 texts; once it is known that 4 are too many, it is not tried again.
    assert (asked.count(8), asked.count(4), max(asked[2:])) == (1, 1, 2)
    infeasible = {"model": "search", "input": texts, "slo": {"accuracy": 0.999}}
    asked.clear()
    assert (await served.ask(infeasible, path=PATH)).status == 422
    assert len(asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"model": "nothing"}, 404, "there is no task 'nothing'; there are: search"),
        ({"model": None}, 400, "'model' must be the name of a task"),
        ({"model": "search/no-v1"}, 404, "has no model version 'no-v1' that answers; there are: f"),
        ({"model": "search/"}, 400, "must be the name of a model's version"),
        ({"model": "search/a", "model_version": "b"}, 400, "name different versions"),
        ({"input": []}, 400, "'input' must be a text, or a list of texts"),
        ({"input": [1, 2]}, 400, "send texts (LangChain's"),
        ({"input": [[1, 2], [3]]}, 400, "send texts (LangChain's"),
        ({"input": ["a", 1]}, 400, "must be a list of texts, and has 1"),
        ({"input": ["a"] * 2_049}, 413, "'input' has 2,049 texts: at most 2,048 are taken"),
        ({"input": ["[" * 30_001]}, 413, "at most 30,000 brackets"),
        ({"input": ["x" * 2**20]}, 413, "at most 1 MiB: send fewer"),
        ({"input": ["good " * 9]}, 400, "text 0 has 11 tokens, and at most 8 are taken"),
        ({"dimensions": 4}, 400, "'dimensions' must be 8, or be left out"),
        ({"encoding_format": "hex"}, 400, "'encoding_format' must be float or base64"),
        ({"slo": {"accuracy": 2}}, 400, "slo.accuracy must be between 0 and 1"),
        ({"slo": 7}, 400, "'slo' must be an object"),
        ({"inputs": ["a"]}, 400, "unknown field: inputs; known are: best_effort, dim"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told_as_these_clients_read_it(
    served: Served, changes: dict[str, Any], status: int, said: str
) -> None:
    await served.worker("w1", FAST, SLOW)
    answer = await served.ask({"model": "search", "input": ["bad"]} | changes, path=PATH)
    assert answer.status == status, answer
    error = answer.json["error"]
    assert said in error["message"]
    assert error["code"] == error["type"] == answer.json["code"]
    assert answer.json["request_id"] == answer.headers["x-request-id"]


@pytest.mark.slow
async def test_a_text_that_is_too_long_is_named_by_its_number(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    texts = ["bad"] * 20
    texts[13] = "good " * 9
    refused = await served.ask({"model": "search", "input": texts}, path=PATH)
    assert refused.status == 400
    assert refused.json["error"]["message"].startswith("text 13 has 11 tokens, and at most 8 are")


@pytest.mark.slow
async def test_a_header_that_would_be_missed_is_refused(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    answer = await served.ask(
        {"model": "search", "input": "bad"}, path=PATH, headers=[("SLO-Acuracy", "0.9")]
    )
    assert answer.status == 400
    assert "has no header 'SLO-Acuracy'; known are: SLO-Lat" in answer.json["error"]["message"]


@pytest.mark.slow
async def test_both_ways_through_the_gateway_give_the_same(served: Served) -> None:
    """Who waits to be told that a body is wanted is answered by the application."""
    await served.worker("w1", FAST, SLOW)

    async def otherwise(body: Any) -> Any:
        client = await served.client()
        client.send(post(body, path=PATH, headers=[("Expect", "100-continue")]))
        assert (await client.answer()).status == 100
        return await client.answer()

    body = {"model": "search", "input": ["bad", "film"]}
    short, other = await served.ask(body, path=PATH), await otherwise(body)
    assert (short.status, other.status) == (200, 200)
    assert short.json == other.json
    refused = await otherwise({"model": "search", "input": 7})
    assert refused.json["error"]["message"] == "'input' must be a text, or a list of texts"


@pytest.mark.slow
async def test_who_has_gone_is_asked_for_no_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.worker("w1", FAST, SLOW)
    path = served.gateway.path
    handle, asked = path.handle_texts, []

    def seen(*given: Any, **named: Any) -> None:
        asked.append(given)
        handle(*given, **named)

    monkeypatch.setattr(path, "handle_texts", seen)
    fields = {b"slo-latency-ms": b"60000"}
    told: list[Any] = []

    def respond(*answer: Any) -> None:
        told.append(answer)

    answering.answer(
        path, b'{"model": "search", "input": [%s]}' % b",".join([b'"bad"'] * 40), fields,
        path.clock_ms(), respond, None, ANYBODY,
    )  # fmt: skip
    await until(lambda: asked)
    path.departures.left(respond)
    await until(lambda: not answering._UNDER_WAY)
    assert [status for status, *_ in told] == [499]
    assert len(asked) < 5  # of six
    assert not path.departures.others
    assert served.in_flight == 0


@pytest.mark.slow
async def test_what_a_client_had_asked_that_has_gone_does_not_run(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways through the gateway. What is refused for want of room is not asked again."""
    await served.worker("w1", FAST)
    path, held = served.gateway.path, list[Any]()
    monkeypatch.setattr(path, "handle_texts", lambda *given, **_: held.append(given))
    body = {"model": "search", "input": ["bad"] * 40}
    for headers in ([], [("Expect", "100-continue")]):
        client = await served.client()
        client.send(post(body, path=PATH, headers=headers))
        if headers:
            assert (await client.answer()).status == 100
        await until(lambda: held)
        [request] = path.departures.others
        assert isinstance(request, answering.Request)
        client.close()
        await until(lambda asks=request: asks._left)  # type: ignore[misc]
        refused = b'{"error":"busy","code":"OVERLOADED","retryable":true,"retry_after_s":0.01}'
        held.pop()[4](503, refused, b"")
        await until(lambda: not answering._UNDER_WAY)
        assert (held, path.departures.others) == ([], set())


@pytest.mark.slow
async def test_other_tasks_say_how_they_are_asked(short_folder: Path, live_url: str) -> None:
    known = (Known(name=FAST, accuracy=0.9, p95_ms=1.0),)
    for metric, said in (
        ("nearest", "takes no texts, as it has no tokenizer"),
        ("r2", "gives no vectors: it is judged by r2"),
    ):
        task = replace(VECTORS, text=None, metric=metric)
        async with serving(short_folder, live_url, known=known, task=task) as running:
            answer = await running.ask({"model": "search", "input": ["bad"]}, path=PATH)
            assert said in answer.json["error"]["message"]


@pytest.mark.slow
async def test_what_others_of_a_failed_request_wait_for_does_not_run(
    short_folder: Path, live_url: str
) -> None:
    """Up to three others were computed to their end, for nobody."""
    slow = Known(
        name=FAST, accuracy=0.9, p95_ms=300.0, options={"latency_ms": "300"}, tokenizer=TOKENIZER
    )
    async with serving(short_folder, live_url, known=(slow,), task=VECTORS) as served:
        host = await served.worker("w1", FAST)
        executor = host._running()
        texts = ["bad"] * 39 + ["good " * 9]
        answer = await served.ask(
            {"model": "search", "input": texts, "slo": {"latency_ms": 4_800}}, path=PATH
        )
        assert answer.status == 400, answer
        counted = served.gateway.path.counters.task("search")
        await until(lambda: served.in_flight == 0 and executor.in_flight == 0)
        answered = sum(one.met + one.missed for one in counted.variants.values())
        assert answered == 1  # by the first it is known which version answers
        assert counted.errors.keys() == {"INVALID_INPUT"}  # no client has gone
        [replica] = executor.replicas.values()
        assert replica.model.batches <= 2  # and the one that was running
