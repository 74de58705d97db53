"""The thread in which spans are made and sent, so that no query waits for it.

OpenTelemetry's own exporter speaks to the collector (OTLP over HTTP). What it cannot send is
dropped and counted; so is what comes while more waits than ``WAITING`` and ``WAITING_SPANS``.
"""

import logging
import threading
from collections.abc import Sequence
from queue import Full, Queue

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from controlplane.gateway.tracing.ended import Ended
from controlplane.gateway.tracing.spans import make_spans
from workers.process.sparing_log import SparingLog

log = logging.getLogger(__name__)
sparing = SparingLog(log)

WAITING = 1_024
"""Queries that wait for their spans to be made, at most."""
WAITING_SPANS, SPANS_AT_ONCE = 2_048, 512
"""Spans that wait to be sent, at most, and those of one request to the collector."""
SENT_EACH_MS = 1_000.0
TIMEOUT_S = 5.0
"""What sending one batch may take, with all that is tried again."""

LONGEST_REASON = 300
SENT, DROPPED = "sent", "dropped"


class Counts:
    """How many spans became what, counted by several threads.

    Args:
        counts: added to.
    """

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._lock = threading.Lock()

    def add(self, what: str, spans: int = 1) -> None:
        with self._lock:
            self._counts[what] = self._counts.get(what, 0) + spans


class Sending:
    """Sends what ``take`` is given until ``close``.

    Args:
        url: of the collector, such as ``http://127.0.0.1:4318/v1/traces``.
        gateway: the id of the gateway that answers.
        counts: how many spans became what; added to.

    Raises:
        Exception: a variable of the environment that the library reads has a value that it
            refuses; of any kind.
    """

    def __init__(
        self,
        url: str,
        gateway: str,
        version: str,
        counts: dict[str, int],
        exporter: SpanExporter | None = None,
    ) -> None:
        resource = Resource.create(
            {
                "service.name": "modelless",
                "service.version": version,
                "service.instance.id": gateway,
            }
        )
        sends = exporter or OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)
        self._counts = Counts(counts)
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(Bounded(Counted(sends, url, self._counts), self._counts))
        self._tracer = self._provider.get_tracer("modelless", version)
        self._ended: Queue[Ended | None] = Queue(WAITING)
        self._thread = threading.Thread(target=self._make, name="traces", daemon=True)
        self._thread.start()

    def take(self, ended: Ended) -> None:
        """Have the spans of a query made and sent; it is dropped where too many wait."""
        try:
            self._ended.put_nowait(ended)
        except Full:
            self.dropped()

    def dropped(self) -> None:
        """Count a query that is not traced because there are too many."""
        self._counts.add(DROPPED)

    def close(self, within_s: float) -> None:
        """Send what there is, for so long at most. Blocks."""
        try:
            self._ended.put(None, timeout=within_s)
        except Full:
            return
        closing = threading.Thread(target=self._end, name="traces-end", daemon=True)
        closing.start()
        closing.join(within_s)

    def _end(self) -> None:
        self._thread.join()
        self._provider.shutdown()

    def _make(self) -> None:
        while (ended := self._ended.get()) is not None:
            try:
                make_spans(ended, self._tracer)
            except Exception as error:
                sparing.error("", error, "a query could not be traced")


class Bounded(SpanProcessor):
    """Passes spans on to be sent in batches, as long as not too many wait.

    The library's own bound drops the oldest ones and does not count them.
    """

    def __init__(self, sends: "Counted", counts: Counts) -> None:
        self._sends = sends
        self._counts = counts
        self._given = 0
        # All of it is said here: else variables of the environment could say what does not work.
        self._batches = BatchSpanProcessor(
            sends,
            max_queue_size=WAITING_SPANS,
            max_export_batch_size=SPANS_AT_ONCE,
            schedule_delay_millis=SENT_EACH_MS,
            export_timeout_millis=1_000 * TIMEOUT_S,
        )

    def on_end(self, span: ReadableSpan) -> None:
        if self._given - self._sends.taken >= WAITING_SPANS:
            self._counts.add(DROPPED)
            return
        self._given += 1
        self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)


class Counted(SpanExporter):
    """Counts what an exporter sends, and says once when it stops and begins to work."""

    def __init__(self, exporter: SpanExporter, url: str, counts: Counts) -> None:
        self._exporter = exporter
        self._url = url
        self._counts = counts
        self.taken = 0
        """Spans that were sent or dropped; they wait no more."""
        self._works = True
        self._said = _LastSaid()
        library = logging.getLogger("opentelemetry.exporter")
        # It reports each batch that could not be sent: one sentence of ours is enough.
        library.addHandler(self._said)
        library.propagate = False
        # It reports each `tracestate` that it cannot read, in the words of who sent it.
        reads = logging.getLogger("opentelemetry.trace")
        reads.addHandler(logging.NullHandler())
        reads.propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._said.text = "it did not take them"
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            result, self._said.text = SpanExportResult.FAILURE, str(error)
        works = result is SpanExportResult.SUCCESS
        self._counts.add(SENT if works else DROPPED, len(spans))
        self.taken += len(spans)
        if works and not self._works:
            log.info("traces are sent to %s again", self._url)
        if self._works and not works:
            why = self._said.text[:LONGEST_REASON]
            log.warning("traces cannot be sent to %s and are dropped: %s", self._url, why)
        self._works = works
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _LastSaid(logging.Handler):
    """Keeps what the exporter said last."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
