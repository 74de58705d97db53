"""Traces of a gateway as a collector gets them."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.gateway.grpc.calls import connected, request
from tests.controlplane.gateway.tracing.collector import Collector, Span, collecting
from tests.controlplane.serving import FAST, KNOWN, LATE, SLOW, TASK, Served, post, serving, until
from tests.ports import free_port
from variants.types import Sharing

pytestmark = pytest.mark.slow

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{ID}-{SPAN}-01"
SERVER, INTERNAL = 2, 1
ROW = {"task": "letters", "inputs": [[1, 5, 2, 3]]}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
async def served(short_folder: Path, live_url: str, collector: Collector) -> AsyncIterator[Served]:
    """A gateway that traces nothing by itself but what fails."""
    async with serving(
        short_folder, live_url, grpc_port=free_port(), traces_url=collector.url, traces_share=0.0
    ) as running:
        await running.worker("w1", FAST, SLOW)
        yield running


async def traced(collector: Collector, request_id: str) -> list[Span]:
    await until(lambda: collector.of(request_id) != [])
    return collector.of(request_id)


async def test_a_query_is_a_span_in_the_trace_of_who_asks_with_its_parts(
    served: Served, collector: Collector
) -> None:
    headers = [("traceparent", SAMPLED), ("x-request-id", "mine")]
    body = {**ROW, "slo": {"latency_ms": 30_000, "accuracy": 0.95}}
    answer = await served.ask(body, headers=headers)
    said = answer.json
    root, *parts = await traced(collector, "mine")
    assert (root.name, root.kind, root.trace_id, root.parent_id) == (
        "query letters", SERVER, ID, SPAN,
    )  # fmt: skip
    assert not root.failed
    expected = {
        "http.route": "/v1/query",
        "http.response.status_code": 200,
        "modelless.task": "letters",
        "modelless.slo.latency_ms": 30_000.0,
        "modelless.slo.accuracy": 0.95,
        "modelless.variant": SLOW,
        "modelless.model_version": "slow-v1",
        "modelless.worker": "w1",
        "modelless.batch_size": 1,
        "modelless.run_ms": said["run_ms"],
        "modelless.reason": answer.headers["x-choice-reason"],
        "modelless.tries": 1,
        "modelless.slo_met": True,
    }
    assert {name: root.attributes.get(name) for name in expected} == expected
    assert "modelless.slo.cost_usd_per_1k" not in root.attributes
    assert root.resource["service.name"] == "modelless"
    assert root.resource["service.instance.id"] == served.gateway.id
    assert [part.name for part in parts] == ["read", "choose", "queue", "run"]
    assert {part.kind for part in parts} == {INTERNAL}
    assert {part.trace_id for part in parts} == {ID}
    ran = parts[-1]
    assert (ran.end_ns - ran.begin_ns) / 1e6 == pytest.approx(said["run_ms"], abs=0.01)
    ends = [root.begin_ns]
    for part in parts:
        assert part.begin_ns >= ends[-1] - 1_000  # rounded to a microsecond at most
        ends.append(part.end_ns)
    assert ends[-1] <= root.end_ns + 1_000


async def test_one_that_is_refused_says_why(served: Served, collector: Collector) -> None:
    headers = [("traceparent", SAMPLED), ("x-request-id", "dear")]
    answer = await served.ask({**ROW, "slo": {"accuracy": 0.999}}, headers=headers)
    assert answer.status == 422
    root, *parts = await traced(collector, "dear")
    assert (root.attributes["error.type"], root.failed, parts) == ("SLO_INFEASIBLE", False, [])
    assert root.attributes["modelless.error"] == answer.json["error"]
    reasons = root.attributes["modelless.reasons"]
    assert len(reasons) == len(KNOWN)
    assert any(one.startswith(f"{SLOW}: ") for one in reasons)


async def test_one_that_fails_is_traced_though_nobody_asked(
    served: Served, collector: Collector
) -> None:
    await served.worker("w2", LATE)
    body = {**ROW, "slo": {"latency_ms": 20.0}, "variant": LATE}
    answer = await served.ask(body, headers=[("x-request-id", "late")])
    assert answer.error[:2] == (504, "DEADLINE_EXCEEDED")
    root, *parts = await traced(collector, "late")
    assert (root.failed, root.said) == (True, answer.json["error"])
    assert root.parent_id == ""
    assert root.attributes["error.type"] == "DEADLINE_EXCEEDED"
    assert [part.name for part in parts] == ["read", "choose", "wait"]
    assert (await served.ask(ROW)).status == 200
    await served.gateway.stop()
    assert len(collector.roots()) == 1


async def test_other_ways_in_are_traced_too(served: Served, collector: Collector) -> None:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 5, 2, 3]}]
    path = f"/v2/models/letters/versions/{FAST}/infer"
    headers = [("traceparent", SAMPLED), ("x-request-id", "v2")]
    assert (await served.ask({"inputs": inputs}, path=path, headers=headers)).status == 200
    root, *_ = await traced(collector, "v2")
    assert root.attributes["http.route"] == "/v2/models/{task}/versions/{variant}/infer"
    assert root.attributes["modelless.variant"] == FAST
    async with connected(served.gateway.settings.grpc_port) as stubs:
        await stubs.infer(request(), (("traceparent", SAMPLED), ("x-request-id", "grpc")))
    root, *parts = await traced(collector, "grpc")
    assert (root.attributes["rpc.system"], root.attributes["rpc.method"]) == ("grpc", "ModelInfer")
    assert (root.parent_id, len(parts)) == (SPAN, 4)


async def test_one_that_comes_the_ordinary_way_is_traced(
    served: Served, collector: Collector
) -> None:
    """The second of two that a connection carries at once."""
    client = await served.client()
    for id_ in ("first", "second"):
        client.send(post(ROW, headers=[("traceparent", SAMPLED), ("x-request-id", id_)]))
    for _ in range(2):
        assert (await client.answer()).status == 200
    for id_ in ("first", "second"):
        root, *parts = await traced(collector, id_)
        assert (root.attributes["http.route"], len(parts)) == ("/v1/query", 4)


async def test_spans_are_counted_and_a_collector_that_is_gone_holds_nobody_up(
    served: Served, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    counts = served.gateway.path.counters.traces
    headers = [("traceparent", SAMPLED), ("x-request-id", "a")]
    assert (await served.ask(ROW, headers=headers)).status == 200
    await until(lambda: counts.get("sent") == 5)
    collector.refuses = True
    for _ in range(3):
        assert (await served.ask(ROW, headers=headers)).status == 200
        dropped = counts.get("dropped", 0) + 5
        await until(lambda wanted=dropped: counts.get("dropped", 0) >= wanted)  # type: ignore[misc]
    told = [record.message for record in caplog.records if "traces" in record.message]
    assert len(told) == 1
    assert told[0].startswith(f"traces cannot be sent to {collector.url} and are dropped: ")
    text = (await served.get("/metrics")).body.decode()
    assert 'modelless_trace_spans_total{outcome="dropped"} 15.0' in text
    collector.refuses = False
    assert (await served.ask(ROW, headers=headers)).status == 200
    await until(lambda: counts["sent"] == 10)


async def test_what_is_left_is_sent_when_the_gateway_stops(
    short_folder: Path, live_url: str, collector: Collector
) -> None:
    settings: dict[str, Any] = {"traces_url": collector.url, "traces_share": 1.0}
    async with serving(short_folder, live_url, **settings) as running:
        await running.worker("w1", FAST)
        assert (await running.ask(ROW)).status == 200
    assert [root.name for root in collector.roots()] == ["query letters"]


async def test_an_answer_that_was_kept_says_so(
    short_folder: Path, live_url: str, collector: Collector
) -> None:
    task = replace(TASK, sharing=Sharing(ttl_s=60.0, memory_mib=1.0))
    settings: dict[str, Any] = {"traces_url": collector.url, "traces_share": 1.0}
    async with serving(short_folder, live_url, task=task, **settings) as running:
        await running.worker("w1", FAST)
        for id_ in ("run", "kept"):
            answer = await running.ask(ROW, headers=[("x-request-id", id_)])
            assert answer.status == 200
    _, *parts = collector.of("run")
    assert [part.name for part in parts] == ["read", "choose", "queue", "run"]
    kept, *parts = collector.of("kept")
    assert (kept.attributes["modelless.variant"], kept.attributes["modelless.run_ms"]) == (FAST, 0)
    assert (kept.attributes["modelless.task"], parts) == ("letters", [])
