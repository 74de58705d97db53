"""Skimming: what a query asks for, found without reading its numbers.

While queries are refused, most bodies are read in vain. What decides about a refusal stands in the
few bytes before and behind the numbers. Whatever is unusual gives ``None``, and then the body is
read as a whole; so what is found here is what reading would find, for a body that is right.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from controlplane.gateway.overload.repeated_refusals import LEAST_BYTES, MOST_BYTES, brackets_in
from controlplane.gateway.query.json_tensors import MAX_ROWS
from controlplane.gateway.query.lean_json import lists_in
from controlplane.gateway.query.parsing import query_v1
from controlplane.gateway.query.query_fields import task_of
from controlplane.gateway.query.v2.parsing import query_v2
from planner.types import Query
from variants.errors import InvalidInput, TaskNotFound
from variants.types import Task, TaskName

_INPUTS = b'"inputs"'
_ROWS = re.compile(rb'"shape"\s*:\s*\[\s*(\d{1,5})')


def skim_v1(
    body: bytes | bytearray,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
    least_bytes: int = LEAST_BYTES,
) -> Query | None:
    """What a body of ``/v1/query`` asks for; the other arguments are those of ``parse_v1``.

    ``least_bytes``: shorter bodies are not for this function.
    """
    found = _around(body, least_bytes)
    if found is None:
        return None
    fields, begin, end = found
    # Numbers have no quotation marks: no field is among them, and no input has a name.
    if body.find(b'"', begin, end) >= 0:
        return None
    try:
        task = task_of(fields.get("task"), tasks)
        rows = _nested_rows(body, begin, end, task)
        return None if rows is None else query_v1(fields, task, rows, received_ms, draw)
    except (InvalidInput, TaskNotFound):
        return None


def skim_v2(
    body: bytes | bytearray,
    task_name: str,
    pinned: str | None,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
    least_bytes: int = LEAST_BYTES,
) -> Query | None:
    """What a body of an inference request of v2 asks for; the arguments are of ``parse_v2``.

    Raw bytes may follow the JSON of some bodies; those are not for this function.
    """
    found = _around(body, least_bytes)
    if found is None:
        return None
    fields, begin, end = found
    parameters = fields.get("parameters") or {}
    # The whole query's parameters would follow the list of inputs, or stand before it.
    if not isinstance(parameters, dict) or body.find(b'"parameters"', begin, end) >= 0:
        return None
    rows = _ROWS.search(body, begin, end)
    if rows is None or not 1 <= int(rows[1]) <= MAX_ROWS:
        return None
    try:
        task = task_of(task_name, tasks)
        return query_v2(task, int(rows[1]), parameters, received_ms, draw, pinned)
    except (InvalidInput, TaskNotFound):
        return None


def asked_by_headers(
    task_name: str,
    variant: str | None,
    slo: bytes | None,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
) -> Query | None:
    """What a query of one row asks for, by its headers; ``slo`` is the JSON of an object.

    ``None`` where they are wrong: the body may be right.
    """
    try:
        fields = {"slo": None if slo is None else orjson.loads(slo), "variant": variant}
        return query_v1(fields, task_of(task_name, tasks), 1, received_ms, draw)
    except (orjson.JSONDecodeError, InvalidInput, TaskNotFound):
        return None


def _around(body: bytes | bytearray, least_bytes: int) -> tuple[Mapping[str, Any], int, int] | None:
    """The fields of a body but its inputs, and where those begin and end."""
    if len(body) < least_bytes:
        return None
    begin = body.find(_INPUTS, 0, MOST_BYTES)
    end = body.rfind(b"]", -MOST_BYTES) + 1
    if not 0 < begin < end:
        return None
    try:
        fields = orjson.loads(body[:begin] + b'"inputs":0' + body[end:])
    except orjson.JSONDecodeError:
        return None
    return (fields, begin + len(_INPUTS), end) if isinstance(fields, dict) else None


def _nested_rows(body: bytes | bytearray, begin: int, end: int, task: Task) -> int | None:
    """How many rows nested lists have, by their brackets; ``None`` where it cannot be."""
    spec = task.inputs[0]
    if len(task.inputs) > 1:
        return None
    if spec.shape:
        rows, others = divmod(brackets_in(body, begin, end) - 1, lists_in(spec.shape))
    else:
        rows, others = body.count(b",", begin, end) + 1, 0
    return rows if not others and 1 <= rows <= MAX_ROWS else None
