"""Sizing: how many workers of each kind there should be.

Workers are added at once, for the demand that is expected over the time that a new worker takes to
start. Workers are stopped only when even the most that was expected lately needs fewer, and only
when what replaces them is running. Before anything is known of the demand all workers are started,
and none is stopped until the demand has been observed for a while: a few minutes of too many
workers cost less than the first queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.reconcile.problem_builder import build_problem
from planner.solver.power import idle_price
from planner.solver.problem import LOAD, AvailableKind, Planner, Pool, Solution
from planner.types import Demand, Objective, Snapshot
from variants.types import DeviceKind, DeviceKindName

WORTH_SHRINKING = 0.95
"""The smaller fleet has to cost less than this part of the present one."""


def size(
    snapshot: Snapshot,
    kinds: Mapping[DeviceKindName, DeviceKind],
    most: Mapping[DeviceKindName, int],
    running: Mapping[DeviceKindName, int],
    usable: Mapping[DeviceKindName, int],
    expected: Sequence[Demand],
    envelope: Sequence[Demand],
    planner: Planner,
    pools: Sequence[Pool] = (),
    *,
    settled: bool = True,
    objective: Objective = Objective.COST,
) -> tuple[dict[DeviceKindName, int], str]:
    """Worker counts by kind, with the reason.

    Args:
        most: upper bound for each kind.
        running: how many workers of each kind Ray Serve was last told to run.
        usable: how many workers of each kind are there and do not drain.
        envelope: at least ``expected``, class by class.
        settled: whether demand has been observed for long enough to stop workers.
        objective: under ``energy`` the fleet of least power is sought, if the idle draw of every
            kind is known; the fleet of least cost otherwise.
    """
    now = {kind: running.get(kind, 0) for kind in most}
    by_power = objective is Objective.ENERGY and all(
        kinds[kind].idle_w is not None for kind, count in most.items() if count and kind in kinds
    )
    aim = Objective.ENERGY if by_power else Objective.COST
    fleet = _FleetPlanner(snapshot, kinds, planner, tuple(pools), aim)
    needed = fleet.cheapest(envelope, most)
    if needed == now:
        return now, "as many as needed"
    price_now, price_needed = fleet.price(now, envelope), fleet.price(needed, envelope)
    if not settled:
        needed = {kind: max(now[kind], needed[kind]) for kind in now}
        if needed == now:
            return now, "the demand is not known for long enough to let any go"
    if all(now[kind] >= needed[kind] for kind in now):
        if price_needed < price_now * WORTH_SHRINKING:
            return needed, "fewer suffice, and have for a while"
        return now, "hardly fewer would do"
    if price_needed >= price_now * WORTH_SHRINKING and fleet.suffice(expected, now, most):
        return now, "enough for what is expected"
    grown = {kind: max(now[kind], needed[kind]) for kind in now}
    if grown != now:
        return grown, "more is expected than these can serve"
    if any(usable.get(kind, 0) < needed[kind] for kind in now):
        return now, "their replacements are not there yet"
    return needed, "their replacements are there"


@dataclass(frozen=True, slots=True)
class _FleetPlanner:
    """The device kinds that can be opened, and the solver that chooses among them."""

    snapshot: Snapshot
    kinds: Mapping[DeviceKindName, DeviceKind]
    planner: Planner
    pools: tuple[Pool, ...]
    objective: Objective

    def cheapest(
        self, demand: Sequence[Demand], most: Mapping[DeviceKindName, int]
    ) -> dict[DeviceKindName, int]:
        """The cheapest worker counts for a demand; those that serve most where none serve all."""
        found, _ = self._solve(demand, most)
        counts = dict.fromkeys(most, 0)
        for kind in found.devices if found else ():
            counts[kind] += 1
        return counts

    def suffice(
        self,
        demand: Sequence[Demand],
        counts: Mapping[DeviceKindName, int],
        most: Mapping[DeviceKindName, int],
    ) -> bool:
        """Whether given workers serve all of a demand that any could."""
        found, unanswerable = self._solve(demand, counts)
        if found is not None and not found.feasible:
            return False
        return not unanswerable or unanswerable == self._solve(demand, most)[1]

    def _solve(
        self,
        demand: Sequence[Demand],
        counts: Mapping[DeviceKindName, int],
        *,
        powered: bool = False,
    ) -> tuple[Solution | None, tuple[Demand, ...]]:
        """The cheapest solution, and the classes that no device could serve."""
        made = build_problem(
            self.snapshot,
            self._available(counts, powered=powered),
            demand,
            load=LOAD,
            pools=self.pools,
        )
        if not made.problem.demand:
            return None, made.unanswerable
        return self.planner(made.problem, self.objective), made.unanswerable

    def _available(
        self, counts: Mapping[DeviceKindName, int], *, powered: bool
    ) -> tuple[AvailableKind, ...]:
        return tuple(
            AvailableKind(
                name=name,
                count=count,
                memory_mib=self.kinds[name].memory_mib,
                usd_per_hour=self.kinds[name].usd_per_hour,
                idle_w=self.kinds[name].idle_w,
                carbon_g_per_kwh=self.kinds[name].carbon_g_per_kwh,
                powered=powered,
            )
            for name, count in sorted(counts.items())
            if name in self.kinds
        )

    def price(self, counts: Mapping[DeviceKindName, int], demand: Sequence[Demand]) -> float:
        """USD per hour; or the power of so many workers that serve this demand."""
        if self.objective is Objective.COST:
            return sum(n * self.kinds[k].usd_per_hour for k, n in counts.items() if k in self.kinds)
        found, _ = self._solve(demand, counts, powered=True)
        work = 0.0 if found is None or found.power is None else found.objective
        return work + idle_price(self._available(counts, powered=True))
