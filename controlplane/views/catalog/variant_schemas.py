"""What the control API sends of variants: their profiles, device kinds, and each variant itself."""

from typing import Self

from pydantic import Field

from controlplane.views.catalog.answer_schemas import AnswersSchema
from controlplane.views.schemas import Schema
from variants.types import DeviceKind, Profile, ProfileSource, Stage


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
        description="Reservation price per 1,000 queries, by the profile; null when the device has "
        "no price here."
    )
    live_price_usd_per_1k: float | None = Field(
        None,
        description="The same by what one row takes now, which a ceiling of cost is compared with "
        "once enough batches have run; null before any ran.",
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
        None,
        description="By what clients have said of its answers, as the task's metric counts it; null"
        " where nobody has. Where each class counts alike it is over the classes of which they have"
        " said something, or, where the task has more than 256, the share of right rows.",
    )
    live_accuracy_rows: int = Field(0, description="Rows of which they have.")
    said_accuracy: float | None = Field(
        None,
        description="The same of what was said lately, where that is something else than"
        " `accuracy`, and no chance.",
    )
    counted_accuracy: float | None = Field(
        None,
        description="What queries and plans go by in place of `accuracy`, where clients say"
        " something else and `MODELLESS_TRUST_FEEDBACK` has it count; null: they go by `accuracy`.",
    )
    answers: AnswersSchema | None = Field(
        None,
        description="How its answers are divided among the classes, first and lately; null where"
        " that is not watched, or none was given.",
    )
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
