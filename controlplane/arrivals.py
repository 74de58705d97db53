"""Arrivals: what was asked at the gateways, from growing counters to rates per SLO class."""

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import Any

from planner.demand import SloClass, demands, slo_class, smoothed
from planner.expectation import Expectation
from planner.types import Demand, Objective
from variants.types import CatalogSnapshot, TaskName

WEIGHT = 0.2
"""Of the newest count in the smoothed demand: its memory is about five counts."""
COUNT_EVERY_S = 0.75
"""Gateways report once a second: counting much more often would see nothing, then everything."""


class Arrivals:
    """Demand as the control loop sees it, and as it is to be expected.

    A gateway counts from the second report on.
    """

    def __init__(self, expectation: Expectation | None = None) -> None:
        self.demand: tuple[Demand, ...] = ()
        self.expectation = expectation or Expectation(Objective.COST)
        self._counted: dict[str, Mapping[str, int]] = {}
        self._counted_at_s = float("-inf")

    def due(self, now_s: float) -> bool:
        return now_s - self._counted_at_s >= COUNT_EVERY_S

    def count(
        self, reports: Mapping[str, Mapping[str, Any]], catalog: CatalogSnapshot, now_s: float
    ) -> None:
        """Take in what each gateway has counted since it started.

        A gateway that starts anew has a new id; a counter that shrank all the same counts from
        zero. What was asked while nobody counted is spread over that time.
        """
        elapsed_s, self._counted_at_s = now_s - self._counted_at_s, now_s
        counted = {id_: report.get("demand", {}) for id_, report in reports.items()}
        before, self._counted = self._counted, counted
        accuracies = accuracies_of(catalog)
        rows: dict[tuple[TaskName, SloClass], float] = {}
        tightest: dict[tuple[TaskName, SloClass], float] = {}
        known = counted.keys() & before.keys()
        for id_ in known:
            least = reports[id_].get("tightest", {})
            for key, count in counted[id_].items():
                last = before[id_].get(key, 0)
                asked = _parse(key)
                if asked is not None:
                    task, latency_ms, floor = asked
                    slo = slo_class(latency_ms, floor, accuracies.get(task, ()))
                    new = count - last if count >= last else count
                    rows[task, slo] = rows.get((task, slo), 0.0) + new
                    if key in least:
                        tightest[task, slo] = min(tightest.get((task, slo), inf), least[key])
        if known and isfinite(elapsed_s):
            self.expectation.observe(now_s, rows, tightest, elapsed_s)
        self.demand = smoothed(self.demand, demands([rows], elapsed_s), WEIGHT)


def counter(
    task: TaskName, latency_ms: float, floor: float | None, accuracies: Iterable[float]
) -> str:
    """The name of the counter of an SLO. There are few per task, whatever clients ask for."""
    steps = sorted(accuracies)
    latency_ms, floor = slo_class(latency_ms, floor, steps)
    if floor is not None and floor not in steps:
        floor = 1.0  # above every variant: nothing meets it, however high
    return f"{task}|{latency_ms!r}|{'' if floor is None else repr(floor)}"


def accuracies_of(catalog: CatalogSnapshot) -> dict[TaskName, list[float]]:
    """The accuracies of each task's variants, ascending, each once."""
    found: dict[TaskName, set[float]] = {}
    for variant in catalog.variants:
        found.setdefault(variant.task, set()).add(variant.accuracy)
    return {task: sorted(values) for task, values in found.items()}


def _parse(key: str) -> tuple[TaskName, float, float | None] | None:
    """Task, latency and floor of a counter; None for one that nobody of ours wrote."""
    try:
        task, latency_ms, floor = key.split("|")
        return TaskName(task), float(latency_ms), float(floor) if floor else None
    except ValueError:
        return None
