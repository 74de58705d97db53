"""What has changed of answers, in words."""

from collections.abc import Iterable

from planner.feedback.answers import Shift, Standing
from variants.figures import figure
from variants.metrics.answered import classes_in, classes_of
from variants.types import Task


def changed_words(task: Task, standing: Standing) -> str:
    """What has changed: how many answers, and which classes most."""
    part = percent(standing.moved or 0.0)
    moves = ", ".join(shift_words(task, standing.shifts))
    return (
        f"of {standing.rows:,} answers lately {part} fall into other classes than of its first"
        f" {standing.first_rows:,}{f': {moves}' if moves else ''}; what is asked or who asks may"
        " have changed, which says nothing of whether they are right"
    )


def shift_words(task: Task, shifts: Iterable[Shift]) -> list[str]:
    """The shares of classes, before and now: ``3: 10 % before, 27 % now``."""
    return [
        f"{cell_name(task, one.cell)}: {percent(one.before)} before, {percent(one.now)} now"
        for one in shifts
    ]


def cell_name(task: Task, cell: int) -> str:
    """The name of a class, or of the first and the last of several that are counted as one."""
    classes = classes_in(cell, classes_of(task))
    labels = dict(enumerate(task.labels))
    first, last = (labels.get(at, str(at)) for at in (classes[0], classes[-1]))
    return first if len(classes) == 1 else f"{first} to {last}"


def percent(share: float) -> str:
    """Of answers: ``12 %``."""
    return f"{figure(100 * share)} %"
