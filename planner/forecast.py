"""Forecast: how many queries arrive over the next minute, as quantiles.

A forecaster takes in counts and answers with quantiles of the mean rate over its horizon, the time
that loading takes. ``planner.trailing`` has those that need nothing but arithmetic;
``profiler.forecast`` one that learns. Forecasters remember, but hold no clock: the same counts give
the same quantiles.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from planner.demand import Counters, SloClass, demands
from planner.points import Adaptive, Ewma, LastValue, Seasonal
from planner.trailing import Trailing
from planner.types import Demand
from variants.types import TaskName

K = TypeVar("K")

STEP_S = 10.0
HORIZON_S = 60.0
EWMA_S = 10.0
DAY_S = 86_400.0


class Forecaster(Protocol[K]):
    """Rates to come, of many keys at once. Memory is bounded per key."""

    def observe(self, now_s: float, elapsed_s: float, counts: Mapping[K, float]) -> None:
        """Take in what arrived in the ``elapsed_s`` seconds before ``now_s``.

        A key that is not named arrived 0 times. Time between two observations that neither
        covers is unknown, not empty. The clock may begin anywhere, but it only goes forward.

        Raises:
            ValueError: no time has elapsed, or the clock went back.
        """
        ...

    def predict(self, quantiles: Sequence[float]) -> Mapping[K, tuple[float, ...]]:
        """Quantiles of the mean rate over the horizon, per second, from now on.

        In the order of ``quantiles``, which ascend within (0, 1); the answers are never
        negative and do not descend. Keys of which nothing came for long are left out.
        """
        ...


def last_value(step_s: float = STEP_S, horizon_s: float = HORIZON_S) -> Forecaster[K]:
    """It goes on as in the last bucket."""
    return Trailing(LastValue(), step_s=step_s, horizon_s=horizon_s)


def ewma(
    memory_s: float = EWMA_S, step_s: float = STEP_S, horizon_s: float = HORIZON_S
) -> Forecaster[K]:
    """It goes on as in the last minutes, the last ones counting most."""
    return Trailing(Ewma(step_s, memory_s), step_s=step_s, horizon_s=horizon_s)


def seasonal(
    period_s: float = DAY_S, step_s: float = STEP_S, horizon_s: float = HORIZON_S
) -> Forecaster[K]:
    """It goes on as it did one period ago."""
    point = Seasonal(step_s, horizon_s, period_s)
    return Trailing(point, step_s=step_s, horizon_s=horizon_s)


def adaptive(step_s: float = STEP_S, horizon_s: float = HORIZON_S) -> Forecaster[K]:
    """The default: finds for each key how far to look back, and never forgets that chance plays.

    It is of use from the first bucket on, with wide quantiles at first.
    """
    return Trailing(Adaptive(step_s), step_s=step_s, horizon_s=horizon_s, guarded=True)


class ClassForecast:
    """Demand per SLO class, at a quantile: each task's total is forecast, then split.

    Totals are steadier than their parts, and it is the total that has to be served. The split is
    by the classes' own present rates, which follow a change as fast as the total does.
    """

    def __init__(
        self,
        forecaster: Forecaster[TaskName] | None = None,
        *,
        step_s: float = STEP_S,
        horizon_s: float = HORIZON_S,
    ) -> None:
        self._totals = forecaster or adaptive(step_s=step_s, horizon_s=horizon_s)
        self._parts: Forecaster[tuple[TaskName, SloClass]] = adaptive(
            step_s=step_s, horizon_s=horizon_s
        )

    def observe(self, now_s: float, counters: Counters, elapsed_s: float) -> None:
        """Take in what arrived in the ``elapsed_s`` seconds before ``now_s``, by class.

        Raises:
            ValueError: no time has elapsed, or the clock went back.
        """
        totals: dict[TaskName, float] = {}
        for (task, _), count in counters.items():
            totals[task] = totals.get(task, 0.0) + count
        self._totals.observe(now_s, elapsed_s, totals)
        self._parts.observe(now_s, elapsed_s, counters)

    def demand(self, quantile: float) -> tuple[Demand, ...]:
        """Rates over the horizon, each task's total at ``quantile``.

        Ordered by task, latency and floor; classes of next to nothing are left out.
        """
        totals = self._totals.predict((quantile,))
        parts = {key: middle for key, (middle,) in self._parts.predict((0.5,)).items()}
        sums: dict[TaskName, float] = {}
        for (task, _), rate in parts.items():
            sums[task] = sums.get(task, 0.0) + rate
        rates = {
            key: totals[key[0]][0] * rate / sums[key[0]]
            for key, rate in parts.items()
            if rate > 0.0 and key[0] in totals
        }
        return demands([rates], 1.0)
