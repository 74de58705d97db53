"""Who may ask over HTTP: hosts, pages and tokens."""

from pathlib import Path

import pytest

from tests.controlplane.serving import FAST, Served, post, query, request, serving

ROUTES = [
    post(query(1)),
    post(query(1), path="/v2/models/letters/infer"),
    request("GET", "/metrics", None),
    request("GET", "/v1/tasks", None),
]


@pytest.mark.parametrize("data", ROUTES)
async def test_a_wrong_host_is_forbidden(served: Served, data: bytes) -> None:
    client = await served.client()
    client.send(data.replace(b"Host: localhost", b"Host: evil.example"))
    status, code, text = (await client.answer()).error
    assert (status, code) == (403, "FORBIDDEN")
    assert text == "Host 'evil.example' is not served here; see MODELLESS_ALLOWED_HOSTS"


@pytest.mark.parametrize("data", ROUTES)
async def test_a_foreign_page_is_forbidden(served: Served, data: bytes) -> None:
    client = await served.client()
    origin = b"Host: localhost\r\nOrigin: http://evil.example"
    client.send(data.replace(b"Host: localhost", origin))
    status, code, text = (await client.answer()).error
    assert (status, code) == (403, "FORBIDDEN")
    said = "pages of 'http://evil.example' may not call this gateway; serve both from one address"
    assert text in (said, f"{said}, or see MODELLESS_CORS_ORIGINS")


async def test_the_gateways_own_page_may_ask(served: Served) -> None:
    host = f"localhost:{served.port}"
    headers = [("Origin", f"http://{host}")]
    assert (await served.ask(query(1), host=host, headers=headers)).status == 200


async def test_no_host_is_no_request(served: Served) -> None:
    answer = await served.ask(query(1), host=None)
    assert answer.error == (400, "INVALID_INPUT", "the Host header is missing")


async def test_a_token_is_asked_for(short_folder: Path, live_url: str) -> None:
    async with serving(short_folder, live_url, api_token="sesame") as served:
        await served.worker("w1", FAST)
        wrong = [("Authorization", "Bearer open")]
        right = [("Authorization", "Bearer sesame")]
        for headers in ([], wrong):
            answer = await served.ask(query(1), headers=headers)
            assert answer.error[:2] == (401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert (await served.get("/metrics", headers=headers)).status == 401
        assert (await served.ask(query(1), headers=right)).status == 200
        assert (await served.get("/metrics", headers=right)).status == 200
