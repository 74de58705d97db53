"""A query that has ended as spans of OpenTelemetry: one for it, and one for each of its parts.

Where a worker's part begins is not told: its queue and its run are laid in the middle of the time
between sending and answer, which is wrong by half of what the way there and back took, at most.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.tracing.ended import Ended, Tries

MOST_REASONS = 32
"""Variants that an SLO did not fit, of which the reasons are told."""
QUOTES_INPUTS = frozenset({400})
"""Statuses of errors that may quote what was sent: inputs are never told."""
NS_PER_MS = 1e6

_propagator = TraceContextTextMapPropagator()


class Part(NamedTuple):
    """A part of a query's time, in ms of the query path's clock."""

    name: str
    begin_ms: float
    end_ms: float
    attributes: Mapping[str, Any]


def make_spans(ended: Ended, tracer: Tracer) -> None:
    """Make and end the spans of one query; the tracer's processor takes them."""
    asked = ended.asked

    def ns(at_ms: float) -> int:
        return ended.wall_ns - int((ended.ended_ms - at_ms) * NS_PER_MS)

    carrier = {}
    if asked.parent is not None:
        carrier["traceparent"] = asked.parent.decode("latin-1")
        if asked.state is not None:
            carrier["tracestate"] = asked.state.decode("latin-1")
    span = tracer.start_span(
        f"query {ended.task}" if ended.task else "query",
        context=_propagator.extract(carrier),
        kind=SpanKind.SERVER,
        attributes=_told(attributes(ended)),
        start_time=ns(asked.received_ms),
    )
    inside = set_span_in_context(span)
    for part in parts(ended):
        child = tracer.start_span(
            part.name,
            context=inside,
            attributes=_told(part.attributes),
            start_time=ns(part.begin_ms),
        )
        child.end(ns(part.end_ms))
    if ended.status >= 500:  # what a client did wrong is no error of a server's span
        span.set_status(Status(StatusCode.ERROR, _error(ended).get("error", "")))
    span.end(ns(ended.ended_ms))


def parts(ended: Ended) -> Iterator[Part]:
    """The parts of a query that was sent to a worker, in their order."""
    tries, made = ended.tries, ended.made
    if tries is None or not tries.sent_ms:
        return
    read_ms = ended.asked.received_ms + tries.read_ms
    yield Part("read", ended.asked.received_ms, read_ms, {"modelless.rows": tries.query.rows})
    choice = {
        "modelless.variant": tries.variant,
        "modelless.reason": tries.reason,
        "modelless.tries": tries.asked_count,
        "modelless.loads": tries.loads,
    }
    yield Part("choose", read_ms, tries.sent_ms, choice)
    if made is None:
        yield Part("wait", tries.sent_ms, ended.ended_ms, {"modelless.worker": tries.worker})
        return
    way_ms = max(0.0, ended.ended_ms - tries.sent_ms - made.queue_ms - made.run_ms)
    began_ms = tries.sent_ms + way_ms / 2
    at = {"modelless.worker": made.worker}
    yield Part("queue", began_ms, began_ms + made.queue_ms, at)
    ran = at | {"modelless.variant": made.variant, "modelless.batch_size": made.batch_size}
    yield Part("run", began_ms + made.queue_ms, began_ms + made.queue_ms + made.run_ms, ran)


def attributes(ended: Ended) -> dict[str, Any]:
    """What the span of the query says; None where something is not known."""
    route = ended.asked.route
    found: dict[str, Any] = {
        "modelless.request_id": ended.request_id or None,
        "modelless.task": ended.task or None,
    }
    if route.startswith("/"):
        found |= {
            "http.request.method": "POST",
            "http.route": route,
            "http.response.status_code": ended.status,
        }
    else:
        found |= {"rpc.system": "grpc", "rpc.method": route}
    if ended.tries is not None:
        found |= _asked_for(ended.tries)
    if ended.made is not None:
        found |= _of_answer(ended.made)
    if ended.error:
        error = _error(ended)
        found["error.type"] = error.get("code", str(ended.status))
        if ended.status not in QUOTES_INPUTS:
            found["modelless.error"] = error.get("error")
        found["modelless.retry_after_s"] = error.get("retry_after_s")
        reasons = error.get("reasons")
        if isinstance(reasons, Mapping):
            told = [f"{variant}: {why}" for variant, why in reasons.items()]
            found["modelless.reasons"] = told[:MOST_REASONS]
    return found


def _asked_for(tries: Tries) -> dict[str, Any]:
    query = tries.query
    return {
        "modelless.rows": query.rows,
        "modelless.slo.latency_ms": query.latency_ms,
        "modelless.slo.accuracy": query.accuracy,
        "modelless.slo.cost_usd_per_1k": query.cost,
        "modelless.slo.prefer": str(query.prefer),
        "modelless.slo.best_effort": query.best_effort,
        "modelless.priority": query.priority,
        "modelless.client": query.client.name or None,
        "modelless.variant": tries.variant or None,
        "modelless.worker": tries.worker or None,
        "modelless.reason": tries.reason or None,
        "modelless.tries": tries.asked_count,
        "modelless.first_try": tries.why or None,
        "modelless.loads": tries.loads,
    }


def _of_answer(made: ReplyMetadata) -> dict[str, Any]:
    return {
        "modelless.variant": made.variant,
        "modelless.model_version": made.model_version,
        "modelless.worker": made.worker,
        "modelless.batch_size": made.batch_size,
        "modelless.queue_ms": made.queue_ms,
        "modelless.run_ms": made.run_ms,
        "modelless.accuracy": made.accuracy,
        "modelless.cost_usd_per_1k": made.cost_usd_per_1k,
        "modelless.slo_met": made.slo_met,
    }


def _error(ended: Ended) -> Mapping[str, Any]:
    """The body of an error, in our own form or in that of OpenAI's clients."""
    try:
        found = orjson.loads(ended.error)
    except orjson.JSONDecodeError:
        return {}
    if isinstance(found, Mapping) and isinstance(found.get("error"), Mapping):
        theirs = found["error"]
        return {"error": theirs.get("message"), "code": theirs.get("code")}
    return found if isinstance(found, Mapping) else {}


def _told(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known."""
    return {name: value for name, value in found.items() if value is not None}
