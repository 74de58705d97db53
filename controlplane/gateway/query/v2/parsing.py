"""A request of the Open Inference Protocol, from JSON with or without raw bytes, to a query."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from controlplane.gateway.lengths.filling import filled_tensor, length_of_shapes
from controlplane.gateway.query.json_tensors import may_hold_booleans
from controlplane.gateway.query.lean_json import LEAST_BYTES, LongBody, lean_v2
from controlplane.gateway.query.parsing import ParsedQuery, json_of
from controlplane.gateway.query.query_fields import (
    AskedByLength,
    accuracy_bound,
    cost_bound,
    flag_of,
    latency_bound,
    parameters_of,
    pinned_to,
    prefer_of,
    priority_in,
    refuse_mistaken_names,
    task_of,
    timeout_in,
    version_of,
)
from controlplane.gateway.query.replies import AskedAs
from controlplane.gateway.query.v2.inputs import v2_inputs
from controlplane.gateway.query.v2.wanted_outputs import v2_form
from controlplane.gateway.texts.asked import (
    AskedInText,
    check_datatype,
    have_texts,
    likely_task,
)
from planner.types import ANYBODY, Query
from variants.buckets import BucketedTask
from variants.errors import InvalidInput
from variants.slots import tuple_of
from variants.types import Task, TaskName


def parse_v2(
    body: bytes | bytearray,
    task_name: str,
    pinned: str | None,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
    json_header: bytes | None = None,
    lean_bytes: int = LEAST_BYTES,
    most_bytes: float = math.inf,
) -> ParsedQuery:
    """Read the body of ``POST /v2/models/{task}[/versions/{variant}]/infer``.

    ``json_header`` is the header ``Inference-Header-Content-Length``, the length of the JSON: what
    follows are the raw bytes of the inputs that name a ``binary_data_size``, in their order.
    ``lean_bytes`` and ``most_bytes`` are those of ``parse_v1``, of the JSON alone.

    Raises:
        LongBody: its JSON has more than ``most_bytes``, and is unusual or wrong.
        AskedInText: its input is texts.
        InvalidInput: the body breaks the protocol or does not fit the task's signature.
        TaskNotFound: there is no such task.
    """
    try:
        task = task_of(task_name, tasks)
    except AskedByLength as asked:
        return _read_by_length(body, asked.task, pinned, received_ms, draw, json_header, most_bytes)
    raw = memoryview(b"")
    if json_header is not None:
        end = json_length(json_header, len(body))
        raw = memoryview(body)[end:]
        body = body[:end]
    if len(body) >= lean_bytes and (lean := lean_v2(body, lean_bytes)) is not None:
        try:
            parsed = _read_v2(lean.fields, task, pinned, raw, received_ms, draw, False)
            if lean.whole():
                return parsed
        except InvalidInput:
            pass  # the ordinary way finds out what is wrong
        del lean
    if len(body) > most_bytes:
        raise LongBody
    document, booleans = json_of(body), may_hold_booleans(body)
    return _read_v2(document, task, pinned, raw, received_ms, draw, booleans)


def _read_by_length(
    body: bytes | bytearray,
    asked: BucketedTask,
    pinned: str | None,
    received_ms: float,
    draw: int,
    json_header: bytes | None,
    most_bytes: float,
) -> ParsedQuery:
    """The same for a task of several lengths, of which one is that of the inputs' shapes."""
    raw = memoryview(b"")
    if json_header is not None:
        end = json_length(json_header, len(body))
        raw = memoryview(body)[end:]
        body = body[:end]
    if len(body) > most_bytes:
        raise LongBody
    document = json_of(body)
    entries = document.get("inputs") if isinstance(document, dict) else None
    listed = entries if isinstance(entries, list) else []
    if asked.face.text is not None and have_texts(listed):
        raise _in_text(asked, document, listed, received_ms, draw, pinned)
    shapes = {
        entry["name"]: entry.get("shape")
        for entry in listed
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }
    bucket, at = at_length(asked, shapes)
    booleans = may_hold_booleans(body)
    parsed = _read_v2(document, at, pinned, raw, received_ms, draw, booleans)
    return filled_query(asked, bucket, parsed)


def at_length(asked: BucketedTask, shapes: Mapping[str, Any]) -> tuple[Task, Task]:
    """The bucket that takes tensors of these shapes, and the same as if its inputs had just their
    length.

    Args:
        shapes: by the names of inputs, with rows first, as a client gives them. What is no shape is
            for whoever reads the inputs to refuse.

    Raises:
        InvalidInput: they are too long, or inputs differ in their lengths.
    """
    length = length_of_shapes(shapes, asked.axes)
    if length is None:
        length = asked.lengths[-1]
    bucket = asked.holding(length)
    return bucket, replace(bucket, inputs=asked.inputs_at(length))


def filled_query(asked: BucketedTask, bucket: Task, parsed: ParsedQuery) -> ParsedQuery:
    """A query that was read at the length of its own rows, filled up for its bucket."""
    axes, first = {axis.input: axis for axis in asked.axes}, asked.axes[0]
    read = next(
        tensor.shape[first.axis + 1]
        for spec, tensor in zip(bucket.inputs, parsed.tensors, strict=True)
        if spec.name == first.input
    )
    tensors = [
        tensor if (axis := axes.get(spec.name)) is None else filled_tensor(tensor, spec, axis)
        for spec, tensor in zip(bucket.inputs, parsed.tensors, strict=True)
    ]
    assert parsed.v2 is not None
    return parsed._replace(
        task=bucket,
        tensors=tensors,
        v2=AskedAs.of(parsed.v2, asked.face),
        lengths=(read,) * len(tensors[0]) if asked.following else None,
    )


def _read_v2(
    document: Any,
    task: Task,
    pinned: str | None,
    raw: memoryview,
    received_ms: float,
    draw: int,
    booleans: bool,
) -> ParsedQuery:
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise InvalidInput("the body must be a JSON object with a list 'inputs'")
    if task.text is not None and have_texts(document["inputs"]):
        raise _in_text(task, document, document["inputs"], received_ms, draw, pinned)
    if task.text is not None:
        check_datatype(document["inputs"])
    tensors = v2_inputs(document["inputs"], task.inputs, raw, booleans)
    parameters = parameters_of(document, "parameters")
    id_ = document.get("id")
    if id_ is not None and not isinstance(id_, str):
        raise InvalidInput("'id' must be text")
    form = v2_form(document.get("outputs"), parameters, task, id_)
    query = query_v2(task, len(tensors[0]), parameters, received_ms, draw, pinned)
    return tuple_of(ParsedQuery, (task, query, tensors, form, b"", None, None, None))


def _in_text(
    asked: Task | BucketedTask,
    document: Mapping[str, Any],
    entries: Sequence[Any],
    received_ms: float,
    draw: int,
    pinned: str | None,
) -> AskedInText:
    def query() -> Query:
        texts = entries[0].get("data") if isinstance(entries[0], dict) else None
        if type(texts) is not list or not all(type(one) is str for one in texts):
            raise InvalidInput("these are looked at when they are read")  # raw, nested, or pairs
        task = likely_task(asked, texts)
        parameters = parameters_of(document, "parameters")
        return query_v2(task, len(texts), parameters, received_ms, draw, pinned)

    return AskedInText(query)


def query_v2(
    task: Task,
    rows: int,
    parameters: Mapping[str, Any],
    received_ms: float,
    draw: int,
    pinned: str | None,
) -> Query:
    """A query from SLO parameters; ``timeout`` (microseconds) is the protocol's own deadline.

    Raises:
        InvalidInput: a parameter is not what it has to be, or has a name that is a mistake.
    """
    if parameters:
        refuse_mistaken_names(parameters)
    get = parameters.get
    latency_ms = task.slo.latency_ms
    if (slo_ms := get("latency_slo_ms")) is not None:
        latency_ms = latency_bound(slo_ms, "latency_slo_ms")
    if (timeout_ms := timeout_in(parameters)) is not None:
        latency_ms = min(latency_ms, timeout_ms) if slo_ms is not None else timeout_ms
    accuracy, cost, prefer = get("min_accuracy"), get("max_cost_usd_per_1k"), get("prefer")
    if (version := get("model_version")) is not None:
        version = version_of(version)
    fields = (
        task.name, rows, received_ms, latency_ms,
        task.slo.accuracy if accuracy is None else accuracy_bound(accuracy, "min_accuracy"),
        task.slo.cost if cost is None else cost_bound(cost, "max_cost_usd_per_1k"),
        task.slo.prefer if prefer is None else prefer_of(prefer, "prefer"),
        flag_of(get("best_effort", False), "best_effort"), pinned_to(pinned),
        draw, None, priority_in(parameters), ANYBODY, (), version,
    )  # fmt: skip
    return tuple_of(Query, fields)


def json_bytes(body: bytes | bytearray, header: bytes | None) -> int:
    """How much of a body is JSON, as far as it can be told without reading it."""
    if header is None or not header.isdigit() or len(header) > 15:
        return len(body)
    return min(int(header), len(body))


def json_length(header: bytes, body_length: int) -> int:
    """How much of a body is JSON, by the header ``Inference-Header-Content-Length``.

    Raises:
        InvalidInput: it is no number, or more than there is.
    """
    if not header.isdigit() or len(header) > 15:
        raise InvalidInput("Inference-Header-Content-Length must be a number")
    length = int(header)
    if not 0 < length <= body_length:
        raise InvalidInput(
            f"Inference-Header-Content-Length is {length}, the body has {body_length} bytes"
        )
    return length
