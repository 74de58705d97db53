"""Worse on one class: a later version that is as accurate as the live one, and not where it counts.

The share of right rows hides it where the class is one of many, or rare. Both versions were judged
on rows that nothing was trained on, if not on the same ones, so the shares of right rows of a class
are compared as those of two samples.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

from controlplane.building.beside_live import live_before
from variants.figures import counted
from variants.metrics.answered import MOST_CELLS, classes_of
from variants.types import CatalogSnapshot, Registration, Task, Variant

FEWEST_ROWS = 10
"""Of a class, that both were judged on, for it to be compared."""
MARGIN = 0.05
"""A class that is found less often by no more than this is not told of."""
ERROR = 0.01
"""The chance that a class is told of, of a version that is as good on all of them."""


def worse_classes(registration: Registration, before: CatalogSnapshot) -> str:
    """A sentence where a version finds a class less often than the live one of its model does, and
    that is no chance; else empty.

    Args:
        before: what was registered until then.
    """
    task, version = registration.task, registration.version
    newest = live_before(registration, before)
    ours = _reference(registration.variants, version.version)
    if newest is None or ours is None or not 2 <= classes_of(task) <= MOST_CELLS:
        return ""
    there = [one for one in before.variants if (one.task, one.model) == (task.name, version.model)]
    theirs = _reference(there, newest.version)
    if theirs is None or len(theirs.found) != len(ours.found):
        return ""
    sure = NormalDist().inv_cdf(1 - ERROR / len(ours.found))
    worse = [
        (theirs_of / rows_of_theirs - ours_of / rows_of_ours, cell)
        for cell, ((ours_of, rows_of_ours), (theirs_of, rows_of_theirs)) in enumerate(
            zip(ours.found, theirs.found, strict=True)
        )
        if min(rows_of_ours, rows_of_theirs) >= FEWEST_ROWS
        and _apart(ours_of, rows_of_ours, theirs_of, rows_of_theirs) > sure
    ]
    worse = [one for one in worse if one[0] > MARGIN]
    if not worse:
        return ""
    _, cell = max(worse)
    others = f", and less of {counted(len(worse) - 1, 'other class')} too" if worse[1:] else ""
    (right, rows), (had, of) = ours.found[cell], theirs.found[cell]
    return (
        f"{version.label} finds {right} of {rows} rows of class {_name(task, cell)!r}, and"
        f" {newest.label}, which is live, {had} of {of}{others}: it is worse there, whatever its"
        " accuracy over all rows"
    )


def _reference(variants: Sequence[Variant], version: int) -> Variant | None:
    """The model itself among variants, where it is known what it finds."""
    of_version = [one for one in variants if one.version == version and one.found]
    return max(of_version, key=lambda one: one.agreement or 0.0, default=None)


def _apart(ours: int, rows_of_ours: int, theirs: int, rows_of_theirs: int) -> float:
    """By how many standard deviations their share is above ours."""
    both = (ours + theirs) / (rows_of_ours + rows_of_theirs)
    spread = sqrt(both * (1 - both) * (1 / rows_of_ours + 1 / rows_of_theirs))
    difference = theirs / rows_of_theirs - ours / rows_of_ours
    return difference / spread if spread else 0.0


def _name(task: Task, cell: int) -> str:
    return task.labels[cell] if cell < len(task.labels) else str(cell)
