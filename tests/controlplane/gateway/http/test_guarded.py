"""Which requests reach the ASGI application, and how the others are refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.dashboard.pages import ICONS, PAGES
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.guarded import Guarded
from controlplane.settings import load_settings
from tests.controlplane.builders import DictLive, digits_catalog
from variants.artifacts.store import FileArtifactStore

BEARER = {"Authorization": "Bearer open-sesame"}
MAX_BODY = 1_000_000


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The control API and the two health routes behind a token."""
    settings = load_settings(state_dir=tmp_path, api_token="open-sesame")
    store = FileArtifactStore(settings.artifacts_dir)
    api = build_api(
        ApiContext(catalog=digits_catalog(), store=store, settings=settings, live=DictLive())
    )
    for path in ("/v2/health/live", "/v2/health/ready"):
        api.add_api_route(path, lambda: {"fine": True}, name=path.rpartition("/")[2])
    door = Guarded(api, Access(settings), MAX_BODY)
    transport = httpx.ASGITransport(door)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("path", [*PAGES, *ICONS, "/v2/health/live", "/v2/health/ready"])
async def test_pages_and_health_need_no_token(guarded: httpx.AsyncClient, path: str) -> None:
    assert (await guarded.get(path)).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/v1/tasks", "/openapi.json", "/metrics", "/v2", "/v2/health", "/docs/", "//", "/nothing"],
)
async def test_everything_else_needs_it(guarded: httpx.AsyncClient, path: str) -> None:
    refused = await guarded.get(f"http://localhost{path}")
    let_in = await guarded.get(f"http://localhost{path}", headers=BEARER)

    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert let_in.status_code in (200, 307, 404)


async def test_a_person_without_the_token_is_told_where_it_is_asked_for(
    guarded: httpx.AsyncClient,
) -> None:
    browser = {"Accept": "text/html,*/*;q=0.8"}
    for path in ("/metrics", "/nothing"):
        reply = await guarded.get(path, headers=browser)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert "The dashboard and the API reference ask you for it." in reply.text
    reply = await guarded.get("/metrics", headers=browser | {"Host": "evil.example"})
    assert (reply.status_code, reply.json()["code"]) == (403, "FORBIDDEN")


async def test_an_open_path_is_open_to_reading_only(guarded: httpx.AsyncClient) -> None:
    assert (await guarded.post("/v2/health/live")).status_code == 401


@pytest.mark.parametrize("host", ["gateways", "10.0.0.7:8000", ""])
@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
async def test_health_is_told_under_any_name(
    guarded: httpx.AsyncClient, path: str, host: str
) -> None:
    """HAProxy's checks carry no Host, others that of their list of servers."""
    told = await guarded.get(path, headers={"Host": host})
    page = await guarded.get(path, headers={"Host": host, "Origin": "http://evil.example"})
    other = await guarded.get("/v2", headers=BEARER | {"Host": host})

    assert (told.status_code, page.status_code) == (200, 403)
    assert other.status_code == (403 if host else 400)


async def test_pages_show_nothing_of_the_catalog(guarded: httpx.AsyncClient) -> None:
    for path in PAGES:
        assert "linear-v1" not in (await guarded.get(path)).text


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/tasks", {}, 401),
        ("/", {"Host": "evil.example"}, 403),
        ("/", {"Origin": "http://evil.example"}, 403),
        ("/v2/models", BEARER | {"Content-Length": str(MAX_BODY + 1)}, 413),
    ],
)
async def test_a_refusal_carries_a_request_id_in_body_and_header(
    guarded: httpx.AsyncClient, path: str, headers: dict[str, str], status: int
) -> None:
    given = await guarded.get(path, headers=headers | {"X-Request-Id": "trace-7"})
    made = await guarded.get(path, headers=headers)

    assert (given.status_code, made.status_code) == (status, status)
    assert (given.json()["request_id"], given.headers["x-request-id"]) == ("trace-7", "trace-7")
    assert len(made.json()["request_id"]) == 16
    assert made.json()["request_id"] == made.headers["x-request-id"]


@pytest.mark.parametrize("told", [False, True])
async def test_no_body_is_gathered_beyond_the_limit(guarded: httpx.AsyncClient, told: bool) -> None:
    """Also where its length is not said, and the route reads all of it as JSON."""
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 20 * MAX_BODY:
            sent += 100_000
            yield b" " * 100_000

    path = "/v1/inventory/cpu-2"
    length = {"Content-Length": str(20 * MAX_BODY)} if told else {}
    reply = await guarded.put(path, content=pieces(), headers=BEARER | length)

    body = reply.json()
    assert (reply.status_code, body["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert body["error"] == "the body is larger than 0.25 MiB"
    assert sent <= MAX_BODY + 200_000
