"""Replies to bytes, in the two dialects of the inference route.

Outputs come as arrays of shape (rows, *shape of the output), in the order of the task's outputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson

from controlplane.gateway.query.v2.datatypes import BYTES, V2_NAMES, best_classes, bytes_of
from planner.types import PlacedReason, Reason
from variants.buckets import following_axes
from variants.metrics.positions import positions_first
from variants.types import Task
from workers.runtimes.protocol import Tensor

JSON = b"content-type: application/json\r\n"
"""Header lines of an answer, each with its CRLF."""
_RAW = b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"

_LINES: dict[str, bytes] = {
    reason: f"x-choice-reason: {reason.value}\r\n".encode("ascii") for reason in Reason
}

reason_line: Callable[[Reason | PlacedReason], bytes] = _LINES.__getitem__
"""The line that says why the variant was chosen."""


class ReplyMetadata(NamedTuple):
    """What a reply says about how it was made; the contract fixes names and order."""

    variant: str
    model_version: str
    worker: str
    batch_size: int
    queue_ms: float
    run_ms: float
    accuracy: float
    cost_usd_per_1k: float
    slo_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Request:
    """What a v2 reply repeats from its request."""

    id: str | None
    outputs: tuple[str, ...] | None
    """Names of the outputs asked for; ``None`` asks for all."""
    binary: frozenset[str]
    """Outputs to send as raw bytes behind the JSON."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Outputs to send as so many of their best classes (the classification extension)."""

    def encode(
        self, task: Task, outputs: Sequence[Tensor], metadata: ReplyMetadata
    ) -> tuple[bytes, bytes]:
        """The body of the reply, and its header lines."""
        body, json_length = encode_v2(task, self, outputs, metadata)
        return body, JSON if json_length is None else _RAW % json_length

    def listed(
        self, task: Task, outputs: Sequence[Tensor]
    ) -> Iterator[tuple[str, str, list[int], Tensor | list[str]]]:
        """The outputs that are asked for: name, datatype, shape, and values; texts are flat."""
        for spec, tensor in zip(task.outputs, outputs, strict=True):
            if self.outputs is not None and spec.name not in self.outputs:
                continue
            count = self.classes.get(spec.name)
            if count is None:
                yield spec.name, V2_NAMES[spec.dtype], list(tensor.shape), tensor
                continue
            labels = task.labels if spec is task.outputs[0] else ()
            places, apart = [len(tensor)], tensor
            axis = following_axes(task).get(spec.name)
            if axis is not None and len(spec.shape) > 1:  # of each position
                apart = positions_first(tensor, axis)
                places = list(apart.shape[:2])
                apart = apart.reshape(prod(places), prod(apart.shape[2:]))
            rows = best_classes(apart, count, labels)
            yield (
                spec.name,
                BYTES,
                [*places, len(rows[0]) if rows else count],
                [text for row in rows for text in row],
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAs(V2Request):
    """The same for a query that has asked a bucket by the name of all its buckets."""

    form: V2Request
    face: Task
    """The task as the client has named it."""

    @classmethod
    def of(cls, form: V2Request, face: Task) -> "AskedAs":
        return cls(
            id=form.id, outputs=form.outputs, binary=form.binary, classes=form.classes,
            form=form, face=face,
        )  # fmt: skip

    def encode(
        self, task: Task, outputs: Sequence[Tensor], metadata: ReplyMetadata
    ) -> tuple[bytes, bytes]:
        return self.form.encode(self.face, outputs, metadata)


def encode_v1(task: Task, outputs: Sequence[Tensor], metadata: ReplyMetadata) -> bytes:
    """The body of a reply to ``/v1/query``.

    Where the task has labels, the first output holds scores, of shape (rows, labels), and the reply
    says the best label of each row and its score; or of each position of each row, where it has
    shape (rows, positions, labels).
    """
    first = outputs[0]
    reply = _as_dict(metadata)
    reply["outputs"] = (
        first
        if len(outputs) == 1
        else dict(zip((spec.name for spec in task.outputs), outputs, strict=True))
    )
    labels = task.labels
    if labels:
        if first.ndim == 3:
            _name_positions(reply, first, labels)
        elif first.size == len(labels):  # one row, as nearly always
            best = int(first.argmax())
            reply["labels"] = (labels[best],)
            reply["scores"] = first.reshape(-1)[best : best + 1]
        else:
            scores = first.reshape(len(first), -1)
            reply["labels"] = [labels[index] for index in scores.argmax(axis=1).tolist()]
            reply["scores"] = scores.max(axis=1)
    return orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_v1_apart(
    task: Task,
    outputs: Sequence[Tensor | list[Tensor]],
    metadata: ReplyMetadata,
    spans: list[list[list[int]]] | None = None,
) -> bytes:
    """The same where rows have lengths of their own, and outputs that are as long an array for each
    row; ``spans`` of rows that were texts."""
    reply = _as_dict(metadata)
    if spans is not None:
        reply["spans"] = spans
    named = dict(zip((spec.name for spec in task.outputs), outputs, strict=True))
    reply["outputs"] = named if len(named) > 1 else outputs[0]
    if task.labels and isinstance(outputs[0], list):
        _name_positions(reply, outputs[0], task.labels)
    elif task.labels:
        best = [row.argmax() for row in outputs[0]]
        reply["labels"] = [task.labels[index] for index in best]
        reply["scores"] = [row[index] for row, index in zip(outputs[0], best, strict=True)]
    return orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY)


def _name_positions(
    reply: dict[str, Any], scores: Sequence[Tensor] | Tensor, labels: Sequence[str]
) -> None:
    """Say the best label of each position of each row, by scores (positions, labels), and its
    score."""
    best = [row.argmax(axis=1).tolist() for row in scores]
    reply["labels"] = [[labels[index] for index in row] for row in best]
    reply["scores"] = [row.max(axis=1) for row in scores]


def _as_dict(metadata: ReplyMetadata) -> dict[str, Any]:
    """``metadata._asdict()``, without looking up what its fields are called."""
    (variant, model_version, worker, batch_size, queue_ms, run_ms, accuracy, cost_usd_per_1k,
     slo_met) = metadata  # fmt: skip
    return {
        "variant": variant, "model_version": model_version, "worker": worker,
        "batch_size": batch_size, "queue_ms": queue_ms, "run_ms": run_ms, "accuracy": accuracy,
        "cost_usd_per_1k": cost_usd_per_1k, "slo_met": slo_met,
    }  # fmt: skip


def encode_v2(
    task: Task, request: V2Request, outputs: Sequence[Tensor], metadata: ReplyMetadata
) -> tuple[bytes, int | None]:
    """The body of a v2 reply, and the length in bytes of its JSON where raw bytes follow it."""
    listed: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for name, datatype, shape, values in request.listed(task, outputs):
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if name in request.binary:
            raw.append(bytes_of(values) if isinstance(values, list) else values.tobytes())
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        elif isinstance(values, list):
            entry["data"] = values
        else:
            entry["data"] = np.ascontiguousarray(values).reshape(-1)
        listed.append(entry)
    reply: dict[str, Any] = {
        "model_name": task.name,
        "model_version": metadata.variant,  # the versions of a task are its variants
        "outputs": listed,
        "parameters": _as_dict(metadata),
    }
    if request.id is not None:
        reply["id"] = request.id
    document = orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY)
    if not raw:
        return document, None
    return b"".join([document, *raw]), len(document)


# -- why a variant was chosen, in header lines -----------------------------------------------------


def placed_lines(reason: Reason | PlacedReason) -> bytes:
    """The same, and one that says where it was answered and why there, if that is known."""
    line = _LINES[Reason(reason)]
    if not isinstance(reason, PlacedReason):
        return line
    return line + _place_line(reason.place, reason.why)


def lines_from(place: str, why: str) -> Callable[[Reason | PlacedReason], bytes]:
    """The same where all answers are from one place, but those that were kept here."""
    where = _place_line(place, why)
    lines = {each: _LINES[each] + where for each in Reason}
    lines[Reason.CACHED] = _LINES[Reason.CACHED]
    return lambda reason: lines[Reason(reason)]


def _place_line(place: str, why: str) -> bytes:
    words = f"{place}: {why}"
    printable = "".join(sign if " " <= sign <= "~" else "?" for sign in words)
    return b"x-choice-zone: %s\r\n" % printable.encode("ascii")
