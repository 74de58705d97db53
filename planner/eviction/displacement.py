"""Displacement: what a worker would lose if something had to be loaded there.

A worker says it as a ladder: the variants that may leave, in the order in which they would, with
what each frees and what its absence would cost. From it, whoever looks for a host reads the loss
for any number of MiB, without knowing the worker's rule, its rates or its load times.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import NamedTuple

from planner.eviction.rules import (
    LEAST_LOAD_S,
    LEAST_MIB,
    MOST_LOAD_S,
    VIOLATION_S,
    KeyT,
    Resident,
    loss_s,
)
from planner.eviction.victims import MIN_RESIDENCY_S, is_protected, ranked

MOST_RUNGS = 24
"""Longest ladder that is told. What would leave after that is told as one more rung."""

CREDIT = 0.5
"""How much of what leaves beyond the need is not counted as lost. From 0 to 0.75 loading differs by
1 % on the bench of eviction, with two to eight devices; with 1 it is 2 % more with eight, and with
0.25 1.7 % more on two days of a measured rate with two (docs/decisions/0005-eviction.md)."""
ROUNDING_MIB = 1e-6
"""Sums of sizes differ by less from one order of adding to another."""

Rung = tuple[float, float]
"""One variant that may leave: the MiB that come free, and what its absence would cost in seconds of
loading per second."""
Ladder = Sequence[Rung]


def ladder(
    residents: Iterable[Resident[KeyT]],
    now_s: float,
    rule: str = "modelless",
    *,
    losses_s: Mapping[KeyT, float] | None = None,
    min_residency_s: float = MIN_RESIDENCY_S,
    most: int = MOST_RUNGS,
) -> tuple[Rung, ...]:
    """What may leave a worker, in the order in which it would.

    The order is the rule's; the loss is ``planner.eviction.rules.loss_s`` under every rule, so
    that workers can be compared. What is in use or pinned is left out. What is protected comes
    last, because it leaves only for what is worth more.

    Args:
        residents: all that is loaded.
        now_s: on the clock of the residents' times.
        losses_s: what the absence of each would cost, where the residents' popularity counts
            something else than queries per second.
        min_residency_s: how long at most what queries asked for is protected after its load.
        most: rungs that are told one by one.
    """
    if losses_s is None and rule == "modelless":
        return rungs_of(_places(residents, now_s, min_residency_s), most)
    if losses_s is not None:
        known = [(r, losses_s[r.key]) for r in ranked(residents, rule)]
    else:
        known = [(r, loss_s(r)) for r in ranked(residents, rule)]
    return rungs_of(
        [
            Place(0.0, 0.0, at, r.memory_mib, rung_s, is_protected(r, now_s, min_residency_s))
            for at, (r, rung_s) in enumerate(known)
        ],
        most,
    )


class Place(NamedTuple):
    """A variant that may leave, and what says when: the smallest leaves first."""

    worth: float
    last_used_s: float
    order: int
    """Its place among all that may leave; no two have the same."""
    memory_mib: float
    absent_s: float
    """What its absence would cost."""
    protected: bool
    """It leaves after all that are not."""


_protected = itemgetter(5)


def rungs_of(places: list[Place], most: int = MOST_RUNGS) -> tuple[Rung, ...]:
    """The ladder of what may leave, which is sorted here; what comes after ``most`` is one more
    rung."""
    places.sort()
    if True in map(_protected, places):
        places = [p for p in places if not p[5]] + [p for p in places if p[5]]
    rungs = [(mib, absent_s) for _, _, _, mib, absent_s, _ in places[:most]]
    if len(places) > most:
        last = places[most:]
        rungs.append((sum([place[3] for place in last]), sum([place[4] for place in last])))
    return tuple(rungs)


def _places(
    residents: Iterable[Resident[KeyT]], now_s: float, min_residency_s: float
) -> list[Place]:
    """As ``planner.eviction.victims.ranked`` under ``modelless``, not yet sorted, with what the
    absence of each costs: what a variant is worth is made of that, and each would be looked at
    twice."""
    places: list[Place] = []
    new = tuple.__new__
    for index, resident in enumerate(residents):
        _, memory_mib, load_s, qps, last_used_s, in_use, loaded_s, _, _, urgent, pinned = resident
        if in_use or pinned:
            continue
        # Copies of ``absence_s`` and of ``per_mib``, for speed: it is asked of all that is loaded.
        waits_s = load_s if load_s > LEAST_LOAD_S else LEAST_LOAD_S
        if waits_s > MOST_LOAD_S:
            waits_s -= urgent * (waits_s - MOST_LOAD_S)
        absent_s = qps * (waits_s + VIOLATION_S * urgent)
        worth = absent_s / (memory_mib if memory_mib > LEAST_MIB else LEAST_MIB)
        young = now_s - loaded_s < min_residency_s
        protected = young and is_protected(resident, now_s, min_residency_s)
        # Its own constructor would take three times as long.
        place = (worth, last_used_s, index, memory_mib, absent_s, protected)
        places.append(new(Place, place))
    return places


def displaced_s(rungs: Ladder, need_mib: float) -> float:
    """What a load costs by what leaves for it, in seconds of loading per second.

    The loss is that of the rungs down to the need. What comes free beyond it serves the next load,
    so ``CREDIT`` of that part is not counted.

    Args:
        need_mib: what has to come free.

    Returns:
        0 when nothing has to leave; infinite when what may leave does not free enough.
    """
    if need_mib <= 0.0:
        return 0.0
    freed_mib = cost_s = 0.0
    for memory_mib, rung_s in rungs:
        freed_mib += memory_mib
        cost_s += rung_s
        if freed_mib + ROUNDING_MIB >= need_mib:
            # What takes no memory frees none, and does where only rounding is missing.
            spare = 1.0 - need_mib / freed_mib if freed_mib > need_mib else 0.0
            return cost_s * (1.0 - CREDIT * spare)
    return inf


def after_load(rungs: Ladder, free_mib: float, memory_mib: float) -> tuple[float, Ladder]:
    """What is free and what may leave once a load has begun, before its worker has said so.

    Args:
        memory_mib: what is loaded takes so much.

    Returns:
        The MiB that are free, negative where the load has to wait for more; and the ladder.
    """
    free_mib -= memory_mib
    gone = 0
    while free_mib < -ROUNDING_MIB and gone < len(rungs):
        free_mib += rungs[gone][0]
        gone += 1
    return free_mib, rungs[gone:]
