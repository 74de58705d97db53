"""The OpenAPI document of a gateway, read as programs read it that make clients of it."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.controlplane.serving import Served, serving

NAMED = ("Query", "Slo", "Reply", "ExplainedQuery", "InferRequest", "InferResponse", "Registration")


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url) as running:
        yield running


async def described(served: Served) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:
        document: dict[str, Any] = (await client.get("/openapi.json")).json()
    return document


def schemas(part: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects of the document, with their places."""
    if isinstance(part, dict):
        yield where, part
        for key, value in part.items():
            yield from schemas(value, f"{where}/{key}")
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from schemas(value, f"{where}/{index}")


async def test_a_program_can_make_a_client_of_the_document(served: Served) -> None:
    document = await described(served)

    routes = [route for methods in document["paths"].values() for route in methods.values()]
    names = Counter(route["operationId"] for route in routes)
    assert names["query"] == 1
    assert [name for name, count in names.items() if count > 1 or not name.isidentifier()] == []
    known = document["components"]["schemas"]
    assert [name for name in known if not re.fullmatch(r"[A-Z][A-Za-z]+", name)] == []
    for where, one in schemas(document):
        kind = one.get("type")
        if kind == "array" or (isinstance(kind, list) and "array" in kind):
            assert one.keys() & {"items", "prefixItems"}, where
        assert "type" in one or "enum" not in one or "/example" in where, where


async def test_bodies_of_queries_have_names_and_what_they_are(served: Served) -> None:
    document = await described(served)
    known, paths = document["components"]["schemas"], document["paths"]

    assert set(NAMED) <= set(known)
    asked = paths["/v1/query"]["post"]["requestBody"]["content"]["application/json"]
    answered = paths["/v1/query"]["post"]["responses"]["200"]["content"]["application/json"]
    assert asked["schema"] == {"$ref": "#/components/schemas/Query"}
    assert answered["schema"] == {"$ref": "#/components/schemas/Reply"}
    assert known["Query"]["required"] == ["task", "inputs"]
    assert known["Query"]["properties"]["slo"] == {"$ref": "#/components/schemas/Slo"}
    assert known["ExplainedQuery"]["required"] == ["task"]
    referred = set(re.findall(r"'#/components/schemas/([^']+)'", str(document)))
    assert referred == set(known)
