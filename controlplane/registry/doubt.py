"""Doubt: a version that is no better than guessing is registered all the same, and told of.

Mostly it is because labels are not in the order of the model's scores.
"""

from collections.abc import Iterable

from profiler.evaluation.accuracy import guessed
from profiler.evaluation.labelled_rows import LabelledRows
from variants.figures import percent
from variants.types import Variant


def doubt(label: str, metric: str, variants: Iterable[Variant], rows: LabelledRows) -> str:
    """A sentence where none of the variants is better than always saying the same; else empty."""
    best = max((variant.accuracy for variant in variants), default=None)
    if best is None or rows.labels is None or metric != "top1":
        return ""
    constant = guessed(rows.labels)
    if best > constant:
        return ""
    return (
        f"{label} is right in {percent(best)} % of the rows, and always saying the most frequent"
        f" label would be in {percent(constant)} %: are the labels those of its scores, in their"
        " order?"
    )
