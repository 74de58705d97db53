"""How the answers of a variant are divided among the classes, as the control API sends it.

The control loop tells it (``controlplane.controller.watched_answers``).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, ValidationError

from controlplane.views.schemas import Schema
from variants.metrics.answered import classes_of
from variants.types import Task, TaskName, VariantKey, VariantName


class ClassShift(Schema):
    """The share of the answers that are of one class."""

    classes: str = Field(
        description="Its name, or those of the first and the last of several that are counted as"
        " one.",
        examples=["3"],
    )
    before: float = Field(description="The share that it is compared with, in [0, 1].")
    now: float


class AnswersSchema(Schema):
    """How the answers of a variant are divided among the classes. It says nothing of whether they
    are right."""

    rows: int = Field(description="Lately: in the span that is over and in the one since.")
    first_rows: int = Field(description="Of the first answers, which all later ones are held to.")
    complete: bool = Field(
        description="Whether these are all: those of `MODELLESS_ANSWERS_SPAN_S`, and 2,000 at"
        " least. Nothing is compared before."
    )
    moved: float | None = Field(
        description="The part of the answers that lately falls into other classes than the first"
        " ones did, without what chance would move; null before there are others."
    )
    changed: bool = Field(description="Whether that is at least 0.05, and no chance.")
    since_s: float | None = Field(
        None,
        description="When the control loop found the change that goes on, in Unix time; null"
        " without one.",
        examples=[1795766400.0],
    )
    shifts: list[ClassShift] = Field(description="The classes whose share has moved most.")
    from_held_out: float | None = Field(
        description="The part of the first answers that falls into other classes than those to the"
        " held-out rows; null where either is not known."
    )
    differs: bool = Field(
        description="Whether that is at least 0.05, and no chance: clients ask another mix of"
        " classes than the rows that accuracy was measured on have."
    )
    differences: list[ClassShift] = Field(description="Where it is most.")


def read_answers(told: Iterable[Any]) -> dict[VariantKey, AnswersSchema]:
    """What the control loop told of each variant; nothing where it is something else."""
    try:
        return {
            (TaskName(one["task"]), VariantName(one["variant"])): AnswersSchema.model_validate(one)
            for one in told
            if isinstance(one, Mapping)
        }
    except (KeyError, TypeError, ValidationError):
        return {}


def unwatched(task: Task) -> str:
    """Why nothing is said of how the answers to a task are divided; empty where it is."""
    if classes_of(task):
        return ""
    return "its answers are no classes of whole rows"
