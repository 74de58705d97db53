"""The lines of ``modelless events list``: many loads in a row are one of them.

A worker that starts loads all that the plan gives it. One line for each would leave no room for
what else happened.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]

FOLDED = frozenset({"loaded", "unloaded", "evicted"})
"""Kinds whose subject is a variant on a worker; so many in a row and more become one line."""
MANY = 4
MOST_ROWS = 1_000
"""Events that are asked for at most."""
ROWS_PER_LINE = 20


def rows_for(lines: int) -> int:
    """How many events to read, so that mostly as many lines come of them."""
    return min(MOST_ROWS, ROWS_PER_LINE * lines)


def event_lines(rows: Sequence[Row]) -> list[tuple[str, str, str, str, str]]:
    """Number, time, kind, subject and message of each line; rows and lines are the newest last.

    The time stays as it is in the row. A line for several has the number and time of the last.
    """
    lines = []
    for kind, group in groupby(rows, lambda row: str(row["kind"])):
        alike = list(group)
        if kind in FOLDED and len(alike) >= MANY:
            last = alike[-1]
            lines.append((str(last["seq"]), last["at"], kind, _where(alike), _why(alike)))
        else:
            lines += [
                (str(row["seq"]), row["at"], kind, row["subject"], row["message"]) for row in alike
            ]
    return lines


def _where(rows: Sequence[Row]) -> str:
    """``28 times on 2 workers``."""
    workers = {str(row["subject"]).rpartition(" on ")[2] for row in rows}
    where = f"{len(workers)} workers" if len(workers) > 1 else workers.pop()
    return f"{len(rows)} times on {where}"


def _why(rows: Sequence[Row]) -> str:
    """What they say, where all say the same, and which was the last."""
    return "; ".join((*_same(rows), f"last {rows[-1]['subject'].rpartition(' on ')[0]}"))


def _same(rows: Sequence[Row]) -> Iterator[str]:
    said = {str(row["message"]) for row in rows}
    if len(said) == 1:
        yield said.pop()
