"""Rows that a file has as texts, made into rows of numbers of tokens.

Files of texts are what people have: ``.csv``, ``.tsv`` and ``.jsonl`` with a column ``text``, where
the model reads two at once ``text_pair`` beside it, and ``label`` or ``target`` with what is right;
or ``.npz`` with an array ``text``. Where each word of a text has a label of its own, a ``.jsonl``
has ``words`` and ``labels``, two lists: the first token of a word gets its label, and others none.
What comes out is an ``.npz`` as all rows are read from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.evaluation.npz_arrays import MAX_MIB, read_arrays
from profiler.evaluation.position_truth import UNSAID
from variants.checks.onnx_file import check_file
from variants.errors import InvalidArtifact
from variants.metrics.metric import LABELS, TARGETS
from variants.metrics.positions import IGNORED
from variants.texts.inputs import TEXT
from variants.texts.tables import PAIR, TABLES, rows_in
from variants.texts.tokenising import Text, Tokeniser, Tokens, filled
from variants.types import TextInput

WORDS = "words"
_COLUMNS = {
    WORDS: WORDS,
    TEXT: TEXT,
    PAIR: PAIR,
    "label": LABELS,
    LABELS: LABELS,
    "target": TARGETS,
}
_COLUMNS[TARGETS] = TARGETS
_AT_ONCE = 256
MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What came of a file of texts."""

    rows: int
    left_out: int
    """Rows whose texts have more tokens than are taken."""
    longest: int
    """Tokens of the longest row that is kept."""
    highest: int
    """The highest number of a token."""
    pairs: bool
    """Whether its texts come in pairs."""


def may_have_texts(path: Path) -> bool:
    """Whether a file holds texts, by its ending, or by the names of its arrays.

    Raises:
        InvalidArtifact: it is an ``.npz`` that cannot be read.
    """
    if path.suffix in TABLES:
        return True
    return path.suffix == ".npz" and TEXT in read_arrays(path)


def fit_texts(
    path: Path,
    target: Path,
    tokeniser: Tokeniser,
    text: TextInput,
    dtypes: Mapping[str, str],
    *,
    longest: int | None = None,
    width: int | None = None,
) -> Fitted:
    """Write the rows of a file of texts as rows of numbers.

    Args:
        dtypes: of the inputs that are filled, by name.
        longest: tokens of a row that is kept; None: any number.
        width: to which all rows are filled up; None: to the longest that is kept.

    Raises:
        InvalidArtifact: one sentence with the first thing that is wrong; it names the file.
        InvalidInput: a text cannot be read.
    """
    texts, others = _read(path)
    tagged = isinstance(texts[0], list)
    read = tokeniser.read_words if tagged else partial(tokeniser.read, longest=None)
    found = [
        one for at in range(0, len(texts), _AT_ONCE) for one in read(texts[at : at + _AT_ONCE])
    ]
    lengths = np.array([len(one.ids) for one in found])
    kept = np.flatnonzero(lengths <= (longest or lengths.max(initial=1)))
    if not len(kept):
        raise InvalidArtifact(
            f"{path.name}: the shortest of its {len(found)} texts has"
            f" {lengths.min(initial=1 << 30)} tokens, and rows have {longest} at most"
        )
    size = width or int(lengths[kept].max())
    arrays: dict[str, NDArray[Any]] = {
        name: array[kept] if array.ndim and len(array) == len(found) else array
        for name, array in others.items()
        if not tagged
    }
    if tagged and LABELS in others:
        arrays[LABELS] = _of_tokens(
            path, others[LABELS], [found[number] for number in kept], kept, size
        )
    arrays |= filled([found[number] for number in kept], text, dtypes, size)
    np.savez(target, **arrays)  # type: ignore[arg-type]
    return Fitted(
        rows=len(kept),
        left_out=len(found) - len(kept),
        longest=int(lengths[kept].max()),
        highest=max(int(found[number].ids.max()) for number in kept),
        pairs=isinstance(texts[0], tuple),
    )


def _of_tokens(
    path: Path,
    labels: Sequence[Sequence[Any]],
    rows: Sequence[Tokens],
    numbers: NDArray[np.int64],
    size: int,
) -> NDArray[Any]:
    """The labels of words as those of tokens ``(rows, size)``: of the first one of each word.

    Args:
        numbers: which rows of the file these are.

    Raises:
        InvalidArtifact: they are no labels.
    """
    flat = [one for number in numbers for one in labels[number]]
    named = all(isinstance(one, str) for one in flat)
    if not named and not all(type(one) is int for one in flat):
        raise InvalidArtifact(f"{path.name}: labels of words are all names, or all whole numbers")
    unsaid: Any = UNSAID if named else IGNORED
    found = np.full((len(rows), size), unsaid, object)
    for row, (one, number) in enumerate(zip(rows, numbers, strict=True)):
        assert one.words is not None
        before = -1
        for at, word in enumerate(one.words.tolist()):
            if word not in (-1, before):
                found[row, at] = labels[number][word]
            before = word
    return found.astype(np.str_ if named else np.int64)


def _read(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """The texts of a file, and its other arrays by the names that rows have."""
    check_file(path, limit_mib=MAX_MIB)
    if path.suffix == ".npz":
        return _from_arrays(path, read_arrays(path))
    try:
        columns = _columns(path)
    except InvalidArtifact:
        raise
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidArtifact(f"{path.name} cannot be read: {str(error)[:200]}") from error
    if WORDS in columns:
        return _of_words(path, columns), {LABELS: columns[LABELS]} if LABELS in columns else {}
    if TEXT not in columns:
        has = ", ".join(sorted(columns)) or "nothing"
        raise InvalidArtifact(f"{path.name} lacks the column {TEXT!r}; it has {has}")
    texts = [_text(path, number, one) for number, one in enumerate(columns.pop(TEXT))]
    pairs = columns.pop(PAIR, None)
    if not texts:
        raise InvalidArtifact(f"{path.name} has no rows")
    others = {name: _array(path, name, values) for name, values in columns.items()}
    if pairs is None:
        return list(texts), others
    seconds = [_text(path, number, one) for number, one in enumerate(pairs)]
    return list(zip(texts, seconds, strict=True)), others


def _of_words(path: Path, columns: Mapping[str, list[Any]]) -> list[list[str]]:
    """
    Raises:
        InvalidArtifact: a row has no words, or another number of labels.
    """
    for number, words in enumerate(columns[WORDS]):
        if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
            raise InvalidArtifact(f"{path.name}: row {number} has no list of words")
        labels = columns[LABELS][number] if LABELS in columns else words
        if not isinstance(labels, list) or len(labels) != len(words):
            raise InvalidArtifact(
                f"{path.name}: row {number} has {len(words)} words, and labels that are not as many"
            )
    return list(columns[WORDS])


def _from_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> tuple[list[Text], dict[str, Any]]:
    found = arrays.pop(TEXT, None)
    if found is None:
        has = ", ".join(sorted(arrays)) or "nothing"
        raise InvalidArtifact(f"{path.name} lacks the array {TEXT!r}; it has {has}")
    pairs = found.ndim == 2 and found.shape[1] == 2
    if found.dtype.kind != "U" or not (found.ndim == 1 or pairs):
        raise InvalidArtifact(
            f"{path.name}: array {TEXT!r} has type {found.dtype} and shape {found.shape}, not texts"
            " of shape (rows), or (rows, 2) where two are read at once; numpy.array(texts) makes it"
        )
    if not len(found):
        raise InvalidArtifact(f"{path.name} has no rows")
    listed = found.tolist()
    return ([(a, b) for a, b in listed] if pairs else listed), arrays


def _columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a table that mean something here, by the names that rows have."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = rows_in(path, file)
        found: dict[str, list[Any]] = {}
        for number, row in enumerate(rows):
            if number >= MOST_ROWS:
                raise InvalidArtifact(f"{path.name} has more than {MOST_ROWS:,} rows")
            known = {_COLUMNS[name]: value for name, value in row.items() if name in _COLUMNS}
            if number == 0:
                found = {name: [] for name in known}
                if TEXT not in found and WORDS not in found:
                    has = ", ".join(sorted(map(str, row))) or "none"
                    raise InvalidArtifact(
                        f"{path.name} lacks the column {TEXT!r}; its columns are: {has[:200]}"
                    )
            if known.keys() != found.keys():
                odd = sorted(known.keys() ^ found.keys())[0]
                raise InvalidArtifact(
                    f"{path.name}: row {number} and the first one differ in having {odd!r}"
                )
            for name, value in known.items():
                found[name].append(value)
    return found


def _text(path: Path, number: int, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArtifact(f"{path.name}: row {number} has no text, but {type(value).__name__}")
    return value


def _array(path: Path, name: str, values: Sequence[Any]) -> NDArray[Any]:
    """Labels as whole numbers, or else as names of classes; targets as numbers."""
    try:
        if name == LABELS:
            whole = [value for value in values if type(value) is int]
            if len(whole) == len(values):
                return np.array(whole, np.int64)
            if all(isinstance(value, str) for value in values):
                if all(_is_whole(value) for value in values):
                    return np.array([int(value) for value in values], np.int64)
                return np.array(values, np.str_)
        else:
            return np.array([_numbers(value) for value in values], np.float64)
    except (ValueError, TypeError, OverflowError):
        pass
    what = "whole numbers, or names of classes" if name == LABELS else "numbers"
    raise InvalidArtifact(f"{path.name}: {name} must be {what} in all rows")


def _is_whole(value: str) -> bool:
    return value.strip().removeprefix("-").isdecimal()


def _numbers(value: Any) -> Any:
    return [float(one) for one in value] if isinstance(value, list) else float(value)
