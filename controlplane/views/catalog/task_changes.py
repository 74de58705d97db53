"""What the control API takes to change a task."""

from dataclasses import replace
from typing import Annotated

from pydantic import ConfigDict, Field

from controlplane.files.fields import MAX_LATENCY_MS
from controlplane.views.schemas import Schema
from variants.types import DEFAULT_LATENCY_MS, ImageScale, Prefer, Slo

MOST_CLASSES = 100_000


class SloChange(Schema):
    """New defaults of a task; what is left out stays, and null asks for nothing."""

    model_config = ConfigDict(extra="forbid")

    latency_ms: float = Field(
        DEFAULT_LATENCY_MS, gt=0.0, le=MAX_LATENCY_MS, description="Deadline in ms.", examples=[50]
    )
    accuracy: float | None = Field(None, ge=0.0, le=1.0, description="Floor.", examples=[0.95])
    cost: float | None = Field(
        None, ge=0.0, allow_inf_nan=False, description="Ceiling, USD per 1,000 queries."
    )
    prefer: Prefer = Field(Prefer.COST, description="What is optimised among those that fit.")

    def applied(self, slo: Slo) -> Slo:
        """These defaults, with what was given in place of what they are."""
        return replace(slo, **{name: getattr(self, name) for name in self.model_fields_set})


class LabelsSchema(Schema):
    """What the classes of a task are called."""

    model_config = ConfigDict(extra="forbid")

    labels: list[str] = Field(
        max_length=MOST_CLASSES,
        description="One for each class, in the order of its scores; empty: they have no names.",
        examples=[["cat", "dog"]],
    )


Scale = Annotated[list[float], Field(min_length=1, max_length=3)]


class ImageChange(Schema):
    """How pictures become the values of a task's input; what is left out stays."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    mean: float | Scale = Field(
        0.0,
        description="Of `(value / 255 - mean) / std` for each pixel's value: one number, or a list"
        " with one for each channel.",
        examples=[[0.485, 0.456, 0.406]],
    )
    std: float | Scale = Field(1.0, description="Likewise.", examples=[[0.229, 0.224, 0.225]])

    def applied(self, image: ImageScale | None) -> ImageScale:
        """The task's numbers, with what was given in place of what they are."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        listed = {
            name: tuple(value) if isinstance(value, list) else (value,)
            for name, value in given.items()
        }
        return replace(image or ImageScale(), **listed)


class TaskChange(Schema):
    """New defaults of a task and of its pictures, at once; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    slo: SloChange | None = None
    image: ImageChange | None = None
