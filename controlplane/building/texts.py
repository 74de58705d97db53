"""Registrations by texts: what a model's tokenizer says, and rows of texts made into numbers.

Foreign tokenizers are read in the process in which foreign models are tried.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from controlplane.building.types import RegistrationLimits, RegistrationRequest
from profiler.sandbox.sandbox import Sandbox, SandboxLimits
from variants.checks.onnx_check import check_file
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.model_files import ModelFile
from variants.texts.inputs import MOST_BYTES, digest_of_text, fills_of, longest_of, names_of
from variants.types import Digest, Task, TextInput

PARTS = ("evaluation", "calibration", "training")


def with_texts(
    request: RegistrationRequest,
    file: ModelFile,
    known: Task | None,
    tokenizer_of: Callable[[Digest], bytes],
    folder: Path,
    limits: RegistrationLimits,
) -> RegistrationRequest:
    """The request with what its tokenizer says, and with rows of numbers in place of texts.

    Args:
        file: of the model.
        known: the task, or the longest of its buckets, if there is any.
        tokenizer_of: those that tasks have.
        folder: where rows are written.

    Raises:
        InvalidArtifact: the model takes no numbers of tokens, or rows are refused.
        InvalidInput: the tokenizer is none, or an option does not fit.
        Conflict: the task has another tokenizer, or none.
    """
    if request.tokenizer is None and (known is None or known.text is None):
        return request
    data = _tokenizer(request, known, tokenizer_of)
    if request.pads:
        raise InvalidInput("the tokenizer says what fills rows up: leave --pad out")
    if request.path.is_dir() or file.path.suffix != ".onnx":
        raise InvalidInput("a model that takes texts is a single .onnx file")
    work = folder / "texts"
    work.mkdir()
    path = work / "tokenizer.json"
    path.write_bytes(data)
    name = path.name if request.tokenizer is None else request.tokenizer.name
    with Sandbox(SandboxLimits(memory_mib=limits.trial_mib, time_s=limits.trial_s)) as sandbox:
        found = sandbox.call(
            "text_inputs",
            {
                "path": str(file.path),
                "tokenizer": str(path),
                "tokenizer_name": name,
                "given": dict(request.text_inputs),
                "size_mib": limits.model_mib,
                "where": file.path.name,
            },
            subject=file.model,
        )
        dtypes, length = found.pop("dtypes"), found.pop("length")
        text = TextInput(tokenizer=digest_of_text(data), **found)
        if known is not None and known.text is not None:
            text = replace(text, pad=known.text.pad)
        if length is None and request.lengths is None and (known is None or known.bucket is None):
            raise InvalidInput(
                f"{file.path.name} takes texts of any length: say with --lengths at which it is"
                " served, such as '16,64,256'"
            )
        longest = length
        if length is None:
            there = [longest_of(known)] if known is not None and known.text is not None else []
            longest = max([*(request.lengths or ()), *there])
        rows = _rows(request, sandbox, work, path, text, dtypes, longest, length)
    pads = (
        ()
        if length is not None
        else tuple((name, float(fill)) for name, fill in fills_of(text).items())
    )
    return replace(request, **rows, pads=pads, text=text, tokenizer_data=data)


def request_of_task(
    request: RegistrationRequest,
    task: Task,
    tokenizer_of: Callable[[Digest], bytes],
    folder: Path,
) -> RegistrationRequest:
    """A request of more for a task that is registered, with rows of numbers in place of texts.

    Raises:
        InvalidArtifact: rows are refused.
    """
    if task.text is None:
        return request
    work = folder / "texts"
    work.mkdir()
    found: dict[str, Any] = {
        part: rows_of_task(rows, task, tokenizer_of, work / part)
        for part in PARTS
        if (rows := getattr(request, part)) is not None
    }
    return replace(request, **found)


def rows_of_task(
    rows: Path, task: Task, tokenizer_of: Callable[[Digest], bytes], folder: Path
) -> Path:
    """A file of rows for a task that is registered: itself, or rows of numbers in its place, in a
    folder that is made for them.

    Raises:
        InvalidArtifact: the rows are refused.
    """
    if task.text is None:
        return rows
    folder.mkdir()
    path = folder / "tokenizer.json"
    path.write_bytes(tokenizer_of(task.text.tokenizer))
    dtypes = {spec.name: spec.dtype for spec in task.inputs}
    length, limits = longest_of(task), RegistrationLimits()
    with Sandbox(SandboxLimits(memory_mib=limits.trial_mib, time_s=limits.trial_s)) as sandbox:
        return _fitted(sandbox, rows, folder, path, task.text, dtypes, length, length)


def _tokenizer(
    request: RegistrationRequest, known: Task | None, tokenizer_of: Callable[[Digest], bytes]
) -> bytes:
    """The bytes of the tokenizer that counts."""
    if request.tokenizer is None:
        assert known is not None
        assert known.text is not None
        return tokenizer_of(known.text.tokenizer)
    check_file(request.tokenizer, limit_mib=MOST_BYTES / 2**20)
    data = request.tokenizer.read_bytes()
    if known is None:
        return data
    if known.text is None:
        raise Conflict(
            f"task {request.task!r} is asked with numbers of tokens, and has no tokenizer: leave"
            " --tokenizer out, or register for another task"
        )
    if known.text.tokenizer != digest_of_text(data):
        raise Conflict(
            f"task {request.task!r} has another tokenizer, and any of its models may answer a"
            " text: leave --tokenizer out if this model was trained with that one, or register"
            " for another task"
        )
    return data


def _rows(
    request: RegistrationRequest,
    sandbox: Sandbox,
    work: Path,
    tokenizer: Path,
    text: TextInput,
    dtypes: dict[str, str],
    longest: int | None,
    width: int | None,
) -> dict[str, Any]:
    found = {}
    for part in PARTS:
        given = getattr(request, part)
        if given is not None:
            folder = work / part
            folder.mkdir()
            found[part] = _fitted(sandbox, given, folder, tokenizer, text, dtypes, longest, width)
    return found


def _fitted(
    sandbox: Sandbox,
    given: Path,
    folder: Path,
    tokenizer: Path,
    text: TextInput,
    dtypes: dict[str, str],
    longest: int | None,
    width: int | None,
) -> Path:
    """Rows of numbers. Sentences name the file, so it has the name of that with the texts."""
    if not given.exists():
        raise InvalidArtifact(f"{given.name}: there is no such file")
    target = folder / f"{given.stem}.npz"
    found = sandbox.call(
        "text_rows",
        {
            "path": str(given),
            "target": str(target),
            "tokenizer": str(tokenizer),
            "text": asdict(text),
            "dtypes": {name: dtypes[name] for name in names_of(text)},
            "longest": longest,
            "width": width,
        },
        subject=given.name,
    )
    return target if found["rows"] else given
