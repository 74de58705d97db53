"""Beside the live one: how accurate a later version is, and the one that it may take the place of.

Whoever registers a version decides next whether it becomes live. Both were judged on rows that
nothing was trained on, if not on the same ones, so what their intervals do not tell apart may be
chance.
"""

from collections.abc import Iterable

from profiler.evaluation.accuracy import interval_of
from variants.figures import accuracy_text, counted
from variants.metrics.metric import parse_metric
from variants.types import CatalogSnapshot, ModelVersion, Registration, Stage, Variant


def beside_live(registration: Registration, before: CatalogSnapshot) -> str:
    """A sentence on the best accuracy of a version and of the newest live one of its model; empty
    where none is live.

    Args:
        before: what was registered until then.
    """
    task, version = registration.task, registration.version
    newest = live_before(registration, before)
    if newest is None:
        return ""
    ours = _best(registration.variants)
    theirs = _best(
        one
        for one in before.variants
        if (one.task, one.model, one.version) == (task.name, version.model, newest.version)
    )
    if ours is None or theirs is None:
        return ""
    name = newest.label if task.bucket is None else f"{newest.label} of {task.name}"
    had, has = accuracy_text(theirs.accuracy), accuracy_text(ours.accuracy)
    if had == has:
        return f"{version.label} is as accurate as {name}, which is live: {has} at best"
    rows, rows_of_theirs = (counted(one.accuracy_rows, "row") for one in (ours, theirs))
    chance = ""
    if parse_metric(task.metric).counts_rows and not _apart(ours, theirs):
        chance = "; so little may be chance"
    return (
        f"{version.label} has an accuracy of {has} at best, on {rows}, and {name}, which is live,"
        f" of {had}, on {rows_of_theirs}{chance}"
    )


def live_before(registration: Registration, before: CatalogSnapshot) -> ModelVersion | None:
    """The newest version of the model that was live; None where none was."""
    task, version = registration.task, registration.version
    live = [
        one
        for one in before.versions
        if (one.task, one.model, one.stage) == (task.name, version.model, Stage.LIVE)
    ]
    return max(live, key=lambda one: one.version, default=None)


def _best(variants: Iterable[Variant]) -> Variant | None:
    judged = (one for one in variants if one.accuracy_rows)
    return max(judged, key=lambda one: one.accuracy, default=None)


def _apart(one: Variant, other: Variant) -> bool:
    """Whether their 95 % intervals have nothing in common."""
    (low, high), (lowest, highest) = (
        interval_of(each.accuracy, each.accuracy_rows) for each in (one, other)
    )
    return high < lowest or highest < low
