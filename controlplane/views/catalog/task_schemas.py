"""What the control API sends of tasks: what they take and give, and who answers them.

``controlplane.views.schemas`` says how schemas relate to the types that they show.
"""

from collections.abc import Iterable
from typing import Self

from pydantic import ConfigDict, Field

from controlplane.views.catalog.answer_schemas import unwatched
from controlplane.views.schemas import Schema
from planner.sentences import defaults_refuse
from variants.buckets import BucketedTask, positions_axis
from variants.catalog.validity.sharing import LONGEST_TTL_S, MOST_MEMORY_MIB
from variants.images import described_picture
from variants.metrics.metric import parse_metric
from variants.texts.inputs import longest_of
from variants.types import Digest, ImageScale, Prefer, Slo, Task, TensorSpec


class TensorSchema(Schema):
    """One input or output; the shape is of one row."""

    name: str = Field(examples=["pixels"])
    dtype: str = Field(examples=["float32"])
    shape: list[int] = Field(examples=[[64]])

    @classmethod
    def of(cls, spec: TensorSpec) -> Self:
        return cls(name=spec.name, dtype=spec.dtype, shape=list(spec.shape))


class SloSchema(Schema):
    """What a query needs; null asks for nothing."""

    latency_ms: float = Field(examples=[50.0])
    accuracy: float | None = Field(examples=[0.95])
    cost: float | None = Field(description="USD per 1,000 queries.")
    prefer: Prefer

    @classmethod
    def of(cls, slo: Slo) -> Self:
        return cls.model_validate(slo)


class SharingSchema(Schema):
    """Equal queries get one answer, within these limits."""

    model_config = ConfigDict(from_attributes=True, extra="forbid")

    ttl_s: float = Field(
        ge=0.0,
        le=LONGEST_TTL_S,
        description="How long an answer is given again; 0: only queries in flight share a run.",
        examples=[60.0],
    )
    memory_mib: float = Field(
        64.0,
        gt=0.0,
        le=MOST_MEMORY_MIB,
        description="What each gateway keeps of the task's answers at most.",
    )


class TextSchema(Schema):
    """What becomes of texts that are the rows of a query."""

    tokenizer: str = Field(description="SHA-256 of its tokenizer.json.")
    others: list[str] = Field(
        default_factory=list,
        description="SHA-256 of those of live and canary versions that have their own. Where there"
        " are any, numbers of tokens are taken only in queries that name a variant.",
    )
    tokens: int = Field(
        description="That a text has at most, with those that its model wants before and behind"
        " it; longer ones are refused, or cut off where a query says so.",
        examples=[256],
    )
    pairs: bool | None = Field(
        description="Whether a row is a pair of texts, as those were by which the first model was"
        " judged; null: that is not known, and both are taken.",
    )
    ids: str = Field(description="The input that gets their numbers.", examples=["input_ids"])
    mask: str | None = Field(examples=["attention_mask"])
    types: str | None = Field(examples=["token_type_ids"])

    @classmethod
    def of(
        cls, task: Task, of_lengths: BucketedTask | None, others: Iterable[Digest]
    ) -> Self | None:
        """None where no texts are taken.

        Args:
            others: the tokenizers of versions that have their own.
        """
        text = task.text
        if text is None:
            return None
        return cls(
            tokenizer=text.tokenizer,
            others=sorted({*others} - {text.tokenizer}),
            tokens=longest_of(task) if of_lengths is None else of_lengths.lengths[-1],
            pairs=text.pairs,
            ids=text.ids,
            mask=text.mask,
            types=text.types,
        )


class ImageSchema(Schema):
    """What becomes of a picture that is the body of a query."""

    height: int = Field(description="It is stretched to that.", examples=[8])
    width: int = Field(
        description="The same; -1: it keeps its form, and may be as wide as the longest of"
        " `lengths`.",
        examples=[8],
    )
    channels: int = Field(description="1: grey; 3: red, green, blue.")
    mean: list[float] | None = Field(
        description="Of `(value / 255 - mean) / std`, one number or one for each channel; null"
        " where the input is of whole numbers and gets the values from 0 to 255.",
        examples=[[0.0]],
    )
    std: list[float] | None = Field(examples=[[0.0625]])

    @classmethod
    def of(cls, task: Task) -> Self | None:
        """None where no pictures are expected."""
        found = described_picture(task)
        if found is None:
            return None
        spec, geometry = found
        scaled = spec.dtype.startswith("float")
        image = task.image or ImageScale()
        return cls(
            height=geometry.height,
            width=geometry.width,
            channels=geometry.channels,
            mean=list(image.mean) if scaled else None,
            std=list(image.std) if scaled else None,
        )


class OpenAxisSchema(Schema):
    """An axis along which rows are filled up."""

    input: str = Field(examples=["ids"])
    axis: int = Field(description="Of one row, from 0.", examples=[0])
    pad: float = Field(description="What fills up.", examples=[0.0])


class FollowingAxisSchema(Schema):
    """An axis along which an output is as long as the rows, or a fixed part of that: of a row of
    length n, ``(n + offset) // step``."""

    output: str = Field(examples=["tags"])
    axis: int = Field(description="Of one row, from 0.", examples=[0])
    step: int = Field(description="So many of a row make one of the output.", examples=[1])
    offset: int = Field(description="What counts beside a row's length.", examples=[0])


class BucketSchema(Schema):
    """What makes a task one for rows of up to a length."""

    of: str = Field(description="The name that clients ask.", examples=["sentiment"])
    length: int = Field(examples=[64])
    axes: list[OpenAxisSchema]
    outputs: list[FollowingAxisSchema]


class LengthsSchema(Schema):
    """A task for rows of several lengths: which tasks answer, and how rows are filled up."""

    buckets: dict[int, str] = Field(
        description="Lengths to the tasks that answer rows of up to that, ascending.",
        examples=[{16: "sentiment.16", 64: "sentiment.64"}],
    )
    axes: list[OpenAxisSchema] = Field(description="Where the task's inputs have -1.")
    outputs: list[FollowingAxisSchema] = Field(
        description="Where its outputs have -1: they are as long as each row, or a fixed part of"
        " that."
    )

    @classmethod
    def of(cls, task: BucketedTask) -> Self:
        names = (one.name for one in task.buckets)
        return cls(
            buckets=dict(zip(task.lengths, names, strict=True)),
            axes=[OpenAxisSchema.model_validate(axis) for axis in task.axes],
            outputs=[FollowingAxisSchema.model_validate(axis) for axis in task.following],
        )


class TaskSchema(Schema):
    """What can be asked for."""

    name: str = Field(examples=["digits"])
    inputs: list[TensorSchema]
    outputs: list[TensorSchema]
    labels: list[str] = Field(description="Classes of the first output; empty when it has none.")
    metric: str = Field(
        description="How accuracy is counted: top1, top5, balanced, f1, within:T, r2, cosine or"
        " nearest.",
        examples=["top1"],
    )
    accuracy_means: str = Field(
        description="What an accuracy of its variants is, in a clause.",
        examples=["share of the rows whose highest score is that of the right class"],
    )
    slo: SloSchema = Field(description="What holds when a query names nothing.")
    models: int = Field(description="Models that were trained for it.")
    variants: int = Field(description="Variants of canary and live versions.")
    live_variants: int = Field(
        description="Of them those of live versions, which answer queries that name no variant."
    )
    best_accuracy: float | None = Field(description="Of a live variant; null without any.")
    unanswered: str = Field(
        "",
        description="Why queries that name neither a variant nor an accuracy are refused: no "
        "version is live, or none is as accurate as `slo` asks for; empty where they are answered.",
    )
    contradicted: list[str] = Field(
        default_factory=list,
        description="Variants of which clients say something else than was measured: "
        "`said_accuracy` of each has it.",
    )
    answers_changed: list[str] = Field(
        default_factory=list,
        description="Variants whose answers are divided among the classes otherwise than their"
        " first ones were: `answers` of each says how. That is no error.",
    )
    answers_differ: list[str] = Field(
        default_factory=list,
        description="Variants whose first answers are divided otherwise than those to the held-out"
        " rows: clients ask another mix of classes.",
    )
    answers_unwatched: str = Field(
        "", description="Why nothing is said of how answers are divided; empty where it is."
    )
    sharing: SharingSchema | None = Field(
        None, description="How equal queries share answers; null: every query is run."
    )
    image: ImageSchema | None = Field(
        None, description="What becomes of a picture as a query; null: none are expected."
    )
    text: TextSchema | None = Field(
        None, description="What becomes of texts as rows; null: none are taken."
    )
    lengths: LengthsSchema | None = Field(
        None, description="Where rows may differ in length; null: all have one."
    )
    bucket: BucketSchema | None = Field(
        None, description="Where the task is one of these; null: it is none."
    )

    @classmethod
    def of(
        cls,
        task: Task,
        *,
        models: int,
        variants: int,
        live_variants: int,
        best_accuracy: float | None,
        of_lengths: BucketedTask | None = None,
        tokenizers: Iterable[Digest] = (),
    ) -> Self:
        """
        Args:
            of_lengths: the buckets, where ``task`` is their face.
            tokenizers: those of versions that have their own.
        """
        return cls(
            name=task.name,
            inputs=[TensorSchema.of(spec) for spec in task.inputs],
            outputs=[TensorSchema.of(spec) for spec in task.outputs],
            labels=list(task.labels),
            metric=task.metric,
            accuracy_means=parse_metric(task.metric).means(
                by_position=positions_axis(task) is not None
            ),
            slo=SloSchema.of(task.slo),
            models=models,
            variants=variants,
            live_variants=live_variants,
            best_accuracy=best_accuracy,
            unanswered=defaults_refuse(live_variants, best_accuracy, task.slo.accuracy),
            answers_unwatched=unwatched(task),
            sharing=None if task.sharing is None else SharingSchema.model_validate(task.sharing),
            image=ImageSchema.of(task),
            text=TextSchema.of(task, of_lengths, tokenizers),
            lengths=None if of_lengths is None else LengthsSchema.of(of_lengths),
            bucket=None if task.bucket is None else BucketSchema.model_validate(task.bucket),
        )
