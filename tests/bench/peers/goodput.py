"""Goodput: the highest rate of Poisson arrivals of which 99 % are answered in time."""

from collections.abc import Callable

SHARE = 0.99
DOWN = 0.65
STEPS = 4


def goodput(share_at: Callable[[float], float], begin: float) -> float:
    """The highest rate that holds, to within a fortieth of the last step down.

    Args:
        share_at: the share in time at a rate, in queries per second; asked once for each.
        begin: where to begin: what clients that wait for their answers get, for example.

    Returns:
        0 where no rate holds.
    """
    rate, above = begin, None
    if rate <= 0.0:
        return 0.0
    while share_at(rate) < SHARE:
        above, rate = rate, rate * DOWN
        if rate < begin / 100:
            return 0.0
    if above is None:
        return rate
    for _ in range(STEPS):
        middle = (rate + above) / 2
        if share_at(middle) >= SHARE:
            rate = middle
        else:
            above = middle
    return rate
