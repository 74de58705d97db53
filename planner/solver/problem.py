"""The planning problem and its solution: values that every planner takes and returns.

A class of demand may be split over variants that meet its floor, on devices, at batch sizes. With
l the latency of a batch, every device must keep

* time: sum of rate x l(b) / (1000 x b) at most ``LOAD``;
* memory: the sum over its distinct variants at most its own;
* latency, for each class on it: the largest l of any batch placed there, plus the l of its own
  batch, plus ``OVERHEAD_MS``, at most the class's latency SLO: a query that just missed a batch
  waits for the longest one and then takes its own.

On a device that serves with more than one variant, every l is longer by the ``interference`` of its
kind: profiles are measured with one variant at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from planner.energy import EnergyCurve
from planner.latency_curve import Curve
from planner.selection.eligibility import answers
from planner.types import Demand, Objective
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

LOAD = 0.8
"""Part of a device's time that may be planned for."""
OVERHEAD_MS = 2.0
"""Of a query outside of its device: transport, and forming the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A variant on a device kind."""

    task: TaskName
    model: ModelName
    variant: VariantName
    accuracy: float
    device_kind: DeviceKindName
    curve: Curve
    """Of batches that follow on one another: by it the time of devices is planned."""
    lone_ms: float = 0.0
    """What the smallest batch takes on an idle device, after a pause, where that is longer: classes
    that it would be too late for are not served by it."""
    memory_mib: float = 0.0
    load_s: float = 0.0
    canary: bool = False
    """It answers only queries that are pinned to it."""
    energy: EnergyCurve | None = None
    """Joules of whole batches, what the device draws idle meanwhile included; None where they were
    not measured."""

    def answers(self, demand: Demand) -> bool:
        """Whether a class may be served by it, floors and latency aside."""
        return answers(self, demand.variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableKind:
    """A device kind: how many there may be, what one holds and costs."""

    name: DeviceKindName
    count: int
    """Upper bound on how many can be opened."""
    memory_mib: float
    """Infinite when it has no limit."""
    usd_per_hour: float
    interference: float = 0.0
    """By what part every batch takes longer on a device that serves with more than one variant."""
    idle_w: float | None = None
    """Watts of one while nothing runs on it; None where that is not known."""
    carbon_g_per_kwh: tuple[float, ...] = ()
    """As in ``variants.types.DeviceKind``."""
    powered: bool = False
    """Whether its devices are there and draw their idle power, opened or not."""

    def slowdown(self, variants: int) -> float:
        """Times what profiles say that batches take beside so many variants, this one included."""
        return 1.0 + self.interference if variants > 1 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Hardware that several device kinds are cut from: the cores of a machine, a GPU's slices.

    Of all opened devices, ``sum of uses[kind]`` is at most ``capacity``: whether eight cores
    become one worker or four is part of the search.
    """

    name: str
    capacity: float
    uses: Mapping[DeviceKindName, float]


class Common:
    """What a planner has found out about a problem, for others that differ in rates and load only.

    A planner looks whether that is so before it uses anything.
    """

    __slots__ = ("options",)

    def __init__(self) -> None:
        self.options: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is offered, where it can run, and what is asked for."""

    offers: tuple[Offer, ...]
    kinds: tuple[AvailableKind, ...]
    demand: tuple[Demand, ...]
    pools: tuple[Pool, ...] = ()
    load: float = LOAD
    overhead_ms: float = OVERHEAD_MS
    most: tuple[int, ...] = ()
    """Per class, the largest batch that its queries can fill in time; empty when any can be."""
    least_accuracy: float | None = None
    """Of use are only plans that serve everything, at least as accurately: where it is proven that
    there is none, a planner answers with an empty one."""
    common: Common | None = field(default=None, compare=False, repr=False)
    """Shared with problems that differ in rates and load."""
    work: tuple[EnergyCurve, ...] = ()
    """Per offer, what a batch costs beside the price of its device, per batch each second; empty
    when that is nothing. ``planner.solver.power`` makes such problems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A part of a class of demand, on one device, by one variant at one batch size."""

    device: int
    """Index into ``Solution.devices``."""
    demand: int
    """Index into ``Problem.demand``."""
    offer: int
    """Index into ``Problem.offers``."""
    batch_size: int
    qps: float
    share: float
    """Of the device's time: ``qps x latency / (1000 x batch_size)``, interference included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the opened devices of a plan draw."""

    watts: float
    """What batches take beyond the idle draw, and the idle draw of devices that are opened for it;
    what devices that are there anyway draw idle is left out."""
    idle_watts: float
    """The part of it that is idle draw."""
    carbon_g_per_hour: float | None
    """None unless every device kind says what its energy emits."""
    unmeasured_qps: float
    """Served by variants whose energy, or on kinds whose idle draw, is not known; they are not in
    the other numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A plan for a problem, with what is proven about it."""

    devices: tuple[DeviceKindName, ...]
    """The kind of each opened device, grouped by kind."""
    assignments: tuple[Assignment, ...]
    """Ordered by device, then demand."""
    served_qps: float
    accuracy: float
    """Mean over what is served, weighted by rate; 0 when nothing is."""
    usd_per_hour: float
    feasible: bool
    """Whether all demand is served."""
    objective: float
    """USD per hour, mean accuracy, or watts or grams of CO2 per hour."""
    bound: float
    """What no plan can beat: cost, watts and grams from below, accuracy from above."""
    timed_out: bool = False
    """The wall clock cut in: only then may the same problem give another solution."""
    notes: tuple[str, ...] = field(default=())
    """How it was found, for reading."""
    power: Power | None = None
    """What it draws, where it was asked for the least."""

    @property
    def gap(self) -> float:
        return abs(self.objective - self.bound) / max(abs(self.objective), 1e-9)


class Clock(Protocol):
    """Seconds on a monotonic clock; handed in, because decisions read none."""

    def __call__(self) -> float: ...


class Planner(Protocol):
    """A way to solve the problem. Always answers, with the best plan it knows."""

    def __call__(self, problem: Problem, objective: Objective) -> Solution: ...
