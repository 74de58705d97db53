"""The Open Inference Protocol's request, from JSON with or without raw bytes behind it, to a query.

What the protocol says of shapes, parameters and outputs holds for gRPC as well, which has other
bytes for it (``controlplane.gateway.grpc``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from controlplane.gateway.lengths.filling import filled_tensor, length_of_shapes
from controlplane.gateway.query.datatypes import raw_tensor, source_type, width_of
from controlplane.gateway.query.json_tensors import (
    MAX_ROWS,
    leaves,
    may_hold_booleans,
    packed,
    same_rows,
    shape_words,
    tensor_of,
    unread,
)
from controlplane.gateway.query.lean_json import LEAST_BYTES, LongBody, Numbers, lean_v2
from controlplane.gateway.query.parsing import ParsedQuery, json_of
from controlplane.gateway.query.query_fields import (
    AskedByLength,
    accuracy_bound,
    cost_bound,
    flag_of,
    latency_bound,
    number_of,
    parameters_of,
    pinned_to,
    prefer_of,
    priority_in,
    refuse_mistaken_names,
    task_of,
    timeout_in,
    version_of,
)
from controlplane.gateway.query.replies import AskedAs, V2Request
from controlplane.gateway.texts.asked import (
    AskedInText,
    check_datatype,
    have_texts,
    likely_task,
)
from planner.types import ANYBODY, Query
from variants.buckets import BucketedTask
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.figures import counted
from variants.metrics.metric import parse_metric
from variants.slots import tuple_of
from variants.types import Task, TaskName, TensorSpec
from workers.runtimes.protocol import Tensor

MAX_ID = 1_024
"""Characters of a request's own id, which its answer repeats."""
REGION = "shared_memory_region"
"""The parameter of a tensor that lies in memory which a client shares."""
WHOLE = {int}
"""What the sizes in a shape are."""


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
    if (lean := lean_v2(body, lean_bytes)) is not None:
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
    tensors = _v2_inputs(document["inputs"], task.inputs, raw, booleans)
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


def _v2_inputs(
    inputs: Sequence[Any], specs: Sequence[TensorSpec], raw: memoryview, booleans: bool
) -> list[Tensor]:
    found: dict[str, Tensor] = {}
    by_name = {spec.name: spec for spec in specs}
    for entry in inputs:
        if not isinstance(entry, dict):
            raise InvalidInput("each of 'inputs' must be an object")
        name = entry.get("name")
        spec = input_spec(name, by_name, found)
        dtype = source_type(entry.get("datatype"), spec)
        shape = v2_shape(entry.get("shape"), spec)
        own = parameters_of(entry, "parameters of input", name)
        if REGION in own:
            raise not_shared(f"input {spec.name!r}")
        if (size := own.get("binary_data_size")) is not None:
            if entry.get("data") is not None:
                raise InvalidInput(
                    f"input {spec.name!r} has 'data' and raw bytes (binary_data_size): send one"
                )
            found[spec.name], raw = _v2_binary(raw, size, entry["datatype"], shape, spec)
        elif dtype == spec.dtype:
            found[spec.name] = _v2_listed(entry.get("data"), shape, spec, booleans)
        else:
            narrow = _v2_listed(entry.get("data"), shape, replace(spec, dtype=dtype), booleans)
            found[spec.name] = narrow.astype(spec.dtype)
    if len(raw):
        follow = "follows" if len(raw) == 1 else "follow"
        raise InvalidInput(f"{counted(len(raw), 'byte')} {follow} the last input")
    return same_rows(found, specs)


def input_spec(
    name: Any, specs: Mapping[str, TensorSpec], found: Mapping[str, object]
) -> TensorSpec:
    """The input of this name.

    Args:
        found: those that have come already.

    Raises:
        InvalidInput: there is none, or it has come already.
    """
    if not isinstance(name, str):
        raise InvalidInput(f"each of 'inputs' must have a name, one of: {', '.join(specs)}")
    spec = specs.get(name)
    if spec is None:
        expected = ", ".join(specs)
        raise InvalidInput(f"input {shown(name)} is not an input of the task; expected: {expected}")
    if spec.name in found:
        raise InvalidInput(f"input {spec.name!r} appears twice")
    return spec


def _v2_binary(
    raw: memoryview, size: Any, datatype: str, shape: tuple[int, ...], spec: TensorSpec
) -> tuple[Tensor, memoryview]:
    """A tensor of this shape from the front of the raw bytes, and what is left of them."""
    expected = math.prod(shape) * width_of(datatype)
    if size != expected or expected > len(raw):
        raise InvalidInput(
            f"input {spec.name!r} needs {counted(expected, 'raw byte')}, binary_data_size is "
            f"{shown(size)} and {counted(len(raw), 'byte')} {'is' if len(raw) == 1 else 'are'} left"
        )
    return raw_tensor(raw[:expected], datatype, shape, spec), raw[expected:]


def _v2_listed(data: Any, shape: tuple[int, ...], spec: TensorSpec, booleans: bool) -> Tensor:
    """A tensor of this shape from its values, flat or nested."""
    count = math.prod(shape)
    if isinstance(data, Numbers):
        read = data.tensor((count,) if len(data) == count else shape, spec.dtype)
        if read is None:
            raise unread(spec)
        return read.reshape(shape)
    if not booleans and isinstance(data, list):
        is_flat = len(data) == count
        direct = packed([data], (count,), spec.dtype) if is_flat else None
        if direct is None and len(data) == shape[0]:
            direct = packed(data, spec.shape, spec.dtype)
        if direct is not None:
            return direct.reshape(shape)
    flat = leaves(data, spec).flat
    if len(flat) != count:
        raise InvalidInput(
            f"input {spec.name!r} has {counted(len(flat), 'value')}, its shape {list(shape)} needs "
            f"{count}"
        )
    return tensor_of(flat, spec).reshape(shape)


def v2_shape(shape: Any, spec: TensorSpec) -> tuple[int, ...]:
    """The shape of an input, its rows first.

    Raises:
        InvalidInput: it is not the input's.
    """
    if (
        not isinstance(shape, list)
        or len(shape) != 1 + len(spec.shape)
        or set(map(type, shape)) != WHOLE
        or tuple(shape[1:]) != spec.shape
        or shape[0] < 1
    ):
        raise InvalidInput(
            f"input {spec.name!r} must have shape {shape_words(spec)}, not {shown(shape)}"
        )
    if shape[0] > MAX_ROWS:
        raise InvalidInput(f"input {spec.name!r} has {shape[0]} rows; at most {MAX_ROWS} are taken")
    return tuple(shape)


def v2_form(outputs: Any, parameters: Mapping[str, Any], task: Task, id_: str | None) -> V2Request:
    """How the reply is to look.

    Args:
        outputs: for each output that is asked for an object with its name and parameters; nothing
            asks for all.
        id_: the request's own.

    Raises:
        InvalidInput: an output is not the task's, or its parameters are wrong.
    """
    if id_ is not None and len(id_) > MAX_ID:
        raise InvalidInput(f"'id' must have at most {MAX_ID} characters")
    known = [spec.name for spec in task.outputs]
    default = flag_of(parameters.get("binary_data_output", False), "binary_data_output")
    if outputs is None or outputs == []:
        form = _of_all(tuple(known) if default else ())
        return form if id_ is None else replace(form, id=id_)
    if not isinstance(outputs, list):
        raise InvalidInput("'outputs' must be a list")
    names: list[str] = []
    raw: set[str] = set()
    classes: dict[str, int] = {}
    for entry in outputs:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            expected = ", ".join(known)
            raise InvalidInput(f"each of 'outputs' must be an object with a name of: {expected}")
        if name not in known or name in names:
            raise InvalidInput(f"output {shown(name)} is not an output of the task, or named twice")
        names.append(name)
        own = parameters_of(entry, "parameters of output", name)
        if REGION in own:
            raise not_shared(f"output {name!r}")
        if count := own.get("classification"):
            classes[name] = _classes(count, task)
        if flag_of(own.get("binary_data", default), "binary_data"):
            raw.add(name)
    return V2Request(id=id_, outputs=tuple(names), binary=frozenset(raw), classes=classes)


@lru_cache(maxsize=1024)
def _of_all(binary: tuple[str, ...]) -> V2Request:
    """A reply with all outputs, these as raw bytes."""
    return V2Request(id=None, outputs=None, binary=frozenset(binary))


def not_shared(what: str) -> InvalidInput:
    """The error of a tensor that a client has, or wants, in memory that it shares."""
    return InvalidInput(f"{what}: shared memory is not supported")


def _classes(count: Any, task: Task) -> int:
    if not parse_metric(task.metric).classifies:
        raise InvalidInput(
            f"classification is for tasks with classes, and {task.name!r} has none: its accuracy is"
            f" by {task.metric}"
        )
    number = number_of(count, "classification")
    if number < 1 or number != int(number):
        raise InvalidInput("classification must be a number of classes, 1 or more")
    return int(number)
