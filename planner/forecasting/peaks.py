"""Declared peaks: demand that operators know of, and no forecast can.

A peak raises what is expected, class by class, from some time before it begins until it ends. How
long before is its caller's to say: as long as it takes until a new worker serves. A factor is of
the demand that was expected when the peak began: while it lasts, the forecast sees the peak itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from planner.forecasting.demand import SloClass
from planner.types import Demand
from variants.types import Peak, TaskName

Key = tuple[TaskName, SloClass]
"""A task with one of its SLO classes."""
Occurrence = tuple[int, float]
"""A peak's id and when it begins this time."""


def occurrence(peak: Peak, at_s: float) -> tuple[float, float]:
    """Begin and end of the occurrence that is on at a time, else of the next, else of the last."""
    lasts_s = peak.end_s - peak.start_s
    if not peak.every_s or at_s < peak.end_s:
        return peak.start_s, peak.end_s
    begin_s = peak.start_s + floor((at_s - peak.start_s) / peak.every_s) * peak.every_s
    if at_s >= begin_s + lasts_s:
        begin_s += peak.every_s
    return begin_s, begin_s + lasts_s


def is_over(peak: Peak, at_s: float) -> bool:
    """Whether a peak will not come again."""
    return not peak.every_s and at_s >= peak.end_s


def words(peak: Peak) -> str:
    """What a peak brings, for people: ``3 times as many queries of all tasks (sale)``."""
    of = f"task {peak.task}" if peak.task else "all tasks"
    how = f"{peak.factor:,g} times as many queries" if peak.factor else f"{peak.qps:,g} queries/s"
    return f"{how} of {of}" + (f" ({peak.note})" if peak.note else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An occurrence of a peak that planning has to allow for now."""

    peak: Peak
    begin_s: float
    end_s: float
    begun: bool

    @property
    def key(self) -> Occurrence:
        """What tells this occurrence from all others."""
        return (self.peak.id, self.begin_s)


def due(
    peaks: Iterable[Peak], at_s: float, lead_s: float, known: Collection[Occurrence] = ()
) -> tuple[Due, ...]:
    """The peaks that are on, or begin within ``lead_s`` seconds; those that begin first come first.

    Times are on the clock of the peaks. One that is ``known`` to be due stays so until its end:
    workers that were ordered do not go because it turns out that they start quickly.
    """
    found = []
    for peak in peaks:
        begin_s, end_s = occurrence(peak, at_s)
        soon = begin_s - lead_s <= at_s or (peak.id, begin_s) in known
        if soon and at_s < end_s:
            found.append(Due(peak=peak, begin_s=begin_s, end_s=end_s, begun=begin_s <= at_s))
    return tuple(sorted(found, key=lambda each: each.key[::-1]))


class DeclaredDemand:
    """What is expected, raised to what peaks were declared to bring.

    It remembers what was expected without them when each began. Where peaks meet, the one that
    asks for most counts, class by class.
    """

    def __init__(self) -> None:
        self.due: tuple[Due, ...] = ()
        """The peaks that the last answer allowed for."""
        self._before: dict[Occurrence, dict[Key, Demand]] = {}

    def raised(
        self,
        expected: Sequence[Demand],
        peaks: Iterable[Peak],
        at_s: float,
        lead_s: float,
        usual: Mapping[TaskName, Demand],
    ) -> tuple[Demand, ...]:
        """The demand to plan for, in the order of ``expected``, new classes behind it.

        Args:
            expected: the demand that is forecast.
            at_s: now, on the clock of the peaks.
            lead_s: how long before its beginning a peak counts.
            usual: the class of queries that say nothing, by task: a rate that was declared for a
                task of which nothing has come goes there.
        """
        self.due = due(peaks, at_s, lead_s, self._before)
        forecast = {_key(demand): demand for demand in expected}
        before: dict[Occurrence, dict[Key, Demand]] = {}
        raised = dict(forecast)
        for each in self.due:
            base = self._before.get(each.key)
            if base is None or not each.begun:
                base = forecast
            before[each.key] = base
            for key, demand in _brought(each.peak, base, usual).items():
                if key not in raised or demand.qps > raised[key].qps:
                    slo_ms = raised[key].slo_ms if key in raised else demand.slo_ms
                    raised[key] = replace(demand, slo_ms=slo_ms)
        self._before = before
        return tuple(raised.values())

    @property
    def remembered(self) -> Mapping[Occurrence, Sequence[Demand]]:
        """What was expected when each peak that is due began, or now where it is still to begin."""
        return {key: tuple(base.values()) for key, base in self._before.items()}

    def remember(self, before: Mapping[Occurrence, Iterable[Demand]]) -> None:
        """Go on from what another one remembered."""
        self._before = {key: {_key(d): d for d in base} for key, base in before.items()}


def most(some: Iterable[Demand], others: Iterable[Demand]) -> tuple[Demand, ...]:
    """The larger of two demands, class by class."""
    found = {_key(demand): demand for demand in some}
    for demand in others:
        key = _key(demand)
        if key not in found or demand.qps > found[key].qps:
            found[key] = demand
    return tuple(found.values())


def _brought(
    peak: Peak, base: Mapping[Key, Demand], usual: Mapping[TaskName, Demand]
) -> dict[Key, Demand]:
    """The demand of each class that a peak brings, by what there would be without it."""
    of_task = {k: d for k, d in base.items() if peak.task in (None, k[0])}
    if peak.factor is not None:
        return {k: replace(d, qps=d.qps * peak.factor) for k, d in of_task.items()}
    assert peak.task is not None
    assert peak.qps is not None
    total = sum(demand.qps for demand in of_task.values())
    if total > 0.0:
        return {k: replace(d, qps=peak.qps * d.qps / total) for k, d in of_task.items()}
    if peak.task not in usual:
        return {}
    demand = replace(usual[peak.task], qps=peak.qps)
    return {_key(demand): demand}


def _key(demand: Demand) -> Key:
    return (demand.task, (demand.latency_ms, demand.accuracy))
