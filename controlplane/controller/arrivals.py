"""Arrivals: what was asked at the gateways, from growing counters to rates per SLO class."""

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any, NamedTuple

from controlplane.controller.outcome_counts import OutcomeCounts
from controlplane.demand_counters import accuracies_of, parse_counter_name
from planner.forecasting.demand import SloClass, demands, slo_class, smoothed
from planner.forecasting.demand_estimator import TIGHT_S, DemandEstimator, Least
from planner.forecasting.estimator_of import DEMAND_WEIGHT
from planner.headroom.dispersion import Dispersion
from planner.types import Demand, Objective
from variants.types import CatalogSnapshot, TaskName, VariantName

Pin = tuple[TaskName, VariantName, float]
"""What pinned queries are counted by: what they name, and their latency SLO in ms, rounded down as
that of all classes."""

NEGLIGIBLE_QPS = 1e-3
"""A pinned variant that is asked for less often is planned for no more."""
COUNT_EVERY_S = 0.75
"""Gateways report once a second: counting much more often would find nothing new."""
LONGEST_S = 2.5
"""So long at most a gateway is waited for that has not reported since the last count."""


class _Counted(NamedTuple):
    """What a gateway had counted when it was looked at last."""

    rows: Mapping[str, int]
    at_s: float | None
    """When it said so, on its own clock."""
    seen_s: float
    """When that was seen first, on the control loop's clock."""


class Arrivals:
    """Demand as the control loop sees it, and as it is to be expected.

    A gateway counts from the second report on.
    """

    def __init__(self, estimator: DemandEstimator | None = None) -> None:
        self.demand: tuple[Demand, ...] = ()
        """Of classes, and after them of pinned variants."""
        self._classes: tuple[Demand, ...] = ()
        self._pinned: dict[Pin, float] = {}
        self._tightest: Least[Pin] = Least(TIGHT_S)
        self.estimator = estimator or DemandEstimator(Objective.COST)
        self.dispersion = Dispersion()
        self._outcomes = OutcomeCounts()
        self._counted: dict[str, _Counted] = {}
        self._counted_at_s = float("-inf")

    def due(self, now_s: float) -> bool:
        return now_s - self._counted_at_s >= COUNT_EVERY_S

    def count(
        self, reports: Mapping[str, Mapping[str, Any]], catalog: CatalogSnapshot, now_s: float
    ) -> None:
        """Take in what each gateway has counted since it started.

        A gateway that starts anew has a new id; a counter that shrank all the same counts from
        zero. What was asked while no controller counted is spread over that time. Counts wait until
        every gateway has reported anew, and take the rates between its own reports: else a look
        that comes just before a report would see nothing, and the next one twice as much.
        """
        self.estimator.came_to(*self._outcomes.growth(reports))
        before = self._counted
        known = reports.keys() & before.keys()
        elapsed_s = now_s - self._counted_at_s
        if elapsed_s < LONGEST_S and any(_is_old(reports[id_], before[id_]) for id_ in known):
            return
        self._counted_at_s = now_s
        self._counted = {
            id_: before[id_]
            if id_ in known and _is_old(report, before[id_])
            else _Counted(report.get("demand", {}), report.get("at_s"), now_s)
            for id_, report in reports.items()
        }
        accuracies = accuracies_of(catalog)
        self.estimator.know(catalog)
        rows: dict[tuple[TaskName, SloClass], float] = {}
        pinned: dict[Pin, float] = {}
        tightest: dict[tuple[TaskName, SloClass], float] = {}
        pins_tightest: dict[Pin, float] = {}
        for id_ in known:
            counted, last = self._counted[id_], before[id_]
            least = reports[id_].get("tightest", {})
            passed_s = now_s - last.seen_s
            part = passed_s / _between_s(counted, last, passed_s)
            for key, count in counted.rows.items():
                asked = parse_counter_name(key)
                if asked is not None:
                    task, latency_ms, floor, variant = asked
                    known_rows = last.rows.get(key, 0)
                    new = part * (count - known_rows if count >= known_rows else count)
                    if variant is not None:
                        pin = (task, variant, slo_class(latency_ms, None, ())[0])
                        pinned[pin] = pinned.get(pin, 0.0) + new
                        pins_tightest[pin] = min(pins_tightest.get(pin, inf), least.get(key, inf))
                        continue
                    slo = slo_class(latency_ms, floor, accuracies.get(task, ()))
                    rows[task, slo] = rows.get((task, slo), 0.0) + new
                    if key in least:
                        tightest[task, slo] = min(tightest.get((task, slo), inf), least[key])
        if known and isfinite(elapsed_s):
            # Gateways go on telling of a class of which nothing comes; it need not be followed.
            came = {key: new for key, new in rows.items() if new > 0.0}
            self.estimator.observe(now_s, came, tightest, elapsed_s)
            self.dispersion.count(_by_task(rows, pinned), elapsed_s)
        self._classes = smoothed(self._classes, demands([rows], elapsed_s), DEMAND_WEIGHT)
        self._tightest.saw(now_s, pins_tightest)
        self._pinned = _faded(self._pinned, pinned, elapsed_s)
        self.demand = (*self.estimator.by_tightest(self._classes), *self.pinned)

    @property
    def pinned(self) -> tuple[Demand, ...]:
        """The rates of queries that are pinned to a variant, smoothed; nothing is forecast."""
        found = []
        for (task, variant, step_ms), qps in sorted(self._pinned.items()):
            slo_ms = self._tightest.get((task, variant, step_ms))
            if slo_ms is not None and slo_ms < inf:
                found.append(
                    Demand(
                        task=task, latency_ms=step_ms, accuracy=None, qps=qps, slo_ms=slo_ms,
                        variant=variant,
                    )
                )  # fmt: skip
        return tuple(found)


def _by_task(
    rows: Mapping[tuple[TaskName, SloClass], float], pinned: Mapping[Pin, float]
) -> dict[TaskName, float]:
    """All rows of each task."""
    found: dict[TaskName, float] = {}
    counted = (
        *((key[0], n) for key, n in rows.items()),
        *((key[0], n) for key, n in pinned.items()),
    )
    for task, count in counted:
        found[task] = found.get(task, 0.0) + count
    return found


def _is_old(report: Mapping[str, Any], before: _Counted) -> bool:
    """Whether a gateway has said nothing new."""
    at_s = report.get("at_s")
    return at_s is not None and at_s == before.at_s


def _between_s(now: _Counted, before: _Counted, passed_s: float) -> float:
    """The time between two reports by the gateway's clock; ``passed_s`` where it does not say."""
    if now.at_s is None or before.at_s is None or now.at_s <= before.at_s:
        return passed_s
    return now.at_s - before.at_s


def _faded(
    before: Mapping[Pin, float], rows: Mapping[Pin, float], elapsed_s: float
) -> dict[Pin, float]:
    """Smoothed rates in rows per second; what is next to nothing is forgotten."""
    if not isfinite(elapsed_s):
        return {}
    rates = {
        pin: (1.0 - DEMAND_WEIGHT) * before.get(pin, 0.0)
        + DEMAND_WEIGHT * rows.get(pin, 0.0) / elapsed_s
        for pin in before.keys() | rows.keys()
    }
    return {pin: rate for pin, rate in rates.items() if rate >= NEGLIGIBLE_QPS}
