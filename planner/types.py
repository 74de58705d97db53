"""The values that decisions take and return.

All of them are immutable except ``WorkerView``: between decisions, the gateway writes into it what
it learns of a worker's load. Decisions only read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from planner.energy import EnergyCurve
from planner.eviction.displacement import Ladder, Rung
from planner.eviction.query_rates import QueryRates
from planner.latency_table import LatencyTable
from planner.worker_starts import Wanted
from planner.zone_demand import NOWHERE, ZoneDemand
from variants.errors import Alternative
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Plan,
    Prefer,
    ReplicaState,
    Task,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)

ProfileKey = tuple[TaskName, VariantName, DeviceKindName]
"""Which profile: a variant of a task on a device kind."""

TRANSPORT_MS = 0.3
"""Allowance for the way to a worker and back, unless a snapshot says otherwise."""
RETURN_MS = 0.2
"""Kept back from what a worker may use: the reply's way home and its encoding."""


@dataclass(slots=True, kw_only=True)
class WorkerView:
    """What a gateway knows of one worker. Written by the gateway, read by decisions."""

    id: WorkerId
    device_kind: DeviceKindName
    busy_until_ms: float = 0.0
    """When the worker is expected to have finished all it was given, on the gateway's clock."""
    free_mib: float = 0.0
    draining: bool = False
    loading: tuple[tuple[TaskName, VariantName], ...] = ()
    """What it loads, and then what it will load after that."""
    evictable: Ladder = ()
    """What may leave it for a load, in the order in which it would, and what that would cost."""
    churn_per_s: float = 0.0
    """The share of its memory that is evicted per second (``planner.eviction.churn``)."""
    beyond_ms: float = 0.0
    """What answers took lately beyond their time at the worker, as the worker has it: the way there
    and back, and whatever keeps its process from running."""
    answers: int = 0
    """That came from it."""
    zone: str = ""
    """Which zone its machine is in, as it says."""
    round_trip_ms: float = 0.0
    """To it and back, as measured; 0 where that is noise, as on one machine."""
    return_ms: float = RETURN_MS
    """Kept back from the time that a query has left when it is sent."""


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
    """Workers that hold it and are not draining. Equal sets are the same tuple."""
    hosts: tuple[WorkerView, ...]
    """Workers of its device kind that could load it and do not hold it."""
    unloadable: str = ""
    """Why it cannot be loaded, where a worker of its device kind has tried and says so."""
    energy: EnergyCurve | None = None
    """Joules of whole batches; None where they were not measured."""
    footprint: float = inf
    """Of one row in a batch of its own: joules, or grams of CO2 where every device kind says what
    its energy emits. Infinite where it was not measured: it comes after all that were."""


class FrontierLeaf(NamedTuple):
    """The lower level of a frontier index: neighbouring candidates and bounds for all of them.

    No candidate is more accurate, faster or cheaper than the bounds, so that a search can skip all
    of them after one comparison.
    """

    accuracy: float
    latency_ms: tuple[float, ...]
    """``latency_ms[k]`` is a lower bound for batches of ``2**k`` rows and more; infinite where no
    member takes so many. As long everywhere in a task."""
    price_usd_per_1k: float
    ready: tuple[WorkerView, ...] | None
    """The workers that hold every member; None when they differ."""
    candidates: tuple[Candidate, ...]


class FrontierBranch(NamedTuple):
    """The upper level of a frontier index: neighbouring leaves and bounds for all of them."""

    accuracy: float
    latency_ms: tuple[float, ...]
    price_usd_per_1k: float
    ready: tuple[WorkerView, ...] | None
    leaves: tuple[FrontierLeaf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task with its candidates, ordered once for each preference.

    Made by ``planner.selection.frontier_index.task_view``. The frontiers hold the candidates that
    are ready on a worker, are no canary and are not dominated by another one ready on the same
    workers.
    """

    task: Task
    by_cost: tuple[Candidate, ...]
    """All candidates, ascending by price, then latency, then name."""
    by_accuracy: tuple[Candidate, ...]
    """Descending by accuracy, then as ``by_cost``."""
    cost_frontier: tuple[FrontierBranch, ...]
    """In the order of ``by_cost``."""
    accuracy_frontier: tuple[FrontierBranch, ...]
    """In the order of ``by_accuracy``."""
    latency_frontier: tuple[FrontierBranch, ...]
    """Ascending by latency of one row, then price, then name: all of it, or, where there are few
    sets of workers, what is ready on each of them."""
    by_energy: tuple[Candidate, ...]
    """Ascending by footprint, then as ``by_cost``: as that where nothing was measured."""
    energy_frontier: tuple[FrontierBranch, ...]
    """In the order of ``by_energy``."""
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
    kinds: frozenset[DeviceKindName] = frozenset()
    """The device kinds of the workers that do not drain."""
    transport_ms: float = TRANSPORT_MS
    """Allowance for the way to the worker and back."""
    wanted: Wanted = field(default_factory=Wanted)
    """For refusals while a worker is missing."""
    unconfirmed: frozenset[ProfileKey] = frozenset()
    """Profiles of what is ready and has run no batch yet: what is refused for their sake has them
    checked (``planner.doubtful_profiles``)."""
    asked: QueryRates[VariantKey] = field(default_factory=QueryRates, repr=False, compare=False)
    """What queries ask for. The caller counts them in it; decisions only read its rates."""
    parts: object = field(default=None, repr=False, compare=False)
    """What it was made of, for ``planner.selection.snapshot`` to reuse in the next one."""


class Client(NamedTuple):
    """Who asks, as far as fairness needs to know: by the name of a key, never the key."""

    name: str = ""
    weight: float = 1.0
    """Its share is in proportion to this."""


ANYBODY = Client()
"""All who ask without a key of their own."""
DEFAULT_PRIORITY = 100
"""Of a query that names none."""


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
    priority: int = DEFAULT_PRIORITY
    """1 is the highest."""
    client: Client = ANYBODY


class Reason(StrEnum):
    """Why a variant was chosen."""

    CHEAPEST_THAT_FITS = "cheapest_that_fits"
    MOST_ACCURATE_THAT_FITS = "most_accurate_that_fits"
    EARLIEST_COMPLETION = "earliest_completion"
    LEAST_ENERGY_THAT_FITS = "least_energy_that_fits"
    ENERGY_NOT_MEASURED = "energy_not_measured"
    """Least energy was asked for, and none that fits has a measured one: it is the cheapest."""
    PINNED = "pinned"
    LOADED_ON_DEMAND = "loaded_on_demand"
    BEST_EFFORT = "best_effort"
    PLANNED = "planned"
    CACHED = "cached"
    """Nothing was: a kept answer of the variant was given again."""


class PlacedReason(str):
    """A reason where workers of several zones could be asked: it is equal to the ``Reason``."""

    __slots__ = ("place", "why")
    place: str
    """Where the worker is, in words."""
    why: str
    """Why it is one there, in words."""


class Choice(NamedTuple):
    """The variant and worker picked, with the reason."""

    candidate: Candidate
    worker: WorkerView
    predicted_ms: float
    """From now to the reply, waiting included."""
    cold: bool
    """It has to be loaded first; ``predicted_ms`` includes that."""
    reason: Reason | PlacedReason
    meets_slo: bool
    """False only under best effort."""


class RefusalCode(StrEnum):
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    VARIANT_NOT_FOUND = "NOT_FOUND"
    SLO_INFEASIBLE = "SLO_INFEASIBLE"
    NO_WORKERS = "NO_WORKERS"
    ARTIFACT_INVALID = "ARTIFACT_INVALID"
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
    """With ``COLD`` and ``NO_WORKERS``: when to ask again; None where that is not known."""
    shed: bool = False
    """With ``OVERLOADED``: for what it costs, so that no room is kept for such a query."""


# -- the control loop ---------------------------------------------------------------------------


class Objective(StrEnum):
    COST = "cost"
    """Least price of the opened devices, with all demand served."""
    ACCURACY = "accuracy"
    """Most served, then the largest sum of rate x accuracy, then the least cost."""
    ENERGY = "energy"
    """Least power, or CO2 where it is known, of work and idle devices; all demand served."""


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
    rate_qps: float = 0.0
    """Queries per second that the worker expects for it, from those that came."""
    urgent: float = 0.0
    """Share of its queries that cannot wait for its load, as the worker has learned it."""
    rows_per_query: float = 0.0
    """How many rows its queries have, lately; 0 before any was answered."""
    asked: bool = False
    """Whether a query has asked for it since it was loaded, or was the reason to load it."""
    load_no: int = 0
    """Which of the worker's loads it came from."""
    loaded_for_s: float = inf
    """Since it is ready."""


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
    evictable: tuple[Rung, ...] = ()
    """What may leave it for a load, in the order in which it would, and what that would cost."""
    churn_per_s: float = 0.0
    """The share of its memory that is evicted per second (``planner.eviction.churn``)."""
    zone: str = ""
    """Which zone its machine is in; "" where that is not known."""


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
    variant: VariantName | None = None
    """Queries that are pinned to this variant: a class of their own, without a floor."""

    @property
    def tightest_ms(self) -> float:
        """The latency SLO to plan for."""
        return self.slo_ms or self.latency_ms

    @property
    def rows(self) -> int:
        """Rows of the query that stands for the class: rates are in rows, so it has one."""
        return 1

    @property
    def cost(self) -> None:
        """Classes have no cost ceiling: it is compared when a query is answered."""
        return None


DemandClass = tuple[TaskName, float, float | None, VariantName | None]
"""Task, latency SLO in ms, accuracy floor, and the variant that its queries are pinned to."""


def class_of(demand: Demand) -> DemandClass:
    """Which class of queries it is the rate of."""
    return (demand.task, demand.latency_ms, demand.accuracy, demand.variant)


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
    """What to plan for: a quantile of the demand over the time that a load takes. None without a
    forecast; then it is ``demand``."""
    envelope: tuple[Demand, ...] | None = None
    """What workers are to be there for, by class (``planner.forecasting.provisioning``). None where
    it is not known; then it is ``expected``."""
    watched: float = 1.0
    """Which part of the inventory may be stopped, from 0 to 1: all of it once demand has been
    observed for long enough."""
    declared: tuple[str, ...] = ()
    """A sentence for each declared peak that ``expected`` allows for."""
    elastic: bool = False
    """Whether the plan decides how many workers there are, ``inventory`` being the most."""
    least: Mapping[DeviceKindName, int] = field(default_factory=dict)
    """Where it does, fewest workers of each kind that it may leave; of a kind that is not named,
    none. A kind whose least is its inventory is of a fixed size."""
    layouts: tuple[Mapping[DeviceKindName, int], ...] = ()
    """The ways in which the machine may be split, of which the plan takes one: how many workers of
    each kind run. None where there is nothing to choose."""
    horizon_s: float = 1_200.0
    """For how long the demand that workers are there for is looked back on: within this time
    another layout has to gain what changing to it costs."""
    measured: CatalogSnapshot | None = None
    """The catalog without what live latency says, by which layouts are compared: it is known only
    of kinds that run. None: ``catalog``."""
    refused: tuple[Mapping[DeviceKindName, int], ...] = ()
    """Layouts that were tried in vain, and are not to be tried now."""
    rests: bool = False
    """Whether the machine was split anew a moment ago: it only goes back to what still runs."""
    absent: frozenset[DeviceKindName] = frozenset()
    """Kinds of which it may leave none, and for which no machine is there: one would have to come.
    They are not started before anything is known of the demand."""
    transport_ms: float = TRANSPORT_MS
    corrected: bool = False
    """Whether live latency has changed what profiles say since the plan was made."""
    eviction: str = "modelless"
    """A name in ``planner.eviction.registry.RULES``: what leaves a memory that is short."""
    interference: Mapping[DeviceKindName, float] = field(default_factory=dict)
    """By what part batches take longer on a worker that serves with several variants, where that
    was seen (``planner.interference``)."""
    zones: ZoneDemand = NOWHERE
    """In which zones the demand is asked for, and how far it is from there to the workers."""
    kind_zones: Mapping[DeviceKindName, frozenset[str]] = field(default_factory=dict)
    """In which zones the workers of each kind stand, or would; kinds of which that is not known are
    missing."""


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
    seen: tuple[int, bool] | None = None
    """``load_no`` and ``asked`` of the replica when this was decided. A replica that was loaded
    again or asked for since then stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    device_kind: DeviceKindName
    count: int
    why: str = ""


Action = Load | Unload | Scale


ReplicaKey = tuple[WorkerId, TaskName, VariantName]
"""A replica: which variant of which task on which worker."""


class ReplicaTarget(NamedTuple):
    """What a plan gives to one replica."""

    share: float
    """Part of the worker's time that is planned for the replica's task, in [0, 1]."""
    longest_batch_ms: float
    """How long a batch may take on the worker; 0: its queue decides by itself."""
    qps: float = 0.0
    """Queries per second that the plan brings to the replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a tick decided. ``plan.version`` and ``plan.epoch`` are 0 until the plan is stored."""

    plan: Plan
    changed: bool
    """Whether the plan differs from the observed one and has to be stored."""
    actions: tuple[Action, ...]
    """In the order to apply: an unload that makes room comes before the load that needs it."""
    targets: Mapping[ReplicaKey, ReplicaTarget] = field(default_factory=dict)
    """What the plan gives to each replica that it places."""
    basis: object = field(default=None, repr=False, compare=False)
    """What it was made from, for ``planner.reconcile.tick`` at the next turn."""
