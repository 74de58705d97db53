"""Eviction: which loaded variants leave when memory is short.

A rule is a function from a resident to what it is worth keeping; the least worth leaves first.
Adding a rule is one function and one line in ``RULES``.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

Key = TypeVar("Key")

MIN_RESIDENCY_S = 5.0
"""Under ``modelless`` a variant stays at least this long, or two tasks could trade one place: each
load would drive out the other before it has served. Where loads take no time, there is nothing to
protect, and it should be 0."""

_LEAST_MIB = 1e-3
"""A variant that needs no memory must not divide by zero."""


class Resident(NamedTuple, Generic[Key]):
    """A loaded variant as eviction sees it. Times are on the clock of ``now_s``."""

    key: Key
    memory_mib: float
    load_s: float
    """What bringing it back would take."""
    popularity: float
    """Queries per second to expect (``planner.popularity``); for ``lfu`` and ``gdsf`` the uses
    since it was loaded."""
    last_used_s: float
    in_use: bool
    """A query is in flight or queued; it is never a victim then, under any rule."""
    loaded_s: float
    """When it was loaded."""
    inflation: float = 0.0
    """For ``gdsf``: the cache's clock L when it was last used. Whoever keeps the cache raises L to
    ``worth(victim, "gdsf")`` of each victim."""


def _modelless(resident: Resident[Any]) -> float:
    """Seconds of loading that keeping it is expected to save, per second and per MiB."""
    return resident.popularity * resident.load_s / max(resident.memory_mib, _LEAST_MIB)


def _lru(resident: Resident[Any]) -> float:
    return resident.last_used_s


def _lfu(resident: Resident[Any]) -> float:
    return resident.popularity


def _gdsf(resident: Resident[Any]) -> float:
    """GreedyDual-Size with Frequency: L + frequency x cost / size (Cherkasova 1998, section 3)."""
    return resident.inflation + _modelless(resident)


RULES: dict[str, Callable[[Resident[Any]], float]] = {
    "modelless": _modelless,
    "lru": _lru,
    "lfu": _lfu,
    "gdsf": _gdsf,
}


def worth(resident: Resident[Any], rule: str) -> float:
    """What a rule thinks a resident is worth keeping; comparable within one rule only.

    Raises:
        ValueError: there is no such rule.
    """
    try:
        return RULES[rule](resident)
    except KeyError:
        known = ", ".join(sorted(RULES))
        raise ValueError(f"eviction rule {rule!r} is unknown; there are: {known}") from None


def victims(
    residents: Iterable[Resident[Key]],
    need_mib: float,
    now_s: float,
    rule: str = "modelless",
    *,
    min_residency_s: float = MIN_RESIDENCY_S,
) -> tuple[Key, ...] | None:
    """What has to leave so that at least ``need_mib`` come free, least worth first.

    Nobody leaves in vain: a victim without which the others still suffice is spared, the most
    worth first. Ties leave in the order of last use, then as given. ``min_residency_s`` binds only
    ``modelless``; the other rules are kept as they were published.

    Returns None when what may leave does not free enough, and () when nothing is needed.

    Raises:
        ValueError: there is no such rule.
    """
    settled_s = now_s - min_residency_s if rule == "modelless" else float("inf")
    ranked = sorted(
        ((worth(r, rule), r.last_used_s, index, r) for index, r in enumerate(residents)),
        key=lambda entry: entry[:3],
    )
    chosen: list[Resident[Key]] = []
    freed_mib = 0.0
    for _, _, _, resident in ranked:
        if freed_mib >= need_mib:
            break
        if not resident.in_use and resident.loaded_s <= settled_s:
            chosen.append(resident)
            freed_mib += resident.memory_mib
    if freed_mib < need_mib:
        return None
    for resident in reversed(chosen.copy()):
        if freed_mib - resident.memory_mib >= need_mib:
            chosen.remove(resident)
            freed_mib -= resident.memory_mib
    return tuple(resident.key for resident in chosen)
