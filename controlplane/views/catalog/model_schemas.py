"""What the control API sends of models and their versions, and takes to change a stage."""

from typing import Self

from pydantic import ConfigDict, Field

from controlplane.views.schemas import Schema
from variants.types import ModelVersion, Stage, TextInput


class VersionSchema(Schema):
    """One version of a model."""

    task: str = Field(examples=["digits"])
    model: str = Field(examples=["cnn-small"])
    version: int = Field(examples=[1])
    stage: Stage
    source: str = Field(description="SHA-256 of what was handed in.")
    format: str = Field(examples=["onnx"])
    created_at: str
    tokenizer: str | None = Field(
        None,
        description="SHA-256 of the tokenizer.json that reads its texts; null: it takes none.",
    )
    source_bytes: int | None = Field(
        None,
        description="Where one model is asked for; null in lists, after a change, and when the file"
        " is not in the store.",
    )
    variants: list[str] = Field(default_factory=list, examples=[["cnn-small-v1-onnx-fp32"]])

    @classmethod
    def of(
        cls,
        version: ModelVersion,
        *,
        of_task: TextInput | None,
        source_bytes: int | None = None,
        variants: list[str],
    ) -> Self:
        """``of_task``: how texts become rows of its task."""
        text = version.text or of_task
        return cls(
            task=version.task,
            model=version.model,
            version=version.version,
            stage=version.stage,
            source=version.source,
            format=version.format,
            created_at=version.created_at,
            tokenizer=None if text is None else text.tokenizer,
            source_bytes=source_bytes,
            variants=variants,
        )


class StageSchema(VersionSchema):
    """A version whose stage was set."""

    stood_back: list[str] = Field(
        default_factory=list,
        description="Versions that were live and became canaries by it, as vectors of two versions"
        " cannot be compared.",
        examples=[["encoder-v1"]],
    )


class PromotionAsked(Schema):
    """Which version is to be live; without a body, the newest."""

    model_config = ConfigDict(extra="forbid")

    version: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Its number. Null: the newest, where it is clear that this one is meant.",
        examples=[2],
    )


class ModelSchema(Schema):
    """A model with its versions, oldest first."""

    task: str
    model: str
    live: int | None = Field(description="The newest live version.")
    versions: list[VersionSchema]


class StageChange(Schema):
    """Where a version shall go: ``live`` promotes it, ``retired`` takes it out of service."""

    model_config = ConfigDict(extra="forbid")

    stage: Stage = Field(examples=["live"])
    allow_gap: bool = Field(
        False,
        description="Also where no version of the task is live then, so that queries that name no "
        "variant are refused.",
    )
