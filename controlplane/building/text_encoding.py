"""Files of texts as files of rows of numbers of tokens, for a registration or for a task.

Foreign tokenizers are run in the process in which foreign models are tried.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from controlplane.building.types import RegistrationLimits, RegistrationRequest
from profiler.sandbox.sandbox import Sandbox
from variants.errors import InvalidArtifact, InvalidInput
from variants.texts.inputs import longest_of, names_of
from variants.types import Digest, ModelVersion, Task, TextInput


class TextEncoding(NamedTuple):
    """How texts of files become rows of numbers."""

    sandbox: Sandbox
    """In which the tokenizer is run."""
    tokenizer: Path
    text: TextInput
    dtypes: Mapping[str, str]
    """Of the inputs."""
    longest: int
    """Most tokens of a row that is kept."""
    width: int | None
    """To which all rows are filled up; None: to the longest of their file."""

    def rows(self, given: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
        """A file of numbers in ``folder``, or the one that is given where it has no texts; and
        what ``text_rows`` of the sandbox says of it. Sentences name the file, so it has the name of
        that with the texts.

        Raises:
            InvalidArtifact: there is no such file, or its rows are refused.
        """
        if not given.exists():
            raise InvalidArtifact(f"{given.name}: there is no such file")
        target = folder / f"{given.stem}.npz"
        found = self.sandbox.call(
            "text_rows",
            {
                "path": str(given),
                "target": str(target),
                "tokenizer": str(self.tokenizer),
                "text": asdict(self.text),
                "dtypes": {name: self.dtypes[name] for name in names_of(self.text)},
                "longest": self.longest,
                "width": self.width,
            },
            subject=given.name,
        )
        return (target if found["rows"] else given), found


class NumberedRows(NamedTuple):
    """The files of rows of a request, with numbers in place of texts."""

    paths: dict[str, Any]
    """Files of rows, by what they are for."""
    pairs: bool | None
    """Whether rows to judge by are pairs of texts; None where they are numbers."""
    said: tuple[str, ...]


def numbered(request: RegistrationRequest, encoding: TextEncoding, work: Path) -> NumberedRows:
    """All files of rows of a request as numbers, each in a folder of its own."""
    paths, said, pairs = dict[str, Any](), list[str](), None
    for part, given in request.rows.items():
        folder = work / part
        folder.mkdir()
        paths[part], found = encoding.rows(given, folder)
        if part == "evaluation" and found["rows"]:
            pairs = bool(found["pairs"])
        if left_out := found.get("left_out", 0):
            rows = left_out + found["rows"]
            said.append(
                f"{left_out:,} of the {rows:,} texts of {given.name} have more than"
                f" {encoding.longest} tokens, and were left out"
            )
    return NumberedRows(paths, pairs, tuple(said))


def request_of_task(
    request: RegistrationRequest,
    task: Task,
    version: ModelVersion,
    tokenizer_of: Callable[[Digest], bytes],
    folder: Path,
) -> RegistrationRequest:
    """A request of more for a version that is registered, with rows of numbers in place of texts.

    Raises:
        InvalidArtifact: rows are refused.
    """
    if task.text is None:
        return request
    work = folder / "texts"
    work.mkdir()
    found: dict[str, Any] = {
        part: rows_of_task(rows, task, tokenizer_of, work / part, own=version.text)
        for part, rows in request.rows.items()
    }
    return replace(request, **found)


def rows_of_task(
    rows: Path,
    task: Task,
    tokenizer_of: Callable[[Digest], bytes],
    folder: Path,
    *,
    own: TextInput | None = None,
) -> Path:
    """A file of rows for a task that is registered: itself, or rows of numbers in its place, in a
    folder that is made for them.

    Args:
        own: how texts become rows of the version that they are for, where it has its own tokenizer.

    Raises:
        InvalidArtifact: the rows are refused.
    """
    if task.text is None:
        return rows
    folder.mkdir()
    tokenizer, text = folder / "tokenizer.json", own or task.text
    tokenizer.write_bytes(tokenizer_of(text.tokenizer))
    dtypes = {spec.name: spec.dtype for spec in task.inputs}
    length = longest_of(task)
    with Sandbox(RegistrationLimits().trial) as sandbox:
        encoding = TextEncoding(sandbox, tokenizer, text, dtypes, length, length)
        path, found = encoding.rows(rows, folder)
    check_pairs(task.text, bool(found["pairs"]) if found["rows"] else None, rows.name, task.name)
    return path


def check_pairs(text: TextInput, pairs: bool | None, rows: str, task: str) -> None:
    """Refuse rows that are no such texts as a task takes, where it is known which it does.

    Args:
        pairs: whether they are pairs of texts; None where they are numbers.
        rows: the name of their file.

    Raises:
        InvalidInput: they are single texts and not pairs, or the other way round.
    """
    if pairs is None or text.pairs is None or pairs is text.pairs:
        return
    raise InvalidInput(
        f"the rows of {rows} are single texts, and task {task!r} takes pairs: they need a column"
        " 'text_pair'"
        if text.pairs
        else f"the rows of {rows} are pairs of texts, and task {task!r} takes single ones: leave"
        " the column 'text_pair' out, or register for another task"
    )
