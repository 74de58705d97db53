"""Receiving a form with large files: streamed to disk, bounded, nothing kept in memory; and what it
asks for as a command line.

File names that a client sends are never used as paths: a file is stored under its field's name.
"""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from variants.catalog.validity.plain_values import check_name
from variants.errors import InvalidInput, PayloadTooLarge, RateLimited

MAX_FIELD_BYTES = 64 * 1024
MAX_SHOWN = 128
"""Characters of a file's name that texts have."""
ROWS = ("evaluation", "calibration", "training")
"""Files of rows."""
TOKENIZER = "tokenizer"
"""The file with the model's tokenizer."""
FIELDS = (
    "labels",
    "stage",
    "metric",
    "lengths",
    "pad",
    "latency_ms",
    "accuracy",
    "cost",
    "prefer",
    "image_mean",
    "image_std",
    "variants",
    "measure",
    "input_names",
    "output_names",
    "keep_outputs",
    "axis_sizes",
    "fix_inputs",
    "batch_axes",
    "text_inputs",
)
"""Optional fields of the form, each an option of the same name."""
SWITCHES = ("fresh", "quick", "free_batch", "cast_float16")
"""Those that are true or false."""
_OVERHEAD_BYTES = 1024 * 1024
"""Room for fields, boundaries and headers beside the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What was received."""

    fields: Mapping[str, str]
    files: Mapping[str, Path]
    filenames: Mapping[str, str]
    """What the client calls each file: for reading only, never a path."""

    def as_called(self, text: str) -> str:
        """A text about these files, by the names that the client has for them."""
        called = {path.name: self._called(name) for name, path in self.files.items()}
        for path in self.files.values():
            text = text.replace(str(path), path.name)
        stored = "|".join(map(re.escape, called))
        # A name alone: neither the end of a longer one nor a file inside of another.
        alone = rf"(?<![\w./-])(?:{stored})(?![\w-])"
        return re.sub(alone, lambda found: called[found[0]], text) if called else text

    def _called(self, name: str) -> str:
        last = self.filenames[name].replace("\\", "/").rpartition("/")[2]
        shown = "".join(letter for letter in last if letter.isprintable())[:MAX_SHOWN]
        return shown or self.files[name].name


class Spool:
    """Room on disk for forms: those that are being received, and those that are worked on."""

    def __init__(self, limit: int) -> None:
        """``limit`` is in bytes."""
        self._limit = limit
        self._used = 0

    def has_room(self, size: int) -> bool:
        return self._used + size <= self._limit

    def take(self, size: int) -> None:
        """Keep so many bytes more.

        Raises:
            RateLimited: that would be more than there may be.
        """
        if not self.has_room(size):
            raise RateLimited(
                f"uploads fill the {self._limit >> 20:,} MiB that are kept for them; try again "
                "when one is done"
            )
        self._used += size

    def give_back(self, size: int) -> None:
        self._used -= size


class Upload:
    """A form on disk: its directory, and its share of the room for all."""

    def __init__(self, spool: Spool) -> None:
        self.directory: Path | None = None
        self.form: Form | None = None
        """What was received."""
        self._spool = spool
        self._size = 0

    def as_called(self, text: str) -> str:
        """A text about its files, by the names that the client has for them."""
        return text if self.form is None else self.form.as_called(text)

    def take(self, size: int) -> None:
        """Account for so many bytes more, or raise ``RateLimited``."""
        self._spool.take(size)
        self._size += size

    async def remove(self) -> None:
        """Leave nothing of it."""
        if self.directory is not None:
            remove = asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)
            await asyncio.shield(remove)
        self._spool.give_back(self._size)
        self._size = 0


def largest_form(file_limits: Mapping[str, int]) -> int:
    """Bytes of the largest form that is taken."""
    return sum(file_limits.values()) + _OVERHEAD_BYTES


async def receive_form(
    stream: AsyncIterator[bytes],
    *,
    content_type: str,
    directory: Path,
    file_limits: Mapping[str, int],
    suffixes: Mapping[str, tuple[str, ...]],
    field_names: frozenset[str],
    admit: Callable[[int], None] = lambda _: None,
) -> Form:
    """Read a multipart form, its files into ``directory``.

    Args:
        stream: the body in pieces, as it arrives.
        content_type: the request's header, with the boundary.
        directory: exists, and is the caller's to remove, also after an error.
        file_limits: names of the file fields that are taken, and the most bytes of each.
        suffixes: what may follow a file field's name on disk, such as ``.npz``: the end of the name
            that the client gives, if it is one of these, else the first.
        field_names: names of the other fields that are taken.
        admit: called with the size of each piece before it is kept; it may raise.

    Raises:
        InvalidInput: it is not such a form, or has other fields, or one of them twice.
        PayloadTooLarge: a file or the whole is above its limit; nothing is read beyond it.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise InvalidInput("the body must be multipart/form-data with a boundary")
    parts = _Parts(
        directory=directory, file_limits=file_limits, suffixes=suffixes, field_names=field_names
    )
    limit = largest_form(file_limits)
    received = 0
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        async for piece in stream:
            received += len(piece)
            if received > limit:
                raise PayloadTooLarge(f"the form is larger than {limit >> 20} MiB")
            if piece:
                admit(len(piece))
                await asyncio.to_thread(parser.write, piece)
        parser.finalize()
    except FormParserError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from error
    finally:
        parts.close()
    if not parts.ended:
        raise InvalidInput("the form ends too early")
    return Form(fields=parts.fields, files=parts.files, filenames=parts.filenames)


@dataclass(slots=True, kw_only=True)
class _Parts:
    """The parser's callbacks: which part is being read, and where its bytes go."""

    directory: Path
    file_limits: Mapping[str, int]
    suffixes: Mapping[str, tuple[str, ...]]
    field_names: frozenset[str]
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    filenames: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    _name: str = ""
    _header: bytes = b""
    _value: bytes = b""
    _disposition: bytes = b""
    _text: bytearray = field(default_factory=bytearray)
    _file: BinaryIO | None = None
    _file_bytes: int = 0

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self._name, self._disposition, self._file_bytes = "", b"", 0
        self._text = bytearray()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name in self.fields or name in self.files:
            raise InvalidInput(f"the form has the field {name[:128]!r} twice")
        if name in self.file_limits:
            if b"filename" not in options:
                raise InvalidInput(f"the form's field {name!r} must be a file")
            self.filenames[name] = options[b"filename"].decode("utf-8", "replace")
            endings = self.suffixes.get(name, ("",))
            given = Path(self.filenames[name]).suffix
            ending = given if given in endings else endings[0]
            self.files[name] = self.directory / f"{name}{ending}"
            self._file = self.files[name].open("wb")
        elif name not in self.field_names:
            known = ", ".join(sorted({*self.file_limits, *self.field_names}))
            raise InvalidInput(f"the form has an unknown field {name[:128]!r}; there are: {known}")
        self._name = name

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._file is None:
            self._text += data[start:end]
            if len(self._text) > MAX_FIELD_BYTES:
                raise PayloadTooLarge(f"the form's field {self._name!r} is too long")
            return
        self._file_bytes += end - start
        limit = self.file_limits[self._name]
        if self._file_bytes > limit:
            raise PayloadTooLarge(f"the file {self._name!r} is larger than {limit / 2**20:,g} MiB")
        self._file.write(data[start:end])

    def _end(self) -> None:
        if self._file is not None:
            self.close()
            return
        try:
            self.fields[self._name] = self._text.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the form's field {self._name!r} is not UTF-8") from error
        if "\0" in self.fields[self._name]:  # which no command line can hold
            raise InvalidInput(f"the form's field {self._name!r} has a zero byte")

    def _finish(self) -> None:
        self.ended = True


def register_arguments(form: Form) -> list[str]:
    """The child's command line. A value never becomes an option: each is joined with ``=``.

    Raises:
        InvalidInput: a file or a field is missing, or a name cannot be one.
    """
    for name in ("model", "evaluation"):
        if name not in form.files:
            raise InvalidInput(f"the form lacks the file {name!r}")
    task, model = _name(form, "task", "a task"), _name(form, "name", "a model")
    arguments = ["register", str(form.files["model"]), f"--task={task}", f"--name={model}"]
    arguments.append(f"--evaluation={form.files['evaluation']}")
    for further in ("calibration", "training", TOKENIZER):
        if further in form.files:
            arguments.append(f"--{further}={form.files[further]}")
    if form.fields.get("labels", "").startswith("@"):
        # On the command line this names a file; a caller from outside may not read ours.
        raise InvalidInput("the form's field 'labels' must list the labels, separated by commas")
    for name in FIELDS:
        if name in form.fields:
            arguments.append(f"--{name.replace('_', '-')}={form.fields[name]}")
    for switch in SWITCHES:
        match form.fields.get(switch, "false"):
            case "true":
                arguments.append(f"--{switch.replace('_', '-')}")
            case "false":
                pass
            case other:
                raise InvalidInput(
                    f"the form's field {switch!r} is true or false, not {other[:128]!r}"
                )
    return [*arguments, "--output=json", "--progress=json"]


def _name(form: Form, field: str, what: str) -> str:
    """
    Raises:
        InvalidInput: the field is missing, or cannot be the name of ``what``.
    """
    if field not in form.fields:
        raise InvalidInput(f"the form lacks the field {field!r}")
    check_name(form.fields[field], what)
    return form.fields[field]
