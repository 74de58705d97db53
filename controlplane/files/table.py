"""A CSV file as blocks of checked columns, read once from beginning to end.

A block of text is split into rows, and its columns are checked as wholes. Only a block in which
something is wrong is gone through row by row, to name the line and the column. So a million rows
are read in about a second, and a broken one among them is found in the same time.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from controlplane.files.fields import Field, Numbers, Wrong, quoted
from variants.errors import InvalidInput

BLOCK_BYTES = 1 << 20
"""Bytes that are read at once; no line may be longer."""
BOM = b"\xef\xbb\xbf"
_SPECIAL = re.compile(r'[" \t\r\v\f]')

Columns = Mapping[str, Field]


class BadFile(InvalidInput):
    """A planning file that cannot be used; one sentence names file, line and column."""

    def __init__(self, file: str, line: int | None, column: str | None, what: str) -> None:
        self.file, self.line, self.column = file, line, column
        where = [shown(file)]
        if line is not None:
            where.append(f"line {line}")
        if column is not None:
            where.append(f"column {column}")
        super().__init__(f"{', '.join(where)}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some rows of a file, column by column."""

    file: str
    lines: Sequence[int]
    """Line number of each row, from 1."""
    names: Mapping[str, Sequence[str]]
    numbers: Mapping[str, Numbers]

    def __len__(self) -> int:
        return len(self.lines)

    def wrong(self, row: int, column: str, what: str) -> BadFile:
        """The error that names a row of this block."""
        return BadFile(self.file, self.lines[row], column, what)


class Table:
    """An open file of one of several kinds, told apart by its header.

    Columns may come in any order. A UTF-8 byte order mark, CRLF, blank lines and blanks after a
    comma are accepted.
    """

    def __init__(
        self,
        path: Path,
        kinds: Mapping[str, Columns],
        *,
        max_rows: int,
        optional: Columns | None = None,
    ) -> None:
        """Take the columns of each kind; the first kind is the one that a wrong header is held to.

        Args:
            path: the file.
            kinds: per kind, the columns that it must have.
            max_rows: more are an error.
            optional: columns that may be there besides; blocks of a file without them lack them.

        Raises:
            BadFile: the file cannot be read, is no CSV text, or its header fits no kind.
        """
        self._max_rows = max_rows
        self.file = str(path)
        self._blocks = _text_blocks(path)
        self._text = next(self._blocks, (1, ""))
        lines = self._text[1].split("\n")
        skipped = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
        if skipped == len(lines):
            raise BadFile(self.file, None, None, "the file is empty")
        first = self._text[0] + skipped
        self._header = _header(self.file, first, lines[skipped])
        besides = optional or {}
        self.kind = _match(self.file, first, self._header, kinds, besides)
        self._columns = {**kinds[self.kind], **besides}
        self._text = (first + 1, "\n".join(lines[skipped + 1 :]))

    def blocks(self) -> Iterator[Block]:
        """All rows, block by block; at least one.

        Raises:
            BadFile: the first block with something wrong, its first row and column that is.
        """
        count = 0
        for first, text in self._rest():
            block = self._plain(first, text) or self._quoted(first, text)
            if block is None:
                continue
            count += len(block)
            if count > self._max_rows:
                line = block.lines[self._max_rows - count]
                raise BadFile(self.file, line, None, f"more than {self._max_rows:,} rows")
            yield block
        if not count:
            raise BadFile(self.file, None, None, "the file holds a header and no rows")

    def _rest(self) -> Iterator[tuple[int, str]]:
        yield self._text
        yield from self._blocks

    def _plain(self, first: int, text: str) -> Block | None:
        """A block without quotes, blanks and mistakes; None for any other one.

        Nearly every block is one. Fields are cut all at once, a line feed staying behind each row:
        where they lie evenly, every row has as many fields as the header.
        """
        text = text.replace("\r\n", "\n").removesuffix("\r")
        if _SPECIAL.search(text):
            return None
        width = len(self._header)
        fields = (text + "\n").replace("\n", ",\n,").split(",")
        fields.pop()
        ends = fields[width :: width + 1]
        if ends.count("\n") * (width + 1) != len(fields):
            return None
        try:
            columns = [fields[i :: width + 1] for i in range(width)]
            return self._checked(columns, range(first, first + len(ends)))
        except ValueError:
            return None

    def _quoted(self, first: int, text: str) -> Block | None:
        """Any block, by the rules of CSV; None when all its lines are blank.

        Raises:
            BadFile: the first thing wrong in it.
        """
        rows, lines = self._rows(first, text)
        return self._block(rows, lines) if rows else None

    def _rows(self, first: int, text: str) -> tuple[list[list[str]], Sequence[int]]:
        """The rows of a block that starts at line ``first``, without blank ones."""
        lines = text.split("\n")
        try:
            rows = list(csv.reader(lines, skipinitialspace=True, strict=True))
            if len(rows) != len(lines):  # a quoted field went on in the next line
                raise csv.Error
        except csv.Error:
            self._explain_lines(first, lines)
        if [] not in rows:
            return rows, range(first, first + len(rows))
        kept = [(row, first + index) for index, row in enumerate(rows) if row]
        return [row for row, _ in kept], [line for _, line in kept]

    def _explain_lines(self, first: int, lines: Sequence[str]) -> NoReturn:
        """Name the first line that is no CSV by itself, or whose fields are wrong before it."""
        good: list[list[str]] = []
        for index, line in enumerate(lines):
            try:
                [row] = csv.reader([line], skipinitialspace=True, strict=True)
            except csv.Error:
                kept = [(row, first + i) for i, row in enumerate(good) if row]
                if kept:
                    self._block([row for row, _ in kept], [number for _, number in kept])
                column = self._header[
                    min(line.count(",", 0, line.find('"')), len(self._header) - 1)
                ]
                what = f"{quoted(line)} is no CSV: is a quotation mark left open?"
                raise BadFile(self.file, first + index, column, what) from None
            good.append(row)
        raise BadFile(self.file, first, None, "the text from here on is no CSV")

    def _block(self, rows: Sequence[Sequence[str]], lines: Sequence[int]) -> Block:
        try:
            if set(map(len, rows)) != {len(self._header)}:
                raise ValueError
            return self._checked([list(texts) for texts in zip(*rows, strict=True)], lines)
        except ValueError:
            self._explain(rows, lines)

    def _checked(self, columns: Sequence[list[str]], lines: Sequence[int]) -> Block:
        """A block of columns in the order of the header. Raises ``ValueError``."""
        names: dict[str, Sequence[str]] = {}
        numbers: dict[str, Numbers] = {}
        for name, texts in zip(self._header, columns, strict=True):
            values = self._columns[name].many(texts)
            if isinstance(values, np.ndarray):
                numbers[name] = values
            else:
                names[name] = values
        return Block(file=self.file, lines=lines, names=names, numbers=numbers)

    def _explain(self, rows: Sequence[Sequence[str]], lines: Sequence[int]) -> NoReturn:
        """Name the first row and column that is wrong."""
        header = self._header
        for line, row in zip(lines, rows, strict=True):
            for name, text in zip(header, row, strict=False):
                try:
                    self._columns[name].one(text)
                except Wrong as wrong:
                    raise BadFile(self.file, line, name, str(wrong)) from None
            if len(row) < len(header):
                what = f"it is missing: the line has {len(row)} fields, the header {len(header)}"
                raise BadFile(self.file, line, header[len(row)], what)
            if len(row) > len(header):
                what = f"the line has {len(row)} fields, the header only {len(header)}"
                raise BadFile(self.file, line, str(len(header) + 1), what)
        raise BadFile(self.file, lines[0], None, "something from here on cannot be read")


def shown(file: str) -> str:
    """A file's name as it was given, without what would steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in file)


def _text_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Whole lines with the number of the first, about ``BLOCK_BYTES`` at a time."""
    try:
        with path.open("rb") as file:
            yield from _decoded(str(path), file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadFile(str(path), None, None, f"it cannot be read: {reason}") from error


def _decoded(name: str, file: BinaryIO) -> Iterator[tuple[int, str]]:
    line = 1
    rest = b""
    while data := file.read(BLOCK_BYTES):
        if line == 1 and not rest:
            data = data.removeprefix(BOM)
        data = rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) >= BLOCK_BYTES:
            _decode(name, line, data)  # what is not even text is told first
            raise BadFile(name, line, None, f"the line is longer than {BLOCK_BYTES:,} bytes")
        whole, rest = data[:end], data[end:]
        if whole:
            yield line, _decode(name, line, whole[:-1])
            line += whole.count(b"\n")
    if rest:
        yield line, _decode(name, line, rest)


def _decode(name: str, line: int, data: bytes) -> str:
    if b"\0" in data:
        at = line + data.count(b"\n", 0, data.index(b"\0"))
        raise BadFile(name, at, None, "this is binary data, not CSV text")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        at = line + data.count(b"\n", 0, error.start)
        what = f"this is not UTF-8 text: it has the byte 0x{data[error.start]:02x}"
        raise BadFile(name, at, None, what) from None


def _header(file: str, line: int, text: str) -> list[str]:
    try:
        [row] = csv.reader([text], skipinitialspace=True, strict=True)
    except csv.Error:
        raise BadFile(file, line, None, f"{quoted(text)} is no CSV header") from None
    return [name.strip() for name in row]


def _match(
    file: str,
    line: int,
    header: Sequence[str],
    kinds: Mapping[str, Columns],
    optional: Columns,
) -> str:
    """The kind of file that has these columns."""
    # The kind with the most columns in common is what was meant.
    kind = max(kinds, key=lambda kind: len(kinds[kind].keys() & set(header)))
    columns = kinds[kind]
    needed = ",".join(columns)
    if not columns.keys() & set(header):
        heads = " or ".join(",".join(kinds[kind]) for kind in kinds)
        raise BadFile(
            file, line, None, f"{quoted(','.join(header))} is no header; needed is {heads}"
        )
    for index, name in enumerate(header):
        if name not in columns and name not in optional:
            common = len(columns.keys() & set(header))
            alike = [one for one in kinds.values() if len(one.keys() & set(header)) == common]
            heads = " or ".join(",".join(one) for one in alike)
            what = f"there is no such column; the header is {heads}"
            raise BadFile(file, line, quoted(name), what)
        if name in header[:index]:
            raise BadFile(file, line, name, "the header names it twice")
    for name in columns:
        if name not in header:
            raise BadFile(file, line, name, f"is missing; the header is {needed}")
    return kind
