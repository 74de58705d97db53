"""Whether accuracies that decide differ at all: each was counted on some rows, and has an interval.

The decision compares what was measured. Where that differs by no more than chance would make it
differ, an explanation says so.
"""

from collections.abc import Sequence

from controlplane.views.explanation_schemas import Standing, VerdictSchema
from planner.types import Query
from variants.figures import accuracy_floor, accuracy_text, some_of
from variants.types import Prefer

NAMED = 3
"""Variants that a sentence names."""
Interval = tuple[float, float]


def accuracy_doubt(rows: Sequence[VerdictSchema], query: Query) -> str:
    """A sentence where accuracies decide whose intervals overlap; else empty.

    Args:
        rows: what becomes of each variant.
    """
    if query.accuracy is None and query.prefer is not Prefer.ACCURACY:
        return ""
    known = [(row, found) for row in rows if (found := _interval(row)) is not None]
    chosen = next((pair for pair in known if pair[0].verdict is Standing.CHOSEN), None)
    if chosen is None:
        return "" if query.accuracy is None else _near_the_floor(known, query.accuracy)
    best, (low, high) = chosen[0].variant, chosen[1]
    others = {row.variant: 0 for row, (least, most) in known if least <= high and low <= most}
    others.pop(best)
    if not others:
        return ""
    return (
        f"By the rows that judged them, the accuracy of {best}, {accuracy_text(low)} to"
        f" {accuracy_text(high)}, differs by no more than chance from that of"
        f" {some_of([*others], NAMED)}."
    )


def _near_the_floor(known: Sequence[tuple[VerdictSchema, Interval]], floor: float) -> str:
    """Where nothing answers: what misses the floor by no more than chance."""
    near = {
        row.variant: 0
        for row, (_, most) in known
        if row.accuracy is not None and row.accuracy < floor <= most
    }
    if not near:
        return ""
    return (
        f"By the rows that judged them, the accuracy of {some_of([*near], NAMED)} differs from"
        f" {accuracy_floor(floor)} by no more than chance."
    )


def _interval(row: VerdictSchema) -> Interval | None:
    if row.accuracy_low is None or row.accuracy_high is None:
        return None
    return row.accuracy_low, row.accuracy_high
