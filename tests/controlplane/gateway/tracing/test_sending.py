"""What is sent of queries that have ended, and what is dropped and told meanwhile."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from time import monotonic, sleep

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.tracing.ended import Asked, Ended, Tries
from controlplane.gateway.tracing.sending import WAITING_SPANS, Sending
from planner.types import Query
from variants.types import TaskName

MADE = ReplyMetadata("a", "m-v1", "w1", 1, 0.5, 2.0, 0.9, 0.01, True)
TRIES = Tries(
    query=Query(TaskName("letters"), 1, 0.0, 1_000.0), reason="cheapest", variant="a",
    worker="w1", read_ms=0.1, sent_ms=0.2, asked_count=1, why="", loads=0,
)  # fmt: skip
SPANS = 5
"""Of one query: its own, and one for each part."""
PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Exporter(SpanExporter):
    """Keeps what it is given, once it may."""

    def __init__(self) -> None:
        self.may = Event()
        self.may.set()
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.may.wait()
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass

    def told(self) -> dict[str, object]:
        """What the only query's own span says."""
        [root] = [span for span in self.spans if span.name.startswith("query")]
        return dict(root.attributes or {})


@contextmanager
def sending(exporter: Exporter, counts: dict[str, int]) -> Iterator[Sending]:
    made = Sending("http://127.0.0.1:9/v1/traces", "g1", "0", counts, exporter)
    try:
        yield made
    finally:
        exporter.may.set()
        made.close(10.0)


@contextmanager
def heard() -> Iterator[list[str]]:
    """What the handlers of a process would log; `caplog` also hears what goes to none of them."""
    told: list[str] = []

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    hears, root = Hears(), logging.getLogger()
    root.addHandler(hears)
    try:
        yield told
    finally:
        root.removeHandler(hears)


def ended(
    *, parent: bytes | None = None, state: bytes | None = None, error: dict[str, str] | None = None
) -> Ended:
    return Ended(
        asked=Asked("/v1/query", 0.0, parent, state), task="letters", ended_ms=3.0,
        wall_ns=10**18, status=200 if error is None else 400,
        error=b"" if error is None else orjson.dumps(error), request_id="7", tries=TRIES,
        made=MADE if error is None else None,
    )  # fmt: skip


def until_counted(counts: dict[str, int], wanted: int) -> None:
    end_s = monotonic() + 20.0
    while sum(counts.values()) < wanted:
        assert monotonic() < end_s, counts
        sleep(0.01)


def test_what_a_collector_that_hangs_leaves_no_room_for_is_counted() -> None:
    counts: dict[str, int] = {}
    exporter = Exporter()
    exporter.may.clear()
    queries = WAITING_SPANS // SPANS + 100
    with sending(exporter, counts) as sends:
        for _ in range(queries):
            sends.take(ended())
        until_counted(counts, queries * SPANS - WAITING_SPANS)
        assert counts == {"dropped": queries * SPANS - WAITING_SPANS}
        exporter.may.set()
        until_counted(counts, queries * SPANS)
        assert counts["sent"] == len(exporter.spans) == WAITING_SPANS


@pytest.mark.parametrize(
    ("parent", "state"),
    [
        (b"01" + PARENT[2:] + b"-\xff", None),
        (PARENT, b"\x1b[31m, said by who asks"),
        (PARENT, b"a=\xe9"),
        (PARENT, b",".join(b"k%d=1" % at for at in range(40))),
    ],
)
def test_headers_that_are_odd_are_told_nobody_and_cost_no_trace(
    parent: bytes, state: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    exporter = Exporter()
    with heard() as told, sending(exporter, {}) as sends:
        sends.take(ended(parent=parent, state=state))
    assert len(exporter.spans) == SPANS
    assert {f"{span.context.trace_id:x}" for span in exporter.spans} == {PARENT[3:35].decode()}
    assert told == []
    assert capsys.readouterr().err == ""


def test_what_was_sent_is_not_told_where_an_error_quotes_it() -> None:
    exporter = Exporter()
    error = {"error": "inputs[0] must be a list, not 'my letter'", "code": "INVALID_INPUT"}
    with sending(exporter, {}) as sends:
        sends.take(ended(error=error))
    told = exporter.told()
    assert told["error.type"] == "INVALID_INPUT"
    assert "my letter" not in str(told)


def test_variables_of_the_library_that_would_break_it_are_not_its_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999")
    exporter = Exporter()
    with sending(exporter, {}) as sends:
        sends.take(ended())
    assert len(exporter.spans) == SPANS
