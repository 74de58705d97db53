"""Demand: queries counted by SLO class, and turned into rates.

An SLO class is the latency rounded down to the 1-2-5 series and the accuracy floor rounded up to
the next variant's accuracy: few enough to plan for, and never easier to meet than the queries in
it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from planner.types import Demand
from variants.types import CatalogSnapshot, TaskName

SloClass = tuple[float, float | None]
"""Latency in ms and accuracy floor."""

Counters = Mapping[tuple[TaskName, SloClass], float]
"""Rows that arrived, by task and class. A row that was refused has arrived as well."""

SERIES_MS = tuple(float(f"{digit}e{power}") for power in range(-3, 10) for digit in (1, 2, 5))
"""0.001, 0.002, 0.005, 0.01, ... ms."""

_NEGLIGIBLE_QPS = 1e-3


def slo_class(latency_ms: float, accuracy: float | None, accuracies: Sequence[float]) -> SloClass:
    """The class of an SLO; ``accuracies`` are those of the task's variants, ascending.

    A floor at or below the least accuracy asks for nothing and becomes None, so that it shares a
    class with queries that name none. A floor above them all is kept: nothing meets it.
    """
    step = SERIES_MS[max(0, bisect_right(SERIES_MS, latency_ms) - 1)]
    if accuracy is None:
        return (step, None)
    index = bisect_left(accuracies, accuracy)
    if index == len(accuracies):
        return (step, accuracy)
    return (step, accuracies[index] if index else None)


def demands(counters: Iterable[Counters], elapsed_s: float) -> tuple[Demand, ...]:
    """Rates from what each gateway counted in the last ``elapsed_s`` seconds.

    Ordered by task, latency and floor; classes of which next to nothing arrived are left out.

    Raises:
        ValueError: no time has elapsed.
    """
    if elapsed_s <= 0:
        raise ValueError(f"a rate needs elapsed time, not {elapsed_s} s")
    rows: dict[tuple[TaskName, SloClass], float] = {}
    for counted in counters:
        for key, count in counted.items():
            rows[key] = rows.get(key, 0.0) + count
    return _ordered({key: count / elapsed_s for key, count in rows.items()})


def usual_classes(catalog: CatalogSnapshot) -> dict[TaskName, Demand]:
    """The class of each task's queries that name no SLO, as a class without a rate."""
    accuracies: dict[TaskName, set[float]] = {}
    for variant in catalog.variants:
        accuracies.setdefault(variant.task, set()).add(variant.accuracy)
    found = {}
    for task in catalog.tasks:
        steps = sorted(accuracies.get(task.name, ()))
        latency_ms, floor = slo_class(task.slo.latency_ms, task.slo.accuracy, steps)
        found[task.name] = Demand(
            task=task.name, latency_ms=latency_ms, accuracy=floor, qps=0.0,
            slo_ms=task.slo.latency_ms,
        )  # fmt: skip
    return found


def smoothed(before: Iterable[Demand], now: Iterable[Demand], weight: float) -> tuple[Demand, ...]:
    """An exponentially weighted average; ``weight`` in (0, 1] is that of ``now``.

    A class that is gone fades out instead of vanishing, and its variants with it.
    """
    rates: dict[tuple[TaskName, SloClass], float] = {}
    for demand in before:
        rates[_key(demand)] = (1.0 - weight) * demand.qps
    for demand in now:
        rates[_key(demand)] = rates.get(_key(demand), 0.0) + weight * demand.qps
    return _ordered(rates)


def _key(demand: Demand) -> tuple[TaskName, SloClass]:
    return (demand.task, (demand.latency_ms, demand.accuracy))


def _ordered(rates: Mapping[tuple[TaskName, SloClass], float]) -> tuple[Demand, ...]:
    def order(entry: tuple[tuple[TaskName, SloClass], float]) -> tuple[TaskName, float, float]:
        (task, (latency_ms, accuracy)), _ = entry
        return (task, latency_ms, -1.0 if accuracy is None else accuracy)

    return tuple(
        Demand(task=task, latency_ms=latency_ms, accuracy=accuracy, qps=qps)
        for (task, (latency_ms, accuracy)), qps in sorted(rates.items(), key=order)
        if qps >= _NEGLIGIBLE_QPS
    )
