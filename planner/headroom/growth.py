"""By which factor the demand may grow until the workers that there may be serve it no more.

Served means that 99 of 100 queries of every class are answered within its latency SLO and above its
accuracy floor. Which variants that takes is left to the solver, so accuracy above the floors may be
given up. Fleets are sized by the same means (``planner.reconcile.sizing``), for fewer refusals.

Where gateways compute on the cores of the workers, what they take grows with the demand, and the
workers have less of their time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import NamedTuple

from planner.reconcile.problem_builder import build_problem
from planner.reconcile.sizing import MOST_LOAD, available
from planner.selection.snapshot import build_snapshot
from planner.solver.problem import AvailableKind, Planner
from planner.types import Demand, Objective, Observation, Snapshot
from variants.types import DeviceKind, DeviceKindName, TaskName

REFUSED = 0.01
"""Part of a class that may be refused by chance."""
MOST = 10.0
"""The largest factor that is looked for: further ahead nothing is decided by it."""
LEAST = 1.0 / 16
"""The smallest: whoever is so overloaded learns nothing from the exact number."""
CLOSE = 1.03
"""Between a factor that is served and one that is not; the first of them is told."""

Clock = Callable[[], float]
"""Seconds on a monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHeadroom:
    """What one task could be asked, while the others stay as they are."""

    task: TaskName
    asked_qps: float
    """Rows per second now."""
    factor: float
    """From ``LEAST`` to ``MOST``; 0 where not even the least is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What the workers could be asked."""

    factor: float
    """On all of the demand, in its present proportions; as in ``TaskHeadroom``."""
    error: float = 0.0
    """Standard deviation of its logarithm, as far as it comes from not knowing what batches take
    on a full worker, in the mean over the time of those that would serve it."""
    tasks: tuple[TaskHeadroom, ...] = ()
    """The busiest first; tasks for which there was no time are missing."""


def headroom(
    observation: Observation,
    planner: Planner,
    *,
    gateway_cores: float = 0.0,
    dispersion: Mapping[TaskName, float] | None = None,
    clock: Clock,
    limit_s: float = inf,
) -> Headroom | None:
    """The headroom of a demand; None where nothing is asked that could be served, or zones divide
    the workers.

    What no worker there may be could serve at any rate is left out, and so is a task of which
    nothing else is asked. Without any worker the factor is 0.

    Args:
        observation: as a tick sees it. The workers are those of the inventory, or of the layout
            that the plan has taken.
        planner: the quicker, the more tasks are looked at.
        gateway_cores: how many cores gateways keep busy now, of those that the workers have.
        dispersion: how many times more than Poisson arrivals those of each task vary, where that is
            known (``planner.headroom.dispersion``). It is taken to stay as it is.
        limit_s: after so long no further task is begun with.
    """
    asked = [each for each in observation.demand if each.qps > 0.0]
    if not asked or observation.zones.matters({worker.zone for worker in observation.workers}):
        return None
    until_s = clock() + limit_s
    fleet = _Fleet.of(observation, planner, gateway_cores, dispersion or {})
    if fleet.kinds:
        asked = fleet.answerable(asked)
    if not asked:
        return None
    whole = fleet.most(lambda factor: [replace(d, qps=d.qps * factor) for d in asked], asked)
    rates: dict[TaskName, float] = {}
    for each in asked:
        rates[each.task] = rates.get(each.task, 0.0) + each.qps
    tasks = []
    for task in sorted(rates, key=lambda task: (-rates[task], task)):
        if clock() >= until_s:
            break
        most = whole if len(rates) == 1 else fleet.most(_only(task, asked), asked)
        tasks.append(TaskHeadroom(task=task, asked_qps=rates[task], factor=most.factor))
    return Headroom(factor=whole.factor, error=whole.error, tasks=tuple(tasks))


def _only(task: TaskName, asked: Sequence[Demand]) -> Callable[[float], list[Demand]]:
    """The demand in which this task alone grows."""
    return lambda factor: [replace(d, qps=d.qps * factor) if d.task == task else d for d in asked]


class _Most(NamedTuple):
    """The largest factor that is served, and how sure that is."""

    factor: float
    error: float


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The workers, and what is known of them."""

    snapshot: Snapshot
    kinds: tuple[AvailableKind, ...]
    cores: float
    planner: Planner
    gateway_cores: float
    dispersion: Mapping[TaskName, float]

    @classmethod
    def of(
        cls,
        observation: Observation,
        planner: Planner,
        gateway_cores: float,
        dispersion: Mapping[TaskName, float],
    ) -> "_Fleet":
        known = {kind.name: kind for kind in observation.catalog.device_kinds}
        counts = _counts(observation)
        offered = available(known, counts, observation.interference, powered=True)
        return cls(
            build_snapshot(observation.catalog, (), transport_ms=observation.transport_ms),
            tuple(kind for kind in offered if kind.count),
            _cores(known, counts),
            planner,
            gateway_cores,
            dispersion,
        )

    def answerable(self, asked: Iterable[Demand]) -> list[Demand]:
        """The classes of a demand that some worker could serve, if they were asked for seldom."""
        asked = list(asked)
        never = set(build_problem(self.snapshot, self.kinds, asked).unanswerable)
        return [each for each in asked if each.task in self.snapshot.tasks and each not in never]

    def most(self, grown: Callable[[float], list[Demand]], asked: Sequence[Demand]) -> _Most:
        """The largest factor that is served, within ``CLOSE``.

        Args:
            grown: the demand by factor; of the factor 1 it is ``asked``.
        """
        rate = sum(each.qps for each in asked)

        def served(factor: float) -> _Most | None:
            demand = grown(factor)
            error = self._serves(demand, sum(each.qps for each in demand) / rate)
            return None if error is None else _Most(factor, error)

        found = served(1.0)
        if found is not None:
            if (most := served(MOST)) is not None:
                return most
            high = MOST
        else:
            found = served(LEAST)
            if found is None:
                return _Most(0.0, 0.0)
            high = 1.0
        while high / found.factor > CLOSE:
            middle = sqrt(found.factor * high)
            if (more := served(middle)) is not None:
                found = more
            else:
                high = middle
        return found

    def _serves(self, demand: Iterable[Demand], growth: float) -> float | None:
        """How unsure it is that all of a demand is served that any worker could; of so many times
        the rate. None where it is not."""
        if not self.kinds:
            return None
        load = MOST_LOAD
        if self.gateway_cores and self.cores:
            load *= 1.0 - growth * self.gateway_cores / self.cores
        if load <= 0.0:
            return None
        made = build_problem(
            self.snapshot,
            self.kinds,
            demand,
            load=load,
            refused=REFUSED,
            dispersion=self.dispersion,
        )
        if not made.problem.demand:
            return 0.0
        solution = self.planner(made.problem, Objective.COST)
        if not solution.feasible:
            return None
        work = sum(part.share for part in solution.assignments)
        unsure = sum(
            part.share * made.candidates[part.offer].busy_error for part in solution.assignments
        )
        return unsure / work if work else 0.0


def _counts(observation: Observation) -> Mapping[DeviceKindName, int]:
    if observation.layouts and observation.plan is not None:
        return observation.plan.workers
    return observation.inventory


def _cores(
    known: Mapping[DeviceKindName, DeviceKind], counts: Mapping[DeviceKindName, int]
) -> float:
    """Cores of all workers that compute on CPUs."""
    return sum(
        known[kind].cores * count
        for kind, count in counts.items()
        if kind in known and known[kind].gpu is None
    )
