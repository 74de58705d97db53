"""How the texts of a request are cut into queries, each of which is answered by one batch."""

from collections.abc import Sequence

from controlplane.gateway.texts.asked import MOST_CHARACTERS
from planner.selection.select import suited
from planner.types import Query, Snapshot

MOST_ROWS = 64
"""Of a query: its answer is written within some milliseconds."""
PART = 1 / 4
"""Of the deadline that the batch of a query may take."""


def rows_of_query(snapshot: Snapshot, query: Query) -> int:
    """How many texts a query may have, at least one: so many as run within a part of its deadline
    in a batch of the variant that suits it best.

    Args:
        snapshot: what may answer it.
        query: of one row.
    """
    found = suited(snapshot, query)
    if found is None:
        return 1
    times_ms, most_ms = found.table.ms, query.latency_ms * PART
    most = min(found.table.max_batch, MOST_ROWS)
    return max((rows for rows in range(1, most + 1) if times_ms[rows] <= most_ms), default=1)


def cut(texts: Sequence[str], rows: int) -> list[list[int]]:
    """The numbers of texts, query by query, each of about equally long ones: a row is filled up to
    the longest beside it.

    Args:
        rows: of a query, at most.
    """
    by_length = sorted(range(len(texts)), key=lambda at: (len(texts[at]), at))
    pieces: list[list[int]] = []
    characters = 0
    for at in by_length:
        length = len(texts[at])
        if not pieces or len(pieces[-1]) >= rows or characters + length > MOST_CHARACTERS:
            pieces.append([])
            characters = 0
        pieces[-1].append(at)
        characters += length
    return pieces
