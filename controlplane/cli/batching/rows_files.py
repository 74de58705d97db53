"""Rows of a file, read one after the other: a file of any size takes the memory of a part of it."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.lib import format as npy

from controlplane.cli.asking.rows import Spec, array_names, fits
from controlplane.cli.batching.row import Row, RowsFile
from controlplane.cli.batching.text_rows import TextRows, has_texts
from variants.errors import InvalidInput
from variants.texts.tables import TABLES

BLOCK_BYTES = 2**20
"""Of an array that are read at once."""
NUMBERS = "biuf"
"""Kinds of element types that rows may have."""


def rows_file(path: Path, specs: Sequence[Spec], *, texts: bool = False) -> RowsFile:
    """The rows of an ``.npz`` or ``.jsonl`` file, or the texts of a table.

    Args:
        texts: whether the task takes texts.

    Raises:
        InvalidInput: it cannot be read, or does not hold rows with these inputs.
    """
    try:
        if path.suffix in TABLES and (path.suffix != ".jsonl" or (texts and has_texts(path))):
            if not texts:
                raise InvalidInput(f"{path} is a table of texts, and the task takes none")
            return TextRows(path)
        if path.suffix == ".npz":
            return NpzRows(path, specs)
        if path.suffix == ".jsonl":
            return JsonlRows(path, specs)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    raise InvalidInput(f"{path} is none of .npz, .jsonl, .csv and .tsv")


class JsonlRows:
    """A row on each line: a list of numbers, or an object of them by input."""

    def __init__(self, path: Path, specs: Sequence[Spec]) -> None:
        self._path = path
        self._specs = specs
        with path.open("rb") as file:
            self.count = sum(1 for line in file if line.strip())
        if not self.count:
            raise InvalidInput(f"{path} holds no rows")

    def rows(self) -> Iterator[Row]:
        with self._path.open("rb") as file:
            lines = (line for line in file if line.strip())
            for number, line in enumerate(lines):
                try:
                    yield Row(number=number, values=self._values(line))
                except ValueError as error:  # JSON's and NumPy's are among them
                    yield Row(number=number, values={}, wrong=str(error))

    def _values(self, line: bytes) -> dict[str, Any]:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"the line is not JSON: {error}") from error
        if isinstance(found, list) and len(self._specs) == 1:
            found = {self._specs[0]["name"]: found}
        names = [spec["name"] for spec in self._specs]
        if not isinstance(found, dict) or set(found) != set(names):
            wanted = "a list of numbers, or " if len(names) == 1 else ""
            raise ValueError(f"the line must hold {wanted}an object with {', '.join(names)}")
        return {spec["name"]: _array(found[spec["name"]], spec) for spec in self._specs}


def _array(value: Any, spec: Spec) -> Any:
    """A row of an input from lists of numbers.

    Raises:
        ValueError: it is none.
    """
    name, shape, dtype = spec["name"], tuple(spec["shape"]), np.dtype(spec["dtype"])
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} has lists of several lengths side by side") from error
    if not fits(found.shape, shape):
        raise ValueError(f"{name} has the shape {list(found.shape)}, not {list(shape)}")
    if found.dtype.kind not in NUMBERS or not np.can_cast(found.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} holds something else than numbers of the type {dtype}")
    return _cast(found, dtype, name)


def _cast(found: Any, dtype: Any, name: str) -> Any:
    with np.errstate(over="ignore"):  # an infinite number is refused by the gateway
        cast = found.astype(dtype)
    if dtype.kind in "iu" and not (cast == found).all():
        raise ValueError(f"{name} holds a number that {dtype} does not")
    return np.ascontiguousarray(cast)


class NpzRows:
    """Arrays with one axis for rows: of the inputs' names, of a single input also the only one
    whose rows have its shape."""

    def __init__(self, path: Path, specs: Sequence[Spec]) -> None:
        self._path = path
        self._specs = specs
        shapes, self._types = {}, {}
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    with archive.open(member) as file:
                        shape, by_column, dtype = _header(file)
                    if dtype.kind in NUMBERS and shape:
                        name = member.removesuffix(".npy")
                        shapes[name], self._types[name] = shape, (dtype, by_column)
        except (zipfile.BadZipFile, ValueError) as error:
            raise InvalidInput(f"{path} cannot be read as .npz: {error}") from error
        self._names = array_names(shapes, specs, str(path))
        counts = {shapes[name][0] for name in self._names.values()}
        for spec in specs:
            self._check(spec, shapes[self._names[spec["name"]]])
        if len(counts) != 1 or not (count := counts.pop()):
            raise InvalidInput(f"{path} must hold as many rows of each input, and at least one")
        self.count = count

    def _check(self, spec: Spec, shape: tuple[int, ...]) -> None:
        name = self._names[spec["name"]]
        dtype, by_column = self._types[name]
        where = f"{self._path}: array {name!r}"
        if not fits(shape[1:], spec["shape"]):
            raise InvalidInput(f"{where} has rows of {list(shape[1:])}, not {list(spec['shape'])}")
        if not np.can_cast(dtype, spec["dtype"], "same_kind"):
            raise InvalidInput(f"{where} is of {dtype}, the task takes {spec['dtype']}")
        if by_column and len(shape) > 1 and shape[0] > 1:
            raise InvalidInput(
                f"{where} is stored column by column; save np.ascontiguousarray of it"
            )

    def rows(self) -> Iterator[Row]:
        try:
            with ExitStack() as opened:
                archive = opened.enter_context(zipfile.ZipFile(self._path))
                blocks = []
                for spec in self._specs:
                    name = self._names[spec["name"]]
                    file = opened.enter_context(archive.open(f"{name}.npy"))
                    blocks.append(_each(file, self.count))
                for number, found in enumerate(zip(*blocks, strict=True)):
                    yield self._row(number, found)
        except (zipfile.BadZipFile, EOFError, ValueError) as error:
            raise InvalidInput(f"{self._path} is damaged: {error}") from error
        except Exception as error:
            if type(error).__module__ != "zlib":
                raise
            raise InvalidInput(f"{self._path} is damaged: {error}") from error

    def _row(self, number: int, found: Sequence[Any]) -> Row:
        values = {}
        for spec, array in zip(self._specs, found, strict=True):
            try:
                values[spec["name"]] = _cast(array, np.dtype(spec["dtype"]), spec["name"])
            except ValueError as error:
                return Row(number=number, values={}, wrong=str(error))
        return Row(number=number, values=values)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether it is stored column by column, and type of an array whose file begins here.

    Raises:
        ValueError: it is no array.
    """
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_column, dtype = read(file)
    return shape, by_column, dtype


def _each(file: IO[bytes], count: int) -> Iterator[Any]:
    """The rows of an array's file."""
    shape, _, dtype = _header(file)
    row_shape = shape[1:]
    row_bytes = dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))
    at_once = max(1, BLOCK_BYTES // max(1, row_bytes))
    for start in range(0, count, at_once):
        rows = min(at_once, count - start)
        data = file.read(rows * row_bytes)
        if len(data) != rows * row_bytes:
            raise EOFError("it ends too soon")
        yield from np.frombuffer(data, dtype).reshape(rows, *row_shape)
