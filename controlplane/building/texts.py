"""Registrations by texts: what a model's tokenizer says, and which inputs of the model it fills.

Foreign tokenizers are read in the process in which foreign models are tried.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from controlplane.building.text_encoding import TextEncoding, check_pairs, numbered
from controlplane.building.types import RegistrationLimits, RegistrationRequest
from profiler.sandbox.sandbox import Sandbox
from variants.buckets import asked_name
from variants.checks.onnx_file import check_file
from variants.errors import Conflict, InvalidInput
from variants.model_files import ModelFile
from variants.texts.inputs import MOST_BYTES, digest_of_text, fills_of, longest_of, roles_of
from variants.types import Digest, Task, TextInput

FAR_MORE, FEWEST_MORE = 1.25, 256
"""Times as many embeddings as tokens, and so many more, that say that a tokenizer is another
model's: tables are filled up to multiples of at most some hundreds."""
NO_MODELS: Mapping[str, Path] = {}


class WithTexts(NamedTuple):
    """A registration by texts, made one by numbers."""

    request: RegistrationRequest
    files: tuple[ModelFile, ...]
    """Of the model, with the inputs of the task that it joins."""
    said: tuple[str, ...]
    """What whoever registers should know, in sentences."""


def with_texts(
    request: RegistrationRequest,
    file: ModelFile,
    known: Task | None,
    before: TextInput | None,
    tokenizer_of: Callable[[Digest], bytes],
    folder: Path,
    limits: RegistrationLimits,
) -> WithTexts:
    """The request with what its tokenizer says, and with rows of numbers in place of texts.

    Args:
        request: with a tokenizer, where the task has none.
        file: of the model.
        known: the task, or the longest of its buckets, if there is any.
        before: how texts become rows of the version before, where that has its own tokenizer.
        tokenizer_of: those that tasks and versions have.
        folder: where rows are written.

    Raises:
        InvalidArtifact: the model takes no numbers of tokens, or rows are refused.
        InvalidInput: the tokenizer is none, or an option does not fit.
        Conflict: the task has none.
    """
    of_task = None if known is None else known.text
    data = _tokenizer(request, known, before, tokenizer_of)
    if request.pads:
        raise InvalidInput("the tokenizer says what fills rows up: leave --pad out")
    if request.path.is_dir() or file.path.suffix != ".onnx":
        raise InvalidInput("a model that takes texts is a single .onnx file")
    work = folder / "texts"
    work.mkdir()
    tokenizer = work / "tokenizer.json"
    tokenizer.write_bytes(data)
    target = work / "model" / file.path.name
    target.parent.mkdir()
    with Sandbox(limits.trial) as sandbox:
        reading = _reading(request, file, known, tokenizer, target, sandbox, limits)
        longest = _longest(request, file, known, reading.length)
        encoding = TextEncoding(
            sandbox, tokenizer, reading.text, reading.dtypes, longest, reading.length
        )
        rows = numbered(request, encoding, work)
    text = reading.text
    if of_task is None:
        text = replace(text, pairs=rows.pairs)
    else:
        check_pairs(of_task, rows.pairs, request.evaluation.name, request.task)
    fixed = reading.length is not None
    changed = replace(
        request,
        **rows.paths,
        pads=() if fixed else _fills(of_task or text),
        row_pads=() if fixed else _fills(text),
        text=of_task or text,
        own_text=text if of_task is not None and text != of_task else None,
        tokenizer_data=data,
    )
    file = replace(file, path=target) if target.exists() else file
    return WithTexts(changed, (file,), (*reading.doubts, *rows.said))


class _Reading(NamedTuple):
    """What a model reads of texts."""

    text: TextInput
    """How they become its rows."""
    dtypes: Mapping[str, str]
    """Data types of the model's inputs, by name."""
    length: int | None
    """Tokens of each of its rows; None: any number."""
    doubts: tuple[str, ...]
    """Whether the tokenizer may be another model's: in sentences."""


def _reading(
    request: RegistrationRequest,
    file: ModelFile,
    known: Task | None,
    tokenizer: Path,
    target: Path,
    sandbox: Sandbox,
    limits: RegistrationLimits,
) -> _Reading:
    """What a model reads of texts; one that joins a task and has other inputs is written to
    ``target`` with those of the task.

    Raises:
        InvalidArtifact: it takes no numbers of tokens.
        InvalidInput: the tokenizer is none, or the model has no embeddings for its tokens.
    """
    of_task = None if known is None else known.text
    task_dtypes = {} if known is None else {spec.name: spec.dtype for spec in known.inputs}
    name = tokenizer.name if request.tokenizer is None else request.tokenizer.name
    found = sandbox.call(
        "text_inputs",
        {
            "path": str(file.path),
            "tokenizer": str(tokenizer),
            "tokenizer_name": name,
            "given": dict(request.text_inputs),
            "size_mib": limits.model_mib,
            "where": file.path.name,
            "text": None if of_task is None else asdict(of_task),
            "task_dtypes": task_dtypes,
            "target": str(target),
        },
        subject=file.model,
    )
    dtypes, length = found.pop("dtypes"), found.pop("length")
    doubts = check_table(file.path.name, found.pop("table"), name, found.pop("highest"))
    text = TextInput(tokenizer=digest_of_text(tokenizer.read_bytes()), **found)
    if of_task is None:
        return _Reading(text, dtypes, length, doubts)
    joined = replace(
        of_task,
        tokenizer=text.tokenizer,
        pad=of_task.pad if text.tokenizer == of_task.tokenizer else text.pad,
        packed_types=text.types is not None and of_task.types is None,
    )
    return _Reading(joined, task_dtypes, length, doubts)


def _longest(
    request: RegistrationRequest, file: ModelFile, known: Task | None, length: int | None
) -> int:
    """Tokens of the longest rows that a model is served for.

    Args:
        length: of all its rows; None: any.

    Raises:
        InvalidInput: any, and no lengths are said.
    """
    if length is not None:
        return length
    if request.lengths is None and (known is None or known.bucket is None):
        raise InvalidInput(
            f"{file.path.name} takes texts of any length: say with --lengths at which it is"
            " served, such as '16,64,256'"
        )
    there = [longest_of(known)] if known is not None and known.text is not None else []
    return max([*(request.lengths or ()), *there])


def _fills(text: TextInput) -> tuple[tuple[str, float], ...]:
    return tuple((name, float(fill)) for name, fill in fills_of(text).items())


def check_table(model: str, table: int | None, tokenizer: str, highest: int) -> tuple[str, ...]:
    """What is to be said where a model has far more embeddings than its tokenizer has tokens.

    Args:
        table: how many embeddings it has; None where that is not known.
        highest: the highest number that the tokenizer gives.

    Raises:
        InvalidInput: the tokenizer gives numbers that the model has no embeddings for.
    """
    if table is None:
        return ()
    if highest >= table:
        raise InvalidInput(
            f"{tokenizer} gives numbers of tokens up to {highest:,}, and {model} has embeddings for"
            f" {table:,}, which are 0 to {table - 1:,}: give the tokenizer that it was trained"
            " with, or export it again with as many embeddings (resize_token_embeddings of"
            " transformers, before training)"
        )
    count = highest + 1
    if table <= FAR_MORE * count or table - count < FEWEST_MORE:
        return ()
    return (
        f"{tokenizer} has {count:,} numbers of tokens, and {model} has embeddings for {table:,}: it"
        " may be the tokenizer of another model",
    )


def text_of_task(
    task: Task,
    tokenizer: Path,
    given: Mapping[str, str],
    limits: RegistrationLimits,
    models: Mapping[str, Path] = NO_MODELS,
) -> TextInput:
    """How texts become rows of a task that was registered without a tokenizer.

    Args:
        given: inputs by what a text gives them; else they are known by their names.
        models: the ONNX files of its versions, by their labels.

    Raises:
        Conflict: it has one.
        InvalidArtifact: there is no such file.
        InvalidInput: the tokenizer is none, or has numbers that a model does not, or the task's
            inputs are no numbers of tokens.
    """
    if task.text is not None:
        name = asked_name(task)
        raise Conflict(
            f"task {name!r} has a tokenizer; that of another model comes with its registration"
        )
    check_file(tokenizer, limit_mib=MOST_BYTES / 2**20)
    names = [spec.name for spec in task.inputs]
    ids, mask, types = roles_of(names, given, f"task {task.name!r}")
    with Sandbox(limits.trial) as sandbox:
        found = sandbox.call(
            "tokenizer",
            {
                "tokenizer": str(tokenizer),
                "tokenizer_name": tokenizer.name,
                "ids": ids,
                "models": {label: str(path) for label, path in models.items()},
            },
            subject=tokenizer.name,
        )
    for label, table in found["tables"].items():
        check_table(label, table, tokenizer.name, found["highest"])
    pad = found["pad"]
    if task.bucket is not None:  # by which its models were judged
        pad = next(int(axis.pad) for axis in task.bucket.axes if axis.input == ids)
    digest = digest_of_text(tokenizer.read_bytes())
    return TextInput(tokenizer=digest, ids=ids, mask=mask, types=types, pad=pad)


def _tokenizer(
    request: RegistrationRequest,
    known: Task | None,
    before: TextInput | None,
    tokenizer_of: Callable[[Digest], bytes],
) -> bytes:
    """The bytes of the tokenizer that counts: what is given, else that of the version before, else
    the task's."""
    if request.tokenizer is None:
        assert known is not None
        assert known.text is not None
        return tokenizer_of((before or known.text).tokenizer)
    check_file(request.tokenizer, limit_mib=MOST_BYTES / 2**20)
    if known is not None and known.text is None:
        raise Conflict(
            f"task {request.task!r} takes no texts: if its models read numbers of tokens,"
            " `modelless tasks tokenizer` gives it their tokenizer; else leave --tokenizer out, or"
            " register for another task"
        )
    return request.tokenizer.read_bytes()
