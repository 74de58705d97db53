"""The file of answers, made of all lines of a run, and there as a whole or not at all."""

import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.lib import format as npy

from controlplane.cli.asking.rows import Spec
from controlplane.cli.batching.journal import Journal
from variants.errors import InvalidInput

MOST_TEXT = 1_000
"""Characters of an error that an array keeps."""
TEXTS = ("label", "variant", "code", "error")
NUMBERS = ("score", "accuracy")
"""What is said of a row beside its outputs, by the names of the arrays."""


def write_answers(journal: Journal, output: Path, specs: Sequence[Spec], count: int) -> None:
    """Put the lines of a run in their order into ``output``: ``.jsonl``, or arrays in ``.npz``.

    Args:
        specs: the outputs of the task. Those that are as long as the rows have the length of the
            longest there; an array of them has zeros behind the end of a row.
        count: all rows.

    Raises:
        InvalidInput: it cannot be written.
    """
    fresh = output.with_name(output.name + ".new")
    try:
        with fresh.open("wb") as file:
            if output.suffix == ".npz":
                _write_arrays(journal.ordered, file, specs, count)
            else:
                file.writelines(journal.ordered())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, output)
    except OSError as error:
        raise InvalidInput(f"{output} cannot be written: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _write_arrays(
    lines: Callable[[], Iterator[bytes]], file: IO[bytes], specs: Sequence[Spec], count: int
) -> None:
    """An array for each output, and of what is said of each row; outputs of rows that have an error
    are zeros. Each array is one way through the lines."""
    widths = dict.fromkeys(TEXTS, 1)
    for row in map(orjson.loads, lines()):
        for name in TEXTS:
            widths[name] = max(widths[name], len(_text(row, name)))
    with zipfile.ZipFile(file, "w") as archive:
        for spec in specs:
            name, shape, dtype = spec["name"], spec["shape"], np.dtype(spec["dtype"])
            zeros = np.zeros(shape, dtype)
            member = f"output_{name}" if name in (*TEXTS, *NUMBERS) else name
            _write(
                archive, member, dtype, [count, *shape],
                (_output(row, name, zeros, dtype) for row in map(orjson.loads, lines())),
            )  # fmt: skip
        for name in NUMBERS:
            _write(
                archive, name, np.dtype(np.float64), [count],
                (row.get(name, np.nan) for row in map(orjson.loads, lines())),
            )  # fmt: skip
        for name in TEXTS:
            _write(
                archive, name, np.dtype(f"<U{widths[name]}"), [count],
                (_text(row, name) for row in map(orjson.loads, lines())),
            )  # fmt: skip


def _output(row: dict[str, Any], name: str, missing: Any, dtype: Any) -> Any:
    """An output of a row; one that is alone has no name in its line."""
    found = row.get("outputs", missing)
    own = np.asarray(found[name] if isinstance(found, dict) else found, dtype)
    if own.shape == missing.shape:
        return own
    whole = missing.copy()
    whole[tuple(map(slice, own.shape))] = own
    return whole


def _text(row: dict[str, Any], name: str) -> str:
    return str(row.get(name, ""))[:MOST_TEXT]


def _write(
    archive: zipfile.ZipFile, name: str, dtype: Any, shape: Sequence[int], rows: Iterator[Any]
) -> None:
    """An array of an archive, row by row."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
        npy.write_array_header_2_0(member, header)
        for row in rows:
            member.write(np.asarray(row, dtype).tobytes())
