"""Copies: what classes of the demand need is held once more wherever there is room.

A copy gets its part of the class's queries, and without it those that find the others full are
refused.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf, sqrt

from planner.eviction.churn import pays_ahead
from planner.forecasting.estimator_of import DEMAND_WEIGHT
from planner.reconcile.demand_and_offers import DemandAndOffers
from planner.reconcile.diff import free
from planner.reconcile.worker_memory import WorkerMemory
from planner.types import Candidate, Demand, class_of
from variants.types import DeviceKindName, VariantKey

SPARE = 0.7
"""At a planned load below this other copies have time mostly, and one more has to pay for its load
(docs/decisions/0005-eviction.md)."""
VARIANCE_S = DEMAND_WEIGHT / (2.0 - DEMAND_WEIGHT)
"""Variance of a class's rate over the rate: Poisson arrivals, averaged with this weight for each
second."""
SPREADING = 0.1
"""Where copies are spread, a class counts by its rate over this power of the number of its copies.
So of classes that are asked for alike that one is next which has the fewest, and twice as many
copies weigh as much as 7 % fewer queries. With 0 the same classes have copies everywhere and others
have none; with 0.25 and more, classes that are seldom asked for take places of those whose queries
find all others full (docs/decisions/0005-eviction.md)."""
STAYS, STAYS_SPREAD = 1.0, 3.0
"""By so many standard deviations of its rate more counts what is there: for chance may have been
against it. Where copies are spread all classes come to count alike, and more are near the border.
"""

_Entry = tuple[VariantKey, Candidate, float]
"""A variant, and the rate of its class in queries per second."""
_Ranked = tuple[float, int, bool, float, _Entry]
"""What comes first is less: by what it counts, and of equals the one that is more wanted, which is
its place; whether it is there, the MiB that it takes, and the entry. No two have the same place and
are both there."""


def copy(
    given: DemandAndOffers,
    hosts: Sequence[WorkerMemory],
    memories: Iterable[WorkerMemory],
    busy: float | None = None,
    *,
    spread: bool = False,
) -> None:
    """Place the variant of each class of the demand on every host of its kind that has room.

    Where queries had something loaded lately, one that is not there has to pay by that. So it has
    wherever the plan leaves workers time: then the others are seldom all full, and each tick would
    load others for a demand that differs by chance.

    Args:
        memories: of all workers: the copies there get their part, too.
        busy: the part of their time that the plan gives to its demand; None where that is all.
        spread: whether it counts how many copies there are already. The rates of the demand then
            have to be those that are expected: what was asked for in the last seconds differs by
            chance, and moves copies with each tick.
    """
    copies = _Copies(memories)
    needed = {
        kind: _Needed(given.needed(kind), partial(copies.of, kind) if spread else None)
        for kind in {memory.report.device_kind for memory in hosts}
    }
    part = busy if busy is not None and busy < SPARE else None
    for memory in hosts:
        kind = memory.report.device_kind
        least_mib = needed[kind].least_mib
        if least_mib > memory.left_mib:
            continue
        free_mib: float | None = None if part is not None else 0.0
        left_mib, held, there = memory.left_mib, memory.held, memory.there
        churn_per_s = memory.copy_churn_per_s
        taken: list[VariantKey] = []
        for _, _, here, mib, (key, candidate, qps) in needed[kind].ranked(memory):
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
                part_qps = qps / (1 + copies.of(kind, key))
                pays = memory.pays_ahead(candidate, part_qps, 1.0)
            else:
                pays = True
            if pays and memory.take(key, candidate):
                if not here:
                    taken.append(key)
                left_mib = memory.left_mib
                if least_mib > left_mib:
                    break  # nothing has room any more
        for key in taken:
            copies.more(kind, key)
            needed[kind].moved(key)


def with_new(expected: Sequence[Demand], present: Sequence[Demand]) -> Sequence[Demand]:
    """The demand that copies are spread for: what is expected, and classes that have come and are
    too new to be expected, at their present rates."""
    known = set(map(class_of, expected))
    new = [each for each in present if class_of(each) not in known]
    return (*expected, *new) if new else expected


class _Needed:
    """What classes need on a kind."""

    def __init__(
        self, needed: Sequence[_Entry], copies: Callable[[VariantKey], int] | None
    ) -> None:
        """
        Args:
            needed: the most wanted first.
            copies: how many workers of the kind hold a variant, or are to hold it; None where that
                does not matter.
        """
        self._entries = needed
        self._copies = copies
        self._stays = STAYS if copies is None else STAYS_SPREAD
        self._places: dict[VariantKey, list[int]] = {}
        """Where the entries of a variant are."""
        for at, entry in enumerate(needed):
            self._places.setdefault(entry[0], []).append(at)
        self._by_rate = self._in_order(dict.fromkeys(self._places, 0))
        self._by_copies: list[_Ranked] | None = None
        """The same in the order in which places that are short are given; once that is asked for,
        because the copies have to be counted for it."""
        self._counted: dict[VariantKey, int] = {}
        """The copies by which it is in order."""
        sizes = {key: candidate.memory_mib for key, candidate, _ in needed}
        self._all_mib = sum(sizes.values())
        self.least_mib = min(sizes.values(), default=inf)

    def ranked(self, memory: WorkerMemory) -> list[_Ranked]:
        """The most wanted first, each twice: as it counts where it is not there, and, ``True``, as
        it counts on a worker where it is. It is not to be changed.

        What is there counts for more. Otherwise two classes whose rates are nearly the same take
        turns in the last place.

        Where all have room it does not matter who has copies elsewhere.
        """
        copies = self._copies
        if copies is None or memory.left_mib >= self._all_mib:
            return self._by_rate
        if self._by_copies is None:
            self._counted = {key: copies(key) for key in self._places}
            self._by_copies = self._in_order(self._counted)
        return self._by_copies

    def moved(self, key: VariantKey) -> None:
        """There is another copy of a variant."""
        ranked, copies = self._by_copies, self._copies
        if ranked is None or copies is None:
            return
        before, count = self._counted[key], copies(key)
        self._counted[key] = count
        for at in self._places[key]:
            for here in (False, True):
                del ranked[bisect_left(ranked, self._ranked(at, here, before))]
                insort(ranked, self._ranked(at, here, count))

    def _in_order(self, copies: Mapping[VariantKey, int]) -> list[_Ranked]:
        """All entries, each as it counts beside so many copies of its variant."""
        return sorted(
            [
                self._ranked(at, here, copies[entry[0]])
                for at, entry in enumerate(self._entries)
                for here in (False, True)
            ]
        )

    def _ranked(self, at: int, here: bool, copies: int) -> _Ranked:
        """An entry as it counts beside so many copies, its own among them where it is ``here``."""
        entry = self._entries[at]
        qps = entry[2]
        if here:
            others = copies - 1 if copies > 1 else 0
            counts = qps + self._stays * sqrt(qps * VARIANCE_S)
        else:
            others, counts = copies, qps
        return (-counts / (1 + others) ** SPREADING, at, here, entry[1].memory_mib, entry)


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
