"""The nouns, each written once with its unit.

All types are frozen, slotted, keyword-only values. A number's name ends in its unit:
``_ms``, ``_s``, ``_mib``, ``_qps``, ``_usd_per_h``. Rates and shares have none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

TaskName = NewType("TaskName", str)
ModelName = NewType("ModelName", str)
VariantName = NewType("VariantName", str)
VariantKey = tuple[TaskName, VariantName]
"""A variant by its task and its name, which is unique in the task."""
WorkerId = NewType("WorkerId", str)
DeviceKindName = NewType("DeviceKindName", str)
Digest = NewType("Digest", str)
"""SHA-256 of an artifact's bytes, 64 lower-case hexadecimal digits."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
"""What a task, model or variant may be called; use ``NAME.fullmatch``."""

DEFAULT_LATENCY_MS = 1_000.0
PROFILE_BATCH_SIZES = (1, 2, 4, 8, 16, 32)


class Prefer(StrEnum):
    """What is optimised when several variants satisfy the SLO."""

    COST = "cost"
    ACCURACY = "accuracy"
    LATENCY = "latency"
    ENERGY = "energy"


class Stage(StrEnum):
    """The stage of a model version. Only canary and live versions answer queries."""

    CANDIDATE = "candidate"
    CANARY = "canary"
    LIVE = "live"
    RETIRED = "retired"


class Precision(StrEnum):
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


class ProfileSource(StrEnum):
    """Whether a profile was measured on the device kind, predicted by a cost model, or given."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    EXACT = "exact"
    """From a planning file: true by definition, so no margin is added."""


class ReplicaState(StrEnum):
    """The state of a variant on a worker."""

    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    """Its last load failed; it is tried again later."""
    DAMAGED = "damaged"
    """Its artifact is missing or not what was registered; it is tried again when that changes."""

    @property
    def kept_out(self) -> bool:
        """Whether it is not loaded there and would not load now."""
        return self in _KEPT_OUT


_KEPT_OUT = (ReplicaState.QUARANTINED, ReplicaState.FAILED, ReplicaState.DAMAGED)
"""A tuple: in a set of so few, hashing a member takes longer than comparing it with all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of a task; ``shape`` is of one row, the batch axis left out."""

    name: str
    dtype: str
    """A numpy name: ``float32``, ``float64``, ``int64``, ``int32``, ``uint8`` or ``bool``."""
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a query needs. ``None`` asks for nothing."""

    latency_ms: float = DEFAULT_LATENCY_MS
    """Deadline, end to end, from the first byte received to the reply handed to the socket."""
    accuracy: float | None = None
    """Floor in [0, 1] on a variant's measured accuracy."""
    cost: float | None = None
    """Ceiling on the reservation price, USD per 1,000 queries."""
    prefer: Prefer = Prefer.COST


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How equal queries of a task share answers, where an operator has allowed that."""

    ttl_s: float
    """How long an answer is given again; 0: only queries in flight share."""
    memory_mib: float
    """What each gateway keeps of the task's answers at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageScale:
    """How the pixels of a picture become the values of a task's input of floats:
    ``(value / 255 - mean) / std``, with one number of each for all channels or one for each."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


TYPE_UNIT = 2**24
"""What the type of a token counts, where it stands beside the number of the token in one number. No
vocabulary is as large, and an INT32 holds types up to 127."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInput:
    """How a text becomes a row of a task's inputs: numbers of tokens, by its tokenizer."""

    tokenizer: Digest
    """Of the bytes of its ``tokenizer.json``, which the catalog keeps."""
    ids: str
    """The input that takes the numbers of tokens."""
    mask: str | None = None
    """The input that has 1 for each token, and 0 behind the end of a row."""
    types: str | None = None
    """The input that has 0 for each token of a text, and 1 for those of a second one beside it."""
    pad: int = 0
    """The number of a token that fills ``ids`` up."""
    pairs: bool | None = None
    """Whether rows are pairs of texts, as those are by which its first model was judged; None where
    that is not known."""
    packed_types: bool = False
    """Whether the types of tokens go into ``ids``, for a version that takes them of a task that
    lacks them: ``TYPE_UNIT`` for each beside the number of the token."""

    @property
    def way(self) -> str:
        """What texts become rows by, as one word: equal ones give equal rows."""
        return f"{self.tokenizer} with types" if self.packed_types else self.tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAxis:
    """The axis of an input along which rows differ in length, and what fills short ones up."""

    input: str
    axis: int
    """Of one row, the batch axis left out."""
    pad: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingAxis:
    """The axis of an output that is as long as the rows, or a fixed part of that: a label or a
    vector for each position, or for each few of them."""

    output: str
    axis: int
    """Of one row, the batch axis left out."""
    step: int = 1
    """So many positions of a row make one of the output."""
    offset: int = 0
    """What counts beside a row's length, as an operator without padding or one that rounds up
    has it."""

    def size(self, length: int) -> int:
        """How long the output is for a row of a length."""
        return max(0, (length + self.offset) // self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBucket:
    """What makes a task the one for rows of up to a length, of several such tasks.

    Clients ask the name that all of them share. A query goes to the shortest bucket that holds its
    rows, filled up to the bucket's length.
    """

    of: TaskName
    """The name that clients ask; no task has it."""
    length: int
    axes: tuple[OpenAxis, ...]
    """One for each input that has such an axis, in the order of the inputs."""
    outputs: tuple[FollowingAxis, ...] = ()
    """One for each output that is as long as the rows, or a part of that, in the order of the
    outputs. What answers a row is cut back to the row's own length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What can be asked for: a name, a signature, a metric and default needs."""

    name: TaskName
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    labels: tuple[str, ...] = ()
    """Names of the classes of the first output, in its order; empty when it has none."""
    metric: str = "top1"
    """What accuracy is: ``str`` of a ``variants.metrics.metric.Metric``."""
    slo: Slo = Slo()
    sharing: Sharing | None = None
    """None: every query is run."""
    image: ImageScale | None = None
    """Where somebody has said how its model wants pictures; None: as ``ImageScale()``, if it takes
    any."""
    bucket: LengthBucket | None = None
    """Where it is one of several tasks for rows of several lengths."""
    text: TextInput | None = None
    """Where its rows may be asked as texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """An architecture trained for a task: one immutable source artifact."""

    task: TaskName
    model: ModelName
    version: int
    stage: Stage
    source: Digest
    """The artifact as it was handed in, before any variant was built from it."""
    format: str = "onnx"
    created_at: str = ""
    """ISO 8601, UTC."""
    text: TextInput | None = None
    """How texts become its rows where another tokenizer does it than the task's. Its inputs are
    called as the task's are. None: as the task says."""

    @property
    def label(self) -> str:
        """How the version is named in replies and variant names: ``cnn-small-v1``."""
        return f"{self.model}-v{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Model version x runtime x precision: one artifact that can be loaded."""

    task: TaskName
    name: VariantName
    model: ModelName
    version: int
    runtime: str
    """A key of the runtime registry: ``onnx``, ``echo``."""
    precision: Precision
    artifact: Digest
    size_bytes: int
    accuracy: float
    """By the task's metric, measured on ``accuracy_rows`` held-out rows, in [0, 1]."""
    accuracy_rows: int
    options: Mapping[str, str] = field(default_factory=dict)
    """What else makes the variant, for its runtime: ``threads``, ``precision``, ``provider``, ...

    ``threads`` is how many compute one batch; without it, all that the worker has. An echo variant
    has its latency here.
    """
    agreement: float | None = None
    """Share of the held-out rows that it answers as the model itself does in fp32, in [0, 1]. What
    counts as the same depends on the metric: ``variants.metrics.scoring.agreement``."""
    note: str = ""
    """A clause from its builder: which nodes kept their precision, how much was pruned."""

    @property
    def key(self) -> tuple[TaskName, VariantName]:
        return (self.task, self.name)

    @property
    def model_version(self) -> str:
        return f"{self.model}-v{self.version}"

    @property
    def gpu(self) -> bool:
        """Whether it runs on GPUs only; all others run on CPUs only."""
        return self.runtime == "tensorrt" or "provider" in self.options

    def runs_on(self, kind: "DeviceKind") -> bool:
        """Whether it has business on a device kind.

        With fewer threads it is another variant only where there are more cores than that.
        """
        if self.gpu != (kind.gpu is not None):
            return False
        return self.gpu or int(self.options.get("threads", 0)) < kind.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """Latency of one whole batch of ``batch_size`` rows."""

    batch_size: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    error: float = 0.0
    """0 when it was measured; of a predicted point the standard deviation of its logarithm, so that
    0.1 means about 10 % either way."""
    energy_j: float | None = None
    """Joules that the device takes while it runs such a batch, its idle draw included; None where
    that was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a variant behaves on a device kind: the only thing the planner knows of cost."""

    task: TaskName
    variant: VariantName
    device_kind: DeviceKindName
    points: tuple[LatencyPoint, ...]
    """Ascending by batch size; a batch above the last is forbidden."""
    memory_mib: float
    """Memory that it takes of the device: the GPU's, or the CPU worker's, as if it were alone."""
    load_s: float
    """Warm: its files are in the system's cache and its back end is imported."""
    source: ProfileSource = ProfileSource.MEASURED
    """Predicted when any of its points is."""
    host: str = ""
    """Fingerprint of the machine and library versions it was measured with."""
    measured_at: str = ""
    """ISO 8601, UTC."""
    measured_on: str = ""
    """The machine that it was measured on, as its host name, and its address on a cluster."""
    beside_load: bool = False
    """Whether other work took the processor while it was measured, and no calm moment was found."""
    cold_load_s: float | None = None
    """The first load in a new process, the import of its back end included."""
    host_memory_mib: float | None = None
    """Memory that a variant on a GPU takes of the host."""
    energy_j: float | None = None
    """Joules per row at the batch size of the highest throughput, where they can be read."""
    working_mib: float | None = None
    """Of ``memory_mib``: what batches take while they run, where the variants of a worker share
    that (``variants.working_memory``)."""
    live: bool = False
    """Its latencies are those that workers see now: to decide by, not to be kept."""
    busy: tuple[tuple[int, float], ...] = ()
    """Of one that plans are made by: (batch size, ms) of each point, what a batch is counted with
    on a worker where one follows on another. Empty where workers have not told it apart."""
    busy_error: float = 0.0
    """How sure that is: the standard deviation of the logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingRequest:
    """A request to measure a profile again; it is removed once that was done."""

    task: TaskName
    variant: VariantName
    device_kind: DeviceKindName
    reason: str
    """One sentence: what was seen."""
    at: str = ""
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineLift:
    """The word of an operator that a variant is in order: quarantines that began by then end."""

    task: TaskName
    variant: VariantName
    at_s: float
    """Unix time."""


class RuleKind(StrEnum):
    """What an operator may say of what is loaded, beside the stages of versions."""

    PIN = "pin"
    """So many workers hold the variant, whatever else is asked for."""
    FORBID = "forbid"
    """The variant answers nothing and is loaded nowhere."""
    FREEZE = "freeze"
    """The plan stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A word of an operator that holds until it is taken back. There is one of each kind for a
    variant and a device kind, and one freeze."""

    kind: RuleKind
    task: TaskName = TaskName("")
    """Empty, as ``variant`` is, for a freeze."""
    variant: VariantName = VariantName("")
    device_kind: DeviceKindName = DeviceKindName("")
    """Only on workers of this kind; empty: on any."""
    replicas: int = 1
    """Of a pin: how many workers hold the variant at least."""
    at_s: float = 0.0
    """Unix time since when it holds, or was changed."""
    until_s: float | None = None
    """Of a freeze: Unix time when it ends by itself; None: never."""
    by: str = ""
    """Who said it, by their own account."""
    why: str = ""
    id: int = 0
    """Given by the catalog; ascending."""

    @property
    def key(self) -> VariantKey:
        return (self.task, self.variant)

    @property
    def subject(self) -> tuple[RuleKind, TaskName, VariantName, DeviceKindName]:
        """What there is only one rule about."""
        return (self.kind, self.task, self.variant, self.device_kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """The shape of a slice of hardware, as one worker owns it."""

    name: DeviceKindName
    cores: int
    memory_mib: float
    """Memory that variants may take together on one worker of this kind."""
    usd_per_hour: float
    gpu: str | None = None
    idle_w: float | None = None
    """Watts of one worker while nothing runs on it; None where that is not known."""
    carbon_g_per_kwh: tuple[float, ...] = ()
    """Grams of CO2 for a kWh where it stands: one number, or 24 for the hours of the day in UTC.
    Empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The share of a task's queries by which a canary version proves itself. A task has one."""

    task: TaskName
    model: ModelName
    version: int
    share: float
    """Of the queries that name no variant, in [0, 1]; 0: it was ended, and ``ended`` says why."""
    after: int = 1_000
    """Queries that it has to have been given before it can be found good."""
    promote: bool = False
    """Whether it becomes live by itself once it was found good."""
    number: int = 0
    """Given by the catalog: the revision that set it. What is counted of it stands under this."""
    set_at: str = ""
    """ISO 8601, UTC."""
    ended: str = ""
    """Why the control loop has ended it, in one sentence; empty while it goes on."""

    @property
    def label(self) -> str:
        """How its version is named: ``cnn-small-v2``."""
        return f"{self.model}-v{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Everything that one registration adds; the catalog takes it whole or not at all."""

    task: Task
    version: ModelVersion
    variants: tuple[Variant, ...]
    profiles: tuple[Profile, ...]
    device_kinds: tuple[DeviceKind, ...] = ()
    tokenizer: bytes | None = None
    """The ``tokenizer.json`` that the version names, or else the task, where it may be new to the
    catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSnapshot:
    """The whole catalog at one revision. Tuples are ordered by name."""

    revision: int
    tasks: tuple[Task, ...] = ()
    versions: tuple[ModelVersion, ...] = ()
    variants: tuple[Variant, ...] = ()
    profiles: tuple[Profile, ...] = ()
    device_kinds: tuple[DeviceKind, ...] = ()
    rules: tuple[Rule, ...] = ()
    """What operators said of what is loaded, by id."""
    canaries: tuple[Canary, ...] = ()
    """One for each task that has one, and the last one where the control loop has ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A variant on a worker with a share of its time."""

    worker: WorkerId
    task: TaskName
    variant: VariantName
    share: float
    """Planned fraction of the worker's time, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A part of an SLO class of queries that the plan gives to a replica."""

    task: TaskName
    latency_ms: float
    accuracy: float | None
    """Floor of the class."""
    variant: VariantName
    worker: WorkerId
    batch_size: int
    """The batch size that the replica is expected to run at."""
    qps: float
    pinned: bool = False
    """For queries that are pinned to the variant, or whose texts other models do not hold; others
    do not follow it."""
    slo_ms: float | None = None
    """The latency SLO by which the worker goes: where plans are for accuracy, the tightest in the
    class at that time; None: ``latency_ms``, which is at most that."""

    @property
    def tightest_ms(self) -> float:
        """The latency SLO by which the worker goes."""
        return self.slo_ms or self.latency_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A versioned set of placements plus worker counts, with its explanation."""

    version: int
    epoch: int
    """Leadership under which it was made; an older epoch cannot overwrite a newer plan."""
    placements: tuple[Placement, ...]
    workers: Mapping[DeviceKindName, int]
    explanation: tuple[str, ...] = ()
    created_at: str = ""
    routes: tuple[Route, ...] = ()
    """How the demand is divided, ordered by task, class, variant and worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A known time of more demand than usual, as an operator declares it.

    Times are Unix time in seconds; in a simulation, seconds from its beginning.
    """

    start_s: float
    end_s: float
    task: TaskName | None = None
    """None: all tasks."""
    factor: float | None = None
    """So many times the demand that is expected when the peak comes; or else ``qps``."""
    qps: float | None = None
    """So many rows per second of the task."""
    every_s: float = 0.0
    """It comes again after so many seconds, without an end; 0: it comes once."""
    note: str = ""
    id: int = 0
    """Given by the catalog; ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """One turn of the control loop, kept for reading: the dashboard's "why"."""

    plan_version: int
    at: str
    body: Mapping[str, Any]
    """Observation, demand, actions and explanation as plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened and that an operator may ask about later."""

    at: str
    kind: str
    """``loaded``, ``worker_lost``, ``gateway_started``, ...; docs/reference.md has all of them."""
    subject: str
    message: str
    seq: int = 0
    """Given by the catalog; ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events are asked for: those that all of these fit that are said."""

    after: int = 0
    """Only those with a higher ``seq``."""
    kinds: frozenset[str] = frozenset()
    """One of these kinds; empty: any."""
    since: str = ""
    """At this time or later, in ISO 8601 and UTC; compared as text, to the second."""
    tasks: frozenset[str] = frozenset()
    """Of one of these tasks, or of a model or variant of one; empty: of any."""
    worker: str = ""
    """Of this worker, or of a variant on it."""

    def fits(self, event: "Event") -> bool:
        """Whether an event is asked for."""
        subject, worker = event.subject, self.worker
        task = subject.partition("/")[0]
        return (
            event.seq > self.after
            and (not self.kinds or event.kind in self.kinds)
            and event.at >= self.since
            and (not self.tasks or task in self.tasks)
            and (not worker or subject == worker or subject.endswith(f" on {worker}"))
        )


ALL_EVENTS = EventFilter()
