"""Bytes to a query: the two dialects of the inference route.

``/v1/query`` is for people, ``/v2/models/.../infer`` is the Open Inference Protocol. Both are
parsed by hand rather than by a schema library: this runs once per query, and the checks below say
exactly what was wrong.
"""

import re
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import orjson

from controlplane.gateway.query.json_tensors import (
    filled_rows,
    may_hold_booleans,
    read_rows,
)
from controlplane.gateway.query.lean_json import LEAST_BYTES, LongBody, lean_v1
from controlplane.gateway.query.query_fields import (
    AskedByLength,
    accuracy_bound,
    cost_bound,
    flag_of,
    latency_bound,
    name_task,
    pinned_to,
    prefer_of,
    priority_in,
    task_of,
    unknown,
    version_of,
)
from controlplane.gateway.query.replies import V2Request
from controlplane.gateway.texts.asked import (
    TRUNCATE,
    AskedInText,
    are_texts,
    check_form,
    check_numbers,
    likely_task,
)
from planner.types import ANYBODY, DEFAULT_PRIORITY, Query
from variants.buckets import BucketedTask
from variants.errors import InvalidInput, ModellessError
from variants.slots import tuple_of
from variants.types import Prefer, Task, TaskName
from workers.runtimes.protocol import Tensor

_BESIDE_SLO = frozenset({"best_effort", "model_version", "priority", "variant"})
_V1_FIELDS = frozenset({"task", "slo", "inputs"}) | _BESIDE_SLO
_OF_TEXTS = _V1_FIELDS | {TRUNCATE}
_IN_PLACE = frozenset({"rows", "length"})
"""What a query that is only explained may say in the place of its inputs."""
_SLO_FIELDS = frozenset({"latency_ms", "accuracy", "cost", "prefer"})
MOST_ROWS = 2**20
"""Rows that an explanation is asked for."""
# Where orjson stops is the first character of such a word, or the one after its sign.
_NO_NUMBER = re.compile(r".??(NaN|[+-]?Infinity)\b", re.IGNORECASE | re.DOTALL)


class ReadRows(NamedTuple):
    """Texts as one tokenizer reads them: what ``ParsedQuery`` has of the same names."""

    tensors: list[Tensor]
    lengths: tuple[int, ...] | None
    spans: list[list[list[int]]] | None


class ParsedQuery(NamedTuple):
    """What a client asked for, checked against its task.

    ``tensors`` are in the order of the task's inputs, each of shape (rows, *shape of the input).
    """

    task: Task
    query: Query
    tensors: list[Tensor]
    v2: "V2Request | None" = None
    """How to answer, when it was asked over the Open Inference Protocol."""
    takes: bytes = b""
    """The coding in which the answer may be compressed; empty: it may not."""
    lengths: tuple[int, ...] | None = None
    """Of its rows before they were filled up, where outputs are as long and are cut back to them.
    Over the Open Inference Protocol all rows of a query have the same."""
    spans: list[list[list[int]]] | None = None
    """Of rows that were texts, and have lengths: where each token begins and ends in its text."""
    read_as: Mapping[str | None, ReadRows] | None = None
    """Of texts: the rows by each way of the task's versions to read them that holds them; None
    stands for the task's own. Numbers have none."""

    @property
    def all_tensors(self) -> list[Tensor]:
        """Its tensors, and those for versions with other tokenizers."""
        if self.read_as is None:
            return self.tensors
        return [tensor for rows in self.read_as.values() for tensor in rows.tensors]

    def rows_for(self, way: str | None) -> "ParsedQuery | None":
        """The same with the rows that a version takes; None where there are none.

        Args:
            way: in which it reads texts, where that is its own.
        """
        if self.read_as is None:
            # Numbers are those of the variant that was named, if one was.
            return self if way is None or self.query.variant is not None else None
        rows = self.read_as.get(way)
        return None if rows is None else self._replace(**rows._asdict())


def parse_v1(
    body: bytes | bytearray,
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
    lean_bytes: int = LEAST_BYTES,
    most_bytes: float = inf,
) -> ParsedQuery:
    """Read the body of ``POST /v1/query``.

    Args:
        received_ms: when its first byte came.
        draw: 32 random bits, by which one of several workers is chosen.
        lean_bytes: bodies from this size on are read without an object for each number.
        most_bytes: longer ones that cannot be read in that way are not read here.

    Raises:
        LongBody: it has more than ``most_bytes``, and is unusual or wrong.
        AskedInText: its inputs are texts.
        InvalidInput: it is not JSON of the documented form, or does not fit the task's signature,
            with its ``asked_task``.
        TaskNotFound: there is no such task.
    """
    if len(body) >= lean_bytes and (lean := lean_v1(body, lean_bytes)) is not None:
        try:
            parsed = _read_v1(lean.fields, tasks, received_ms, draw, False)
            if lean.whole():
                return parsed
        except InvalidInput:
            pass  # the ordinary way finds out what is wrong
        del lean
    if len(body) > most_bytes:
        raise LongBody
    document = json_of(body)
    try:
        return _read_v1(document, tasks, received_ms, draw, may_hold_booleans(body))
    except InvalidInput as error:
        if isinstance(document, dict):
            name_task(error, document.get("task"), tasks)
        raise


def _read_v1(
    document: Any, tasks: Mapping[TaskName, Task], received_ms: float, draw: int, booleans: bool
) -> ParsedQuery:
    if not isinstance(document, dict):
        raise InvalidInput('the body must be a JSON object such as {"task": ..., "inputs": [...]}')
    if not document.keys() <= _V1_FIELDS:
        texts = are_texts(document.get("inputs"))
        if texts and document.keys() <= _OF_TEXTS:
            raise _cut_off(document, tasks, received_ms, draw)
        document = _without_default(document)
        if texts or not document.keys() <= _V1_FIELDS:
            raise _unknown_field(document, _OF_TEXTS if texts else _V1_FIELDS)
    try:
        task = task_of(document.get("task"), tasks)
    except AskedByLength as asked:
        if "inputs" not in document:
            raise InvalidInput("'inputs' is missing: a list of rows") from None
        if asked.task.face.text is not None:
            if are_texts(document["inputs"]):
                raise _in_text(asked.task, document, received_ms, draw) from None
            check_form(asked.task.face, document["inputs"])
        task, tensors, lengths = filled_rows(asked.task, document["inputs"], booleans)
        query = query_v1(document, task, len(tensors[0]), received_ms, draw)
        cut = tuple(lengths) if asked.task.following else None
        return ParsedQuery(task, query, tensors, lengths=cut)
    if "inputs" not in document:
        raise InvalidInput("'inputs' is missing: a list of rows")
    if task.text is not None:
        if are_texts(document["inputs"]):
            raise _in_text(task, document, received_ms, draw)
        check_form(task, document["inputs"])
    tensors = read_rows(document["inputs"], task.inputs, booleans)
    query = query_v1(document, task, len(tensors[0]), received_ms, draw)
    return tuple_of(ParsedQuery, (task, query, tensors, None, b"", None, None, None))


def _in_text(
    asked: Task | BucketedTask, document: Mapping[str, Any], received_ms: float, draw: int
) -> AskedInText:
    texts = document["inputs"]

    def query() -> Query:
        if type(texts) is not list:
            raise InvalidInput("'inputs' is a list of texts")
        return query_v1(document, likely_task(asked, texts), len(texts), received_ms, draw)

    return AskedInText(query)


def _cut_off(
    document: Mapping[str, Any], tasks: Mapping[TaskName, Task], received_ms: float, draw: int
) -> AskedInText:
    """The same of texts that may be cut off, whose task is not looked at yet."""
    try:
        asked: Task | BucketedTask = task_of(document.get("task"), tasks)
    except AskedByLength as by:
        asked = by.task
    except ModellessError:
        return AskedInText()  # is told when it is read
    return _in_text(asked, document, received_ms, draw)


def asked_v1(
    body: bytes | bytearray, tasks: Mapping[TaskName, Task], received_ms: float, draw: int
) -> Query:
    """The query that the body of ``POST /v1/explain`` is about.

    It is a body of ``/v1/query``, or one that says how many ``rows`` there are in place of its
    inputs, and else is of one; and of which ``length``, where these differ, else of the longest.

    Raises:
        InvalidInput, TaskNotFound: as ``parse_v1``.
    """
    document = json_of(body)
    if isinstance(document, dict) and "inputs" in document:
        if beside := sorted(document.keys() & _IN_PLACE):
            raise InvalidInput(f"{beside[0]!r} stands in the place of 'inputs', not beside them")
    elif isinstance(document, dict):
        document = dict(document)
        rows, length = document.pop("rows", 1), document.pop("length", None)
        document = _without_default(document)
        if not document.keys() <= _V1_FIELDS:
            raise _unknown_field(document, _V1_FIELDS | _IN_PLACE)
        task = _task_at(document.get("task"), tasks, length)
        if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
            raise InvalidInput(f"'rows' must be a whole number from 1 to {MOST_ROWS:,}")
        return query_v1(document, task, rows, received_ms, draw)
    parsed = _read_v1(document, tasks, received_ms, draw, may_hold_booleans(body))
    check_numbers(parsed.task, parsed.query.variant, tasks)
    return parsed.query


def _task_at(name: Any, tasks: Mapping[TaskName, Task], length: Any) -> Task:
    """The task that rows of a length go to; where they may have one length only, none is given."""
    try:
        task = task_of(name, tasks)
    except AskedByLength as asked:
        longest = asked.task.lengths[-1]
        if length is not None and (type(length) is not int or length < 1):
            raise InvalidInput("'length' must be a whole number from 1") from None
        return asked.task.holding(longest if length is None else length)
    if length is not None:
        raise InvalidInput(f"rows of task {task.name!r} have one length: leave 'length' out")
    return task


def _without_default(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same without what changes nothing: clients made of the OpenAPI document say it too."""
    truncate = document.get(TRUNCATE, True)
    if truncate is not False and truncate is not None:
        return document
    return {name: value for name, value in document.items() if name != TRUNCATE}


def _unknown_field(document: Mapping[str, Any], known: frozenset[str]) -> InvalidInput:
    if TRUNCATE in document and TRUNCATE not in known:
        return InvalidInput(f"{TRUNCATE!r} is for texts, and 'inputs' are none")
    if misplaced := sorted(document.keys() & _SLO_FIELDS):
        return InvalidInput(
            f'{misplaced[0]!r} stands in \'slo\': {{"slo": {{"{misplaced[0]}": ...}}}}'
        )
    return InvalidInput(unknown("field", document.keys(), known))


def query_v1(
    document: Mapping[str, Any], task: Task, rows: int, received_ms: float, draw: int
) -> Query:
    """What the fields of a body of ``/v1/query`` ask for.

    Raises:
        InvalidInput: one of them is wrong.
    """
    latency_ms, accuracy, cost, prefer = _slo(document.get("slo"), task)
    best_effort, variant, version, priority = False, None, None, DEFAULT_PRIORITY
    if not _BESIDE_SLO.isdisjoint(document):
        best_effort = flag_of(document.get("best_effort", False), "best_effort")
        variant = pinned_to(document.get("variant"))
        if (version := document.get("model_version")) is not None:
            version = version_of(version)
        priority = priority_in(document)
    fields = (
        task.name, rows, received_ms, latency_ms, accuracy, cost, prefer, best_effort, variant,
        draw, None, priority, ANYBODY, (), version,
    )  # fmt: skip
    return tuple_of(Query, fields)


def _slo(slo: Any, task: Task) -> tuple[float, float | None, float | None, Prefer]:
    default = task.slo
    if slo is None:
        return default.latency_ms, default.accuracy, default.cost, default.prefer
    if not isinstance(slo, dict):
        raise InvalidInput('\'slo\' must be an object such as {"latency_ms": 50, "accuracy": 0.95}')
    if not slo.keys() <= _SLO_FIELDS:
        if misplaced := sorted(slo.keys() & _BESIDE_SLO):
            raise InvalidInput(f"{misplaced[0]!r} stands beside 'slo', not in it")
        raise InvalidInput(unknown("field of 'slo'", slo.keys(), _SLO_FIELDS))
    latency, accuracy, cost = slo.get("latency_ms"), slo.get("accuracy"), slo.get("cost")
    prefer = slo.get("prefer")
    return (
        default.latency_ms if latency is None else latency_bound(latency, "slo.latency_ms"),
        default.accuracy if accuracy is None else accuracy_bound(accuracy, "slo.accuracy"),
        default.cost if cost is None else cost_bound(cost, "slo.cost"),
        default.prefer if prefer is None else prefer_of(prefer, "slo.prefer"),
    )


def json_of(body: bytes | bytearray) -> Any:
    """The document of a body.

    Raises:
        InvalidInput: it is empty or not JSON.
    """
    if not body:
        raise InvalidInput("the body is empty")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        found = next((what for begin, what in _OTHERS if body.startswith(begin)), None)
        if found is not None:
            raise InvalidInput(f"the body is not JSON but {found}") from error
        raise InvalidInput(f"the body is not valid JSON: {error}{_advice(error)}") from error


_PICTURE = (
    "a picture: send it to /v1/query with its Content-Type, which begins with image/, and its task"
    " in the header X-Modelless-Task"
)
_OTHERS = (
    (b"\x89PNG", _PICTURE),
    (b"\xff\xd8\xff", _PICTURE),
    (b"\x1f\x8b", "compressed: say Content-Encoding: gzip, or leave it as it is"),
    (b"\xff\xfe", "text in UTF-16: send it in UTF-8"),
    (b"\xfe\xff", "text in UTF-16: send it in UTF-8"),
    (b"--", "a form: send JSON, or a picture alone with its Content-Type"),
    (b"task=", 'a form: send JSON, such as {"task": ..., "inputs": [...]}'),
)
"""How bodies begin that are plainly something else, and what to do with these."""


def _advice(error: orjson.JSONDecodeError) -> str:
    """What to send instead of a word that Python and NumPy write for a number and JSON lacks."""
    word = _NO_NUMBER.match(error.doc, max(0, error.pos - 1))
    if word is None:
        return ""
    return (
        f"; JSON has no {word[1]}, and inputs take finite numbers only: send the number that the"
        " model was trained to see in its place"
    )
