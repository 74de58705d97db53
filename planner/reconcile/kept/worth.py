"""What routes are worth by what plans are for, and whether others gain enough to replace them.

*Cost.* What the time costs that they take: on a fleet that has time, another division saves money
only by what others can use then.

*Energy.* What their batches take beyond the idle draw of their devices, in watts, or in grams of
CO2 where every device kind says what its energy emits, as ``planner.solver.power`` counts.

*Accuracy.* The mean accuracy, less what full workers cost of it, as plans count it
(``planner.reconcile.demand_assignment``): without that, whoever fills workers more is always the
more accurate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from planner.energy import HOUR_S, J_PER_KWH
from planner.reconcile.kept.routes import Parts, shares_of, times_of
from planner.types import Candidate, Objective, Snapshot
from variants.types import DeviceKind, DeviceKindName, Route, WorkerId

SAVES = 0.1
"""A new division has to save this part of the cost, or energy, of the one that is there."""
LEAST_SAVED = 0.01
"""And at least this part of the cheapest worker, or of what the most frugal one draws busy."""
GAINS = 0.0005
"""Mean accuracy that a new division has to gain."""
FULL_COST, FULL_POWER = 0.25, 4
"""Mean accuracy that full devices cost: ``FULL_COST * load ** FULL_POWER``. Queries that find no
room take less accurate variants, and the fuller devices are, the more of them do
(docs/decisions/0007-planning.md has the sweep)."""


@dataclass(frozen=True)
class Worth:
    """What routes are worth on the workers of a snapshot."""

    snapshot: Snapshot
    kinds: Mapping[DeviceKindName, DeviceKind]
    """The device kinds of the catalog."""
    longer: Parts
    objective: Objective

    def gains(self, new: Sequence[Route], there: Sequence[Route]) -> bool:
        """Whether other routes gain enough to replace those that are there.

        Both serve all, on workers that are there.
        """
        if self._by_draw(there):
            now, then = self.unmeasured_qps(there), self.unmeasured_qps(new)
            # What was not measured comes after all that was.
            if abs(now - then) > SAVES * max(now, then):
                return then < now
        return self.gains_at(self.of(new, like=there), there)

    def gains_at(self, best: float, there: Sequence[Route]) -> bool:
        """Whether routes that are worth so much, or that take so little, gain enough."""
        now = self.of(there, like=there)
        if self.objective is Objective.ACCURACY:
            return best - now > GAINS
        least = self._least_draw(there) if self._by_draw(there) else self._cheapest
        return now - best > max(SAVES * now, LEAST_SAVED * least)

    def of(self, routes: Sequence[Route], like: Sequence[Route]) -> float:
        """What routes are worth under ``accuracy``, and else what they take: joules only where
        some are known of the routes ``like`` which they are compared with."""
        if self.objective is Objective.ACCURACY:
            return self.accuracy(routes)
        return self.draw(routes) if self._by_draw(like) else self.usd(routes)

    def _by_draw(self, there: Sequence[Route]) -> bool:
        """Whether joules are compared: else, where none are known, plans are for cost."""
        if self.objective is not Objective.ENERGY:
            return False
        return any(self._measured(self._of(route)) for route in there)

    @cached_property
    def prices(self) -> dict[DeviceKindName, float]:
        """USD per hour of each kind; where nothing has a price, what is saved is time."""
        prices = {name: kind.usd_per_hour for name, kind in self.kinds.items()}
        return prices if any(prices.values()) else dict.fromkeys(prices, 1.0)

    @cached_property
    def here(self) -> list[DeviceKind]:
        """The kinds of the workers."""
        names = {view.device_kind for view in self.snapshot.workers.values()}
        return [self.kinds[name] for name in sorted(names) if name in self.kinds]

    @cached_property
    def _counts_carbon(self) -> bool:
        return all(kind.carbon_g_per_kwh for kind in self.here)

    @cached_property
    def _cheapest(self) -> float:
        """USD per hour of the cheapest worker."""
        prices = self.prices
        return min((prices[kind.name] for kind in self.here), default=inf)

    def usd(self, routes: Iterable[Route]) -> float:
        """USD per hour of the time that routes take."""
        workers, prices = self.snapshot.workers, self.prices
        return sum(
            load * prices.get(workers[worker].device_kind, 0.0)
            for worker, load in self._loads(routes).items()
        )

    def accuracy(self, routes: Sequence[Route]) -> float:
        """Mean accuracy of what routes serve, less what full workers cost."""
        loads = self._loads(routes)
        left = sum(
            route.qps * (self._of(route).accuracy - FULL_COST * loads[route.worker] ** FULL_POWER)
            for route in routes
        )
        return left / max(self._qps(routes), 1e-9)

    def draw(self, routes: Iterable[Route]) -> float:
        """What batches take beyond the idle draw: watts, or grams of CO2 per hour; what was not
        measured left out."""
        return sum(
            route.qps / size * self.beyond_idle(each, size)
            for route in routes
            if self._measured(each := self._of(route)) and (size := self._size(route, each))
        )

    def _least_draw(self, routes: Iterable[Route]) -> float:
        """Of the most frugal of some routes while it runs, in the same unit."""
        return min(
            (
                self.beyond_idle(each, size) / max(each.busy_table.ms[size] / 1_000, 1e-9)
                for route in routes
                if self._measured(each := self._of(route)) and (size := self._size(route, each))
            ),
            default=0.0,
        )

    def beyond_idle(self, each: Candidate, size: int) -> float:
        """Of a batch: joules, or as many times a gram per hour as there are batches in a second."""
        kind = self.kinds[each.device_kind]
        assert each.energy is not None
        joules = each.energy.joules(size) - (kind.idle_w or 0.0) * each.busy_table.ms[size] / 1_000
        weight = 1.0
        if self._counts_carbon:
            curve = kind.carbon_g_per_kwh
            weight = HOUR_S / J_PER_KWH * sum(curve) / len(curve)
        return max(0.0, joules) * weight

    def _measured(self, each: Candidate) -> bool:
        return each.energy is not None and each.device_kind in self.kinds

    def unmeasured_qps(self, routes: Iterable[Route]) -> float:
        """What is served by variants whose energy is not known."""
        return sum(route.qps for route in routes if not self._measured(self._of(route)))

    def _qps(self, routes: Iterable[Route]) -> float:
        return sum(route.qps for route in routes)

    def _loads(self, routes: Iterable[Route]) -> dict[WorkerId, float]:
        shares = shares_of(routes, self.snapshot) or {}
        times = times_of(shares, self.snapshot, self.longer)
        return {worker: times[worker] * sum(held.values()) for worker, held in shares.items()}

    def _of(self, route: Route) -> Candidate:
        kind = self.snapshot.workers[route.worker].device_kind
        candidate = self.snapshot.tasks[route.task].of(route.variant, kind)
        assert candidate is not None
        return candidate

    @staticmethod
    def _size(route: Route, each: Candidate) -> int:
        return min(route.batch_size, each.table.max_batch)
