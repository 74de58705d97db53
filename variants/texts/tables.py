"""Tables of texts: ``.csv``, ``.tsv`` and ``.jsonl``, row by row."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from variants.errors import InvalidArtifact

PAIR = "text_pair"
"""The column of second texts, where a model reads two at once."""
TABLES = frozenset({".csv", ".tsv", ".jsonl"})
"""Endings of files that have texts for certain."""
LARGEST_FIELD = 2**24


def rows_in(path: Path, file: TextIO) -> Iterator[Mapping[str, Any]]:
    """The rows of a table by their columns, as it is read.

    Args:
        path: names it in sentences, and says by its ending what it is.

    Raises:
        InvalidArtifact: a row cannot be read.
    """
    return _objects(path, file) if path.suffix == ".jsonl" else _table(path, file)


def _table(path: Path, file: TextIO) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(LARGEST_FIELD)
    reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
    number = -1
    try:
        for number, row in enumerate(reader):
            if None in row or None in row.values():
                raise InvalidArtifact(
                    f"{path.name}: row {number} has another number of columns than its first line;"
                    ' a text with a comma stands in quotes: "good, and cheap"'
                )
            yield row
    except csv.Error as error:
        raise InvalidArtifact(f"{path.name}: row {number + 1} cannot be read: {error}") from error


def _objects(path: Path, file: TextIO) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(file):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = "it nests too deeply" if isinstance(error, RecursionError) else error
            raise InvalidArtifact(f"{path.name}: line {number + 1} is no JSON: {why}") from error
        if not isinstance(found, dict):
            raise InvalidArtifact(f"{path.name}: line {number + 1} is no object")
        yield found
