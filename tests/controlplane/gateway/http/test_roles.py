"""Who may do what: each route of the OpenAPI document, with each role that a request may have."""

from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI, Response

from controlplane.access.client_keys import ClientKey, Role, digest_of
from controlplane.gateway.gateway import Gateway
from controlplane.gateway.http.access import Access, KnownClients
from controlplane.gateway.http.guarded import Guarded
from controlplane.gateway.http.taken_up import TakenUp
from controlplane.settings import load_settings
from tests.controlplane.builders import digits_catalog
from variants.artifacts.store import FileArtifactStore

TOKEN = "sixteen characters"
KEYS = {
    "client": ClientKey("shop", digest_of(b"a client's own key"), 1.0, Role.QUERIES),
    "metrics": ClientKey("watch", digest_of(b"a key of Prometheus"), 1.0, Role.METRICS),
}
BEARERS = {
    "nobody": {},
    "stranger": {"authorization": "Bearer something else instead"},
    "client": {"authorization": "Bearer a client's own key"},
    "metrics": {"authorization": "Bearer a key of Prometheus"},
    "operator": {"authorization": f"Bearer {TOKEN}"},
}
Routes = set[tuple[str, str]]
"""Methods and paths."""
NOBODY = {("get", "/v2/health/live"), ("get", "/v2/health/ready")}
"""Of those that the document names; the pages stand in none."""
CLIENTS = NOBODY | {
    ("post", "/v1/query"),
    ("post", "/v1/explain"),
    ("post", "/v1/feedback"),
    ("post", "/v1/embeddings"),
    ("get", "/v1/models"),
    ("get", "/v2"),
    ("get", "/v2/models/{task}"),
    ("get", "/v2/models/{task}/config"),
    ("get", "/v2/models/{task}/ready"),
    ("get", "/v2/models/{task}/stats"),
    ("get", "/v2/models/{task}/versions/{variant}"),
    ("get", "/v2/models/{task}/versions/{variant}/config"),
    ("get", "/v2/models/{task}/versions/{variant}/ready"),
    ("get", "/v2/models/{task}/versions/{variant}/stats"),
    ("get", "/v2/models/stats"),
    ("post", "/v2/models/{task}/infer"),
    ("post", "/v2/models/{task}/versions/{variant}/infer"),
    ("post", "/v2/repository/index"),
}
METRICS = NOBODY | {("get", "/metrics")}


def guarded_by(folder: Path, token: str, *keys: ClientKey) -> Guarded:
    """What stands before the routes of a gateway, which it does not answer."""
    settings = load_settings(state_dir=folder, api_token=token)
    store = FileArtifactStore(settings.artifacts_dir)
    gateway = Gateway(settings, digits_catalog(), store, b"secret")
    access = Access(settings)
    access.clients = KnownClients(keys)
    return cast(Guarded, gateway._application(access))


@pytest.fixture
def door(tmp_path: Path) -> Guarded:
    """Of a gateway with a token and two keys."""
    return guarded_by(tmp_path, TOKEN, *KEYS.values())


@pytest.fixture
def routes(door: Guarded) -> Routes:
    """Those of the document."""
    paths = cast(FastAPI, cast(TakenUp, door.app).app).openapi()["paths"]
    return {(method, path) for path, of in paths.items() for method in of}


async def let_in(door: Guarded, routes: Routes, **headers: str) -> Routes:
    """The routes whose request comes to where it is answered."""

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        await Response(status_code=204)(scope, receive, send)

    door.app = answers
    found: Routes = set()
    transport = httpx.ASGITransport(door)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for method, path in sorted(routes):
            named = path.format_map(_Named())
            reply = await client.request(method.upper(), named, headers=headers)
            assert reply.status_code in (204, 401, 403), (method, path)
            if reply.status_code == 204:
                found.add((method, path))
    return found


class _Named(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "1" if name in ("version", "id") else "digits"


@pytest.mark.parametrize(
    ("role", "opened"),
    [("nobody", NOBODY), ("stranger", NOBODY), ("client", CLIENTS), ("metrics", METRICS)],
)
async def test_a_role_opens_its_routes_and_no_other(
    door: Guarded, routes: Routes, role: str, opened: Routes
) -> None:
    assert await let_in(door, routes, **BEARERS[role]) == opened


async def test_the_operator_opens_all(door: Guarded, routes: Routes) -> None:
    assert await let_in(door, routes, **BEARERS["operator"]) == routes
    assert len(routes) > 60


@pytest.mark.parametrize(
    ("headers", "opened"),
    [
        ({"origin": "https://evil.example"}, set()),
        ({"origin": "http://evil.localhost"}, set()),
        ({"origin": "http://localhost:1"}, set()),  # another program of this machine
        ({"origin": "null"}, set()),  # a file, or a frame without an origin of its own
        ({"host": "evil.example"}, NOBODY),  # a name that was made to lead to 127.0.0.1
        ({"host": "evil.example", "origin": "http://evil.example"}, NOBODY),
        ({"host": "127.0.0.1.evil.example"}, NOBODY),
    ],
)
@pytest.mark.parametrize("token", [TOKEN, ""], ids=["with a token", "without"])
async def test_a_page_of_another_address_opens_nothing(
    tmp_path: Path, routes: Routes, headers: dict[str, str], opened: Routes, token: str
) -> None:
    """Also where a browser would send the operator's token with what it asks for."""
    bearer = BEARERS["operator"] if token else {}
    assert await let_in(guarded_by(tmp_path, token), routes, **bearer, **headers) == opened


async def test_without_a_token_all_is_open_to_who_is_on_this_machine(
    tmp_path: Path, routes: Routes
) -> None:
    own = {"origin": "http://localhost"}
    for headers in ({}, own):
        assert await let_in(guarded_by(tmp_path, ""), routes, **headers) == routes
