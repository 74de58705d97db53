"""The eviction rules: what a loaded variant is worth keeping.

A rule is a function from a ``Resident`` to a number that is comparable within this rule only. What
has the smallest number leaves first, so a rule negates what should leave early. Adding a rule is
one function here, or in a file of its own, and one line in ``planner.eviction.registry``.
"""

from typing import Any, Generic, NamedTuple, TypeVar

KeyT = TypeVar("KeyT")

LEAST_LOAD_S = 0.05
"""What any reload costs at least: the queries of the variant wait for it, and the loading thread is
one for all."""

VIOLATION_S = 0.3
"""How many seconds of loading a query weighs that is refused because its variant is absent. More
costs loading: on the bench of residency 0.3 has 5 to 11 % fewer such queries than 0 at the same
loading, 1 has 8 to 17 % fewer at up to 6 % more (docs/decisions/0005-eviction.md)."""

MOST_LOAD_S = 1.0
"""So much of a load counts, at most, for a query that cannot wait for it. Such a query is refused
whether or not the variant is loaded then; where a load takes seconds, it mostly is not. To count
all of it would fill the memory with what loads longest, whatever answers that costs
(docs/decisions/0005-eviction.md)."""

LEAST_MIB = 1e-3
"""A variant that needs no memory must not divide by zero."""


class Resident(NamedTuple, Generic[KeyT]):
    """A variant as eviction sees it. Times are on the clock of ``now_s``."""

    key: KeyT
    memory_mib: float
    load_s: float
    """What bringing it back would take."""
    popularity: float
    """Under ``modelless`` the queries per second to expect (``planner.eviction.popularity``); under
    all other rules the number of uses since it was loaded."""
    last_used_s: float
    in_use: bool
    """A query is in flight or queued; it is never a victim then, under any rule."""
    loaded_s: float
    """When it was loaded."""
    inflation: float = 0.0
    """For ``gdsf``: the cache's clock L when the variant was last used. L rises to
    ``worth(victim, "gdsf")`` with each victim."""
    asked: bool = True
    """Whether a query has asked for it since it was loaded, or was the reason to load it. What was
    only loaded because memory was free is not protected."""
    urgent: float = 0.0
    """Share of its queries that cannot wait for its load (``planner.eviction.urgency``)."""
    pinned: bool = False
    """An operator has it stay: it is never a victim, under any rule."""


def absence_s(qps: float, load_s: float, urgent: float = 0.0) -> float:
    """What the absence of a variant costs, in seconds of loading per second.

    It is the rate of the variant's queries times what loading it again takes, and what it weighs
    that the urgent ones are refused; of long loads a part counts for those. What plans load and
    unload, what leaves for a load on demand and on which host, all follow from this.
    """
    waits_s = load_s if load_s > LEAST_LOAD_S else LEAST_LOAD_S
    if waits_s > MOST_LOAD_S:
        waits_s -= urgent * (waits_s - MOST_LOAD_S)
    return qps * (waits_s + VIOLATION_S * urgent)


def per_mib(loss_s: float, memory_mib: float) -> float:
    """What a loss is for each MiB that avoiding it takes."""
    return loss_s / (memory_mib if memory_mib > LEAST_MIB else LEAST_MIB)


def loss_s(resident: Resident[Any]) -> float:
    """What the absence of a resident would cost; see ``absence_s``."""
    return absence_s(resident.popularity, resident.load_s, resident.urgent)


def modelless(resident: Resident[Any]) -> float:
    """What keeping it is expected to save, in seconds of loading per second and per MiB.

    Workers ask it of all that they hold, so what it is made of is not called one by one.
    """
    return per_mib(
        absence_s(resident.popularity, resident.load_s, resident.urgent), resident.memory_mib
    )


def lru(resident: Resident[Any]) -> float:
    """Least recently used: the time of the last use."""
    return resident.last_used_s


def lfu(resident: Resident[Any]) -> float:
    """Least frequently used: the uses since it was loaded."""
    return resident.popularity


def gdsf(resident: Resident[Any]) -> float:
    """GreedyDual-Size with Frequency: L + frequency x cost / size (Cherkasova 1998, section 3)."""
    cost = resident.popularity * resident.load_s / max(resident.memory_mib, LEAST_MIB)
    return resident.inflation + cost
