"""Every error of the control API has one body, and people in a browser get a page."""

import asyncio
import re
import threading
from pathlib import Path

import httpx
import pytest

from controlplane.dashboard.pages import ICONS, PAGES
from controlplane.settings import Settings
from tests.controlplane.api.routes.made_api import client_of, make_api
from variants.catalog.memory import MemoryCatalog
from variants.catalog.protocol import Marks
from variants.errors import StateUnavailable
from variants.types import CatalogSnapshot


class GoneCatalog(MemoryCatalog):
    """A catalog whose database is gone."""

    def marks(self) -> Marks:
        raise StateUnavailable("the database does not answer")

    def snapshot(self) -> CatalogSnapshot:
        raise StateUnavailable("the database does not answer")


class BrokenCatalog(MemoryCatalog):
    def marks(self) -> Marks:
        raise ValueError("secret: /srv/password")


async def test_a_body_that_curl_calls_a_form_is_read_as_json(api: httpx.AsyncClient) -> None:
    reply = await api.post(
        "/v1/models/digits/mlp/versions/1/stage",
        content=b'{"stage": "retired"}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )

    assert (reply.status_code, reply.json()["stage"]) == (200, "retired")


async def test_an_unknown_path_is_a_typed_404(api: httpx.AsyncClient) -> None:
    reply = await api.get("/v1/nothing")

    assert reply.status_code == 404
    assert reply.json() == {
        "error": "there is nothing at GET /v1/nothing",
        "code": "NOT_FOUND",
        "retryable": False,
        "request_id": reply.headers["x-request-id"],
    }


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/tasks/", "/v1/tasks"),
        ("/v1/task", "/v1/tasks"),
        ("/tasks", "/v1/tasks"),
        ("/tasks/digits/variants", "/v1/tasks/digits/variants"),
        ("/v1/quarantines", "/v1/quarantine"),
    ],
)
async def test_a_path_that_is_nearly_known_is_told(
    api: httpx.AsyncClient, path: str, near: str
) -> None:
    reply = await api.get(path)
    assert (reply.status_code, reply.json()["error"]) == (
        404,
        f"there is nothing at GET {path}; did you mean {near}?",
    )


async def test_a_wrong_time_is_told_in_plain_words(api: httpx.AsyncClient) -> None:
    for since in ("yesterday", "2027-11-26T08:00:00"):
        reply = await api.get("/v1/events", params={"since": since})
        assert (reply.status_code, reply.json()["error"]) == (
            400,
            "query 'since' is wrong: it must be a time in ISO 8601 with its timezone, such as"
            " 2027-11-26T08:00:00Z",
        )


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("path", "top"), [("/dashbord", "./"), ("/ui/", "../"), ("/v1/nothing", "../")]
)
async def test_a_person_at_an_unknown_path_is_told_what_there_is(
    api: httpx.AsyncClient, path: str, top: str
) -> None:
    reply = await api.get(path, headers=BROWSER)

    assert (reply.status_code, reply.headers["vary"]) == (404, "Accept")
    assert reply.headers["content-type"].startswith("text/html")
    assert f"There is nothing at GET {path}." in reply.text
    assert re.findall(r'<a href="([^"]*)"', reply.text) == [top, f"{top}docs", f"{top}metrics"]
    assert reply.headers["x-request-id"] in reply.text
    assert "default-src 'none'; script-src 'none'" in reply.headers["content-security-policy"]


async def test_the_page_of_an_error_holds_what_was_asked_as_text(api: httpx.AsyncClient) -> None:
    reply = await api.get("/<script>alert(1)</script>", headers=BROWSER)

    assert "<script>" not in reply.text
    assert "&lt;script&gt;" in reply.text


async def test_programs_get_json_whatever_they_ask_by(api: httpx.AsyncClient) -> None:
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert (await api.get("/foo", headers=headers)).json()["code"] == "NOT_FOUND"
    assert (await api.post("/foo", headers=BROWSER)).json()["code"] == "NOT_FOUND"
    reply = await api.get("/v1/tasks/nothing", headers=BROWSER)  # the path is right
    assert reply.json()["code"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("path", ICONS)
async def test_the_icon_is_kept_for_a_day(api: httpx.AsyncClient, path: str) -> None:
    reply = await api.get(path)

    assert (reply.status_code, reply.headers["content-type"]) == (200, "image/svg+xml")
    assert reply.headers["cache-control"] == "public, max-age=86400"
    assert reply.text.startswith("<svg")


@pytest.mark.parametrize("path", [*PAGES, *ICONS])
async def test_what_a_browser_has_is_not_sent_again(api: httpx.AsyncClient, path: str) -> None:
    tag = (await api.get(path)).headers["etag"]

    reply = await api.get(path, headers={"If-None-Match": tag})

    assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)


async def test_a_wrong_method_is_a_typed_405(api: httpx.AsyncClient) -> None:
    reply = await api.delete("/v1/plan")

    assert (reply.status_code, reply.headers["allow"]) == (405, "GET")
    assert reply.json()["error"] == "DELETE /v1/plan is not possible; allowed: GET"
    # Each of these methods has a route of its own.
    reply = await api.request("OPTIONS", "/v1/peaks")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, POST")


async def test_broken_json_is_one_sentence(api: httpx.AsyncClient) -> None:
    reply = await api.post(
        "/v1/models/digits/mlp/versions/1/stage",
        content=b"{",
        headers={"content-type": "application/json"},
    )

    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert reply.json()["error"] == "the body is not JSON"


async def test_a_limit_out_of_range_is_one_sentence(api: httpx.AsyncClient) -> None:
    reply = await api.get("/v1/events?limit=0")

    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")
    assert reply.json()["error"] == ("query 'limit' is wrong: it must be at least 1")


@pytest.mark.parametrize("after", [-1, 2**53 + 1, 2**63, 10**30])
async def test_a_number_that_no_event_has_is_refused(api: httpx.AsyncClient, after: int) -> None:
    reply = await api.get(f"/v1/events?after={after}")
    assert (reply.status_code, reply.json()["code"]) == (400, "INVALID_INPUT")


async def test_a_plain_request_id_is_kept_and_another_is_replaced(api: httpx.AsyncClient) -> None:
    kept = await api.get("/v1/tasks", headers={"X-Request-Id": "trace-7"})
    replaced = await api.get("/v1/tasks", headers={"X-Request-Id": "<script>"})

    assert kept.headers["x-request-id"] == "trace-7"
    assert len(replaced.headers["x-request-id"]) == 16


async def test_a_database_that_is_gone_is_a_typed_503(tmp_path: Path, settings: Settings) -> None:
    async with client_of(make_api(tmp_path, settings, GoneCatalog())) as api:
        reply = await api.get("/v1/tasks")

    assert (reply.status_code, reply.json()["code"]) == (503, "STATE_UNAVAILABLE")
    assert reply.json()["retryable"] is True


async def test_a_bug_shows_a_request_id_and_nothing_else(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(make_api(tmp_path, settings, BrokenCatalog())) as api:
        reply = await api.get("/v1/tasks")

    assert reply.status_code == 500
    assert reply.json() == {
        "error": "internal error",
        "code": "INTERNAL",
        "retryable": False,
        "request_id": reply.headers["x-request-id"],
    }
    assert reply.headers["x-request-id"] in caplog.text
    assert "secret: /srv/password" in caplog.text


async def test_a_slow_catalog_does_not_hold_up_others(
    tmp_path: Path, settings: Settings, catalog: MemoryCatalog
) -> None:
    release = threading.Event()

    class SlowCatalog(MemoryCatalog):
        def marks(self) -> Marks:
            release.wait(60)
            return super().marks()

    async with client_of(make_api(tmp_path, settings, SlowCatalog())) as api:
        slow = asyncio.create_task(api.get("/v1/tasks"))
        quick = await api.get("/v1/workers")
        waiting = not slow.done()
        release.set()
        assert (quick.status_code, waiting, (await slow).status_code) == (200, True, 200)
