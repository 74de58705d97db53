"""Texts of a table as rows: the gateway makes them into numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controlplane.cli.batching.row import Row
from variants.errors import InvalidArtifact, InvalidInput
from variants.texts.inputs import TEXT
from variants.texts.tables import PAIR, rows_in


class TextRows:
    """A row of each text, or pair of texts, of a ``.csv``, ``.tsv`` or ``.jsonl`` file."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            InvalidInput: it holds none, or cannot be read.
        """
        self._path = path
        self.count = sum(1 for _ in self.rows())
        if not self.count:
            raise InvalidInput(f"{path} holds no rows")

    def rows(self) -> Iterator[Row]:
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                for number, row in enumerate(rows_in(self._path, file)):
                    yield self._row(number, row)
        except InvalidArtifact as error:
            raise InvalidInput(error.message) from error
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{self._path} cannot be read: {error}") from error

    def _row(self, number: int, row: Any) -> Row:
        if TEXT not in row:
            has = ", ".join(sorted(map(str, row)))[:200]
            raise InvalidInput(f"{self._path} lacks the column {TEXT!r}; its columns are: {has}")
        asked = (row[TEXT], row[PAIR]) if PAIR in row else (row[TEXT],)
        if not all(isinstance(one, str) for one in asked):
            return Row(number=number, values={}, wrong=f"{TEXT} is no text")
        return Row(number=number, values={TEXT: asked})


def has_texts(path: Path) -> bool:
    """Whether the first line of a ``.jsonl`` file is an object with a text."""
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                return line.lstrip().startswith(b"{") and f'"{TEXT}"'.encode() in line
    return False
