"""What gateway and reader send each other about a body that is read elsewhere.

A frame is two lengths, u64 each: of a JSON object and of the bytes that follow it. The gateway
sends its tasks, where they have changed, to who reads texts with the tokenizers behind them that
are new, who answers once these are loaded; and what is to be read, with the body behind it. The
reader answers with the query and the bytes of its tensors, or with an error.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from struct import Struct
from typing import Any

import numpy as np

from controlplane.gateway.query.parsing import ParsedQuery, ReadRows
from controlplane.gateway.query.replies import AskedAs, V2Request
from controlplane.gateway.texts.asked import AskedInText, TokenizerLoading
from planner.types import Query
from variants.buckets import OwnTexts, TaskTable, read_bucket
from variants.errors import (
    Internal,
    InvalidInput,
    ModellessError,
    Overloaded,
    PayloadTooLarge,
    TaskNotFound,
)
from variants.types import (
    ImageScale,
    Prefer,
    Slo,
    Task,
    TaskName,
    TensorSpec,
    TextInput,
    VariantName,
)
from workers.runtimes.protocol import Tensor

PREFIX = Struct("<QQ")
TOGETHER = 2**16
"""Bytes of a frame up to which it is sent, and received, at once: each further piece would wake the
other side once more."""
LOADED: Mapping[str, Any] = {"loaded": True}
"""The answer to tasks with tokenizers."""
_TOLD = Query._fields.index("client")
"""Fields of a query that a reader says; who asks is known here."""
_ERRORS: Mapping[str, Callable[[str], ModellessError]] = {
    AskedInText.__name__: lambda _: AskedInText(),
    TokenizerLoading.__name__: TokenizerLoading,
    **{
        kind.__name__: kind
        for kind in (Internal, InvalidInput, Overloaded, PayloadTooLarge, TaskNotFound)
    },
}


def error_as_json(error: ModellessError) -> dict[str, str]:
    """An error by the name that the gateway knows it by, or what it is a kind of."""
    names = (kind.__name__ for kind in type(error).__mro__)
    name = next((name for name in names if name in _ERRORS), Internal.__name__)
    return {"error": name, "message": error.message[:4_000], "task": error.asked_task}


def tasks_as_json(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    return [asdict(task) for task in tasks]


def own_texts_as_json(texts: OwnTexts) -> list[Any]:
    return [[task, version, asdict(text)] for (task, version), text in texts.items()]


def tasks_of(
    values: Iterable[Mapping[str, Any]],
    own_texts: Iterable[Any] = (),
    unread: Collection[TaskName] = (),
) -> TaskTable:
    """Tasks by name, from what ``tasks_as_json`` and ``own_texts_as_json`` made.

    Args:
        unread: tasks by whose own tokenizer nobody reads.
    """
    own = {(task, version): TextInput(**text) for task, version, text in own_texts}
    return TaskTable(map(_task, values), own_texts=own, unread=unread)


def _task(value: Mapping[str, Any]) -> Task:
    slo = {**value["slo"], "prefer": Prefer(value["slo"]["prefer"])}
    return Task(
        name=TaskName(value["name"]),
        inputs=_specs(value["inputs"]),
        outputs=_specs(value["outputs"]),
        labels=tuple(value["labels"]),
        metric=value["metric"],
        slo=Slo(**slo),
        image=_scale(value["image"]),
        bucket=read_bucket(value["bucket"]),
        text=None if value["text"] is None else TextInput(**value["text"]),
    )


def _scale(value: Mapping[str, Any] | None) -> ImageScale | None:
    if value is None:
        return None
    return ImageScale(mean=tuple(value["mean"]), std=tuple(value["std"]))


def _specs(values: Iterable[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(**{**value, "shape": tuple(value["shape"])}) for value in values)


def pieces(text: bytes, data: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """A frame of this JSON and the bytes that follow it, in as few pieces as is good."""
    size = sum(map(len, data))
    head = PREFIX.pack(len(text), size) + text
    if len(head) + size <= TOGETHER:
        return [b"".join([head, *data])]
    return [head, *data]


def described(parsed: ParsedQuery) -> tuple[dict[str, Any], list[memoryview]]:
    """A query as JSON, and the bytes of its tensors one after the other, each padded to 8."""
    chunks: list[memoryview] = []
    for tensor in parsed.all_tensors:
        chunks.append(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
        if tensor.nbytes % 8:
            chunks.append(memoryview(bytes(-tensor.nbytes % 8)))
    v2 = parsed.v2
    answer = {
        "query": list(parsed.query[:_TOLD]),
        "unread": parsed.query.unread,
        "version": parsed.query.version,
        "tensors": [[tensor.dtype.str, tensor.shape] for tensor in parsed.all_tensors],
        "v2": None if v2 is None else [v2.id, v2.outputs, sorted(v2.binary), dict(v2.classes)],
        "asked_as": v2.face.name if isinstance(v2, AskedAs) else None,
        "lengths": parsed.lengths,
        "spans": parsed.spans,
        "read_as": None
        if parsed.read_as is None
        else [[name, one.lengths, one.spans] for name, one in parsed.read_as.items()],
    }
    return answer, chunks


def parsed_of(
    answer: Mapping[str, Any], data: bytearray, tasks: Mapping[TaskName, Task]
) -> ParsedQuery:
    """The query that a reader has found.

    Raises:
        ModellessError: it has found none, or its task has gone.
    """
    if "error" in answer:
        error = _ERRORS.get(answer["error"], Internal)(answer["message"])
        error.asked_task = answer.get("task", "")
        raise error
    (task_name, rows, received_ms, latency_ms, accuracy, cost, prefer, best_effort, variant, draw,
     _, priority) = answer["query"]  # fmt: skip
    task = tasks.get(TaskName(task_name))
    if task is None:
        raise TaskNotFound(f"there is no task {task_name!r} any more")
    query = Query(
        task.name, rows, received_ms, latency_ms, accuracy, cost, Prefer(prefer), best_effort,
        None if variant is None else VariantName(variant), draw, priority=priority,
        unread=tuple((name, why) for name, why in answer["unread"]), version=answer["version"],
    )  # fmt: skip
    tensors: list[Tensor] = []
    at = 0
    for dtype, shape in answer["tensors"]:
        tensor: Tensor = np.ndarray(shape, np.dtype(dtype), data, at)
        at += tensor.nbytes + -tensor.nbytes % 8
        tensors.append(tensor)
    v2, lengths = _v2_of(answer["v2"], answer["asked_as"], task), answer["lengths"]
    read_as = _read_as(answer["read_as"], tensors)
    return ParsedQuery(
        task,
        query,
        tensors if read_as is None else next(iter(read_as.values())).tensors,
        v2,
        lengths=None if lengths is None else tuple(lengths),
        spans=answer["spans"],
        read_as=read_as,
    )


def _read_as(
    listed: Sequence[Any] | None, tensors: Sequence[Tensor]
) -> dict[str | None, ReadRows] | None:
    """The rows for each way of reading, of tensors that lie one after the other."""
    if listed is None:
        return None
    each = len(tensors) // len(listed)
    return {
        name: ReadRows(
            list(tensors[at * each : (at + 1) * each]),
            None if lengths is None else tuple(lengths),
            spans,
        )
        for at, (name, lengths, spans) in enumerate(listed)
    }


def _v2_of(value: list[Any] | None, asked_as: str | None, task: Task) -> V2Request | None:
    if value is None:
        return None
    id_, outputs, binary, classes = value
    form = V2Request(
        id=id_,
        outputs=None if outputs is None else tuple(outputs),
        binary=frozenset(binary),
        classes=classes,
    )
    if asked_as is None:
        return form
    return AskedAs.of(form, replace(task, name=TaskName(asked_as)))
