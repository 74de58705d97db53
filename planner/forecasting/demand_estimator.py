"""The estimator of demand: from what was counted to the demand that is to be planned for.

It remembers a forecast, the tightest SLO seen in each class and what provisioning learned,
so that its caller has to keep nothing but counts. It holds no clock, and its memory is bounded by
the number of SLO classes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from math import floor, inf, log, sqrt
from typing import Any, Generic, TypeVar

from planner.forecasting.chance_room import ChanceRoom
from planner.forecasting.demand import Counters, SloClass
from planner.forecasting.forecast import HORIZON_S, STEP_S, ClassForecast, Forecaster
from planner.forecasting.memory import Memory, as_key, as_list, listed, number, part
from planner.forecasting.provisioning import Provisioning
from planner.forecasting.row_costs import RowCosts
from planner.types import WHOLE_ROOM, Demand, KeptRoom, Objective
from variants.types import CatalogSnapshot, TaskName

QUANTILE = {Objective.ACCURACY: 0.5, Objective.COST: 0.5, Objective.ENERGY: 0.5}
"""Quantile of the forecast that work is divided for: the middle. Under ``accuracy`` that is enough,
because accuracy gives way first when more comes. Under ``cost`` and ``energy``, what workers are
there for beyond it follows from ``planner.forecasting.provisioning``; with 0.8, which stays too
high for minutes after a change, the diurnal workload violates 1.24 % instead of 0.87 at a cost 4 %
higher."""
ENVELOPE_S = 1_200.0
"""The longest that workers are kept which nobody needs."""
SETTLED_S = 7_200.0
"""Demand has to be watched for so long before all that are not needed may go."""
HOLD = 1 / 72
"""Part of that time for which none goes. That an installation starts from nothing says nothing of
its traffic, so neither provisioning nor room learn from this part. Then as many go each time that
the time watched has doubled: how far apart bursts are that did not come yet is anything between the
two times, by their logarithms (the prior of Jeffreys for a scale)."""
KNOWN = 1 / 120
"""Part of that time after which the fleet may go down to what is needed, as far as time goes, where
what comes stays as it is: a minute, in which everything starts."""
TIGHT_S = 60.0
"""How long the tightest SLO of a class is remembered, and up to twice as long."""

STAGES = 20
"""In which the fleet is let go at first; between them nothing changes for a tick."""
WHOLE = 0.99
"""Part of a step from which on it counts as over: ticks are not exactly as far apart as they should
be."""

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
    """The demand to plan for: what is expected of each class, and what to have workers for."""

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
            envelope_s: the longest that workers are kept which nobody needs.
            settled_s: how long demand has to be watched before all workers may go that are not
                needed.
        """
        self.expected: tuple[Demand, ...] = ()
        """A quantile of the demand over the horizon, each class with its tightest SLO."""
        self._quantile = QUANTILE[objective]
        self._forecast = ClassForecast(forecaster, step_s=step_s, horizon_s=horizon_s)
        self._tightest: Least[tuple[TaskName, SloClass]] = Least(TIGHT_S)
        self._envelope_s = envelope_s
        self._settled_s = settled_s
        self._observed_s = 0.0
        self._latest_s = -inf
        self._step_s = step_s
        self._open, self._open_squares, self._open_s = 0.0, 0.0, 0.0
        """Work that came since the last step of provisioning, the sum of its rows' squares, and for
        how long."""
        self._provisioning = Provisioning(step_s=step_s, horizon_s=horizon_s, linger_s=envelope_s)
        self._room = ChanceRoom(step_s=step_s, horizon_s=horizon_s)
        self._follows_losses = objective is Objective.COST
        self._ended, self._lost = 0.0, 0.0
        """Queries whose fate was decided since the last step, and those of them that were lost."""
        self._mix: tuple[Demand, ...] = ()
        """What was expected when anything was expected last."""
        self._mix_work = 0.0
        """Its work per second, in the unit of provisioning."""
        self._catalog: CatalogSnapshot | None = None
        self._costs: RowCosts | None = None

    def know(self, catalog: CatalogSnapshot) -> None:
        """Count room in what rows cost by this catalog from now on; before, each row is as much.

        What was learned is kept where the costs of rows have changed: the present mix is the
        measure of both. What was learned of tasks that the catalog has no more is forgotten.
        """
        if catalog is not self._catalog:
            self._catalog, self._costs = catalog, RowCosts(catalog)
            known = {one.task for one in catalog.variants} | {one.name for one in catalog.tasks}
            self._forecast.forget(lambda task: task not in known)
            self._measure()

    def _measure(self) -> None:
        """Have provisioning count in the present costs of rows."""
        work = self._work(self._mix)
        if work > 0.0 and self._mix_work > 0.0 and work != self._mix_work:
            self._provisioning.rescale(work / self._mix_work)
            self._open *= work / self._mix_work
            self._open_squares *= (work / self._mix_work) ** 2
        self._mix_work = work

    def _row_cost(self, task: TaskName, slo: SloClass) -> float:
        return 1.0 if self._costs is None else self._costs.of(task, slo)

    def _work(self, demands: Iterable[Demand]) -> float:
        """Of a demand, per second."""
        return sum(each.qps * self._row_cost(*_key(each)) for each in demands)

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
        self._mix = self.expected or self._mix
        self._mix_work = self._work(self._mix)
        self._latest_s = now_s
        self._count(counters, elapsed_s)

    def came_to(self, in_time: float, lost: float) -> None:
        """Take in what queries came to since the last call: so many were in time, so many late, or
        refused for want of time or room."""
        self._ended += in_time + lost
        self._lost += lost

    def _count(self, counters: Counters, elapsed_s: float) -> None:
        """Have provisioning and room learn of a step that has ended."""
        for key, rows in counters.items():
            cost = self._row_cost(*key)
            self._open += rows * cost
            self._open_squares += rows * cost**2
        self._open_s += elapsed_s
        came = (
            self._open / self._open_s,
            self._work(self.expected),
            sqrt(self._open_squares) / self._open_s,
        )
        if self._open_s < self._step_s * WHOLE:
            self._provisioning.begun(*came)
            return
        if self._observed_s >= HOLD * self._settled_s:
            self._provisioning.observe(*came)
            self._room.observe(self._ended, self._lost)
        self._open = self._open_squares = self._open_s = 0.0
        self._ended = self._lost = 0.0

    def _expected(self) -> tuple[Demand, ...]:
        return self.by_tightest(self._forecast.demand(self._quantile))

    def by_tightest(self, classes: Iterable[Demand]) -> tuple[Demand, ...]:
        """Classes with the tightest SLO that was seen in each lately."""
        return tuple(replace(each, slo_ms=self._tightest.get(_key(each))) for each in classes)

    @property
    def envelope(self) -> tuple[Demand, ...]:
        """What workers are to be there for: the classes that are expected, in their proportions,
        with as much work as ``planner.forecasting.provisioning`` finds."""
        mixed = self._work(self._mix)
        if mixed <= 0.0:
            return self.expected  # what nobody could answer is named all the same
        factor = self._provisioning.target(self._work(self.expected)) / mixed
        return tuple([d.at_rate(d.qps * factor) for d in self._mix]) if factor > 0.0 else ()

    @property
    def room(self) -> KeptRoom:
        """How much of the room for chance fleets are to have. Under other objectives than ``cost``,
        which tolerates that some queries are lost, that is all of it."""
        room = self._room
        return KeptRoom(room.part, room.asked, room.lost) if self._follows_losses else WHOLE_ROOM

    @property
    def watched(self) -> float:
        """Which part of the fleet may go as far as demand has been watched, from 0 to 1."""
        return self._watched_from(HOLD)

    @property
    def steady(self) -> float:
        """Which part of the fleet may go, by its price, where all the rest is needed: none unless
        what comes stays as it is, and what was lost beyond what may be has been made good. Only
        ``cost`` tolerates that some queries are lost."""
        stays = self._provisioning.stays and not self._room.owes
        return self._watched_from(KNOWN) if self._follows_losses and stays else 0.0

    def _watched_from(self, begin: float) -> float:
        """How far the logarithm of the time watched has come from this part of ``settled_s`` to all
        of it, from 0 to 1 in ``STAGES``."""
        begin_s = begin * self._settled_s
        part = log(max(self._observed_s, begin_s) / begin_s) / log(1.0 / begin)
        return min(1.0, floor(part * STAGES) / STAGES)

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "forecast": self._forecast.memory(),
            "tightest": self._tightest.memory(),
            "observed_s": self._observed_s,
            "latest_s": self._latest_s,
            "mix": [asdict(demand) for demand in self._mix],
            "provisioning": {**self._provisioning.memory(), "mix_work": self._mix_work},
            "room": self._room.memory(),
        }

    def recall(self, memory: Memory, shift_s: float, now_s: float) -> None:
        """Go on from what another one remembered; this one has seen nothing yet.

        Where that is longer ago than workers are kept, demand has to be watched anew before any go.

        Args:
            shift_s: to add to the times of the memory, for those of this one's clock.
            now_s: on this one's clock.

        Raises:
            ValueError: it is no memory of such an estimator. What is known now is not defined.
        """
        self._forecast.recall(part(memory, "forecast"), shift_s)
        self._tightest.recall(part(memory, "tightest"), shift_s)
        latest_s = number(memory, "latest_s") + shift_s
        observed_s = number(memory, "observed_s")
        mix = tuple(recalled_demand(values) for values in listed(memory, "mix"))
        provisioning = part(memory, "provisioning")
        if latest_s >= now_s - self._envelope_s:
            self._latest_s, self._observed_s, self._mix = latest_s, observed_s, mix
            if self._provisioning.fits(provisioning):
                self._provisioning.recall(provisioning)
                self._mix_work = number(provisioning, "mix_work")
            if "room" in memory:  # those before it was followed have none
                self._room.recall(part(memory, "room"))
            self._measure()
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


def _key(demand: Demand) -> tuple[TaskName, SloClass]:
    return (demand.task, (demand.latency_ms, demand.accuracy))
