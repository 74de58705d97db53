"""What may be asked for beside the plan, so that variants have a worth without any work."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from math import inf

from planner.reconcile.demand_and_offers import DemandAndOffers
from planner.selection.eligibility import ProfileRule, profile_rule
from planner.types import Demand
from variants.types import DeviceKindName, TaskName, VariantKey


class Beside:
    """The rates of queries that may come for variants although they are not planned for there."""

    def __init__(
        self,
        given: DemandAndOffers,
        served: Collection[TaskName],
        coming: Mapping[tuple[DeviceKindName, VariantKey], float],
    ) -> None:
        """Without a limit where nothing of a task is planned for, as it is not ``served``; what is
        ``coming`` to workers that do not hold it yet counts."""
        self._given = given
        self._served = served
        self._coming = coming
        self._left: dict[TaskName, list[tuple[Demand, ProfileRule, float]]] = {}
        self._some: dict[DeviceKindName, set[VariantKey]] = {}
        self.qps = cache(self._qps)
        """The rate for a variant on a kind."""

    def may_come(self, demand: Iterable[Demand], part: float) -> None:
        """Say that this part of a demand may come."""
        for wanted in demand:
            rule_of = profile_rule(wanted, self._given.transport_ms)
            qps = part * self._given.queries_qps(wanted)
            self._left.setdefault(wanted.task, []).append((wanted, rule_of, qps))

    def some(self, kind: DeviceKindName) -> Collection[VariantKey]:
        """The variants that any may come for."""
        if not self._some:
            self._find()
        return self._some.get(kind, ())

    def _find(self) -> None:
        """Class by class: what meets one is known mostly."""
        given, served = self._given, self._served
        for kind, offers in given.offers.items():
            self._some[kind] = {key for key in offers if key[0] not in served}
        for (kind, key), qps in self._coming.items():
            if qps > 0.0 and key in given.offers.get(kind, ()):
                self._some[kind].add(key)
        for task, asked in self._left.items():
            for wanted, _, qps in asked if task in given.views else ():
                for each in given.suitable(wanted) if qps > 0.0 else ():
                    self._some[each.device_kind].add((each.task, each.variant))

    def _qps(self, kind: DeviceKindName, key: VariantKey) -> float:
        if key[0] not in self._served:
            return inf
        candidate = self._given.offers[kind][key]
        asked = self._left.get(key[0], ())
        asked_qps = sum([qps for _, obstacle, qps in asked if obstacle(candidate) is None])
        return asked_qps + self._coming.get((kind, key), 0.0)
