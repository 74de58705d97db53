"""Forecasts: how many queries arrive per second over the next minute, as quantiles.

A forecaster takes in counts and answers with quantiles of the mean rate over its horizon, the time
that loading takes. ``adaptive`` needs nothing but arithmetic; ``profiler.learned_forecaster`` has
one that learns. Forecasters remember, but hold no clock: the same counts give the same quantiles.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from planner.forecasting.demand import Counters, SloClass, demands
from planner.forecasting.empirical_quantiles import EmpiricalQuantiles
from planner.forecasting.memory import Memory, part
from planner.forecasting.point_forecasts import Adaptive
from planner.types import Demand
from variants.types import TaskName

KeyT = TypeVar("KeyT")

STEP_S = 10.0
HORIZON_S = 60.0


class Forecaster(Protocol[KeyT]):
    """Rates to come, of many keys at once. Memory is bounded per key."""

    def observe(self, now_s: float, elapsed_s: float, counts: Mapping[KeyT, float]) -> None:
        """Take in what arrived in the ``elapsed_s`` seconds before ``now_s``.

        A key that is not named arrived 0 times. Time between two observations that neither
        covers is unknown, not empty. The clock may begin anywhere, but it only goes forward.

        Raises:
            ValueError: no time has elapsed, or the clock went back.
        """
        ...

    def predict(self, quantiles: Sequence[float]) -> Mapping[KeyT, tuple[float, ...]]:
        """Quantiles of the mean rate over the horizon, in queries per second, from now on.

        Args:
            quantiles: ascending, within (0, 1).

        Returns:
            By key, one rate for each of ``quantiles``; never negative, and not descending. Keys of
            which nothing came for long are left out.
        """
        ...

    def forget(self, gone: Callable[[KeyT], bool]) -> None:
        """Forget the keys that are gone: none of them is asked for any more."""
        ...

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        ...

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        ...


def adaptive(step_s: float = STEP_S, horizon_s: float = HORIZON_S) -> Forecaster[KeyT]:
    """The default: it finds for each key how far to look back.

    Its quantiles are never nearer to each other than chance makes them. It is of use from the first
    bucket on, with wide quantiles at first.
    """
    return EmpiricalQuantiles(Adaptive(step_s), step_s=step_s, horizon_s=horizon_s, guarded=True)


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

    def forget(self, gone: Callable[[TaskName], bool]) -> None:
        """Forget the tasks that are gone."""
        self._totals.forget(gone)
        self._parts.forget(lambda key: gone(key[0]))

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {"totals": self._totals.memory(), "parts": self._parts.memory()}

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        self._totals.recall(part(memory, "totals"), shift_s)
        self._parts.recall(part(memory, "parts"), shift_s)
