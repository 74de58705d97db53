"""From texts to the rows of a task, in the process that a gateway has for it."""

from collections.abc import Collection, Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from controlplane.gateway.query.parsing import ParsedQuery, ReadRows, query_v1
from controlplane.gateway.query.query_fields import AskedByLength, flag_of, parameters_of, task_of
from controlplane.gateway.query.replies import AskedAs
from controlplane.gateway.query.v2.parsing import query_v2
from controlplane.gateway.query.v2.wanted_outputs import v2_form
from controlplane.gateway.texts.asked import MOST_CHARACTERS, NOT_YET, TRUNCATE, TokenizerLoading
from controlplane.gateway.texts.given import listed_texts, texts_of_entry
from variants.buckets import BucketedTask, TaskTable
from variants.errors import Internal, InvalidInput, PayloadTooLarge
from variants.texts.inputs import longest_of, unpacked
from variants.texts.tokenising import MOST_CHARACTERS as FOR_EACH
from variants.texts.tokenising import Text, Tokeniser, Tokens, Unheld, filled
from variants.types import Task, TaskName, TextInput
from workers.runtimes.protocol import Tensor

MOST_BYTES = 2**26
"""Of all inputs of a query, filled up to its longest text."""


class Tokenisers:
    """Those of all tasks, by the names of their tokenizers."""

    def __init__(self) -> None:
        self._loaded: dict[str, Tokeniser | InvalidInput] = {}

    def follow(self, names: Collection[str], new: Mapping[str, bytes]) -> None:
        """Have these at hand, and no others.

        Args:
            names: of all.
            new: those that are not here yet, as ``variants.texts.inputs.packed`` made them.
        """
        self._loaded = {name: one for name, one in self._loaded.items() if name in names}
        for name, data in new.items():
            try:
                self._loaded[name] = Tokeniser(unpacked(data), "the task's tokenizer")
            except InvalidInput as error:  # told to who asks
                self._loaded[name] = error

    def of(self, text: TextInput) -> Tokeniser:
        """
        Raises:
            TokenizerLoading: it is not there yet.
            Internal: it cannot be loaded: it is damaged, or its library is not installed.
        """
        found = self._loaded.get(text.tokenizer)
        if found is None:
            raise TokenizerLoading("the task's tokenizer is not there yet; ask again")
        if isinstance(found, InvalidInput):
            raise Internal(f"texts cannot be read here: {found.message}")
        return found


def texts_v1(
    document: Mapping[str, Any],
    tasks: Mapping[TaskName, Task],
    tokenisers: Tokenisers,
    received_ms: float,
    draw: int,
) -> ParsedQuery:
    """Read the fields of a body of ``/v1/query`` whose inputs are texts.

    Raises:
        InvalidInput: a text is none, or too long, or a field is wrong.
        PayloadTooLarge: there are too many of them for the longest one.
        TaskNotFound: there is no such task.
    """
    cut = flag_of(document.get(TRUNCATE, False), TRUNCATE)
    texts = listed_texts(document["inputs"])
    rows = _rows(_asked(document.get("task"), tasks), texts, tasks, tokenisers, cut)
    query = query_v1(document, rows.task, len(texts), received_ms, draw)
    query = query._replace(unread=rows.unread)
    tensors, lengths, spans = rows.first
    return ParsedQuery(
        rows.task, query, tensors, lengths=lengths, spans=spans, read_as=rows.read_as
    )


def texts_v2(
    document: Mapping[str, Any],
    raw: memoryview,
    task_name: str,
    pinned: str | None,
    tasks: Mapping[TaskName, Task],
    tokenisers: Tokenisers,
    received_ms: float,
    draw: int,
) -> ParsedQuery:
    """Read an inference request of the Open Inference Protocol whose input is texts.

    Args:
        raw: what follows the JSON.

    Raises:
        InvalidInput, PayloadTooLarge, TaskNotFound: as ``texts_v1``.
    """
    parameters = parameters_of(document, "parameters")
    cut = flag_of(parameters.get(TRUNCATE, False), TRUNCATE)
    asked = _asked(task_name, tasks)
    texts = texts_of_entry(document["inputs"], raw)
    id_ = document.get("id")
    if id_ is not None and not isinstance(id_, str):
        raise InvalidInput("'id' must be text")
    found = _rows(asked, texts, tasks, tokenisers, cut)
    form = v2_form(document.get("outputs"), parameters, found.task, id_)
    if isinstance(asked, BucketedTask):
        form = AskedAs.of(form, asked.face)
    lengths = [one.lengths for one in found.each if one.lengths is not None]
    if any(len(set(one)) > 1 for one in lengths):
        raise InvalidInput(
            "the texts of one query have different numbers of tokens, and so have the outputs of"
            " its rows: ask one at a time, or over /v1/query"
        )
    query = query_v2(found.task, len(texts), parameters, received_ms, draw, pinned)
    query = query._replace(unread=found.unread)
    tensors, first, _ = found.first
    return ParsedQuery(
        found.task, query, tensors, form, lengths=first,
        read_as={name: rows._replace(spans=None) for name, rows in found.read_as.items()},
    )  # fmt: skip


class _Rows:
    """The rows of texts, and the task that takes them."""

    def __init__(
        self,
        task: Task,
        read_as: dict[str | None, ReadRows],
        unread: Mapping[str | None, str],
    ) -> None:
        """
        Args:
            read_as: the rows by each way of reading that holds the texts, at least one; None stands
                for the task's own.
            unread: the other ways, with what is to be said of versions that read by them.
        """
        self.task = task
        self.unread = tuple(unread.items())
        self.first = next(iter(read_as.values()))
        self.each = list(read_as.values())
        self.read_as = read_as


def _asked(name: Any, tasks: Mapping[TaskName, Task]) -> Task | BucketedTask:
    try:
        return task_of(name, tasks)
    except AskedByLength as asked:
        return asked.task


def _rows(
    asked: Task | BucketedTask,
    texts: Sequence[Text],
    tasks: Mapping[TaskName, Task],
    tokenisers: Tokenisers,
    cut: bool,
) -> _Rows:
    """The rows of texts, filled up to what the task takes, for each tokenizer of versions that may
    answer which holds them. All go to the same bucket, that which holds the longest.

    Args:
        cut: whether texts that are too long are cut off.

    Raises:
        InvalidInput: no tokenizer holds them, or they cannot be read.
        TokenizerLoading: one that may hold them is not there yet, and no other does.
    """
    face = asked.face if isinstance(asked, BucketedTask) else asked
    text = _read_by(face, texts)
    most = asked.lengths[-1] if isinstance(asked, BucketedTask) else longest_of(face)
    _check_size(texts, most, cut=cut)
    any_length = asked.buckets[0] if isinstance(asked, BucketedTask) else asked
    follows = any_length.bucket is not None and bool(any_length.bucket.outputs)
    found: dict[TextInput, list[Tokens]] = {}
    read: dict[tuple[str, int], list[Tokens]] = {}
    unread: dict[str | None, str] = {}
    errors: list[Unheld | TokenizerLoading] = []
    for one in _ways(asked, text, tasks):
        longest = _longest(asked, one, tasks)
        try:
            if (one.tokenizer, longest) not in read:
                tokeniser = tokenisers.of(one)
                read[one.tokenizer, longest] = tokeniser.read(
                    texts, longest, cut=cut, spans=follows
                )
            found[one] = read[one.tokenizer, longest]
        except (Unheld, TokenizerLoading) as error:
            errors.append(error)
            why = error.why if isinstance(error, Unheld) else NOT_YET
            unread[None if one is text else one.way] = why
    if not found:  # who is not there yet may hold them
        raise next((one for one in errors if isinstance(one, TokenizerLoading)), errors[0])
    most = max(len(one.ids) for tokens in found.values() for one in tokens)
    task = asked.holding(most) if isinstance(asked, BucketedTask) else face
    _check_filled(len(texts), len(found), task)
    return _Rows(
        task,
        {
            None if one is text else one.way: _filled(tokens, one, task, follows=follows)
            for one, tokens in found.items()
        },
        unread,
    )


def _read_by(task: Task, texts: Sequence[Text]) -> TextInput:
    """How a task reads texts.

    Raises:
        InvalidInput: it takes none, or pairs where these are none, or the other way round.
    """
    text = task.text
    if text is None:
        raise InvalidInput(f"task {task.name!r} takes numbers, and no texts")
    if text.pairs is None or text.pairs is isinstance(texts[0], tuple):
        return text
    raise InvalidInput(
        f"task {task.name!r} takes pairs of texts, such as ['a man eats', 'somebody eats']"
        if text.pairs
        else f"task {task.name!r} takes single texts, and no pairs of two: several texts are one"
        " list, such as ['a text', 'another one']"
    )


def _check_filled(texts: int, tokenizers: int, task: Task) -> None:
    """
    Raises:
        PayloadTooLarge: so many texts as rows of a task, for each of some tokenizers, are.
    """
    row = sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in task.inputs)
    size = tokenizers * texts * row
    if size > MOST_BYTES:
        raise PayloadTooLarge(
            f"{texts} texts would take {size / 2**20:,.0f} MiB once all are as long as the"
            f" longest, more than the {MOST_BYTES >> 20} allowed: ask in parts"
        )


def _check_size(texts: Sequence[Text], longest: int, *, cut: bool) -> None:
    """Refuse texts that are too long in all to be read; of those that are cut off, no more counts
    than is read.

    Raises:
        PayloadTooLarge: they are.
    """
    most = FOR_EACH * longest if cut else inf
    parts = [part for one in texts for part in (one if isinstance(one, tuple) else (one,))]
    size = sum(min(len(part), most) for part in parts)
    if size > MOST_CHARACTERS:
        advice = "; 'truncate' cuts it off" if len(texts) == 1 and not cut else ": ask in parts"
        raise PayloadTooLarge(
            f"the text{' has' if len(texts) == 1 else 's have'} {size:,} characters, and at most"
            f" {MOST_CHARACTERS:,} are read in one query{advice}"
        )


def _longest(asked: Task | BucketedTask, text: TextInput, tasks: Mapping[TaskName, Task]) -> int:
    """Tokens of a row of the longest bucket in which a version reads texts so."""
    if not isinstance(asked, BucketedTask):
        return longest_of(asked)
    if not isinstance(tasks, TaskTable):
        return asked.lengths[-1]
    by = [one for one in asked.buckets if _is_read_by(one, text, asked.face.text, tasks)]
    return longest_of(by[-1]) if by else asked.lengths[-1]


def _is_read_by(task: Task, text: TextInput, own: TextInput | None, tasks: TaskTable) -> bool:
    """Whether a version of a task may answer that reads texts so; ``own`` is how the task says."""
    if text == own:
        return task.name not in tasks.unread
    return any(one.way == text.way for one in tasks.texts.get(task.name, ()))


def _ways(
    asked: Task | BucketedTask, own: TextInput, tasks: Mapping[TaskName, Task]
) -> list[TextInput]:
    """How versions of a task that may answer read texts, each way once: as the task says, which is
    ``own``, where one does or none may answer, and in ways of their own."""
    if not isinstance(tasks, TaskTable) or not tasks.texts:
        return [own]
    buckets = asked.buckets if isinstance(asked, BucketedTask) else (asked,)
    found = {one.way: one for task in buckets for one in tasks.texts.get(task.name, ())}
    as_task = any(_is_read_by(task, own, own, tasks) for task in buckets)
    return [*([own] if as_task or not found else []), *found.values()]


def _filled(tokens: list[Tokens], text: TextInput, task: Task, *, follows: bool) -> ReadRows:
    """Texts as rows of a task.

    Args:
        follows: whether outputs are as long as the texts.
    """
    dtypes = {spec.name: spec.dtype for spec in task.inputs}
    rows = filled(tokens, text, dtypes, longest_of(task))
    tensors: list[Tensor] = [rows[spec.name] for spec in task.inputs]
    if not follows:
        return ReadRows(tensors, None, None)
    spans = [one.spans.tolist() for one in tokens if one.spans is not None]
    return ReadRows(tensors, tuple(len(one.ids) for one in tokens), spans)
