"""Rows to ask with: from a file, from standard input, or zeros."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from variants.buckets import OPEN
from variants.errors import InvalidInput
from variants.figures import MOST_NAMED, counted, some_of

Spec = Mapping[str, Any]
"""An input or output of a task, as ``/v1/tasks`` has it: name, dtype, and the shape of a row."""
KEPT_BYTES = 64 * 2**20
"""Of the rows of one task as JSON, which are not written again for each query."""


def read_inputs(source: str | None, specs: Sequence[Spec], row: int | None) -> Any:
    """The rows to send: a list for a task with one input, else input names to lists.

    Raises:
        InvalidInput: the file cannot be read or does not hold rows of this task.
    """
    if source is None:
        return named({spec["name"]: zeros(spec["shape"]) for spec in specs})
    if source.endswith(".npz"):
        return named(_from_npz(source, specs, row))
    rows = _from_json(source, specs)
    if row is None:
        return rows
    if isinstance(rows, dict):
        return {name: [_pick(some, row, source)] for name, some in rows.items()}
    return [_pick(rows, row, source)]


def named(rows: Mapping[str, Any]) -> Any:
    """A single input may be given without its name."""
    return next(iter(rows.values())) if len(rows) == 1 else dict(rows)


def zeros(shape: Sequence[int]) -> Any:
    rows: Any = 0
    for size in reversed((1, *shape)):
        rows = [rows] * (1 if size == OPEN else size)
    return rows


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a row of this shape is one of an input; an open axis takes any size but 0."""
    return len(shape) == len(wanted) and all(
        size == want or (want == OPEN and size > 0)
        for size, want in zip(shape, wanted, strict=True)
    )


def _from_json(source: str, specs: Sequence[Spec]) -> Any:
    try:
        text = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{source} cannot be read: {error.strerror}") from error
    where = "standard input" if source == "-" else source
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if source != "-" and Path(source).suffix != ".json":
            error_words = "rows are read from .json and .npz files"
        else:
            error_words = str(error)
        raise InvalidInput(f"{where} is not JSON: {error_words}") from error
    if isinstance(data, dict) and "inputs" in data:
        data = data["inputs"]
    if not isinstance(data, list | dict):
        raise InvalidInput(f"{where} holds no rows: a list of rows is needed")
    # A single row may stand without the list around it.
    if isinstance(data, list) and len(specs) == 1 and _depth(data) == len(specs[0]["shape"]):
        return [data]
    return data


def _depth(data: Any) -> int:
    depth = 0
    while isinstance(data, list):
        depth += 1
        data = data[0] if data else None
    return depth


def _pick(rows: Any, row: int, source: str) -> Any:
    if not isinstance(rows, list) or not 0 <= row < len(rows):
        count = len(rows) if isinstance(rows, list) else 0
        raise InvalidInput(f"{source} has no row {row}; it has {counted(count, 'row')}")
    return rows[row]


def _from_npz(source: str, specs: Sequence[Spec], row: int | None) -> dict[str, Any]:
    """One row of each input: the first, which is said, where none is named."""
    found = {}
    matched = _matched(_arrays(source), specs, source)
    if row is None:
        row, count = 0, max((len(array) for array in matched.values()), default=0)
        if count > 1:
            print(
                f"no --row: asking with the first of {count:,} rows; `modelless batch` answers all",
                file=sys.stderr,
            )
    for name, array in matched.items():
        if not 0 <= row < len(array):
            raise InvalidInput(f"{source} has no row {row}; it has {counted(len(array), 'row')}")
        found[name] = array[row : row + 1].tolist()
    return found


def _matched(arrays: Mapping[str, Any], specs: Sequence[Spec], source: str) -> dict[str, Any]:
    """The array of each input: by the input's name, of a single input also by its shape."""
    shapes = {name: array.shape for name, array in arrays.items()}
    names = array_names(shapes, specs, source)
    return {name: arrays[found] for name, found in names.items()}


def array_names(
    shapes: Mapping[str, tuple[int, ...]], specs: Sequence[Spec], source: str
) -> dict[str, str]:
    """Which array of a file holds each input: that of its name, of a single input also the only one
    whose rows have its shape.

    Raises:
        InvalidInput: there is none.
    """
    found = {}
    for spec in specs:
        name, shape = spec["name"], tuple(spec["shape"])
        fitting = [each for each, whole in shapes.items() if fits(whole[1:], shape)]
        if name not in shapes and len(specs) == 1 and len(fitting) == 1:
            name = fitting[0]
        if name not in shapes:
            has = some_of(sorted(shapes), MOST_NAMED) or "none of numbers"
            raise InvalidInput(f"{source} has no array {name!r}; it has: {has}")
        found[spec["name"]] = name
    return found


def _arrays(source: str) -> dict[str, Any]:
    """The arrays of an ``.npz`` that may hold rows of numbers, by name.

    Raises:
        InvalidInput: it cannot be read, or is none.
    """
    import numpy as np

    try:
        with Path(source).open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {} if isinstance(loaded, np.ndarray) else dict(loaded)
    except OSError as error:
        raise InvalidInput(f"{source} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # Damage shows as zlib.error, struct.error, BadZipFile and more, without a common base.
        raise InvalidInput(f"{source} cannot be read as .npz: {error}") from error
    if isinstance(loaded, np.ndarray):
        raise InvalidInput(f"{source} cannot be read as .npz: it is a single array")
    return {
        name: array
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.ndim and array.dtype.kind in "biuf"
    }


class QueryRows:
    """Rows of a file that are sent one after the other, as JSON; after the last comes the first."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """``columns`` has the rows of each input, as many of each, at least one."""
        self._columns = columns
        self._count = min(len(rows) for rows in columns.values())
        self._texts: dict[int, bytes] = {}
        self._kept = 0

    def __len__(self) -> int:
        return self._count

    def inputs(self, number: int) -> bytes:
        """What stands under ``inputs`` in the query of this number."""
        row = number % self._count
        if (text := self._texts.get(row)) is not None:
            return text
        one = named({name: [rows[row]] for name, rows in self._columns.items()})
        text = orjson.dumps(one, option=orjson.OPT_SERIALIZE_NUMPY)
        if self._kept + len(text) <= KEPT_BYTES:
            self._texts[row] = text
            self._kept += len(text)
        return text


def query_rows(source: str | None, specs: Sequence[Spec]) -> QueryRows:
    """All rows of a file; without one, a row of zeros.

    Raises:
        InvalidInput: the file cannot be read or does not hold rows of this task.
    """
    if source is None:
        columns = {spec["name"]: zeros(spec["shape"]) for spec in specs}
    elif source.endswith(".npz"):
        columns = _matched(_arrays(source), specs, source)
    else:
        rows = _from_json(source, specs)
        columns = rows if isinstance(rows, dict) else {specs[0]["name"]: rows}
    lengths = {len(rows) if hasattr(rows, "__len__") else 0 for rows in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise InvalidInput(f"{source} must hold as many rows of each input, and at least one")
    if missing := {spec["name"] for spec in specs} - columns.keys():
        raise InvalidInput(f"{source} has no rows of the input {min(missing)!r}")
    for spec in specs:
        _check_shapes(columns[spec["name"]], spec, str(source))
    return QueryRows({spec["name"]: columns[spec["name"]] for spec in specs})


def _check_shapes(rows: Any, spec: Spec, source: str) -> None:
    """Whether rows are of an input: an array has one shape for all, in JSON each has its own."""
    import numpy as np

    expected = tuple(spec["shape"])
    for number, row in enumerate(rows[:1] if isinstance(rows, np.ndarray) else rows):
        try:
            shape = np.shape(row)
        except ValueError:  # lists of several lengths side by side
            shape = None
        if shape is None or not fits(shape, expected):
            what = "is no row of numbers" if shape is None else f"has the shape {list(shape)}"
            raise InvalidInput(
                f"{source}: row {number} of the input {spec['name']!r} {what}, not {list(expected)}"
            )
