"""The estimator of demand: from what was counted to the demand that is to be planned for.

It remembers a forecast, the tightest SLO seen in each class and the most that was expected lately,
so that its caller has to keep nothing but counts. It holds no clock, and its memory is bounded by
the number of SLO classes.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from math import inf
from typing import Any, Generic, TypeVar

from planner.forecasting.demand import Counters, SloClass
from planner.forecasting.forecast import HORIZON_S, STEP_S, ClassForecast, Forecaster
from planner.forecasting.memory import Memory, as_key, as_list, listed, number, part
from planner.types import Demand, Objective
from variants.types import TaskName

QUANTILE = {Objective.ACCURACY: 0.5, Objective.COST: 0.8, Objective.ENERGY: 0.8}
"""Quantile of the forecast that is planned for. Under ``accuracy`` the middle is enough, because
accuracy gives way first when more comes. Under ``cost``, of 0.5, 0.8 and 0.95 on a slow swing and
on the tweet stream's jumps (``tests.bench.simulation.quantiles``, two seeds), 0.8 costs 0 to 17 %
less than 0.95 and violates 0.00 to 0.03 points more: plans have headroom for chance of their own.
0.5 saves more still, but where rates jump it violates 0.1 to 0.3 points more."""
ENVELOPE_S = 300.0
"""How long the most that was expected is remembered: workers go only after so much slack."""
PARTS = 30
"""That the envelope's time is divided into: it remembers the most of each part."""
SETTLED_S = 120.0
"""Demand has to be watched for so long before any worker goes."""
TIGHT_S = 60.0
"""How long the tightest SLO of a class is remembered, and up to twice as long."""

KeyT = TypeVar("KeyT")


class Least(Generic[KeyT]):
    """The least value seen of each key in the last ``window_s``, and up to twice as long.

    Two windows, one behind the other: the older one counts until the newer one is over.
    """

    __slots__ = ("_before", "_now", "_since_s", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._since_s = -inf
        self._now: dict[KeyT, float] = {}
        self._before: dict[KeyT, float] = {}

    def saw(self, now_s: float, values: Mapping[KeyT, float]) -> None:
        """Take in values; time goes on although there are none."""
        if now_s - self._since_s > self._window_s:
            fresh = now_s - self._since_s <= 2 * self._window_s
            self._before = self._now if fresh else {}
            self._now = {}
            self._since_s = now_s
        for key, value in values.items():
            if value < self._now.get(key, inf):
                self._now[key] = value

    def get(self, key: KeyT) -> float | None:
        """None where the key was not seen lately."""
        least = min(self._now.get(key, inf), self._before.get(key, inf))
        return None if least == inf else least

    def items(self) -> dict[KeyT, float]:
        """All that is remembered."""
        return {
            key: min(self._now.get(key, inf), self._before.get(key, inf))
            for key in {**self._before, **self._now}
        }

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "since_s": self._since_s,
            "now": [[as_list(key), value] for key, value in self._now.items()],
            "before": [[as_list(key), value] for key, value in self._before.items()],
        }

    def recall(self, memory: Memory, shift_s: float) -> None:
        """See ``planner.forecasting.memory.Remembers``."""
        self._since_s = number(memory, "since_s") + shift_s
        self._now = {as_key(key): float(value) for key, value in listed(memory, "now")}
        self._before = {as_key(key): float(value) for key, value in listed(memory, "before")}


class DemandEstimator:
    """The demand to plan for: what is expected of each class, and the most of that lately."""

    def __init__(
        self,
        objective: Objective,
        forecaster: Forecaster[TaskName] | None = None,
        *,
        step_s: float = STEP_S,
        horizon_s: float = HORIZON_S,
        envelope_s: float = ENVELOPE_S,
        settled_s: float = SETTLED_S,
    ) -> None:
        """Begin with nothing known.

        Args:
            forecaster: of each task's total, with a model for ``QUANTILE[objective]``; None: the
                adaptive one.
            settled_s: how long demand has to be watched before workers may go.
        """
        self.expected: tuple[Demand, ...] = ()
        """An upper quantile of the demand over the horizon, each class with its tightest SLO."""
        self._quantile = QUANTILE[objective]
        self._forecast = ClassForecast(forecaster, step_s=step_s, horizon_s=horizon_s)
        self._tightest: Least[tuple[TaskName, SloClass]] = Least(TIGHT_S)
        self._part_s = envelope_s / PARTS
        self._settled_s = settled_s
        self._observed_s = 0.0
        self._parts: deque[tuple[float, dict[tuple[TaskName, SloClass], Demand]]] = deque(
            maxlen=PARTS + 1
        )

    def observe(
        self,
        now_s: float,
        counters: Counters,
        tightest: Mapping[tuple[TaskName, SloClass], float],
        elapsed_s: float,
    ) -> None:
        """Take in what arrived in the ``elapsed_s`` seconds before ``now_s``, by class.

        Args:
            tightest: the least latency SLO seen in each class, in ms.

        Raises:
            ValueError: no time has elapsed, or the clock went back.
        """
        self._forecast.observe(now_s, counters, elapsed_s)
        self._tightest.saw(now_s, tightest)
        self._observed_s += elapsed_s
        self.expected = self._expected()
        if not self._parts or now_s - self._parts[-1][0] >= self._part_s:
            self._parts.append((now_s, {}))
        _raise(self._parts[-1][1], self.expected)

    def _expected(self) -> tuple[Demand, ...]:
        return tuple(
            replace(demand, slo_ms=self._tightest.get(_key(demand)))
            for demand in self._forecast.demand(self._quantile)
        )

    @property
    def envelope(self) -> tuple[Demand, ...]:
        """The most that was expected of each class within the last ``envelope_s``."""
        most: dict[tuple[TaskName, SloClass], Demand] = {}
        for _, held in self._parts:
            _raise(most, held.values())
        return tuple(most.values())

    @property
    def settled(self) -> bool:
        """Whether demand has been watched for long enough to let workers go."""
        return self._observed_s >= self._settled_s

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "forecast": self._forecast.memory(),
            "tightest": self._tightest.memory(),
            "observed_s": self._observed_s,
            "parts": [
                [at_s, [asdict(demand) for demand in held.values()]] for at_s, held in self._parts
            ],
        }

    def recall(self, memory: Memory, shift_s: float, now_s: float) -> None:
        """Go on from what another one remembered; this one has seen nothing yet.

        What was expected longer ago than the envelope goes back is forgotten; and where that is all
        of it, demand has to be watched anew before workers go.

        Args:
            shift_s: to add to the times of the memory, for those of this one's clock.
            now_s: on this one's clock.

        Raises:
            ValueError: it is no memory of such an estimator. What is known now is not defined.
        """
        self._forecast.recall(part(memory, "forecast"), shift_s)
        self._tightest.recall(part(memory, "tightest"), shift_s)
        oldest_s = now_s - self._part_s * PARTS
        for at_s, held in listed(memory, "parts"):
            if float(at_s) + shift_s >= oldest_s:
                demands = [recalled_demand(values) for values in held]
                self._parts.append((float(at_s) + shift_s, {_key(d): d for d in demands}))
        if self._parts:
            self._observed_s = number(memory, "observed_s")
            self.expected = self._expected()


def recalled_demand(values: Any) -> Demand:
    """A demand from its fields, as ``asdict`` gives them.

    Raises:
        ValueError: they are others, or of other types.
    """
    try:
        demand = Demand(**values)
        floors = (demand.accuracy, demand.slo_ms)
        fine = all(isinstance(x, int | float) for x in (demand.latency_ms, demand.qps)) and all(
            x is None or isinstance(x, int | float) for x in floors
        )
    except TypeError as error:
        raise ValueError(f"no demand: {error}") from error
    if not fine or not isinstance(demand.task, str):
        raise ValueError("no demand: a field is of another type")
    return demand


def _raise(most: dict[tuple[TaskName, SloClass], Demand], demands: Iterable[Demand]) -> None:
    """Keep the larger demand of each class."""
    for demand in demands:
        key = _key(demand)
        if key not in most or demand.qps > most[key].qps:
            most[key] = demand


def _key(demand: Demand) -> tuple[TaskName, SloClass]:
    return (demand.task, (demand.latency_ms, demand.accuracy))
