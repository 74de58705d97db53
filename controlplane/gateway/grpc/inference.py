"""Inference over gRPC: from a ``ModelInferRequest`` to a query, and from its outputs to a reply."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from controlplane.gateway.grpc.messages import ModelInferResponse
from controlplane.gateway.grpc.wire import read_request, with_raw
from controlplane.gateway.query.json_tensors import finite, same_rows
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.gateway.query.query_fields import AskedByLength, name_task, task_of
from controlplane.gateway.query.replies import AskedAs, ReplyMetadata, V2Request
from controlplane.gateway.query.v2.datatypes import (
    BYTES,
    bytes_of,
    check_size,
    elements_of,
    raw_tensor,
    source_type,
)
from controlplane.gateway.query.v2.inputs import REGION, input_spec, not_shared, v2_shape
from controlplane.gateway.query.v2.parsing import at_length, filled_query, query_v2
from controlplane.gateway.query.v2.wanted_outputs import v2_form
from controlplane.gateway.texts.asked import AskedInText
from variants.errors import InvalidInput, ModellessError
from variants.figures import counted
from variants.types import Task, TaskName, TensorSpec
from workers.runtimes.protocol import Tensor

_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip
"""Where values of a datatype stand that do not come as raw bytes; FP16 and BF16 always do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcForm(V2Request):
    """What a reply repeats from its request; it is a ``ModelInferResponse``, its outputs raw."""

    def encode(
        self, task: Task, outputs: Sequence[Tensor], metadata: ReplyMetadata
    ) -> tuple[bytes, bytes]:
        message = ModelInferResponse(
            model_name=task.name,
            model_version=metadata.variant,
            id=self.id,
        )
        parameters = message.parameters
        for name, value in zip(metadata._fields, metadata, strict=True):
            # A boolean is an int, too.
            if isinstance(value, str):
                parameters[name].string_param = value
            elif isinstance(value, float):
                parameters[name].double_param = value
            elif isinstance(value, bool):
                parameters[name].bool_param = value
            else:
                parameters[name].int64_param = value
        raw: list[bytes | memoryview] = []
        for name, datatype, shape, values in self.listed(task, outputs):
            message.outputs.add(name=name, datatype=datatype, shape=shape)
            raw.append(bytes_of(values) if isinstance(values, list) else _bytes(values))
        return with_raw(message, raw), b""


def read_query(
    data: bytes,
    tasks: Mapping[TaskName, Task],
    variant_of: Callable[[TaskName, str], str],
    received_ms: float,
    draw: int,
) -> ParsedQuery:
    """Read a ``ModelInferRequest``.

    Args:
        variant_of: the variant that a version names, of a task.
        received_ms: when its call began.
        draw: 32 random bits, by which one of several workers is chosen.

    Raises:
        CalledInText: its input is texts.
        InvalidInput: it breaks the protocol or does not fit the task's signature.
        TaskNotFound: there is no such task.
    """
    message, raw = read_request(data)
    try:
        return _read_named(message, raw, tasks, variant_of, received_ms, draw)
    except ModellessError as error:
        name_task(error, message.model_name, tasks)
        raise


def _read_named(
    message: Any,
    raw: Sequence[bytes | memoryview],
    tasks: Mapping[TaskName, Task],
    variant_of: Callable[[TaskName, str], str],
    received_ms: float,
    draw: int,
) -> ParsedQuery:
    """The query of a message, of whatever task it names."""
    if any(entry.datatype == BYTES for entry in message.inputs):
        _refuse_or_read_texts(message, raw, tasks, variant_of)
    try:
        task = task_of(message.model_name, tasks)
    except AskedByLength as by:
        shapes = {entry.name: list(entry.shape) for entry in message.inputs}
        bucket, task = at_length(by.task, shapes)
        parsed = _read(message, raw, task, by.task.face, variant_of, received_ms, draw)
        return filled_query(by.task, bucket, parsed)
    return _read(message, raw, task, task, variant_of, received_ms, draw)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCall:
    """A call that asks with texts, as the request over HTTP that asks for the same."""

    body: bytes
    task: str
    pinned: str | None

    @staticmethod
    def answered_as(parsed: ParsedQuery) -> ParsedQuery:
        """The query, whose reply is a ``ModelInferResponse``."""
        form = parsed.v2
        assert form is not None
        if isinstance(form, AskedAs):
            return parsed._replace(v2=AskedAs.of(_grpc_form(form.form), form.face))
        return parsed._replace(v2=_grpc_form(form))


class CalledInText(AskedInText):
    """As ``AskedInText``, of a call."""

    def __init__(self, call: TextCall) -> None:
        super().__init__()
        self.call = call


def _refuse_or_read_texts(
    message: Any,
    raw: Sequence[bytes | memoryview],
    tasks: Mapping[TaskName, Task],
    variant_of: Callable[[TaskName, str], str],
) -> None:
    """
    Raises:
        CalledInText: the task takes texts.
        InvalidInput: what comes is none.
        TaskNotFound: there is no such task.
    """
    try:
        face = task_of(message.model_name, tasks)
    except AskedByLength as by:
        face = by.task.face
    if face.text is None:
        return  # the ordinary way says what the input should be
    inputs = []
    for index, entry in enumerate(message.inputs):
        given = list(entry.contents.bytes_contents) if not raw else texts_of_raw(raw, index)
        try:
            texts = [bytes(one).decode() for one in given]
        except UnicodeDecodeError as error:
            raise InvalidInput(f"a text of input {entry.name[:40]!r} is not UTF-8") from error
        listed = {
            "name": entry.name, "datatype": entry.datatype, "shape": list(entry.shape),
            "data": texts,
        }  # fmt: skip
        inputs.append(listed)
    outputs = [{"name": one.name, "parameters": plain(one.parameters)} for one in message.outputs]
    document: dict[str, Any] = {"inputs": inputs, "parameters": plain(message.parameters)}
    document |= {"id": message.id} | ({"outputs": outputs} if outputs else {})
    version = message.model_version
    pinned = variant_of(face.name, version) if version else None
    raise CalledInText(TextCall(body=orjson.dumps(document), task=face.name, pinned=pinned))


def texts_of_raw(raw: Sequence[bytes | memoryview], index: int) -> list[bytes]:
    """The elements of an input of BYTES that comes as raw contents.

    Raises:
        InvalidInput: it has none, or they are none.
    """
    if index >= len(raw):
        raise InvalidInput("each input needs its own raw_input_contents")
    return elements_of(raw[index])


def _grpc_form(form: V2Request) -> GrpcForm:
    return GrpcForm(id=form.id, outputs=form.outputs, binary=form.binary, classes=form.classes)


def _read(
    message: Any,
    raw: Sequence[bytes | memoryview],
    task: Task,
    named: Task,
    variant_of: Callable[[TaskName, str], str],
    received_ms: float,
    draw: int,
) -> ParsedQuery:
    """The query of a message; ``named`` is the task by whose name its version is looked up."""
    version = message.model_version
    pinned = variant_of(named.name, version) if version else None
    tensors = _inputs(message.inputs, raw, task.inputs)
    parameters = plain(message.parameters)
    outputs = [{"name": one.name, "parameters": plain(one.parameters)} for one in message.outputs]
    asked = v2_form(outputs, parameters, task, message.id)
    form = _grpc_form(asked)
    query = query_v2(task, len(tensors[0]), parameters, received_ms, draw, pinned)
    return ParsedQuery(task, query, tensors, form)


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON would have them."""
    found = {}
    for name, value in parameters.items():
        which = value.WhichOneof("parameter_choice")
        found[name] = None if which is None else getattr(value, which)
    return found


def _inputs(
    inputs: Sequence[Any], raw: Sequence[bytes | memoryview], specs: Sequence[TensorSpec]
) -> list[Tensor]:
    """The tensors, in the order of the task's inputs; all of them raw, or none."""
    if raw and len(raw) != len(inputs):
        raise InvalidInput(
            f"it has {counted(len(inputs), 'input')} and {len(raw)} raw_input_contents: each "
            "needs its own"
        )
    by_name = {spec.name: spec for spec in specs}
    found: dict[str, Tensor] = {}
    for index, entry in enumerate(inputs):
        spec = input_spec(entry.name, by_name, found)
        datatype = entry.datatype
        dtype = source_type(datatype, spec)
        shape = v2_shape(list(entry.shape), spec)
        if REGION in entry.parameters:
            raise not_shared(f"input {spec.name!r}")
        if not raw:
            found[spec.name] = _listed(entry.contents, datatype, dtype, shape, spec)
            continue
        if entry.HasField("contents"):
            raise InvalidInput(f"input {spec.name!r} has contents beside raw_input_contents")
        check_size(spec, datatype, shape, len(raw[index]))
        found[spec.name] = raw_tensor(raw[index], datatype, shape, spec)
    return same_rows(found, specs)


def _listed(
    contents: Any, datatype: str, dtype: str, shape: tuple[int, ...], spec: TensorSpec
) -> Tensor:
    """A tensor from the list of its values in a message."""
    field = _CONTENTS.get(datatype)
    if field is None:
        raise InvalidInput(f"input {spec.name!r}: {datatype} has to come in raw_input_contents")
    values = getattr(contents, field)
    if len(values) != (count := int(np.prod(shape))):
        raise InvalidInput(
            f"input {spec.name!r} has {counted(len(values), 'value')} in {field}, its shape "
            f"{list(shape)}"
            f" needs {count}"
        )
    try:
        array: Tensor = np.array(values, dtype)
    except OverflowError as error:
        raise InvalidInput(f"input {spec.name!r} has values outside {dtype}") from error
    return finite(array.reshape(shape).astype(spec.dtype, copy=False), spec)


def _bytes(tensor: Tensor) -> bytes | memoryview:
    """A tensor's bytes, as they lie where that is possible."""
    return tensor.data.cast("B") if tensor.flags.c_contiguous and tensor.size else tensor.tobytes()
