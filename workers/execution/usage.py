"""Usage: how often each variant is asked for on this worker.

Variants that have left are remembered as well. The executor counts each batch, and the loader each
query that asks for a variant that is not loaded. Rates are read when a variant has to leave, and
for the status.
"""

from collections.abc import Iterable

from planner.eviction.popularity import Popularity


class Usage(Popularity[int]):
    """The popularity of variants, by their 8-byte ids."""

    __slots__ = ()

    def rates(self, keys: Iterable[int], now_s: float) -> list[float]:
        """Queries per second to expect of each variant, in their order.

        A variant that no query has asked for gets 0, not the credit of a newcomer: whatever is
        asked for comes before it.
        """
        asked = list(keys)
        rates = super().rates(asked, now_s)
        return [rate if key in self else 0.0 for key, rate in zip(asked, rates, strict=True)]
