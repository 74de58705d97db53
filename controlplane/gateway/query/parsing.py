"""Bytes to a query: the two dialects of the inference route.

``/v1/query`` is for people, ``/v2/models/.../infer`` is the Open Inference Protocol. Both are
parsed by hand rather than by a schema library: this runs once per query, and the checks below say
exactly what was wrong.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from controlplane.gateway.query.json_tensors import (
    MAX_ROWS,
    finite,
    leaves,
    may_hold_booleans,
    packed,
    read_rows,
    same_rows,
    shape_words,
    tensor_of,
    unread,
)
from controlplane.gateway.query.lean_json import LEAST_BYTES, Numbers, lean_v1, lean_v2
from controlplane.gateway.query.query_fields import (
    accuracy_bound,
    cost_bound,
    flag_of,
    latency_bound,
    number_of,
    parameters_of,
    pinned_to,
    prefer_of,
    task_of,
    unknown,
)
from controlplane.gateway.query.replies import V2_NAMES, V2Request
from planner.types import Query
from variants.checks.json_shape import shown
from variants.errors import InvalidInput
from variants.types import Prefer, Task, TaskName, TensorSpec
from workers.runtimes.protocol import Tensor

_V1_FIELDS = frozenset({"task", "slo", "inputs", "best_effort", "variant"})
_SLO_FIELDS = frozenset({"latency_ms", "accuracy", "cost", "prefer"})


class ParsedQuery(NamedTuple):
    """What a client asked for, checked against its task.

    ``tensors`` are in the order of the task's inputs, each of shape (rows, *shape of the input).
    """

    task: Task
    query: Query
    tensors: list[Tensor]
    v2: "V2Request | None" = None
    """How to answer, when it was asked over the Open Inference Protocol."""


def parse_v1(
    body: bytes | bytearray,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
    lean_bytes: int = LEAST_BYTES,
) -> ParsedQuery:
    """Read the body of ``POST /v1/query``.

    Args:
        received_ms: when its first byte came.
        draw: 32 random bits, by which one of several workers is chosen.
        lean_bytes: bodies from this size on are read without an object for each number.

    Raises:
        InvalidInput: it is not JSON of the documented form, or does not fit the task's signature.
        TaskNotFound: there is no such task.
    """
    if (lean := lean_v1(body, lean_bytes)) is not None:
        try:
            parsed = _read_v1(lean.fields, tasks, received_ms, draw, False)
            if lean.whole():
                return parsed
        except InvalidInput:
            pass  # the ordinary way finds out what is wrong
        del lean
    return _read_v1(_json(body), tasks, received_ms, draw, may_hold_booleans(body))


def _read_v1(
    document: Any, tasks: Mapping[TaskName, Task], received_ms: float, draw: int, booleans: bool
) -> ParsedQuery:
    if not isinstance(document, dict):
        raise InvalidInput("the body must be a JSON object such as {'task': ..., 'inputs': [...]}")
    if not document.keys() <= _V1_FIELDS:
        raise InvalidInput(unknown("field", document.keys(), _V1_FIELDS))
    task = task_of(document.get("task"), tasks)
    if "inputs" not in document:
        raise InvalidInput("'inputs' is missing: a list of rows")
    tensors = read_rows(document["inputs"], task.inputs, booleans)
    return ParsedQuery(task, query_v1(document, task, len(tensors[0]), received_ms, draw), tensors)


def query_v1(
    document: Mapping[str, Any], task: Task, rows: int, received_ms: float, draw: int
) -> Query:
    """What the fields of a body of ``/v1/query`` ask for.

    Raises:
        InvalidInput: one of them is wrong.
    """
    latency_ms, accuracy, cost, prefer = _slo(document.get("slo"), task)
    best_effort = flag_of(document.get("best_effort", False), "best_effort")
    variant = pinned_to(document.get("variant"))
    # By position, because that takes half the time.
    return Query(
        task.name, rows, received_ms, latency_ms, accuracy, cost, prefer, best_effort, variant, draw
    )


def _slo(slo: Any, task: Task) -> tuple[float, float | None, float | None, Prefer]:
    default = task.slo
    if slo is None:
        return default.latency_ms, default.accuracy, default.cost, default.prefer
    if not isinstance(slo, dict):
        raise InvalidInput("'slo' must be an object such as {'latency_ms': 50, 'accuracy': 0.95}")
    if not slo.keys() <= _SLO_FIELDS:
        raise InvalidInput(unknown("field of 'slo'", slo.keys(), _SLO_FIELDS))
    latency, accuracy, cost = slo.get("latency_ms"), slo.get("accuracy"), slo.get("cost")
    prefer = slo.get("prefer")
    return (
        default.latency_ms if latency is None else latency_bound(latency, "slo.latency_ms"),
        default.accuracy if accuracy is None else accuracy_bound(accuracy, "slo.accuracy"),
        default.cost if cost is None else cost_bound(cost, "slo.cost"),
        default.prefer if prefer is None else prefer_of(prefer, "slo.prefer"),
    )


def parse_v2(
    body: bytes | bytearray,
    task_name: str,
    pinned: str | None,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
    json_header: bytes | None = None,
    lean_bytes: int = LEAST_BYTES,
) -> ParsedQuery:
    """Read the body of ``POST /v2/models/{task}[/versions/{variant}]/infer``.

    ``json_header`` is the header ``Inference-Header-Content-Length``, the length of the JSON: what
    follows are the raw bytes of the inputs that name a ``binary_data_size``, in their order.

    Raises:
        InvalidInput: the body breaks the protocol or does not fit the task's signature.
        TaskNotFound: there is no such task.
    """
    task = task_of(task_name, tasks)
    raw = memoryview(b"")
    if json_header is not None:
        json_length = _json_length(json_header, len(body))
        raw = memoryview(body)[json_length:]
        body = body[:json_length]
    if (lean := lean_v2(body, lean_bytes)) is not None:
        try:
            parsed = _read_v2(lean.fields, task, pinned, raw, received_ms, draw, False)
            if lean.whole():
                return parsed
        except InvalidInput:
            pass  # the ordinary way finds out what is wrong
        del lean
    document, booleans = _json(body), may_hold_booleans(body)
    return _read_v2(document, task, pinned, raw, received_ms, draw, booleans)


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
    tensors = _v2_inputs(document["inputs"], task.inputs, raw, booleans)
    parameters = parameters_of(document, "parameters")
    id_ = document.get("id")
    if id_ is not None and not isinstance(id_, str):
        raise InvalidInput("'id' must be text")
    outputs, binary = _v2_outputs(document.get("outputs"), parameters, task)
    query = query_v2(task, len(tensors[0]), parameters, received_ms, draw, pinned)
    return ParsedQuery(
        task, query, tensors, V2Request(id=id_, outputs=outputs, binary=binary, pinned=pinned)
    )


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
        InvalidInput: one of them is wrong.
    """
    get = parameters.get
    latency_ms = task.slo.latency_ms
    if (slo_ms := get("latency_slo_ms")) is not None:
        latency_ms = latency_bound(slo_ms, "latency_slo_ms")
    timeout_us = number_of(get("timeout", 0), "timeout")
    if timeout_us:  # 0 is the protocol's "none"
        timeout_ms = latency_bound(timeout_us / 1000, "timeout / 1000")
        latency_ms = min(latency_ms, timeout_ms) if slo_ms is not None else timeout_ms
    accuracy, cost, prefer = get("min_accuracy"), get("max_cost_usd_per_1k"), get("prefer")
    return Query(
        task=task.name,
        rows=rows,
        received_ms=received_ms,
        latency_ms=latency_ms,
        accuracy=task.slo.accuracy
        if accuracy is None
        else accuracy_bound(accuracy, "min_accuracy"),
        cost=task.slo.cost if cost is None else cost_bound(cost, "max_cost_usd_per_1k"),
        prefer=task.slo.prefer if prefer is None else prefer_of(prefer, "prefer"),
        best_effort=flag_of(get("best_effort", False), "best_effort"),
        variant=pinned_to(pinned),
        draw=draw,
    )


def _json_length(header: bytes, body_length: int) -> int:
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
        spec = by_name.get(name) if isinstance(name, str) else None
        if spec is None:
            expected = ", ".join(by_name)
            raise InvalidInput(
                f"input {shown(name)} is not an input of the task; expected: {expected}"
            )
        if spec.name in found:
            raise InvalidInput(f"input {spec.name!r} appears twice")
        dtype = V2_NAMES[spec.dtype]
        if entry.get("datatype") != dtype:
            raise InvalidInput(
                f"input {name!r} must have datatype {dtype}, not {shown(entry.get('datatype'))}"
            )
        shape = _v2_shape(entry.get("shape"), spec)
        size = parameters_of(entry, f"parameters of input {name!r}").get("binary_data_size")
        if size is not None:
            found[spec.name], raw = _v2_binary(raw, size, shape, spec)
        else:
            found[spec.name] = _v2_listed(entry.get("data"), shape, spec, booleans)
    if len(raw):
        raise InvalidInput(f"{len(raw)} bytes follow the last input")
    return same_rows(found, specs)


def _v2_binary(
    raw: memoryview, size: Any, shape: tuple[int, ...], spec: TensorSpec
) -> tuple[Tensor, memoryview]:
    """A tensor of this shape from the front of the raw bytes, and what is left of them."""
    expected = math.prod(shape) * np.dtype(spec.dtype).itemsize
    if size != expected or expected > len(raw):
        raise InvalidInput(
            f"input {spec.name!r} needs {expected} raw bytes, binary_data_size is {shown(size)}"
            f" and {len(raw)} bytes are left"
        )
    array: Tensor = np.frombuffer(raw[:expected], dtype=spec.dtype).reshape(shape)
    if spec.dtype == "bool" and array.view(np.uint8).max(initial=0) > 1:
        raise InvalidInput(f"input {spec.name!r} has booleans other than 0 and 1")
    return finite(array, spec), raw[expected:]


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
            f"input {spec.name!r} has {len(flat)} values, its shape {list(shape)} needs {count}"
        )
    return tensor_of(flat, spec).reshape(shape)


def _v2_shape(shape: Any, spec: TensorSpec) -> tuple[int, ...]:
    if (
        not isinstance(shape, list)
        or len(shape) != 1 + len(spec.shape)
        or not all(type(n) is int for n in shape)
        or tuple(shape[1:]) != spec.shape
        or shape[0] < 1
    ):
        raise InvalidInput(
            f"input {spec.name!r} must have shape {shape_words(spec)}, not {shown(shape)}"
        )
    if shape[0] > MAX_ROWS:
        raise InvalidInput(f"input {spec.name!r} has {shape[0]} rows; at most {MAX_ROWS} are taken")
    return tuple(shape)


def _v2_outputs(
    outputs: Any, parameters: Mapping[str, Any], task: Task
) -> tuple[tuple[str, ...] | None, frozenset[str]]:
    """Names of the outputs asked for, and which of them as raw bytes."""
    known = [spec.name for spec in task.outputs]
    default = flag_of(parameters.get("binary_data_output", False), "binary_data_output")
    if outputs is None or outputs == []:
        return None, frozenset(known if default else ())
    if not isinstance(outputs, list):
        raise InvalidInput("'outputs' must be a list")
    names: list[str] = []
    binary: set[str] = set()
    for entry in outputs:
        name = entry.get("name") if isinstance(entry, dict) else None
        if name not in known or name in names:
            raise InvalidInput(f"output {shown(name)} is not an output of the task, or named twice")
        names.append(name)
        own = parameters_of(entry, f"parameters of output {name!r}")
        if own.get("classification"):
            raise InvalidInput("the classification extension is not supported; use labels")
        if flag_of(own.get("binary_data", default), "binary_data"):
            binary.add(name)
    return tuple(names), frozenset(binary)


def _json(body: bytes | bytearray) -> Any:
    if not body:
        raise InvalidInput("the body is empty")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not valid JSON: {error}") from error
