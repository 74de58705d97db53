"""What travels between gateway, controller and worker."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from hashlib import blake2b

from variants.core_time import CoreTime
from variants.types import (
    Digest,
    ReplicaState,
    TaskName,
    TensorSpec,
    VariantName,
)


def variant_id(task: str, variant: str) -> int:
    """The 64-bit name of a variant on the tensor channel, the same on both sides."""
    return int.from_bytes(blake2b(f"{task}/{variant}".encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """All a worker needs to load a variant and to predict how long its batches take."""

    task: TaskName
    variant: VariantName
    runtime: str
    artifact: Digest
    path: str
    """The artifact's path, readable on the worker's machine."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    latency: tuple[tuple[int, float], ...]
    """(batch size, p95 in ms, margin multiplied in), ascending; the last is the largest batch."""
    memory_mib: float
    load_s: float
    share: float = 0.0
    """Planned share of the worker's time for the task, in [0, 1]; 0 when nothing was planned."""
    planned_qps: float | None = None
    """Queries per second that the plan brings to it here; None: as it was told before."""
    longest_batch_ms: float | None = None
    """Planned length of the longest batch on the worker; 0: its queue decides by itself; None: as
    it was told before."""
    pinned: bool | None = None
    """Whether an operator has it stay, whatever queries ask for; None: as it was told before."""
    options: tuple[tuple[str, str], ...] = ()
    typical: tuple[tuple[int, float], ...] = ()
    """(batch size, median in ms) of the profile, to notice when it is not true any more."""
    device_kind: str = ""
    """Of the worker, or that it is measured for."""
    own_working_mib: float = 0.0
    """Of the memory: what batches take beyond what all variants of a worker share."""
    cold_load_s: float | None = None
    """Of the first load of its runtime in a process, which imports the back end; None: not
    known."""
    counts_answers: bool = False
    """Whether its first output has a score for each class, and it is to be counted which is the
    highest (``variants.metrics.answered``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    task: TaskName
    variant: VariantName
    state: ReplicaState
    memory_mib: float
    queued: int = 0
    """Queries admitted and not answered yet, the running batch included."""
    idle_s: float = 0.0
    message: str = ""
    """Why it is quarantined or damaged, or why its load failed."""
    quarantined_s: float | None = None
    """Unix time since when it is in quarantine."""
    live_ratio: float = 1.0
    """Median of observed over profiled latency."""
    batches: int = 0
    """So many went into ``live_ratio``; 0: none has run since its profile was measured or it was
    loaded."""
    checks: int = 0
    """So many batches ran since it was loaded only to check its profile."""
    latency: tuple[tuple[int, float, float], ...] = ()
    """What batches take lately: (size, mean in ms, 95th percentile in ms) of each power of two that
    ran, ascending (``planner.live_model``)."""
    busy: tuple[tuple[int, float, float], ...] = ()
    """What batches take that follow on one another, without what other variants prolong: (size,
    mean in ms, standard deviation of its logarithm), of the sizes that ran in any rhythm
    (``planner.rhythms``)."""
    busy_sure: float = 0.0
    """With how many times that mean such a batch is counted; 0 before any ran."""
    within: float | None = None
    """Share of the batches that took no longer than the 95th percentile that was predicted."""
    beside: float = 1.0
    """How many times as long its batches take beside another variant as back to back."""
    beside_batches: int = 0
    """So many that ran beside another one were compared with what ran back to back."""
    beside_ms: float = 0.0
    """What those took back to back, in the mean."""
    beside_sizes: tuple[int, ...] = ()
    """Of ``latency``, those sizes whose batches mostly ran beside another variant."""
    sure: float = 0.0
    """With how many times its mean a batch that runs alone is counted where a query is admitted; 0
    before any ran (``planner.batching.live_costs``)."""
    rate_qps: float = 0.0
    """Queries per second to expect here, from those that came (``planner.eviction.popularity``)."""
    urgent: float = 0.0
    """Share of its queries that cannot wait for its load (``planner.eviction.urgency``)."""
    rows_per_query: float = 0.0
    """How many rows its queries have, lately; 0 before any was answered."""
    asked: bool = False
    """Whether a query has asked for it since it was loaded, or was the reason to load it."""
    load_no: int = 0
    """Which load of this worker's it came from: another one after it was loaded anew."""
    loaded_for_s: float = 0.0
    """Since it is ready."""
    answered: tuple[int, ...] = ()
    """How many rows it has answered by a class of each cell since it was loaded
    (``variants.metrics.answered``); empty where that is not counted."""

    @property
    def in_flight(self) -> int:
        """What reports to decisions call ``queued``."""
        return self.queued


ASKED_S = 10.0
"""Who has sent a worker no query for so long is not one of those that do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """What a worker says of itself; sent on connect, on every change and once a second. Changes in
    quick succession are sent together where that takes long."""

    worker: str
    device_kind: str
    memory_mib: float
    reserved_mib: float
    draining: bool
    backlog_us: int
    """Predicted time until all admitted work is done."""
    busy_ratio: float
    """Share of the last seconds spent in runtimes."""
    replicas: tuple[ReplicaStatus, ...]
    pid: int = 0
    occurrences: int = 0
    """So many loads and evictions for queries since it started; the last of them are kept until
    they are told (``workers.execution.history``)."""
    evictable: tuple[tuple[float, float], ...] = ()
    """What may leave for a load, in the order in which it would: the MiB that come free, and what
    its absence would cost in seconds of loading per second (``planner.eviction.displacement``)."""
    churn_per_s: float = 0.0
    """The share of the memory that is evicted per second (``planner.eviction.churn``)."""
    eviction: str = ""
    """By which rule variants leave it where memory is short."""
    loads: int = 0
    """So many loads are over since it started."""
    loading_s: float = 0.0
    """What they took."""
    profiled_loading_s: float = 0.0
    """What they should take, by the profiles."""
    warnings: tuple[str, ...] = ()
    """What is wrong with it although it serves, one sentence each."""
    page: str = ""
    """File on its machine that says what it ran when it ended (``workers.process.last_batch``)."""
    cores: tuple[int, ...] = ()
    """Those of its machine that it keeps to, and no other worker does; none: any."""
    release: str = ""
    """Which code it runs (``workers.process.release``)."""
    clock: str = ""
    """Which clock it reads (``workers.channel.shared_clock``)."""
    borrows: bool = False
    """It takes tensors in memory that a process of its machine shares
    (``workers.channel.shared_memory``)."""
    tells_queue: bool = False
    """It tells gateways that want it of its queue (``workers.channel.queue_news``)."""
    withdraws: bool = False
    """It lets go of queries that nobody waits for any more."""
    askers: int | None = None
    """So many connections have sent it queries in the last ``ASKED_S``; None: it does not say."""
    zone: str = ""
    """Which zone its machine is in, by the label of its node; "" where it has none."""
    core_time: CoreTime | None = None
    """How the time of its machine's cores was used lately; None where that is not known."""


ZONE_LABELS = ("topology.kubernetes.io/zone", "ray.io/availability-zone")
"""Labels of a node of Ray that say its zone; the first that it has counts."""
FEW = 3
"""Lone batches that tell whether a variant is far quicker than its profile says: the first may set
things up, and what disturbs one of the others only makes it slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of checking a profile by a few lone batches; of fewer than ``FEW`` nothing follows:
    they may have been set up in, or disturbed."""

    batches: int
    """Of one row."""
    took_ms: float
    """Median of one row, without the first batch, which may set things up."""
    spent_ms: float
    """What all batches of the check took together."""
    total: int
    """Batches that the worker counts of the variant by now, as in ``ReplicaStatus.batches``."""


class OccurrenceKind(StrEnum):
    """What a worker does for a query without being told by the control loop."""

    LOADED_ON_DEMAND = "loaded_on_demand"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One load or eviction for a query."""

    seq: int
    """Ascending from 1 since the worker started."""
    kind: OccurrenceKind
    task: TaskName
    variant: VariantName
    why: str


class ReplyCode(IntEnum):
    """How an inference ended at the worker. Only ``OK`` carries tensors."""

    OK = 0
    OVERLOADED = 1
    """Refused at once: admitting it would make it, or an admitted query, late."""
    COLD = 2
    """The variant is not loaded here and no load is under way."""
    INVALID = 3
    """The tensors do not have the variant's signature."""
    FAILED = 4
    """The runtime failed on this batch, or its output was not finite."""
    DRAINING = 5
    """The worker is leaving: ask another one."""
    EXPIRED = 6
    """Admitted, but its deadline passed before it could run."""
    QUARANTINED = 7
    """The variant crashed this worker or failed twice and is kept out."""
    LOST = 8
    """The connection broke before an answer came; made by the client's side, never sent."""


def _late_share() -> float:
    # What measures a variant takes its spec from here, and would import all that plans with it.
    from planner.planning_settings import DEFAULTS

    return DEFAULTS.late_share


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How one worker is made. Carries paths, never secrets."""

    device_kind: str
    cores: int
    memory_mib: float
    run_dir: str
    """Where the worker puts its Unix socket."""
    secret_path: str
    """File (mode 0600) with the cluster secret."""
    secret_digest: str = ""
    """What the secret's own digest must be, where another process says so; empty: any secret."""
    listen: str = "unix"
    """``unix``, or ``tcp:HOST`` to listen on a free port of that address."""
    max_frame_mib: int = 64
    quarantine_dir: str = ""
    """Where crashes per variant are counted across restarts of the worker; empty: not kept."""
    batching: str = "profile"
    """A key of ``planner.batching.registry.BATCHING``."""
    late_share: float = field(default_factory=_late_share)
    """Share of the admitted queries that may be late."""
    eviction: str = "modelless"
    """A key of ``planner.eviction.registry.RULES``: what leaves when a query needs room."""
    pin_cores: bool = False
    """Whether it keeps to cores of its own (``workers.process.own_cores``)."""
    log_format: str = "text"
    """``text`` or ``json``: how its log is written."""
    zone: str = ""
    """Which zone the worker's machine is in; "" where that is not known."""
