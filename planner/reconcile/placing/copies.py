"""Copies: what classes of the demand need is held once more wherever there is room.

A copy gets its part of the class's queries, and without it those that find the others full are
refused.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf, sqrt
from operator import itemgetter

from planner.eviction.churn import pays_ahead
from planner.forecasting.estimator_of import DEMAND_WEIGHT
from planner.reconcile.demand_and_offers import DemandAndOffers
from planner.reconcile.diff import free
from planner.reconcile.worker_memory import WorkerMemory
from planner.types import Candidate
from variants.types import DeviceKindName, VariantKey

SPARE = 0.7
"""At a planned load below this other copies have time mostly, and one more has to pay for its load
(docs/decisions/0005-eviction.md)."""
VARIANCE_S = DEMAND_WEIGHT / (2.0 - DEMAND_WEIGHT)
"""Variance of a class's rate over the rate: Poisson arrivals, averaged with this weight for each
second."""

_Entry = tuple[VariantKey, Candidate, float]
"""A variant, and the rate of its class in queries per second."""


def copy(
    given: DemandAndOffers,
    hosts: Sequence[WorkerMemory],
    memories: Iterable[WorkerMemory],
    busy: float | None = None,
) -> None:
    """Place the variant of each class of the demand on every host of its kind that has room.

    Where queries had something loaded lately, one that is not there has to pay by that. So it has
    wherever the plan leaves workers time: then the others are seldom all full, and each tick would
    load others for a demand that differs by chance.

    Args:
        memories: of all workers: the copies there get their part, too.
        busy: the part of their time that the plan gives to its demand; None where that is all.
    """
    needed = {kind: _Needed(given.needed(kind)) for kind in {m.report.device_kind for m in hosts}}
    copies = _Copies(memories)
    part = busy if busy is not None and busy < SPARE else None
    for memory in hosts:
        kind = memory.report.device_kind
        least_mib = needed[kind].least_mib
        if least_mib > memory.left_mib:
            continue
        free_mib: float | None = None if part is not None else 0.0
        left_mib, held, there = memory.left_mib, memory.held, memory.there
        churn_per_s = memory.copy_churn_per_s
        for mib, here, (key, candidate, qps) in needed[kind].ranked:
            if mib > left_mib or (key in there) is not here or key in held:
                continue
            if free_mib is None and not here:
                free_mib = free(memory.report)
            if here:
                pays = True
            elif free_mib is not None and candidate.memory_mib <= free_mib:
                pays = True
                free_mib -= candidate.memory_mib
            elif part is not None:
                # For that part of the queries for which no other copy has time.
                count, load_s = copies.of(kind, key), candidate.load_ms / 1_000
                part_qps, urgent = qps / (1 + count), part**count
                pays = pays_ahead(part_qps, load_s, urgent, churn_per_s)
            elif memory.contested:
                pays = memory.pays_ahead(candidate, qps / (1 + copies.of(kind, key)), 1.0)
            else:
                pays = True
            if pays and memory.take(key, candidate):
                if not here:
                    copies.more(kind, key)
                left_mib = memory.left_mib
                if least_mib > left_mib:
                    break  # nothing has room any more


class _Needed:
    """What classes need on a kind."""

    __slots__ = ("least_mib", "ranked")

    def __init__(self, needed: Sequence[_Entry]) -> None:
        """``needed`` has the most wanted first."""
        counted = []
        for at, entry in enumerate(needed):
            qps = entry[2]
            counted.append((-qps, at, False, entry))
            counted.append((-qps - sqrt(qps * VARIANCE_S), at, True, entry))
        # Of equals, the one that is more wanted; no two have the same place where both count.
        counted.sort(key=itemgetter(0, 1))
        self.ranked = [(entry[1].memory_mib, here, entry) for _, _, here, entry in counted]
        """The most wanted first, each twice, with the memory that it takes in MiB: as it counts
        where it is not there, and, ``True``, as it counts on a worker where it is.

        For what is there, chance may have been against it: it counts with a standard deviation
        more. Otherwise two classes whose rates are nearly the same take turns in the last place.
        """
        self.least_mib = min([candidate.memory_mib for _, candidate, _ in needed], default=inf)


class _Copies:
    """How many workers of each kind hold a variant or are to hold it, counted where that is asked
    for: mostly each copy has room, or is there."""

    __slots__ = ("_counts", "_memories")

    def __init__(self, memories: Iterable[WorkerMemory]) -> None:
        self._memories = memories
        self._counts: dict[DeviceKindName, Counter[VariantKey]] | None = None

    def of(self, kind: DeviceKindName, key: VariantKey) -> int:
        counts = self._counts
        if counts is None:
            counts = self._counts = {}
            for memory in self._memories:
                counts.setdefault(memory.report.device_kind, Counter()).update(
                    {*memory.held, *memory.there}
                )
        return counts[kind][key]

    def more(self, kind: DeviceKindName, key: VariantKey) -> None:
        """One more worker is to hold it, by now."""
        if self._counts is not None:
            self._counts[kind][key] += 1
