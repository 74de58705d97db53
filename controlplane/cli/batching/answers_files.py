"""The file of answers, made of all lines of a run, and there as a whole or not at all."""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.lib import format as npy

from controlplane.cli.asking.rows import Spec
from controlplane.cli.batching.journal import Journal
from variants.errors import InvalidInput
from variants.types import FollowingAxis

MOST_TEXT = 1_000
"""Characters of an error that an array keeps."""
LABEL, SCORE = "label", "score"
TEXTS = ("variant", "code", "error")
"""What is said of a row beside its outputs, by the names of the arrays; and its ``accuracy``."""
POSITIONS, SPANS = "positions", "spans"
"""Of rows that are answered position by position: how many are a row's own, and where its tokens
stand in a text."""


def write_answers(
    journal: Journal,
    output: Path,
    specs: Sequence[Spec],
    count: int,
    following: Mapping[str, FollowingAxis] | None = None,
) -> None:
    """Put the lines of a run in their order into ``output``: ``.jsonl``, or arrays in ``.npz``.

    Args:
        specs: the outputs of the task. Those that are as long as the rows have the length of the
            longest there; an array of them has zeros behind the end of a row.
        count: all rows.
        following: which outputs those are, if any, and along which axis.

    Raises:
        InvalidInput: it cannot be written.
    """
    fresh = output.with_name(output.name + ".new")
    try:
        with fresh.open("wb") as file:
            if output.suffix == ".npz":
                _write_arrays(journal.ordered, file, specs, count, following or {})
            else:
                file.writelines(journal.ordered())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, output)
    except OSError as error:
        raise InvalidInput(f"{output} cannot be written: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)


class _Sizes:
    """How large the arrays have to be that say something of each row."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.texts = dict.fromkeys((LABEL, *TEXTS), 1)
        self.positions = 0
        """The most labels, scores or spans of a row; 0 where a row has one label or none."""
        self.span = 0
        """Numbers of a span; 0 where there are none."""
        for row in map(orjson.loads, lines):
            for name in TEXTS:
                self.texts[name] = max(self.texts[name], len(_text(row, name)))
            labels = row.get("labels") or [row.get(LABEL, "")]
            self.texts[LABEL] = max(self.texts[LABEL], *map(len, labels))
            spans = row.get(SPANS) or ()
            if "labels" in row or spans:
                self.positions = max(self.positions, len(labels), len(spans))
            self.span = max(self.span, *map(len, spans), 0)


def _write_arrays(
    lines: Callable[[], Iterator[bytes]],
    file: IO[bytes],
    specs: Sequence[Spec],
    count: int,
    following: Mapping[str, FollowingAxis],
) -> None:
    """An array for each output, and of what is said of each row; outputs of rows that have an error
    are zeros. Each array is one way through the lines."""
    sizes = _Sizes(lines())
    own = [LABEL, SCORE, "accuracy", *TEXTS]
    own += [POSITIONS] * bool(following) + [SPANS] * bool(sizes.span)
    # Where positions are answered, each row has a label and a score for each.
    wide = [sizes.positions] * bool(sizes.positions)
    with zipfile.ZipFile(file, "w") as archive:

        def write(name: str, dtype: str, shape: Sequence[int], of: Callable[[Any], Any]) -> None:
            rows = (of(row) for row in map(orjson.loads, lines()))
            _write(archive, name, np.dtype(dtype), [count, *shape], rows)

        for spec in specs:
            name, dtype = spec["name"], np.dtype(spec["dtype"])
            zeros = np.zeros(spec["shape"], dtype)
            member = f"output_{name}" if name in own else name
            write(member, dtype.str, zeros.shape, partial(_output, name=name, missing=zeros))
        write(SCORE, "f8", wide, partial(_each, one=SCORE, all_="scores", shape=wide, rest=np.nan))
        write("accuracy", "f8", (), lambda row: row.get("accuracy", np.nan))
        label = f"<U{sizes.texts[LABEL]}"
        write(LABEL, label, wide, partial(_each, one=LABEL, all_="labels", shape=wide, rest=""))
        for text in TEXTS:
            write(text, f"<U{sizes.texts[text]}", (), partial(_text, name=text))
        if following:
            name, one = next(iter(following.items()))
            write(POSITIONS, "i8", (), partial(_positions, name=name, axis=one.axis))
        if sizes.span:
            shape = [*wide, sizes.span]
            write(SPANS, "i8", shape, partial(_each, one="", all_=SPANS, shape=shape, rest=0))


def _each(row: dict[str, Any], one: str, all_: str, shape: Sequence[int], rest: Any) -> Any:
    """What is said of a row, or of each of its positions; behind these, ``rest``."""
    if not shape:
        return row.get(one, rest)
    found = np.full(shape, rest, object)
    if values := row.get(all_):
        found[: len(values)] = values
    return found


def _positions(row: dict[str, Any], name: str, axis: int) -> int:
    """How many positions of an output are a row's own."""
    found = row.get("outputs")
    if found is None:
        return 0
    return int(np.shape(found[name] if isinstance(found, dict) else found)[axis])


def _output(row: dict[str, Any], name: str, missing: Any) -> Any:
    """An output of a row; one that is alone has no name in its line."""
    found = row.get("outputs", missing)
    own = np.asarray(found[name] if isinstance(found, dict) else found, missing.dtype)
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
