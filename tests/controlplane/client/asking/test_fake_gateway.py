"""``modelless.testing``: what an application meets there is what it meets in production."""

import asyncio
import io
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import controlplane.client as modelless
from controlplane.client.testing import URL, Asked, FakeGateway, answer
from controlplane.http_errors import STATUS
from tests.controlplane.client.asking.asked import TOKEN, using
from tests.controlplane.serving import FAST, Served
from variants.errors import ModellessError

ROWS = [[0.0] * 4, [1.0] * 4]


def letters(asked: Asked) -> modelless.Reply:
    if asked.accuracy is not None and asked.accuracy > 0.99:
        raise modelless.SloInfeasible("none is", reasons={"a-v1": "accuracy 90.00 % < 99.50 %"})
    return answer([[0.1, 0.9]] * asked.rows, ["b"] * asked.rows, [0.9] * asked.rows)


def refusing(error: ModellessError) -> FakeGateway:
    def answers(_: Asked) -> modelless.Reply:
        raise error

    return FakeGateway({"letters": answers})


def test_what_was_asked_is_noted_and_what_was_given_comes_back() -> None:
    gateway = FakeGateway({"letters": letters})
    with gateway.client() as client:
        reply = client.query("letters", ROWS, latency_ms=50, prefer="accuracy", priority=7)
    assert (reply.labels, reply.scores) == (("b", "b"), (0.9, 0.9))
    assert reply.outputs == [[0.1, 0.9]] * 2
    assert reply == replace(
        letters(gateway.asked[0]), outputs=reply.outputs, request_id=reply.request_id
    )
    assert gateway.asked == [
        Asked(task="letters", inputs=ROWS, latency_ms=50, prefer="accuracy", priority=7)
    ]


def test_an_event_loop_asks_it_too() -> None:
    gateway = FakeGateway({"letters": letters})

    async def ask() -> list[modelless.Reply]:
        async with gateway.async_client() as client:
            return await asyncio.gather(*(client.query("letters", [row]) for row in ROWS))

    assert [reply.labels for reply in asyncio.run(ask())] == [("b",), ("b",)]
    assert len(gateway.asked) == 2


def test_arrays_and_pictures_are_taken() -> None:
    gateway = FakeGateway({"letters": letters})
    picture = io.BytesIO()
    Image.new("L", (8, 8)).save(picture, "PNG")
    with gateway.client() as client:
        large = client.query("letters", np.zeros((300, 64), np.float32), arrays=True)
        client.query("letters", image=picture.getvalue(), accuracy=0.5, best_effort=True)
    assert large.outputs.shape == (300, 2)
    assert gateway.asked[0].rows == 300
    assert gateway.asked[1] == Asked(
        task="letters", image=picture.getvalue(), accuracy=0.5, best_effort=True
    )
    assert gateway.asked[1].rows == 1


@pytest.mark.parametrize(
    "error",
    [
        modelless.Overloaded("too much"),
        modelless.Cold("not loaded", retry_after_s=3.0),
        modelless.NoWorkers("none", retry_after_s=8.0),
        modelless.RateLimited("enough"),
        modelless.SloInfeasible("never", reasons={"a-v1": "p95 3 ms > 1 ms"}),
        modelless.VariantNotLoadable("damaged", reasons={"a-v1": "it is"}),
        modelless.DeadlineExceeded("not answered within 5 ms"),
        modelless.ReplicaLost("gone"),
        modelless.StateUnavailable("away"),
        modelless.Unauthenticated("who are you"),
    ],
)
def test_an_error_comes_as_its_class_with_its_fields(error: ModellessError) -> None:
    gateway = refusing(error)
    with gateway.client() as client, pytest.raises(type(error)) as met:
        client.query("letters", ROWS)
    assert str(met.value) == str(error)
    assert met.value.retryable is error.retryable
    assert met.value.retry_after_s == error.retry_after_s
    assert met.value.request_id
    assert getattr(met.value, "reasons", None) == getattr(error, "reasons", None)


def test_an_internal_error_says_no_more_than_in_production() -> None:
    said = r"^internal error \(request \w+\)$"
    with (
        refusing(modelless.Internal("secret")).client() as client,
        pytest.raises(modelless.Internal, match=said),
    ):
        client.query("letters", ROWS)


def test_a_gateway_that_is_away_can_be_tried() -> None:
    with (
        refusing(modelless.Unreachable("down for maintenance")).client() as client,
        pytest.raises(modelless.Unreachable, match=f"no gateway answers at {URL}"),
    ):
        client.query("letters", ROWS)


def test_httpx_sees_statuses_and_headers() -> None:
    overloaded = modelless.Overloaded("too much")
    overloaded.retry_after_s = 0.25
    with httpx.Client(transport=refusing(overloaded).transport, base_url=URL) as http:
        met = http.post("/v1/query", json={"task": "letters", "inputs": ROWS})
        assert met.status_code == STATUS["OVERLOADED"]
        assert (met.headers["Retry-After"], met.headers["Retry-After-Ms"]) == ("1", "250")
        assert met.json()["code"] == "OVERLOADED"
        assert http.get("/v1/plan").json()["code"] == "NOT_FOUND"
        assert http.post("/v1/query", content=b"{").json()["code"] == "INVALID_INPUT"
        unknown = {"task": "letters", "inputs": ROWS, "latency": 5}
        assert http.post("/v1/query", json=unknown).json()["code"] == "INVALID_INPUT"


@pytest.mark.parametrize(
    "asked", [{"accuracy": 97}, {"latency_ms": 0}, {"latency_ms": -1.0}, {"prefer": "speed"}]
)
async def test_what_no_gateway_takes_it_does_not_take_either(
    served: Served, asked: dict[str, Any]
) -> None:
    with (
        FakeGateway({"letters": letters}).client() as client,
        pytest.raises(modelless.InvalidInput) as faked,
    ):
        client.query("letters", ROWS, **asked)
    with pytest.raises(modelless.InvalidInput) as met:
        await using(served, lambda client: client.query("letters", ROWS, **asked))
    assert str(met.value).startswith(str(faked.value))


BODY: dict[str, Any] = {"task": "letters", "inputs": [[0.0] * 4]}


def picture(**headers: str) -> dict[str, Any]:
    return {"content": b"", "headers": {"Content-Type": "Image/PNG", **headers}}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("query", {"json": {**BODY, "latency_ms": 50}}),
        ("query", {"json": {**BODY, "slo": {"priority": 1}}}),
        ("query", {"json": {**BODY, "slo": {"latency": 50}}}),
        ("query", {"json": {**BODY, "slo": {"latency_ms": "soon"}}}),
        ("query", {"json": {**BODY, "slo": {"latency_ms": 3_600_001}}}),
        ("query", {"json": {**BODY, "slo": {"cost": -1}}}),
        ("query", {"json": {**BODY, "slo": {"accuracy": True}}}),
        ("query", {"json": {**BODY, "slo": [50]}}),
        ("query", {"json": {**BODY, "priority": 1.5}}),
        ("query", {"json": {**BODY, "best_effort": "yes"}}),
        ("query", {"json": {**BODY, "best_effort": 1}}),
        ("query", {"json": {**BODY, "image": "cat.png"}}),
        ("query", {"json": {**BODY, "inputs": []}}),
        ("query", {"json": {**BODY, "inputs": 5}}),
        ("query", {"json": [BODY]}),
        ("query", {"json": BODY, "headers": {"SLO-Accuracy": "0.9"}}),
        ("query", picture()),
        ("query?task=letters", picture(**{"SLO-Cost": "a"})),
        ("query?task=letters", picture(**{"SLO-Late": "5"})),
        ("feedback", {"json": {"request_id": "a"}}),
        ("feedback", {"json": {"request_id": "a", "labels": "b"}}),
        ("feedback", {"content": b"{"}),
    ],
)
async def test_httpx_is_refused_what_a_gateway_refuses(
    served: Served, path: str, sent: dict[str, Any]
) -> None:
    def met(http: httpx.Client) -> tuple[int, str]:
        answer = http.post(f"/v1/{path}", **sent)
        return answer.status_code, answer.json()["code"]

    gateway = FakeGateway({"letters": letters})
    with httpx.Client(transport=gateway.transport, base_url=URL) as http:
        assert met(http) == (400, "INVALID_INPUT")
    assert not gateway.asked
    token = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", headers=token) as http:
        assert await asyncio.to_thread(met, http) == (400, "INVALID_INPUT")


def test_what_is_null_or_a_number_in_a_text_is_taken() -> None:
    gateway = FakeGateway({"letters": letters})
    slo = {"latency_ms": "50", "accuracy": None}
    with httpx.Client(transport=gateway.transport, base_url=URL) as http:
        body = {**BODY, "slo": slo, "best_effort": None, "priority": None}
        assert http.post("/v1/query", json=body).status_code == 200
    assert gateway.asked == [Asked(**BODY, latency_ms=50)]


async def test_a_reply_has_the_fields_that_a_gateway_sends(served: Served) -> None:
    def body_of(http: httpx.Client) -> dict[str, Any]:
        met = http.post("/v1/query", json={"task": "letters", "inputs": [[1, 2, 3, 4]]})
        assert met.status_code == 200, met.text
        body: dict[str, Any] = met.json()
        assert {"x-request-id", "x-choice-reason"} <= met.headers.keys()
        return body

    with httpx.Client(transport=FakeGateway({"letters": letters}).transport, base_url=URL) as http:
        faked = body_of(http)
    await served.worker("w2", FAST)
    base = f"http://127.0.0.1:{served.port}"
    headers = {"Authorization": "Bearer open sesame"}
    with httpx.Client(base_url=base, headers=headers) as http:
        real = await asyncio.to_thread(body_of, http)
    assert faked.keys() == real.keys()


def test_feedback_is_noted() -> None:
    gateway = FakeGateway({"letters": letters})
    with gateway.client() as client:
        reply = client.query("letters", ROWS)
        first, again = client.feedback(reply, ["a", "b"]), client.feedback(reply, ["a", "b"])
        with pytest.raises(modelless.NotFound):
            client.feedback("nobody", "a")
        with pytest.raises(modelless.InvalidInput):
            client.feedback(reply, "a")
        with pytest.raises(modelless.Conflict):
            client.feedback(reply, ["b", "b"])
        with pytest.raises(modelless.TaskNotFound, match="there are: letters"):
            client.query("letter", ROWS)
    assert (first["right"], first["wrong"], first["anew"], again["anew"]) == (1, 1, True, False)
    assert gateway.told[0] == (reply.request_id, ("a", "b"))
