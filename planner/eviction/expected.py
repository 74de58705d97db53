"""What a memory may expect of its variants: how often queries will ask for each.

Workers and the simulator's devices have it from here, so that worth means the same in both. All
rates are of queries, not of rows: a load, or a refusal, is of a query.
"""

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

from planner.eviction.rules import KeyT

KeyT_contra = TypeVar("KeyT_contra", bound=Hashable, contravariant=True)


class Rates(Protocol[KeyT_contra]):
    """An account of what is asked for, such as ``planner.eviction.popularity.Popularity``."""

    def rates(
        self, keys: Iterable[KeyT_contra], now_s: float, *, newcomers: bool = True
    ) -> list[float]: ...


def learned_qps(account: Rates[KeyT], keys: Iterable[KeyT], now_s: float) -> list[float]:
    """Queries per second that are learned of each of ``keys``, in their order.

    What no query has asked for gets 0, not the credit of a newcomer: whatever is asked for comes
    before it.
    """
    return account.rates(keys, now_s, newcomers=False)


def expected_qps(learned: float, planned: float) -> float:
    """Queries per second to expect: what was learned or what the plan brings, whichever is more.

    So what was loaded for a forecast or a declared peak is not evicted before its queries come.
    """
    return planned if planned > learned else learned


def all_expected_qps(learned: Iterable[float], planned: Iterable[float]) -> list[float]:
    """As ``expected_qps`` for many variants at once, which takes a third of the time."""
    pairs = zip(learned, planned, strict=True)
    return [plan if plan > known else known for known, plan in pairs]
