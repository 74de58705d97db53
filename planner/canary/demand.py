"""The demand of which a share is asked of canaries, so that plans provide for it beforehand."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from planner.canary.some_versions import of_version
from planner.selection.eligibility import meets
from planner.selection.snapshot import build_snapshot
from planner.types import TRANSPORT_MS, Demand, DemandClass, Objective, TaskView, class_of
from variants.types import Canary, CatalogSnapshot, DeviceKindName, TaskName, VariantName


class CanaryDemand:
    """Takes the shares of a catalog's canaries out of the demand of their tasks.

    A share is asked of one variant of the version, as if the queries named it: of the one that
    selection will prefer. Where none meets a class of queries, these stay where they are.
    """

    def __init__(
        self, catalog: CatalogSnapshot, kinds: Collection[DeviceKindName], objective: Objective
    ) -> None:
        """
        Args:
            kinds: the device kinds that there are workers of, or may be.
        """
        self._kinds = frozenset(kinds)
        self._objective = objective
        self._shares: Mapping[TaskName, tuple[float, TaskView]] = dict(_shares(catalog))

    def divided(self, demands: Iterable[Demand]) -> tuple[Demand, ...]:
        """The same demand, divided between canaries and all else. Rates add up to what they did."""
        demands = tuple(demands)
        if not self._shares:
            return demands
        found: dict[DemandClass, Demand] = {}
        for demand in demands:
            for part in self._parts(demand):
                known = found.get(class_of(part))
                found[class_of(part)] = part if known is None else _both(known, part)
        return tuple(found.values())

    def _parts(self, demand: Demand) -> Iterable[Demand]:
        known = None if demand.variant is not None else self._shares.get(demand.task)
        variant = None if known is None else self._preferred(known[1], demand)
        if known is None or variant is None:
            return (demand,)
        share = known[0]
        own = replace(demand, qps=share * demand.qps, variant=variant, accuracy=None)
        if share == 1.0:
            return (own,)
        return (replace(demand, qps=(1.0 - share) * demand.qps), own)

    def _preferred(self, view: TaskView, demand: Demand) -> VariantName | None:
        order = {Objective.ACCURACY: view.by_accuracy, Objective.ENERGY: view.by_energy}
        asked = replace(demand, latency_ms=demand.tightest_ms)
        for candidate in order.get(self._objective, view.by_cost):
            if candidate.device_kind in self._kinds and meets(candidate, asked, TRANSPORT_MS):
                return candidate.variant
        return None


def _shares(catalog: CatalogSnapshot) -> Iterable[tuple[TaskName, tuple[float, TaskView]]]:
    sharing: list[Canary] = [one for one in catalog.canaries if one.share]
    if not sharing:
        return
    tasks = {one.task for one in sharing}
    snapshot = build_snapshot(
        replace(catalog, tasks=tuple(task for task in catalog.tasks if task.name in tasks)), ()
    )
    for one in sharing:
        own = of_version(snapshot, one.task, one.label)
        if own is not None:
            yield one.task, (one.share, own.tasks[one.task])


def _both(one: Demand, other: Demand) -> Demand:
    tightest_ms = min(one.tightest_ms, other.tightest_ms)
    return replace(one, qps=one.qps + other.qps, slo_ms=tightest_ms)
