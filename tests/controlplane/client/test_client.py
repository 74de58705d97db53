"""``modelless.Client`` against a real gateway with a real worker."""

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import orjson
import psutil
import pytest

from controlplane.client import (
    AsyncClient,
    Client,
    Cold,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    ModellessError,
    NotFound,
    Overloaded,
    RateLimited,
    ReplicaLost,
    Reply,
    SloInfeasible,
    TaskNotFound,
    Unauthenticated,
    Unreachable,
    binary,
)
from controlplane.client.binary import LEAST_BYTES, Signatures, binary_content
from tests.controlplane.serving import FAST, LATE, SLOW, Served, serving
from tests.ports import free_port

TOKEN = "open sesame"
T = TypeVar("T")


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """One worker that holds an instant, a slow and a late variant."""
    async with serving(short_folder, live_url, api_token=TOKEN) as running:
        await running.worker("w1", FAST, SLOW, LATE)
        yield running


async def using(served: Served, what: Callable[[Client], T], *, token: str = TOKEN) -> T:
    """What a client gives, in a thread, because the gateway runs on this loop."""

    def run() -> T:
        with Client(f"http://127.0.0.1:{served.port}/", token=token) as client:
            return what(client)

    return await asyncio.to_thread(run)


async def test_a_query_is_answered_with_what_was_used(served: Served) -> None:
    reply = await using(
        served, lambda client: client.query("letters", [[1, 2, 3, 4]], accuracy=0.9)
    )
    assert reply == Reply(
        outputs=[[1, 2, 3, 4]],
        labels=("d",),
        scores=(4.0,),
        variant=FAST,
        model_version="fast-v1",
        worker="w1",
        batch_size=1,
        queue_ms=reply.queue_ms,
        run_ms=reply.run_ms,
        accuracy=0.9,
        cost_usd_per_1k=reply.cost_usd_per_1k,
        slo_met=True,
        choice_reason="cheapest_that_fits",
        request_id=reply.request_id,
    )


async def test_clients_say_which_classes_were_right(served: Served) -> None:
    async def ask_and_tell(client: Any) -> Any:
        reply = await client.query("letters", [[1, 2, 3, 4]], accuracy=0.9)
        return await client.feedback(reply, "d"), await client.feedback(reply.request_id, ["d"])

    url = f"http://127.0.0.1:{served.port}"
    async with AsyncClient(url, token=TOKEN) as client:
        first, again = await ask_and_tell(client)
    told = {"task": "letters", "variant": FAST, "right": 1, "wrong": 0}
    assert {name: first[name] for name in told} == told
    assert (first["anew"], again["anew"]) == (True, False)
    assert first["request_id"] == again["request_id"]
    reply = await using(served, lambda client: client.query("letters", [[1, 2, 3, 4]]))
    found = await using(served, lambda client: client.feedback(reply, "a"))
    assert found["wrong"] == 1
    with pytest.raises(NotFound):
        await using(served, lambda client: client.feedback("nobody", "a"))


async def test_what_would_become_of_a_query_is_explained(served: Served) -> None:
    found = await using(served, lambda client: client.explain("letters", accuracy=0.9, rows=2))
    assert (found["outcome"], found["rows"], found["accuracy"]) == ("answered", 2, 0.9)
    assert found["answer"]["variant"] == FAST
    assert {each["variant"]: each["verdict"] for each in found["variants"]}[FAST] == "chosen"


async def test_what_would_be_refused_is_explained_and_raises_nothing(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}"
    async with AsyncClient(url, token=TOKEN) as client:
        found = await client.explain("letters", accuracy=1.0, latency_ms=5)
    assert found["outcome"] == "refused"
    assert found["refusal"]["code"] == "SLO_INFEASIBLE"
    assert {each["verdict"] for each in found["variants"]} == {"stopped"}


async def test_an_explanation_of_an_unknown_task_is_an_error(served: Served) -> None:
    with pytest.raises(TaskNotFound):
        await using(served, lambda client: client.explain("nothing"))


async def test_rows_are_lists_or_arrays(served: Served) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    forms = {
        "an array": rows,
        "of half precision": rows.astype(np.float16),
        "with strides": np.repeat(rows, 2, axis=1)[:, ::2],
        "column by column": np.asfortranarray(rows),
        "a list of arrays": list(rows),
        "lists": rows.tolist(),
        "by name": {"x": rows},
    }

    def ask(client: Client) -> dict[str, Reply]:
        return {form: client.query("letters", inputs) for form, inputs in forms.items()}

    replies = await using(served, ask)
    assert {form: reply.outputs for form, reply in replies.items()} == dict.fromkeys(
        forms, rows.tolist()
    )
    assert {(reply.labels, reply.scores) for reply in replies.values()} == {
        (("d", "d"), (3.0, 7.0))
    }


async def test_arrays_are_answered_with_arrays_and_the_rest_is_the_same(served: Served) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4) + np.float32(0.1)
    forms = {
        "an array": rows,
        "of double precision": rows.astype(np.float64),
        "of whole numbers": rows.astype(np.int64),
        "with strides": np.repeat(rows, 2, axis=1)[:, ::2],
        "column by column": np.asfortranarray(rows),
        "lists": rows.tolist(),
        "by name": {"x": rows},
    }

    def ask(client: Client) -> dict[str, tuple[Reply, Reply]]:
        return {
            form: (
                client.query("letters", inputs, arrays=True, variant=FAST, accuracy=0.5),
                client.query("letters", inputs, variant=FAST, accuracy=0.5),
            )
            for form, inputs in forms.items()
        }

    for form, (arrays, lists) in (await using(served, ask)).items():
        expected = np.asarray(forms[form]["x"] if isinstance(forms[form], dict) else forms[form])
        assert arrays.outputs.dtype == np.float32
        assert np.array_equal(arrays.outputs, expected.astype(np.float32)), form
        assert isinstance(lists.outputs, list)
        assert np.allclose(arrays.scores, lists.scores)
        for name in ("labels", "variant", "model_version", "accuracy", "slo_met", "choice_reason"):
            assert getattr(arrays, name) == getattr(lists, name)
        assert arrays.request_id


async def test_large_arrays_go_as_bytes_and_are_answered_as_lists(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary, "LEAST_BYTES", 128)
    rows = np.full((8, 4), 0.1, np.float32)
    asked: list[httpx.Request] = []

    def ask(client: Client) -> list[Reply]:
        client._http.event_hooks["request"] = [asked.append]
        return [
            client.query("letters", rows, latency_ms=5_000),
            client.query("letters", rows.astype(np.float64), latency_ms=5_000),
            client.query("letters", rows.tolist(), latency_ms=5_000),
        ]

    arrays, wider, lists = await using(served, ask)
    assert [request.url.path for request in asked] == [
        "/v2/models/letters", "/v2/models/letters/infer", "/v2/models/letters/infer", "/v1/query",
    ]  # fmt: skip
    assert arrays.outputs == wider.outputs == lists.outputs == [[0.1] * 4] * len(rows)
    assert (arrays.labels, arrays.scores) == (lists.labels, lists.scores)


@pytest.mark.parametrize(
    "inputs",
    [
        np.zeros((LEAST_BYTES, 3), np.float32),
        np.zeros((LEAST_BYTES, 4), bool),
        {"y": np.zeros((LEAST_BYTES, 4), np.float32)},
        np.full((LEAST_BYTES, 4), "a"),
        np.float32(3),
    ],
)
async def test_arrays_that_a_task_does_not_take_are_refused_as_lists_are(
    served: Served, inputs: Any
) -> None:
    for arrays in (False, True):
        refused = await refusal(served, inputs=inputs, arrays=arrays)
        assert isinstance(refused, InvalidInput)


async def test_arrays_that_are_not_finite_are_refused(served: Served) -> None:
    rows = np.full((8, 4), np.inf, np.float32)
    assert "finite" in (await refusal(served, inputs=rows, arrays=True)).message


async def test_arrays_for_what_is_not_there_are_refused_as_lists_are(served: Served) -> None:
    rows = np.zeros((2, 4), np.float32)
    assert isinstance(await refusal(served, task="nothing", inputs=rows, arrays=True), TaskNotFound)
    assert isinstance(await refusal(served, inputs=rows, arrays=True, token="x"), Unauthenticated)
    unknown = await refusal(served, inputs=rows, arrays=True, variant="no-v1-onnx-fp32")
    assert type(unknown) is type(await refusal(served, inputs=rows, variant="no-v1-onnx-fp32"))


async def test_an_event_loop_sends_arrays_as_well(served: Served) -> None:
    rows = np.full((8, 4), 2.0, np.float32)
    async with AsyncClient(f"http://127.0.0.1:{served.port}", token=TOKEN) as client:
        replies = await asyncio.gather(
            *(client.query("letters", rows, arrays=True, latency_ms=5_000) for _ in range(3))
        )
        listed = await client.query("letters", rows[:1].tolist(), latency_ms=5_000)
    assert all(np.array_equal(reply.outputs, rows) for reply in replies)
    assert listed.outputs == [[2.0] * 4]


def test_whole_numbers_that_do_not_fit_are_left_to_json() -> None:
    document = {
        "inputs": [{"name": "ids", "datatype": "INT32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    signature = Signatures().keep("a", document)
    for wrong in (np.array([[2**40, 0]]), np.array([[0.5, 0]]), np.array([[True, False]])):
        assert binary_content(signature, {"": wrong}, arrays=False) is None
    made = binary_content(signature, {"": np.array([[7, -1]])}, arrays=False, priority=7)
    assert made is not None
    assert b'"priority":7' in made[0]
    assert made[0].endswith(np.array([[7, -1]], "<i4").tobytes())


def test_arrays_are_sent_as_long_as_they_are_where_rows_differ_in_length() -> None:
    document = {
        "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, -1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    signature = Signatures().keep("a", document)
    made = binary_content(signature, {"": np.ones((3, 5, 2), np.int64)}, arrays=False)
    assert made is not None
    assert b'"shape":[3,5,2]' in made[0]
    assert binary_content(signature, {"": np.ones((3, 5, 3), np.int64)}, arrays=False) is None


@pytest.mark.parametrize("body", [b"{}", b'{"inputs": 3, "outputs": []}', b'{"outputs": [{}]}'])
def test_what_has_no_signature_is_not_modelless(body: bytes) -> None:
    with (
        answering(lambda _: httpx.Response(200, content=body)) as client,
        pytest.raises(Unreachable, match="is not modelless"),
    ):
        client.query("a", np.zeros((1, 4)), arrays=True)


async def test_what_is_asked_decides_what_answers(served: Served) -> None:
    def ask(client: Client) -> list[str]:
        row = [[0, 0, 0, 0]]
        return [
            client.query("letters", row, prefer="cost").variant,
            client.query("letters", row, accuracy=0.98).variant,
            client.query("letters", row, prefer="accuracy", latency_ms=500).variant,
            client.query("letters", row, variant=LATE).variant,
        ]

    assert await using(served, ask) == [FAST, SLOW, SLOW, LATE]


async def test_the_nearest_answers_when_nothing_fits_and_that_will_do(served: Served) -> None:
    def ask(client: Client) -> Reply:
        return client.query("letters", [[0] * 4], accuracy=0.999, best_effort=True)

    assert (await using(served, ask)).slo_met is False


async def test_one_connection_is_kept(served: Served) -> None:
    def ask(client: Client) -> set[int]:
        ours: set[int] = set()
        for _ in range(3):
            client.query("letters", [[0] * 4])
            for connection in psutil.Process().net_connections("tcp"):
                match connection.raddr, connection.laddr:
                    case (_, served.port), (_, port):
                        ours.add(port)
        return ours

    assert len(await using(served, ask)) == 1


async def refusal(served: Served, **changes: Any) -> ModellessError:
    asked = {"task": "letters", "inputs": [[0] * 4]} | changes
    token = asked.pop("token", TOKEN)
    with pytest.raises(ModellessError) as refused:
        await using(served, lambda client: client.query(**asked), token=token)
    return refused.value


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"task": "nothing"}, TaskNotFound, "nothing"),
        ({"inputs": [[1, 2]]}, InvalidInput, "4"),
        ({"inputs": {"x": object()}}, InvalidInput, "the query cannot be sent: Type is not JSON"),
        ({"inputs": [b"a text"]}, InvalidInput, "sent: texts are str, and not bytes: decode them"),
        ({"inputs": np.array([b"a"])}, InvalidInput, "sent: texts are str, and not bytes"),
        ({"accuracy": 2}, InvalidInput, "slo.accuracy"),
        ({"prefer": "speed"}, InvalidInput, "slo.prefer"),
        ({"token": "wrong"}, Unauthenticated, "not known here"),
        ({"variant": LATE, "latency_ms": 20}, DeadlineExceeded, "20 ms"),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind(
    served: Served, changes: dict[str, Any], kind: type[ModellessError], sentence: str
) -> None:
    error = await refusal(served, **changes)
    assert type(error) is kind
    assert sentence in error.message
    assert error.retryable is (kind is DeadlineExceeded)
    assert error.retry_after_s is None


async def test_an_infeasible_slo_names_what_comes_closest(served: Served) -> None:
    error = await refusal(served, accuracy=0.999)
    assert isinstance(error, SloInfeasible)
    assert error.alternatives[0].variant == SLOW
    assert error.alternatives[0].accuracy == 0.99


async def test_nobody_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url) as client, pytest.raises(Unreachable) as refused:
        client.query("letters", [[0]])
    assert (refused.value.code, refused.value.retryable) == ("UNREACHABLE", True)
    said = f"no gateway answers at {url}: connection refused; is it running?"
    assert str(refused.value) == said
    async with AsyncClient(url) as other:
        with pytest.raises(Unreachable) as refused:
            await other.query("letters", [[0]])
    assert str(refused.value) == said


# -- what a gateway could say, at the wire's other end --------------------------------------------


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    """A client whose requests end in this process."""
    return Client(transport=httpx.MockTransport(answer))


BODY = {
    "variant": "a-v1-onnx-fp32", "model_version": "a-v1", "worker": "w1", "batch_size": 3,
    "queue_ms": 0.5, "run_ms": 1.5, "accuracy": 0.9, "cost_usd_per_1k": 0.01, "slo_met": True,
    "outputs": {"y": [[1.0]], "z": [[2.0]]},
}  # fmt: skip


def test_a_reply_may_have_no_labels_and_more_than_is_known() -> None:
    with answering(lambda _: httpx.Response(200, json=BODY | {"news": 1})) as client:
        reply = client.query("a", [[0]])
    assert (reply.outputs, reply.labels, reply.scores) == (BODY["outputs"], (), ())


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"variant": "a"}'])
def test_what_is_no_reply_is_not_modelless(body: bytes) -> None:
    with (
        answering(lambda _: httpx.Response(200, content=body)) as client,
        pytest.raises(Unreachable, match=r"what answers at http://127.0.0.1:8000 is not modelless"),
    ):
        client.query("a", [[0]])


def error_of(
    status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> ModellessError:
    with (
        answering(lambda _: httpx.Response(status, json=body, headers=headers)) as client,
        pytest.raises(ModellessError) as refused,
    ):
        client.query("a", [[0]])
    return refused.value


def told(code: str, **more: Any) -> dict[str, Any]:
    return {"error": "a sentence", "code": code, "retryable": True, "request_id": "r1", **more}


@pytest.mark.parametrize(
    ("status", "body", "header", "kind", "retry_after_s"),
    [
        (503, told("COLD", retry_after_s=0.25), "1", Cold, 0.25),
        (503, told("OVERLOADED"), None, Overloaded, None),
        (429, told("RATE_LIMITED"), "7", RateLimited, 7.0),
        (503, {"message": "from a proxy"}, "3", Overloaded, 3.0),
        (503, told("REPLICA_LOST"), "Wed, 21 Oct 2026 07:28:00 GMT", ReplicaLost, None),
        (500, told("INTERNAL"), None, Internal, None),
    ],
)
def test_an_error_says_when_to_try_again(
    status: int,
    body: dict[str, Any],
    header: str | None,
    kind: type[ModellessError],
    retry_after_s: float | None,
) -> None:
    error = error_of(status, body, {"Retry-After": header} if header else None)
    assert (type(error), error.retry_after_s) == (kind, retry_after_s)
    assert error.retryable is (kind is not Internal)


def test_a_query_waits_longer_than_its_deadline_and_no_more() -> None:
    waits = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("late", request=request)

    with Client(transport=httpx.MockTransport(answer), timeout_s=2) as client:
        for latency_ms in (None, 60_000):
            with pytest.raises(DeadlineExceeded):
                client.query("a", [[0]], latency_ms=latency_ms)
    assert waits == [2.0, 62.0]


def test_a_connection_that_breaks_is_a_lost_replica() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    with answering(answer) as client, pytest.raises(ReplicaLost) as refused:
        client.query("a", [[0]])
    assert refused.value.retryable


def test_what_speaks_no_http_is_no_gateway() -> None:
    """Such as the gateway's port for gRPC."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("illegal status line", request=request)

    with (
        answering(answer) as client,
        pytest.raises(Unreachable, match="a port of its own for gRPC"),
    ):
        client.query("a", [[0]])


def heard(**options: Any) -> tuple[str, str | None]:
    """Which URL a client asks, and with which authorization."""
    asked: list[tuple[str, str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers.get("authorization")))
        return httpx.Response(200, json=BODY)

    with Client(transport=httpx.MockTransport(answer), **options) as client:
        client.query("a", [[0]])
    return asked[0]


def test_who_names_no_gateway_asks_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MODELLESS_URL", raising=False)
    monkeypatch.delenv("MODELLESS_API_TOKEN", raising=False)
    assert heard() == ("http://127.0.0.1:8000/v1/query", None)
    monkeypatch.setenv("MODELLESS_URL", "http://gateway:9000/")
    monkeypatch.setenv("MODELLESS_API_TOKEN", TOKEN)
    assert heard() == ("http://gateway:9000/v1/query", f"Bearer {TOKEN}")
    assert heard(url="http://other", token="") == ("http://other/v1/query", None)


async def test_an_event_loop_asks_that_of_the_environment_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODELLESS_URL", "http://gateway:9000/")
    async with AsyncClient() as client:
        assert client.url == "http://gateway:9000"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://", "http://a:b", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="no URL of a gateway"):
        Client(url)


# -- for an event loop ----------------------------------------------------------------------------


async def test_an_event_loop_asks_many_at_once(served: Served) -> None:
    """Each reply is that of its own row, with fewer connections than queries."""
    url = f"http://127.0.0.1:{served.port}/"
    rows = [[float(number)] * 4 for number in range(12)]
    async with AsyncClient(url, token=TOKEN, connections=3) as client:
        replies = await asyncio.gather(
            *(client.query("letters", [row], variant=FAST, latency_ms=20_000) for row in rows)
        )
    assert [reply.outputs for reply in replies] == [[row] for row in rows]
    assert {reply.variant for reply in replies} == {FAST}


async def test_both_clients_send_and_raise_the_same() -> None:
    asked: dict[str, Any] = {
        "accuracy": 0.9, "cost": 0.5, "prefer": "latency", "best_effort": True, "variant": "a-v1",
        "latency_ms": 250.0, "priority": 7,
    }  # fmt: skip
    sent: list[tuple[str, bytes, Any, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        headers = (request.headers["authorization"], request.headers["content-type"])
        sent.append((str(request.url), request.content, headers, request.extensions["timeout"]))
        return httpx.Response(503, json=told("COLD", retry_after_s=0.25))

    transport = httpx.MockTransport(answer)
    url = "http://gateway:8000/"
    with Client(url, token=TOKEN, transport=transport) as client, pytest.raises(Cold) as first:
        client.query("a", [[0]], **asked)
    async with AsyncClient(url, token=TOKEN, transport=transport) as asynchronous:
        with pytest.raises(Cold) as second:
            await asynchronous.query("a", [[0]], **asked)
    assert sent[0] == sent[1]
    assert b'"priority":7' in sent[0][1]
    assert first.value.retry_after_s == second.value.retry_after_s == 0.25


@pytest.mark.parametrize("name", ["latency_ms", "accuracy", "cost", "priority"])
@pytest.mark.parametrize("number", [math.nan, math.inf, np.float32("nan")])
async def test_a_need_that_is_no_number_is_refused_and_not_left_out(name: str, number: Any) -> None:
    """JSON has null for it, by which a query had no floor, ceiling or deadline of its own."""
    transport = httpx.MockTransport(lambda _: httpx.Response(500))
    asked: dict[str, Any] = {name: number}
    with Client(transport=transport) as client:
        for inputs in ([[0]], np.zeros((64, 1_000), np.float32)):
            with pytest.raises(InvalidInput, match=f"{name} must be a finite number, not "):
                client.query("a", inputs, **asked)
        with pytest.raises(InvalidInput, match="must be a finite number"):
            client.explain("a", **asked)
    async with AsyncClient(transport=transport) as asynchronous:
        with pytest.raises(InvalidInput, match="must be a finite number"):
            await asynchronous.query("a", [[0]], **asked)


def test_a_deadline_that_is_no_number_is_the_gateway_s_to_refuse() -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((orjson.loads(request.content)["slo"], request.extensions["timeout"]["read"]))
        return httpx.Response(400, json=told("INVALID_INPUT"))

    with Client(transport=httpx.MockTransport(answer), timeout_s=2) as client:
        for latency_ms in ("fast", np.float32(500), np.int64(500)):
            with pytest.raises(InvalidInput):
                client.query("a", [[0]], latency_ms=latency_ms)  # type: ignore[arg-type]
    assert sent == [
        ({"latency_ms": "fast"}, 2), ({"latency_ms": 500.0}, 2.5), ({"latency_ms": 500}, 2.5),
    ]  # fmt: skip


@pytest.mark.parametrize("labels", ["3", 3, np.int64(3), ["3"], [3], np.array([3])])
def test_the_right_class_of_a_single_row_may_stand_alone(labels: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=orjson.loads(request.content))

    with Client(transport=httpx.MockTransport(answer)) as client:
        assert client.feedback("r-1", labels) == {"request_id": "r-1", "labels": ["3"]}


FORKED = """
import os, sys
from modelless import Client
client = Client("http://127.0.0.1:9")
parents = client._http
child = os.fork()
if child == 0:
    os._exit(0 if client._http is not parents and client._http is client._http else 1)
_, status = os.waitpid(child, 0)
sys.exit(status != 0 or client._http is not parents)
"""


def test_a_process_that_was_forked_asks_over_connections_of_its_own() -> None:
    """It shared its parent's, and each could read what was answered to the other."""
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 0


async def test_an_event_loop_hears_that_nothing_listens() -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(Unreachable):
            await client.query("letters", [[0]])


def test_what_is_no_url_is_refused_for_an_event_loop_too() -> None:
    with pytest.raises(InvalidInput, match="no URL of a gateway"):
        AsyncClient("localhost:8000")
