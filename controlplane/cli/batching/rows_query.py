"""Some rows as a query of the Open Inference Protocol, and its answer as a line for each row.

This protocol is what has a priority, and it takes and gives numbers as raw bytes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson

from controlplane.cli.asking.connections import Answer
from controlplane.cli.asking.rows import Spec
from controlplane.cli.batching.row import Row
from controlplane.cli.gateway_client import at
from controlplane.client.exchange import asked_about, query_document
from controlplane.gateway.query.v2.datatypes import BYTES, V2_NAMES
from controlplane.slo_parameters import slo_parameters
from planner.types import MAX_PRIORITY
from variants.texts.inputs import TEXT
from variants.types import FollowingAxis

DEADLINE_MS = 30_000.0
"""Of each query: long, so that others with shorter ones go first, and short enough that what is
refused by it is known soon."""
LENGTH = b"inference-header-content-length"
DTYPES = {name: dtype for dtype, name in V2_NAMES.items()}


class RowLengths(NamedTuple):
    """Where rows of a task may differ in length, and at which lengths they are answered."""

    axes: Sequence[Mapping[str, Any]]
    """The open axes, as ``/v1/tasks`` has them."""
    lengths: Sequence[int]
    """Of the task's buckets, ascending; empty where it has none."""
    following: Mapping[str, FollowingAxis]
    """Outputs that are as long as the rows, or a part of that, by name."""


def row_lengths(task: Mapping[str, Any]) -> RowLengths:
    """Those of a task, as ``/v1/tasks`` has it."""
    found = task.get("lengths") or {"axes": (), "buckets": {}}
    return RowLengths(
        axes=found["axes"],
        lengths=sorted(map(int, found["buckets"])),
        following={one["output"]: FollowingAxis(**one) for one in found.get("outputs", ())},
    )


def whole_outputs(outputs: Sequence[Spec], of_rows: RowLengths) -> list[Spec]:
    """Outputs of a task; those that follow from the length of rows with that of the longest."""
    found: list[Spec] = []
    for one in outputs:
        follows = of_rows.following.get(one["name"])
        shape = list(one["shape"])
        if follows is not None:
            shape[follows.axis] = follows.size(of_rows.lengths[-1])
        found.append({**one, "shape": shape})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched:
    """What is asked with every query."""

    task: str
    inputs: Sequence[Spec]
    labels: Sequence[str]
    accuracy: float | None = None
    cost: float | None = None
    prefer: str | None = None
    variant: str | None = None
    model_version: str | None = None
    truncate: bool = False
    axes: Sequence[Mapping[str, Any]] = ()
    """Of a task for rows of several lengths the open axes, as ``/v1/tasks`` has them."""
    lengths: Sequence[int] = ()
    """Lengths of the task's buckets, ascending; empty where it has none."""
    texts: bool = False
    """Whether rows are texts."""
    spans: bool = False
    """Whether these are answered token by token: ``/v1/query`` says where each one stands."""
    following: Mapping[str, FollowingAxis] = field(default_factory=dict)
    """Its outputs that are as long as the rows, or a part of that, by name."""

    def bucket(self, row: Row) -> int:
        """The length of the bucket that takes a row, or its own where none is that long; 0 of a
        task for rows of one length. Rows of one bucket go into one query."""
        if not self.axes:
            return 0
        length = self.length(row)
        return next((one for one in self.lengths if one >= length), length)

    def length(self, row: Row) -> int:
        """Of a row, where rows differ in it."""
        first = self.axes[0]
        return int(row.values[first["input"]].shape[first["axis"]])

    @property
    def path(self) -> str:
        if self.spans:
            return at("v1", "query")
        version = () if self.variant is None else ("versions", self.variant)
        return at("v2", "models", self.task, *version, "infer")

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the query; the lowest priority there is."""
        needs = slo_parameters(
            latency_ms=DEADLINE_MS, accuracy=self.accuracy, cost=self.cost, prefer=self.prefer,
            model_version=self.model_version, priority=MAX_PRIORITY,
        )  # fmt: skip
        cut = {"truncate": True} if self.truncate else {}
        return {**needs, "binary_data_output": True, **cut}


def query_of(asked: Batched, rows: Sequence[Row]) -> tuple[bytes, int]:
    """The body of a query with these rows, and how much of it is JSON."""
    if asked.spans:
        body = orjson.dumps(_document(asked, [row.values[TEXT] for row in rows]))
        return body, 0
    if asked.texts:
        texts = [row.values[TEXT] for row in rows]
        shape = [len(rows)] if len(texts[0]) == 1 else [len(rows), len(texts[0])]
        flat = [one for each in texts for one in each]
        entry = {"name": TEXT, "datatype": BYTES, "shape": shape, "data": flat}
        body = orjson.dumps({"inputs": [entry], "parameters": asked.parameters})
        return body, len(body)
    raw, inputs = [], []
    for spec in asked.inputs:
        tensor = _stacked([row.values[spec["name"]] for row in rows], asked, spec["name"])
        raw.append(tensor.tobytes())
        inputs.append(
            {
                "name": spec["name"],
                "datatype": V2_NAMES[spec["dtype"]],
                "shape": list(tensor.shape),
                "parameters": {"binary_data_size": len(raw[-1])},
            }
        )
    head = orjson.dumps({"inputs": inputs, "parameters": asked.parameters})
    return b"".join([head, *raw]), len(head)


def _document(asked: Batched, texts: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The body of ``/v1/query`` that asks for these texts, or pairs of them."""
    return query_document(
        asked.task,
        asked_about([one[0] if len(one) == 1 else one for one in texts], truncate=asked.truncate),
        latency_ms=DEADLINE_MS,
        accuracy=asked.accuracy,
        cost=asked.cost,
        prefer=asked.prefer,
        variant=asked.variant,
        model_version=asked.model_version,
        priority=MAX_PRIORITY,
    )


def _stacked(rows: Sequence[Any], asked: Batched, name: str) -> Any:
    """Rows of one input as one array, all as long as the longest where they differ."""
    open_axis = next((one for one in asked.axes if one["input"] == name), None)
    if open_axis is None:
        return np.stack(rows)
    axis = open_axis["axis"]
    longest = max(row.shape[axis] for row in rows)
    widths = [
        [(0, longest - row.shape[axis] if at == axis else 0) for at in range(row.ndim)]
        for row in rows
    ]
    return np.stack(
        [
            np.pad(row, width, constant_values=np.asarray(open_axis["pad"]).astype(row.dtype))
            for row, width in zip(rows, widths, strict=True)
        ]
    )


class Answered(NamedTuple):
    """What an answered query says."""

    lines: list[bytes]
    """A line of JSON for each row."""
    variant: str
    run_ms: float
    """Of the batch that it ran in."""


def read_answer(asked: Batched, rows: Sequence[Row], answer: Answer) -> Answered:
    """What the answer to a query with these rows says.

    Raises:
        ValueError: the answer is none of modelless.
    """
    if asked.spans:
        return _read_spans(rows, answer)
    try:
        document, outputs = _read(answer)
        said: Mapping[str, Any] = document["parameters"]
        made = {"variant": said["variant"], "accuracy": said["accuracy"]}
        run_ms = float(said["run_ms"])
        if any(len(output) != len(rows) for output in outputs.values()):
            raise ValueError("it has another number of rows")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what answered is not modelless: {error}") from error
    lines = []
    for index, row in enumerate(rows):
        line: dict[str, Any] = numbered(row)
        alone = {name: _own(asked, row, name, output[index]) for name, output in outputs.items()}
        first = next(iter(alone.values()))
        line["outputs"] = alone if len(alone) > 1 else first
        line |= _named(asked.labels, first)
        lines.append(orjson.dumps(line | made, option=orjson.OPT_SERIALIZE_NUMPY))
    return Answered(lines, str(made["variant"]), run_ms)


def _read_spans(rows: Sequence[Row], answer: Answer) -> Answered:
    """The same of texts that are answered token by token."""
    try:
        said = orjson.loads(answer.body)
        made = {"variant": said["variant"], "accuracy": said["accuracy"]}
        run_ms, outputs = float(said["run_ms"]), said["outputs"]
        beside = {name: said[name] for name in ("labels", "scores", "spans") if name in said}
        lines = []
        for index, row in enumerate(rows):
            alone = outputs[index] if isinstance(outputs, list) else None
            if alone is None:
                alone = {name: values[index] for name, values in outputs.items()}
            own = {name: values[index] for name, values in beside.items()}
            lines.append(orjson.dumps(numbered(row) | {"outputs": alone} | own | made))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"what answered is not modelless: {error}") from error
    return Answered(lines, str(made["variant"]), run_ms)


def _own(asked: Batched, row: Row, name: str, output: Any) -> Any:
    """What of a row's output is its own: all rows of a query were as long as the longest."""
    one = asked.following.get(name)
    if one is not None:
        output = output[(slice(None),) * one.axis + (slice(one.size(asked.length(row))),)]
    return np.ascontiguousarray(output)


def _named(labels: Sequence[str], first: Any) -> dict[str, Any]:
    """The best class of a row by its first output, or of each of its positions."""
    if not labels:
        return {}
    if first.ndim == 2 and first.shape[1] == len(labels):
        best = first.argmax(axis=1).tolist()
        return {"labels": [labels[one] for one in best], "scores": first.max(axis=1)}
    if first.size != len(labels):
        return {}
    at = int(first.argmax())
    return {"label": labels[at], "score": first.reshape(-1)[at]}


def _read(answer: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON of an answer, and its outputs by name, each with an axis for rows."""
    length = int(answer.headers.get(LENGTH, len(answer.body)))
    document = orjson.loads(answer.body[:length])
    outputs, start = {}, length
    for one in document["outputs"]:
        size = (one.get("parameters") or {}).get("binary_data_size")
        dtype = DTYPES[one["datatype"]]
        if size is None:
            values = np.asarray(one["data"], dtype)
        else:
            values = np.frombuffer(answer.body[start : start + size], dtype)
            start += size
        outputs[one["name"]] = values.reshape(one["shape"])
    return document, outputs


def numbered(row: Row) -> dict[str, Any]:
    """How the line of a row begins: with its number, and of a picture the name of its file."""
    return {"row": row.number, **({"file": row.file} if row.file else {})}


def about_row(row: Row, said: str) -> str:
    """What was said of a query with this row alone, of its row or text 0, with the row's number in
    the file."""
    return re.sub(r"\b(row|text) 0\b", rf"\1 {row.number}", said)


def error_line(row: Row, code: str, text: str) -> bytes:
    """The line of a row that is not answered."""
    return orjson.dumps({**numbered(row), "error": text, "code": code})
