"""Eviction: which loaded variants leave when memory is short.

``victims`` follows any rule of ``planner.eviction.registry``. ``room_for`` decides, under
``modelless``, about a load that queries ask for: whether what comes is worth more than what would
leave; ``turn_gain`` says which of several such loads is to be next.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

from planner.eviction.registry import rule_named
from planner.eviction.rules import LEAST_LOAD_S, KeyT, Resident, loss_s

MIN_RESIDENCY_S = 5.0
"""Under ``modelless`` a variant that was loaded for queries stays at least this long, unless what
comes is worth more. Otherwise two tasks could trade one place, each load driving out the other
before it has served. Where loads take no time there is nothing to protect, and it should be 0."""
PROTECTED_LOADS = 10.0
"""A variant is not protected for longer than so many times its load: then reloading it costs at
most a tenth of the time."""
WAITING_S = 0.5
"""A query that waits for a load, and would be refused without it, weighs as much as a loss of so
many seconds of loading per second: what a variant costs that takes 0.05 s to load and is asked for
ten times a second. The queries of what leaves can mostly wait for its reload, so it is large."""
HYSTERESIS = 1.2
"""What is loaded has to be worth so many times what leaves for it."""


def worth(resident: Resident[Any], rule: str) -> float:
    """What a rule thinks a resident is worth keeping; comparable within one rule only.

    Raises:
        InvalidInput: there is no such rule.
    """
    return rule_named(rule)(resident)


def victims(
    residents: Iterable[Resident[KeyT]],
    need_mib: float,
    now_s: float,
    rule: str = "modelless",
    *,
    min_residency_s: float = MIN_RESIDENCY_S,
) -> tuple[KeyT, ...] | None:
    """What has to leave so that at least ``need_mib`` come free.

    A victim without which the others still suffice is spared, the most worth first. Ties leave in
    the order of last use, then as given.

    Args:
        residents: all that is loaded.
        need_mib: what has to come free.
        now_s: on the clock of the residents' times.
        rule: a name in ``planner.eviction.registry.RULES``.
        min_residency_s: binds only ``modelless``; the other rules are kept as they were published.

    Returns:
        The victims' keys, least worth first; () when nothing is needed; None when what may leave
        does not free enough.

    Raises:
        InvalidInput: there is no such rule.
    """
    known = list(residents)
    if rule == "modelless":
        known = [r for r in known if not is_protected(r, now_s, min_residency_s)]
    chosen = _least_worth(known, need_mib, rule)
    return None if chosen is None else tuple(resident.key for resident in chosen)


def is_protected(
    resident: Resident[Any], now_s: float, min_residency_s: float = MIN_RESIDENCY_S
) -> bool:
    """Whether a variant was loaded for queries so recently that it has to serve some first."""
    there_s = now_s - resident.loaded_s
    if there_s >= min_residency_s or not resident.asked:
        return False
    stays_s = min(min_residency_s, PROTECTED_LOADS * resident.load_s)
    return stays_s > 0.0 and there_s < stays_s


def protected_until_s(resident: Resident[Any], min_residency_s: float = MIN_RESIDENCY_S) -> float:
    """Until when ``is_protected`` holds, but for rounding; before now where it does not."""
    if not resident.asked:
        return resident.loaded_s
    return resident.loaded_s + min(min_residency_s, PROTECTED_LOADS * resident.load_s)


def room_for(
    newcomer: Resident[KeyT],
    residents: Iterable[Resident[KeyT]],
    need_mib: float,
    now_s: float,
    *,
    waiting: bool,
    patience_s: float = 0.0,
    min_residency_s: float = MIN_RESIDENCY_S,
) -> tuple[KeyT, ...] | None:
    """What leaves for a variant that queries ask for, under ``modelless``; least worth first.

    Loading it has to save ``HYSTERESIS`` times what the absence of what leaves costs (``loss_s``),
    so that two variants of equal worth do not trade places. A query that waits for the load, and
    would be refused otherwise, also has leave what costs little. Where queries can wait for as long
    as what is loaded is protected, taking turns answers all of them: then one that waits counts
    beside the rate. What is protected leaves only for what is worth more by its rate alone.

    Args:
        newcomer: with its expected rate; whether it is in use or when it was loaded is not looked
            at.
        need_mib: what has to come free.
        waiting: a query waits for this load and can still be answered in time.
        patience_s: how much later than now its load may begin for that.

    Returns:
        The victims; () when nothing is needed; None when what is loaded is worth more, or in use.
    """
    known = list(residents)
    gain_s = loss_s(newcomer)
    limit_s = gain_s / HYSTERESIS
    if waiting:
        turn_s = min(min_residency_s, PROTECTED_LOADS * newcomer.load_s)
        limit_s = gain_s + WAITING_S if patience_s >= turn_s else max(limit_s, WAITING_S)
    chosen = _least_worth(
        [r for r in known if not is_protected(r, now_s, min_residency_s)], need_mib, "modelless"
    )
    if chosen is not None and sum(map(loss_s, chosen)) <= limit_s:
        return tuple(resident.key for resident in chosen)
    chosen = _least_worth(known, need_mib, "modelless")
    if chosen is not None and sum(map(loss_s, chosen)) < gain_s / HYSTERESIS:
        return tuple(resident.key for resident in chosen)
    return None


def turn_gain(
    newcomer: Resident[KeyT], residents: Iterable[Resident[KeyT]], need_mib: float
) -> float:
    """What the next turn to load brings, if a newcomer gets it: the queries per second that find
    their variant there, less those that do so no more, for each second of loading.

    Loads that wait for each other take the turns by it, the most first
    (``planner.eviction.turns``). What leaves is what is worth least, protected or not.

    Returns:
        Minus infinity when what may leave does not free enough.
    """
    gone = _least_worth(residents, need_mib, "modelless")
    if gone is None:
        return -inf
    more_qps = newcomer.popularity - sum([resident.popularity for resident in gone])
    return more_qps / max(newcomer.load_s, LEAST_LOAD_S)


def ranked(residents: Iterable[Resident[KeyT]], rule: str) -> list[Resident[KeyT]]:
    """The residents that are neither in use nor pinned, in the order in which they would leave."""
    value = rule_named(rule)
    # No two have the same index, so that residents themselves are never compared.
    order = sorted(
        [
            (value(r), r.last_used_s, index, r)
            for index, r in enumerate(residents)
            if not (r.in_use or r.pinned)
        ]
    )
    return [entry[3] for entry in order]


def _least_worth(
    residents: Iterable[Resident[KeyT]], need_mib: float, rule: str
) -> list[Resident[KeyT]] | None:
    """The residents of least worth that free ``need_mib``, none of them in vain.

    None if those that may leave do not suffice.
    """
    chosen: list[Resident[KeyT]] = []
    freed_mib = 0.0
    for resident in ranked(residents, rule):
        if freed_mib >= need_mib:
            break
        chosen.append(resident)
        freed_mib += resident.memory_mib
    if freed_mib < need_mib:
        return None
    for resident in reversed(chosen.copy()):
        if freed_mib - resident.memory_mib >= need_mib:
            chosen.remove(resident)
            freed_mib -= resident.memory_mib
    return chosen
