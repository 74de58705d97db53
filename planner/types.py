"""What decisions take and return. Values in, values out.

Two things are mutable on purpose and say so: ``WorkerView`` (the gateway writes what it learns of a
worker's load into it between decisions) and nothing else. Decisions only read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

from variants.errors import Alternative
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Plan,
    Prefer,
    ReplicaState,
    Task,
    TaskName,
    VariantName,
    WorkerId,
)

TRANSPORT_MS = 0.3
"""Allowance for the way to a worker and back, unless a snapshot says otherwise."""


class LatencyTable:
    """Latency of a whole batch for every batch size, as a look-up.

    Between profiled sizes it is linear, below the smallest it is the smallest's, above the largest
    the batch is forbidden; it is made non-decreasing.
    """

    __slots__ = ("__weakref__", "_economy", "doubling", "max_batch", "ms", "points", "row_ms")

    ms: tuple[float, ...]
    """``ms[b]`` is the latency of a batch of ``b`` rows; ``ms[0]`` equals ``ms[1]``."""
    max_batch: int
    points: tuple[tuple[int, float], ...]
    """As given."""
    doubling: tuple[float, ...]
    """``doubling[k]`` is the latency of a batch of ``2**k`` rows: a lower bound up to the next."""
    row_ms: float
    """Least time per row of the given points."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        """Take (batch size, latency in ms) points, ascending by batch size, at least one."""
        self.points = tuple(points)
        table = [points[0][1]] * (points[0][0] + 1)
        for (low, low_ms), (high, high_ms) in pairwise(points):
            floor = max(low_ms, table[-1])
            ceiling = max(high_ms, floor)
            step = (ceiling - floor) / (high - low)
            table += [floor + step * rows for rows in range(1, high - low + 1)]
        self.ms = tuple(table)
        self.max_batch = len(table) - 1
        self.doubling = tuple([table[1 << k] for k in range(self.max_batch.bit_length())])
        self.row_ms = min([ms / rows for rows, ms in points])
        self._economy: Economy | None = None

    @property
    def economy(self) -> "Economy":
        """What larger batches save; looked at once, in all of the table."""
        if self._economy is None:
            self._economy = _economy(self.ms)
        return self._economy


class Economy(NamedTuple):
    """What a row takes in a batch, compared with a batch of its own."""

    unit_ms: float
    """Time of a row where it is least."""
    saving: float
    """Part of a row's time that a batch can save."""
    gains: bool
    """Whether a row can be cheaper in a larger batch."""


def _economy(table_ms: Sequence[float]) -> Economy:
    each_ms = [ms / rows for rows, ms in enumerate(table_ms) if rows]
    unit_ms = min(each_ms)
    return Economy(
        unit_ms,
        1.0 - unit_ms / each_ms[0] if each_ms[0] else 0.0,
        any(more < less * (1 - 1e-9) for less, more in pairwise(each_ms)),
    )


_TABLES: WeakValueDictionary[tuple[tuple[int, float], ...], LatencyTable] = WeakValueDictionary()


def latency_table(points: tuple[tuple[int, float], ...]) -> LatencyTable:
    """The table of these points; the same one for as long as anybody has it.

    It never changes, and profiles of a thousand batch sizes take longer to spell out than all else
    that is made of them.
    """
    table = _TABLES.get(points)
    if table is None:
        table = _TABLES[points] = LatencyTable(points)
    return table


@dataclass(slots=True, kw_only=True)
class WorkerView:
    """What a gateway knows of one worker. Written by the gateway, read by decisions."""

    id: WorkerId
    device_kind: DeviceKindName
    busy_until_ms: float = 0.0
    """When the worker is expected to have finished all it was given, on the gateway's clock."""
    free_mib: float = 0.0
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant on a device kind, with all that selection compares precomputed."""

    task: TaskName
    variant: VariantName
    model_version: str
    device_kind: DeviceKindName
    accuracy: float
    price_usd_per_1k: float
    """Reservation price: ``usd_per_hour * latency_ms(1) / 3,600``, per 1,000 queries."""
    usd_per_hour: float
    table: LatencyTable
    """Whole-batch p95, the safety margin of its source already multiplied in."""
    memory_mib: float
    load_ms: float
    canary: bool
    ready: tuple[WorkerView, ...]
    """Workers that hold it and are not draining."""
    hosts: tuple[WorkerView, ...]
    """Workers of its device kind that could load it and do not hold it."""


class Block(NamedTuple):
    """A few neighbours of a frontier with the best that any of them offers, to skip them at once.

    No member is more accurate, faster or cheaper than the block says.
    """

    accuracy: float
    latency_ms: tuple[float, ...]
    """``latency_ms[k]`` is a lower bound for batches of ``2**k`` rows and more; infinite where no
    member takes so many. As long everywhere in a task."""
    price_usd_per_1k: float
    ready: tuple[WorkerView, ...] | None
    """The workers that hold every member; None when they differ."""
    candidates: tuple[Candidate, ...]


class Shelf(NamedTuple):
    """Neighbouring blocks with the best that any of them offers: the same one level up."""

    accuracy: float
    latency_ms: tuple[float, ...]
    price_usd_per_1k: float
    ready: tuple[WorkerView, ...] | None
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task with its candidates, ordered once for each preference.

    Made by ``planner.frontier.task_view``. The frontiers hold the candidates that are ready on a
    worker, are no canary and are not dominated by another one ready on the same workers.
    """

    task: Task
    by_cost: tuple[Candidate, ...]
    """All candidates, ascending by price, then latency, then name."""
    by_accuracy: tuple[Candidate, ...]
    """Descending by accuracy, then as ``by_cost``."""
    cost_frontier: tuple[Shelf, ...]
    """In the order of ``by_cost``."""
    accuracy_frontier: tuple[Shelf, ...]
    """In the order of ``by_accuracy``."""
    latency_frontier: tuple[Shelf, ...]
    """Ascending by latency of one row, then price, then name: all of it, or, where there are few
    sets of workers, what is ready on each of them."""
    by_variant: Mapping[VariantName, tuple[Candidate, ...]]
    """The candidates of each variant, in the order of ``by_cost``: for pinned queries."""
    excluded: Mapping[VariantName, str]
    """Variants that cannot answer whatever the SLO, with the reason: their version's stage, or
    no profile."""
    accuracies: tuple[float, ...]
    """Of all candidates that are no canary, ascending, each once: the steps of SLO classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that choosing needs, in memory: rebuilt when the catalog or a worker changes."""

    revision: int
    tasks: Mapping[TaskName, TaskView]
    workers: Mapping[WorkerId, WorkerView]
    transport_ms: float = TRANSPORT_MS
    """Allowance for the way to the worker and back."""
    parts: object = field(default=None, repr=False, compare=False)
    """What it was made of, for the next one to reuse: ``planner.snapshot``'s own."""


class Query(NamedTuple):
    """One request as selection sees it."""

    task: TaskName
    rows: int
    received_ms: float
    """When its first byte arrived, on the same clock as ``now_ms``."""
    latency_ms: float
    accuracy: float | None = None
    cost: float | None = None
    prefer: Prefer = Prefer.COST
    best_effort: bool = False
    variant: VariantName | None = None
    """Pinned: only this variant may answer."""
    draw: int = 0
    """Random bits for the choice among workers, from the caller."""
    avoid: WorkerId | None = None
    """A worker that has just refused or lost this query."""


class Reason(StrEnum):
    """Why a variant was chosen; ``planner.explain`` turns it into a sentence."""

    CHEAPEST_THAT_FITS = "cheapest_that_fits"
    MOST_ACCURATE_THAT_FITS = "most_accurate_that_fits"
    EARLIEST_COMPLETION = "earliest_completion"
    PINNED = "pinned"
    LOADED_ON_DEMAND = "loaded_on_demand"
    BEST_EFFORT = "best_effort"
    PLANNED = "planned"


class Choice(NamedTuple):
    """The variant and worker picked, with the reason."""

    candidate: Candidate
    worker: WorkerView
    predicted_ms: float
    """From now to the reply, waiting included."""
    cold: bool
    """It has to be loaded first; ``predicted_ms`` includes that."""
    reason: Reason
    meets_slo: bool
    """False only under best effort."""


class RefusalCode(StrEnum):
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    VARIANT_NOT_FOUND = "NOT_FOUND"
    SLO_INFEASIBLE = "SLO_INFEASIBLE"
    COLD = "COLD"
    OVERLOADED = "OVERLOADED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing was chosen: a true reason for every variant, and what comes closest."""

    code: RefusalCode
    message: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Variant name to its reason: ``p95 31.0 ms > 20 ms``."""
    alternatives: tuple[Alternative, ...] = ()
    """At most three, nearest first."""
    load: tuple[Candidate, WorkerView] | None = None
    """With ``COLD``: what to start loading, and where."""
    retry_after_s: float | None = None


# -- the control loop ---------------------------------------------------------------------------


class Objective(StrEnum):
    COST = "cost"
    """Least price of the opened devices, with all demand served."""
    ACCURACY = "accuracy"
    """Most served, then the largest sum of rate x accuracy, then the least cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """A variant on a worker, as the worker reports it."""

    task: TaskName
    variant: VariantName
    state: ReplicaState
    memory_mib: float
    in_flight: int = 0
    idle_s: float = 0.0
    """Since its last query, or since it was loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What one worker says of itself."""

    id: WorkerId
    device_kind: DeviceKindName
    memory_mib: float
    """What it may reserve in all."""
    reserved_mib: float = 0.0
    """What loaded and loading variants have reserved."""
    draining: bool = False
    replicas: tuple[ReplicaReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Rate of one class of queries, in rows per second."""

    task: TaskName
    latency_ms: float
    accuracy: float | None
    qps: float
    slo_ms: float | None = None
    """The tightest latency SLO seen in the class, to plan for; None: ``latency_ms``, which is at
    most that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that one tick looks at."""

    catalog: CatalogSnapshot
    workers: tuple[WorkerReport, ...]
    demand: tuple[Demand, ...]
    inventory: Mapping[DeviceKindName, int]
    """How many workers of each kind there should be."""
    running: Mapping[DeviceKindName, int]
    """How many workers Ray Serve was last told to run."""
    plan: Plan | None
    now_s: float
    seed: int = 0
    objective: Objective = Objective.COST
    expected: tuple[Demand, ...] | None = None
    """What to plan for: an upper quantile of the demand over the time that a load takes. None
    where nobody forecasts; then it is ``demand``."""
    envelope: tuple[Demand, ...] | None = None
    """The most that was expected lately, by class: workers go only when even that needs fewer.
    None where nobody remembers; then it is ``expected``."""
    settled: bool = True
    """Whether demand has been watched for long enough to let workers go."""
    elastic: bool = False
    """Whether the plan decides how many workers there are, ``inventory`` being the most."""
    transport_ms: float = TRANSPORT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    worker: WorkerId
    task: TaskName
    variant: VariantName
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    worker: WorkerId
    task: TaskName
    variant: VariantName
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    device_kind: DeviceKindName
    count: int
    why: str = ""


Action = Load | Unload | Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a tick decided. ``plan.version`` and ``plan.epoch`` are 0: whoever acts fills them."""

    plan: Plan
    changed: bool
    """Whether the plan differs from the observed one and has to be stored."""
    actions: tuple[Action, ...]
    """In the order to apply: an unload that makes room comes before the load that needs it."""
