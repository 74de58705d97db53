"""Pages of other origins ask queries from a browser where a setting lets them."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from controlplane.access.exposure import origins_in
from controlplane.gateway.http.cross_origin import CrossOrigin
from controlplane.gateway.http.http_protocol import CrossOriginFront
from controlplane.gateway.images.asked import KNOWN
from controlplane.settings import load_settings
from tests.controlplane.serving import FAST, TASK, Answer, Served, post, query, request, serving
from variants.errors import InvalidInput

APP = "https://app.example"
TOKEN = "0123456789abcdef"
INFER = f"/v2/models/{TASK.name}/infer"
QUERIES = ["/v1/query", INFER, f"/v2/models/{TASK.name}/versions/{FAST}/infer"]
LOOKS = ["/v2", "/v2/health/ready", f"/v2/models/{TASK.name}", "/v2/models/none/ready"]


async def served_with(live_url: str, **settings: Any) -> AsyncIterator[Served]:
    # A socket's path may hold 107 bytes, too few for a test's own folder.
    with TemporaryDirectory(prefix="ml-", dir="/tmp") as folder:
        async with serving(Path(folder), live_url, **settings) as running:
            await running.worker("w1", FAST)
            yield running


@pytest.fixture
async def served(live_url: str) -> AsyncIterator[Served]:
    origins = f"{APP}, http://localhost:3000"
    async for running in served_with(live_url, cors_origins=origins, api_token=TOKEN):
        yield running


@pytest.fixture
async def closed(live_url: str) -> AsyncIterator[Served]:
    """As by default."""
    async for running in served_with(live_url):
        yield running


async def preflight(
    served: Served, path: str, method: str = "POST", origin: str = APP, asked: str = ""
) -> Answer:
    headers = [("Origin", origin), ("Access-Control-Request-Method", method)]
    if asked:
        headers.append(("Access-Control-Request-Headers", asked))
    client = await served.client()
    client.send(request("OPTIONS", path, None, headers=headers))
    return await client.answer()


def as_page(origin: str = APP) -> list[tuple[str, str]]:
    return [("Origin", origin), ("Authorization", f"Bearer {TOKEN}")]


def cross_origin(answer: Answer) -> dict[str, str]:
    """Its headers for browsers."""
    return {
        name: value for name, value in answer.headers.items() if name.startswith("access-control-")
    }


@pytest.mark.parametrize(
    ("path", "method"),
    [*((path, "POST") for path in [*QUERIES, "/v2/repository/index"]),
     *((path, "GET") for path in LOOKS)],
)  # fmt: skip
async def test_a_page_is_told_that_it_may_ask(served: Served, path: str, method: str) -> None:
    answer = await preflight(served, path, method, asked="authorization, content-type")
    assert (answer.status, answer.body) == (204, b"")
    said = cross_origin(answer)
    assert said["access-control-allow-origin"] == APP
    assert method in said["access-control-allow-methods"].split(", ")
    assert answer.headers["vary"] == "origin"
    allowed = said["access-control-allow-headers"].split(", ")
    assert {"authorization", "content-type", "content-encoding", "x-request-id"} <= {*allowed}
    assert {*KNOWN, "traceparent", "tracestate"} <= {*allowed}, "headers that are read"


@pytest.mark.parametrize(
    ("path", "method", "origin"),
    [
        ("/v1/tasks", "GET", APP),
        ("/v1/tasks/digits", "DELETE", APP),
        ("/v1/query", "PUT", APP),
        ("/metrics", "GET", APP),
        ("/v1/query", "POST", "http://app.example"),
        ("/v1/query", "POST", "https://app.example.evil.example"),
        ("/v1/query", "POST", "null"),
    ],
)
async def test_nothing_else_and_nobody_else_may(
    served: Served, path: str, method: str, origin: str
) -> None:
    answer = await preflight(served, path, method, origin)
    assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN")
    assert cross_origin(answer) == {}


@pytest.mark.parametrize("path", QUERIES)
async def test_a_page_reads_what_it_is_answered(served: Served, path: str) -> None:
    body = query(1) if path == "/v1/query" else {"inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 0.0, 0.0, 0.0]}
    ]}  # fmt: skip
    client = await served.client()
    for _ in range(3):  # also behind a head that is known
        answer = await client.ask(body, path=path, headers=as_page())
        assert answer.headers["access-control-allow-origin"] == APP
        shown = answer.headers["access-control-expose-headers"].split(", ")
        assert {"x-choice-reason", "retry-after-ms", "x-request-id"} <= {*shown}
    other = await client.ask(body, path=path, headers=as_page("https://evil.example"))
    assert (other.status, other.json["code"], cross_origin(other)) == (403, "FORBIDDEN", {})


async def test_a_page_reads_why_it_is_refused(served: Served) -> None:
    unknown = await served.ask(query(1, task="none"), headers=as_page())
    assert (unknown.status, unknown.json["code"]) == (404, "TASK_NOT_FOUND")
    nobody = await served.ask(query(1), headers=[("Origin", APP)])
    assert (nobody.status, nobody.json["code"]) == (401, "UNAUTHENTICATED")
    for answer in (unknown, nobody):
        assert answer.headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize("path", LOOKS)
async def test_a_page_reads_what_there_is_to_ask(served: Served, path: str) -> None:
    answer = await served.get(path, headers=as_page("http://localhost:3000"))
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"


async def test_answers_in_turn_can_be_read_as_well(served: Served) -> None:
    client = await served.client()
    client.send(2 * post(query(1), headers=as_page()))
    for _ in range(2):
        assert (await client.answer()).headers["access-control-allow-origin"] == APP


async def test_who_is_no_page_is_answered_as_without(served: Served) -> None:
    answer = await served.ask(query(1), headers=[("Authorization", f"Bearer {TOKEN}")])
    assert (answer.status, cross_origin(answer)) == (200, {})
    assert "vary" not in answer.headers


async def test_by_default_no_page_may(closed: Served) -> None:
    answer = await preflight(closed, "/v1/query")
    assert (answer.status, cross_origin(answer)) == (403, {})
    assert "see MODELLESS_CORS_ORIGINS" in answer.json["error"]
    of_operators = await preflight(closed, "/v1/tasks", "GET")
    assert "CORS" not in of_operators.json["error"]  # no setting would allow that
    refused = await closed.ask(query(1), headers=[("Origin", APP)])
    assert (refused.status, refused.json["code"]) == (403, "FORBIDDEN")
    assert "see MODELLESS_CORS_ORIGINS" in refused.json["error"]


async def test_where_no_page_may_ask_an_answer_takes_no_step_more(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CrossOrigin, "lines", lambda *_: pytest.fail("it was looked at"))
    monkeypatch.setattr(CrossOriginFront, "answer", lambda *_: pytest.fail("it was looked at"))
    assert (await closed.ask(query(1))).status == 200
    assert (await closed.get("/v2")).status == 200


def test_any_origin_is_told_any() -> None:
    rules = CrossOrigin("*")
    assert rules.lines(b"https://whoever.example").startswith(b"access-control-allow-origin: *\r\n")
    assert rules.allows(b"null")
    assert rules.lines(None) == b""


def test_a_page_on_the_internet_may_ask_a_gateway_on_loopback_only_if_it_is_listed() -> None:
    asked = {
        b"origin": APP.encode(),
        b"access-control-request-method": b"POST",
        b"access-control-request-private-network": b"true",
    }
    assert b"access-control-allow-private-network: true\r\n" in CrossOrigin(APP).preflight(asked)
    assert CrossOrigin("https://other.example").preflight(asked) == b""
    del asked[b"access-control-request-private-network"]
    assert b"private-network" not in CrossOrigin(APP).preflight(asked)


def test_origins_are_compared_as_browsers_write_them() -> None:
    assert origins_in(" https://App.Example:443,http://localhost:3000 , http://[::1]:80") == {
        "https://app.example", "http://localhost:3000", "http://[::1]",
    }  # fmt: skip
    assert not CrossOrigin("")


@pytest.mark.parametrize(
    "text",
    ["app.example", "https://app.example/", "https://*.example", "ftp://app.example", "null"],
)
def test_what_is_no_origin_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="is no origin: they are like"):
        load_settings(state_dir=tmp_path, cors_origins=text)
