"""The OpenAPI document and the page."""

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from controlplane.dashboard.pages import PAGES
from controlplane.registry.over_rest.uploads import FIELDS, ROWS, SWITCHES, TOKENIZER
from controlplane.settings import Settings
from tests.controlplane.api.routes.made_api import client_of, get, make_api
from tests.controlplane.builders import DictLive
from variants.catalog.memory import MemoryCatalog

SVG_NAMESPACE = "http://www.w3.org/2000/svg"


async def test_openapi_describes_every_route_with_typed_bodies(api: httpx.AsyncClient) -> None:
    document = await get(api, "/openapi.json")

    assert set(document["paths"]) >= {
        "/v1/tasks", "/v1/tasks/{task}", "/v1/tasks/{task}/models", "/v1/tasks/{task}/variants",
        "/v1/models", "/v1/models/{task}/{model}",
        "/v1/models/{task}/{model}/versions/{version}/stage",
        "/v1/variants/{task}/{variant}", "/v1/profiles", "/v1/devices", "/v1/workers", "/v1/plan",
        "/v1/ticks", "/v1/events", "/v1/slo", "/v1/operations/{id}",
        "/v1/inventory", "/v1/inventory/{device_kind}",
    }  # fmt: skip
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            done = next(reply for status, reply in route["responses"].items() if status[0] == "2")
            assert "$ref" in done["content"]["application/json"]["schema"], (method, path)
            refused = route["responses"]["400"]["content"]["application/json"]["schema"]
            assert refused["$ref"].endswith("/ErrorBody")
            assert route["summary"]


async def test_errors_are_described_with_the_statuses_that_they_have(
    api: httpx.AsyncClient,
) -> None:
    """What is wrong in a request is a 400, and not FastAPI's 422; a body may come too slowly."""
    document = await get(api, "/openapi.json")

    assert "HTTPValidationError" not in str(document)
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert ("408" in route["responses"]) is ("requestBody" in route), (method, path)
    assert "504" in document["paths"]["/v1/evictions"]["post"]["responses"]


async def test_all_that_the_description_refers_to_is_in_it(api: httpx.AsyncClient) -> None:
    document = await get(api, "/openapi.json")

    named = document["components"]["schemas"]
    assert set(re.findall(r"'#/components/schemas/([^']+)'", str(document))) <= set(named)
    assert list(named) == sorted(named)
    assert set(named["ErrorBody"]["properties"]) == {
        "error", "code", "retryable", "request_id", "reasons", "alternatives", "retry_after_s",
        "choices",
    }  # fmt: skip


async def test_all_that_a_registration_takes_is_described(api: httpx.AsyncClient) -> None:
    document = await get(api, "/openapi.json")
    form = document["paths"]["/v1/models"]["post"]["requestBody"]["content"]["multipart/form-data"]
    taken = {"task", "name", "model", TOKENIZER, *ROWS, *FIELDS, *SWITCHES}
    assert form["schema"] == {"$ref": "#/components/schemas/Registration"}
    assert set(document["components"]["schemas"]["Registration"]["properties"]) == taken


async def test_how_a_token_is_shown_and_when_to_come_back_is_described(
    api: httpx.AsyncClient,
) -> None:
    document = await get(api, "/openapi.json")
    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{}, {"token": []}]
    for route in document["paths"].values():
        for method in route.values():
            assert "Retry-After" in method["responses"]["429"]["headers"]
            is_readiness = "ErrorBody" not in str(method["responses"]["503"])
            assert is_readiness or "Retry-After" in method["responses"]["503"]["headers"]


def test_no_route_has_validators_of_its_errors(
    tmp_path: Path, settings: Settings, catalog: MemoryCatalog
) -> None:
    """They would be nearly a thousand, and three quarters of what an application takes to build."""
    routes = iter_route_contexts(make_api(tmp_path, settings, catalog).routes)
    described = [one for one in routes if hasattr(one, "responses")]

    assert len(described) > 30
    assert [one.path for one in described if one.response_fields] == []


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_self_contained_and_may_run_only_its_own_script(
    api: httpx.AsyncClient, path: str
) -> None:
    reply = await api.get(path)

    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert ("innerHTML" in reply.text, "insertAdjacent" in reply.text) == (False, False)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_names_no_other_host(api: httpx.AsyncClient, path: str) -> None:
    page = (await api.get(path)).text

    # The name of a namespace is no address: nothing is fetched from it.
    found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[\w./-]*", page)) - {SVG_NAMESPACE}
    fetched = re.findall(
        r"(?:src|srcset|action)=|<link[^>]* href=\"(?!data:)|@import|\burl\(", page
    )

    assert (found, fetched) == (set(), [])


async def test_the_description_is_made_once_and_not_on_the_event_loop(
    tmp_path: Path,
    settings: Settings,
    catalog: MemoryCatalog,
    live: DictLive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    application = make_api(tmp_path, settings, catalog, live)
    made_by: list[threading.Thread] = []
    described = application.openapi

    def noted() -> dict[str, Any]:
        made_by.append(threading.current_thread())
        return described()

    monkeypatch.setattr(application, "openapi", noted)
    async with client_of(application) as client:
        first, second = await asyncio.gather(*(client.get("/openapi.json") for _ in range(2)))
        tag = first.headers["etag"]
        same = await client.get("/openapi.json", headers={"If-None-Match": tag})

    assert first.json() == second.json()
    assert (same.status_code, same.content) == (304, b"")
    assert len(made_by) == 1
    assert made_by[0] is not threading.current_thread()


async def test_there_are_no_other_pages(api: httpx.AsyncClient) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert (await api.get(path)).status_code == 404
