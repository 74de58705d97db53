"""Doubt: what is registered all the same, and told of.

A version may be no better than guessing, mostly because labels are not in the order of the model's
scores. Or it is less accurate than its task asks for where a query names no accuracy.
"""

from collections.abc import Iterable

from profiler.evaluation.accuracy import guessed
from profiler.evaluation.labelled_rows import LabelledRows
from variants.figures import apart, percent
from variants.types import Registration, Variant


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


def short_of_default(registration: Registration) -> str:
    """A sentence where no variant is as accurate as its task asks for by default; else empty."""
    floor = registration.task.slo.accuracy
    best = max((variant.accuracy for variant in registration.variants), default=None)
    if floor is None or best is None or best >= floor:
        return ""
    ours, asked = apart(100 * best, 100 * floor)
    return (
        f"the accuracy of {registration.version.label} is {ours} % at best, and queries of"
        f" {registration.task.name} that name none ask for {asked} %: it answers none of these"
    )
