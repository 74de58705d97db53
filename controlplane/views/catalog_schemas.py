"""What the control API sends of the catalog: tasks, models with their versions, variants, profiles.

``controlplane.views.schemas`` says how schemas relate to the types that they show.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Self

from pydantic import ConfigDict, Field

from controlplane.files.fields import MAX_LATENCY_MS
from controlplane.views.schemas import Schema
from planner.sentences import defaults_refuse
from variants.buckets import BucketedTask, positions_axis
from variants.catalog.validity.sharing import LONGEST_TTL_S, MOST_MEMORY_MIB
from variants.images import described_picture
from variants.metrics.metric import parse_metric
from variants.texts.inputs import longest_of
from variants.types import (
    DEFAULT_LATENCY_MS,
    DeviceKind,
    Digest,
    ImageScale,
    ModelVersion,
    Prefer,
    Profile,
    ProfileSource,
    Slo,
    Stage,
    Task,
    TensorSpec,
    TextInput,
)


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
    width: int
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
        description="How accuracy is counted: top1, top5, within:T, r2, cosine or nearest.",
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
            sharing=None if task.sharing is None else SharingSchema.model_validate(task.sharing),
            image=None if of_lengths else ImageSchema.of(task),
            text=TextSchema.of(task, of_lengths, tokenizers),
            lengths=None if of_lengths is None else LengthsSchema.of(of_lengths),
            bucket=None if task.bucket is None else BucketSchema.model_validate(task.bucket),
        )


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


class PointSchema(Schema):
    """Latency of a whole batch."""

    batch_size: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    error: float = Field(
        description="0 when measured; of a prediction the standard deviation of its logarithm: "
        "0.1 is about 10 % either way."
    )
    energy_j: float | None = Field(
        None, description="Joules of the batch, idle draw included; null where not measured."
    )
    live_ms: float | None = Field(
        None,
        description="What it takes now, in the mean, as workers say; null before any ran. Where "
        "little is asked most batches come after a pause, which costs time.",
    )
    live_p95_ms: float | None = Field(None, description="What 95 % of them take at most now.")
    busy_ms: float | None = Field(
        None,
        description="What it takes, in the mean, where one batch follows on another, as workers "
        "say: by that plans and the headroom count. Not more than a guess where none has yet; null "
        "before any ran.",
    )
    busy_error: float | None = Field(
        None,
        description="How sure that is: the standard deviation of its logarithm, 0.1 is about 10 % "
        "either way.",
    )


class ProfileSchema(Schema):
    """How a variant behaves on a device kind."""

    task: str
    variant: str
    device_kind: str = Field(examples=["cpu-4"])
    points: list[PointSchema]
    memory_mib: float = Field(description="What it takes as if it were alone.")
    working_mib: float | None = Field(
        None,
        description="Of the memory, what batches take while they run and variants of a worker "
        "share; null where they share none, or where that was not measured.",
    )
    host_memory_mib: float | None = Field(description="Of a variant on a GPU.")
    load_s: float = Field(description="Warm: its files and its back end are in memory.")
    cold_load_s: float | None = Field(description="The first load in a new process.")
    energy_j: float | None = Field(description="Joules per row, where they can be read.")
    source: ProfileSource = Field(description="Predicted when any of its points is.")
    host: str = Field(description="What it was measured on: processor, libraries.")
    measured_at: str
    measured_on: str = Field(
        "", description="The machine; empty where it was measured before that was kept."
    )
    beside_load: bool = Field(
        False, description="Other work took the processor meanwhile, so it is no calm measurement."
    )
    unconfirmed: bool = Field(
        False,
        description="The variant is ready on workers of the kind and none has run a batch of it.",
    )

    @classmethod
    def of(cls, profile: Profile) -> Self:
        return cls.model_validate(profile)


class DeviceSchema(Schema):
    """A device kind and its price."""

    name: str
    cores: int
    memory_mib: float
    usd_per_hour: float
    gpu: str | None
    idle_w: float | None = Field(
        None, description="Watts while nothing runs; null where that is not known."
    )
    carbon_g_per_kwh: list[float] = Field(
        default_factory=list,
        description="Grams of CO2 per kWh: one number, or 24 by hour of the day in UTC; empty "
        "where not known.",
    )

    @classmethod
    def of(cls, kind: DeviceKind) -> Self:
        return cls.model_validate(kind)


class OnDevice(Schema):
    """What a variant does on one device kind."""

    device_kind: str = Field(examples=["cpu-4"])
    p50_ms: float = Field(description="One row, median.")
    p95_ms: float = Field(description="One row.")
    live_ms: float | None = Field(
        None,
        description="What one row takes now, in the mean, as workers say; null before any ran. "
        "Where little is asked that is after a pause.",
    )
    live_p95_ms: float | None = Field(None, description="What 95 % of them take at most now.")
    unconfirmed: bool = Field(
        False,
        description="It is ready on workers and none has run a batch of it: what is refused for "
        "the sake of its profile has that checked.",
    )
    best_rows_per_s: float = Field(description="At the batch size where it is highest.")
    best_batch_size: int
    max_batch_size: int
    price_usd_per_1k: float | None = Field(
        description="Reservation price per 1,000 queries; null when the device has no price here."
    )
    energy_j: float | None = Field(
        None, description="Joules of one row, idle draw included; null where not measured."
    )
    memory_mib: float = Field(
        description="What it counts with in a worker's memory: without what variants share."
    )
    load_s: float
    source: ProfileSource
    dominated: bool = Field(
        description="Another serving variant is as accurate, as fast at every batch size and as "
        "small here, within what measuring can tell, and better in one."
    )
    stale: str | None = Field(
        None,
        description="What has changed on this machine since it was measured; null when nothing "
        "has that matters, or this machine is of another device kind.",
        examples=["onnxruntime 1.30.0 -> 1.31.1"],
    )
    gone: bool = Field(
        False,
        description="No worker of this kind is there or wanted, as after a machine was divided "
        "anew. It says nothing of `dominated` of the variant then, where others are not gone.",
    )


class VariantSchema(Schema):
    """A variant with its place on the frontier of accuracy and latency."""

    task: str
    name: str = Field(examples=["cnn-small-v1-onnx-int8"])
    model_version: str = Field(examples=["cnn-small-v1"])
    stage: Stage
    runtime: str = Field(examples=["onnx"])
    precision: str = Field(examples=["int8"])
    accuracy: float = Field(examples=[0.9833])
    accuracy_low: float | None = Field(
        description="Of its 95 % confidence interval; null where it is no share of rows."
    )
    accuracy_high: float | None
    accuracy_rows: int = Field(description="Held-out rows that it was measured on.")
    live_accuracy: float | None = Field(
        None, description="By what clients have said of its answers; null where nobody has."
    )
    live_accuracy_rows: int = Field(0, description="Rows of which they have.")
    agreement: float | None = Field(
        description="Share of these rows that it answers as the model itself does in fp32, by what"
        " the task's metric takes for the same."
    )
    note: str = Field(description="What was done to the model to get it.")
    size_bytes: int
    artifact: str
    options: dict[str, str]
    devices: list[OnDevice]
    dominated: bool = Field(description="Dominated on every device kind that it has a profile for.")
