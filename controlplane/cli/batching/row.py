"""What ``modelless batch`` asks with: rows of a file, or why one is none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the file, or why it is none."""

    number: int
    """From 0."""
    values: Mapping[str, Any]
    """Of each input an array in its type, without an axis for rows; empty where it is wrong."""
    wrong: str = ""
    file: str = ""
    """Name of the picture that it is, if it is one."""


class RowsFile(Protocol):
    """A file of rows."""

    count: int

    def rows(self) -> Iterator[Row]:
        """All rows, in their order.

        Raises:
            InvalidInput: the file is damaged.
        """
        ...
