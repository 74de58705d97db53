"""The example of a web application, tested as its author would: without a server."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import controlplane.client as modelless
from controlplane.client.testing import Asked, FakeGateway, answer

EXAMPLE = Path(__file__).parents[4] / "examples" / "web_application.py"
PIXELS = {"pixels": [[0.0] * 64, [1.0] * 64]}


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    spec = spec_from_file_location("web_application", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["web_application"] = module  # where pydantic looks for names
    spec.loader.exec_module(module)
    yield module
    del sys.modules["web_application"]


def threes(asked: Asked) -> modelless.Reply:
    return answer([[0.0] * 10] * asked.rows, ["3"] * asked.rows, variant="mlp-v1-onnx-int8")


def test_each_path_asks_for_what_its_askers_need(example: Any) -> None:
    gateway = FakeGateway({"digits": threes})
    with TestClient(example.application(gateway.async_client())) as web:
        for path in ("/typed", "/cheque", "/archive"):
            read = web.post(path, json=PIXELS)
            assert read.json() == {"digits": ["3", "3"], "by": "mlp-v1-onnx-int8"}
    typed, cheque, archive = gateway.asked
    assert (typed.latency_ms, typed.accuracy) == (50, None)
    assert (cheque.latency_ms, cheque.accuracy) == (1_000, 0.98)
    assert (archive.prefer, archive.priority) == ("cost", 65_535)


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (modelless.InvalidInput("63 pixels"), 400, None),
        (modelless.Overloaded("too much"), 503, "1"),
        (modelless.Cold("not loaded", retry_after_s=12.4), 503, "12"),
        (modelless.Unreachable("down"), 503, "1"),
        (modelless.SloInfeasible("never"), 500, None),
    ],
)
def test_errors_become_answers_of_its_own(
    example: Any, error: modelless.ModellessError, status: int, retry_after: str | None
) -> None:
    def refused(_: Asked) -> modelless.Reply:
        raise error

    gateway = FakeGateway({"digits": refused})
    with TestClient(example.application(gateway.async_client())) as web:
        met = web.post("/typed", json=PIXELS)
    assert (met.status_code, met.headers.get("Retry-After")) == (status, retry_after)
