"""Sizing: how many workers of each kind there should be.

Up at once, from what is expected over the time that a new worker takes; down only when even the
most that was expected lately needs fewer, and only when what replaces them is there. Before
anything is known of the demand everything there may be is opened, and nothing goes until it has
been watched for a while: a few minutes of too many workers cost less than the first queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.instance import instance
from planner.problem import LOAD, Kind, Planner, Pool, Solution
from planner.types import Demand, Objective, Snapshot
from variants.types import DeviceKind, DeviceKindName

SETTLED_S = 120.0
"""Demand has to be watched for so long before any worker goes."""
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
) -> tuple[dict[DeviceKindName, int], str]:
    """Worker counts by kind, with the reason.

    Args:
        most: upper bound for each kind.
        running: what was asked for so far.
        usable: what is there.
        envelope: at least ``expected``, class by class.
        settled: whether demand has been watched for long enough to let workers go.
    """
    now = {kind: running.get(kind, 0) for kind in most}
    market = _Market(snapshot, kinds, planner, tuple(pools))
    needed = market.cheapest(envelope, most)
    price_now, price_needed = market.price(now), market.price(needed)
    if needed == now:
        return now, "as many as needed"
    if not settled:
        needed = {kind: max(now[kind], needed[kind]) for kind in now}
        if needed == now:
            return now, "the demand is not known for long enough to let any go"
    if all(now[kind] >= needed[kind] for kind in now):
        if price_needed < price_now * WORTH_SHRINKING:
            return needed, "fewer suffice, and have for a while"
        return now, "hardly fewer would do"
    if price_needed >= price_now * WORTH_SHRINKING and market.suffice(expected, now, most):
        return now, "enough for what is expected"
    grown = {kind: max(now[kind], needed[kind]) for kind in now}
    if grown != now:
        return grown, "more is expected than these can serve"
    if any(usable.get(kind, 0) < needed[kind] for kind in now):
        return now, "their replacements are not there yet"
    return needed, "their replacements are there"


@dataclass(frozen=True, slots=True)
class _Market:
    """What can be bought, and the planner that decides."""

    snapshot: Snapshot
    kinds: Mapping[DeviceKindName, DeviceKind]
    planner: Planner
    pools: tuple[Pool, ...]

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
        found, hopeless = self._solve(demand, counts)
        if found is not None and not found.feasible:
            return False
        return not hopeless or hopeless == self._solve(demand, most)[1]

    def _solve(
        self, demand: Sequence[Demand], counts: Mapping[DeviceKindName, int]
    ) -> tuple[Solution | None, tuple[Demand, ...]]:
        """The cheapest solution, and what nobody could serve."""
        made = instance(
            self.snapshot,
            (
                Kind(
                    name=name,
                    count=count,
                    memory_mib=self.kinds[name].memory_mib,
                    usd_per_hour=self.kinds[name].usd_per_hour,
                )
                for name, count in sorted(counts.items())
                if name in self.kinds
            ),
            demand,
            load=LOAD,
            pools=self.pools,
        )
        if not made.problem.demand:
            return None, made.hopeless
        return self.planner(made.problem, Objective.COST), made.hopeless

    def price(self, counts: Mapping[DeviceKindName, int]) -> float:
        """USD per hour."""
        return sum(n * self.kinds[k].usd_per_hour for k, n in counts.items() if k in self.kinds)
