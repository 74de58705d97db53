"""A collector of traces: what a gateway sends it by OTLP over HTTP, decoded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(slots=True, kw_only=True)
class Span:
    """A span as it came."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    failed: bool
    said: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass(slots=True)
class Collector:
    """What has come so far."""

    url: str
    spans: list[Span] = field(default_factory=list)
    refuses: bool = False

    def roots(self) -> list[Span]:
        """The spans of queries."""
        return [span for span in self.spans if span.name.startswith("query")]

    def of(self, request_id: str) -> list[Span]:
        """The span of one query, and those of its parts in their order."""
        own = [one for one in self.roots() if one.attributes["modelless.request_id"] == request_id]
        if not own:
            return []
        [root] = own
        parts = [span for span in self.spans if span.parent_id == root.span_id]
        return [root, *sorted(parts, key=lambda span: span.begin_ns)]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.refuses:
                self.send_response(400)
            else:
                assert self.path == "/v1/traces"
                found.spans += list(spans_in(body))
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def spans_in(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = _plain(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    name=span.name,
                    kind=span.kind,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    begin_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    failed=span.status.code == 2,
                    said=span.status.message,
                    attributes=_plain(span.attributes),
                    resource=about,
                )


def _plain(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
