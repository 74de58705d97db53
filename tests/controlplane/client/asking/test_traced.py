"""Queries of a program that keeps traces."""

import subprocess
import sys

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

from controlplane.client.asking import Client
from controlplane.client.asking_async import AsyncClient

REPLY = {
    "variant": "a", "model_version": "m-v1", "worker": "w1", "batch_size": 1, "queue_ms": 0.1,
    "run_ms": 0.2, "accuracy": 0.9, "cost_usd_per_1k": 0.1, "slo_met": True, "outputs": [[1.0]],
}  # fmt: skip


class Gateway:
    """Keeps the headers that queries come with."""

    def __init__(self) -> None:
        self.headers: list[httpx.Headers] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.headers.append(request.headers)
        return httpx.Response(200, json=REPLY)


async def test_they_belong_to_the_trace_that_is_open() -> None:
    gateway = Gateway()
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("a program")
    with (
        Client("http://gateway", transport=httpx.MockTransport(gateway)) as client,
        tracer.start_as_current_span("work") as span,
    ):
        client.query("digits", [[1.0]])
    with tracer.start_as_current_span("more") as later:
        async with AsyncClient(
            "http://gateway", transport=httpx.MockTransport(gateway)
        ) as eventually:
            await eventually.query("digits", [[1.0]])
    for headers, own in zip(gateway.headers, (span, later), strict=True):
        context = own.get_span_context()
        whole = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
        assert headers["traceparent"].startswith(whole)
        assert int(headers["traceparent"].removeprefix(whole), 16) & 1  # it is sampled


def test_without_one_nothing_is_said() -> None:
    gateway = Gateway()
    with Client("http://gateway", transport=httpx.MockTransport(gateway)) as client:
        client.query("digits", [[1.0]])
    assert "traceparent" not in gateway.headers[0]


@pytest.mark.slow
def test_a_program_without_traces_imports_nothing_of_them() -> None:
    code = (
        "import sys; from modelless import Client; "
        "from controlplane.client.exchange import in_trace, HEADERS; "
        "assert in_trace(HEADERS) is HEADERS; print('opentelemetry' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "False\n"
