"""What a tick of the control loop looks at, and what it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from planner.eviction.displacement import Rung
from planner.types.candidates import TRANSPORT_MS
from planner.zone_demand import NOWHERE, ZoneDemand
from variants.slots import puts_of
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Plan,
    ReplicaState,
    Rule,
    TaskName,
    VariantName,
    WorkerId,
)


class Objective(StrEnum):
    COST = "cost"
    """Least price of the opened devices, with all demand served."""
    ACCURACY = "accuracy"
    """Most served, then the largest sum of rate x accuracy, then the least cost."""
    ENERGY = "energy"
    """Least power, or CO2 where it is known, of work and idle devices; all demand served."""


class ReplicaReport(NamedTuple):
    """A variant on a worker, as the worker reports it.

    A tuple, because one is made for each variant on each worker: that takes a third of the time.
    """

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
    """How much memory its variants may reserve in all."""
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

    def at_rate(self, qps: float, latency_ms: float | None = None) -> "Demand":
        """The same class with another rate, and with another SLO where one is given: as
        ``dataclasses.replace``, in a quarter of the time."""
        made = object.__new__(Demand)
        _put_task(made, self.task)
        _put_latency(made, self.latency_ms if latency_ms is None else latency_ms)
        _put_accuracy(made, self.accuracy)
        _put_qps(made, qps)
        _put_slo(made, self.slo_ms)
        _put_variant(made, self.variant)
        return made


_put_task, _put_latency, _put_accuracy, _put_qps, _put_slo, _put_variant = puts_of(
    Demand, "task", "latency_ms", "accuracy", "qps", "slo_ms", "variant"
)


DemandClass = tuple[TaskName, float, float | None, VariantName | None]
"""Task, latency SLO in ms, accuracy floor, and the variant that its queries are pinned to."""


def class_of(demand: Demand) -> DemandClass:
    """Which class of queries it is the rate of."""
    return (demand.task, demand.latency_ms, demand.accuracy, demand.variant)


class KeptRoom(NamedTuple):
    """How much of the room for chance fleets are sized with, and why."""

    part: float = 1.0
    """Of the whole room, from 0 to 1."""
    asked: float = 0.0
    """Queries lately, by which it is so much."""
    lost: float = 0.0
    """Of these, those that were refused for want of time or room, or late."""


WHOLE_ROOM = KeptRoom()

INVENTORY = "the inventory"
"""What says how many workers there should be, where plans do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that one tick looks at."""

    catalog: CatalogSnapshot
    workers: tuple[WorkerReport, ...]
    demand: tuple[Demand, ...]
    inventory: Mapping[DeviceKindName, int]
    """How many workers of each kind there should be."""
    sized_by: str = INVENTORY
    """What says so, in words."""
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
    room: KeptRoom = WHOLE_ROOM
    """How much of the room for chance workers are to be there for, beyond the envelope."""
    dispersion: Mapping[TaskName, float] = field(default_factory=dict)
    """How many times more than Poisson arrivals those of a task vary, where that is known
    (``planner.headroom.dispersion``): so many times more has room for chance to absorb."""
    watched: float = 1.0
    """Which part of the inventory may be stopped, from 0 to 1: all of it once demand has been
    observed for long enough."""
    steady: float = 0.0
    """Which part of the inventory may be stopped, by its price, where all the rest is needed, from
    0 to 1: what is needed is known sooner where what comes stays as it is."""
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
    swaps_s: float = inf
    """For how long a worker may be busy with loads for which others leave: it loads one variant
    after the other, and what leaves long before its successor's turn is missing meanwhile. Not
    much longer with loads in free memory (``planner.reconcile.diff.FILLS_S``)."""
    interference: Mapping[DeviceKindName, float] = field(default_factory=dict)
    """By what part batches take longer on a worker that serves with several variants, where that
    was seen (``planner.interference``)."""
    frozen: Rule | None = None
    """By which an operator has the plan stay as it is, while that holds."""
    zones: ZoneDemand = NOWHERE
    """In which zones the demand is asked for, and how far it is from there to the workers."""
    zones_settled: bool = True
    """Whether that was looked at for long enough to let workers go by it."""
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
    pinned: bool = False
    """Whether an operator has it stay there, whatever queries ask for."""


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
