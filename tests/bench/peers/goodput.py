"""Goodput: the highest rate of Poisson arrivals of which 99 % are answered in time."""

from collections.abc import Callable
from itertools import count

SHARE = 0.99
DOWN = 0.65
STEPS = 4


def goodput(share_at: Callable[[float, int], float], begin: float) -> float:
    """The highest rate that holds, to within a fortieth of the last step down.

    A rate holds where two of three runs hold. A stall of the machine of 50 ms is a hundredth of a
    run of five seconds, so that a single run says more of the machine than of the server.

    Args:
        share_at: the share in time at a rate, in queries per second, with the arrivals of a seed;
            asked two or three times for each rate, with seeds that no other run has had.
        begin: where to begin: what clients that wait for their answers get, for example.

    Returns:
        0 where no rate holds.
    """
    rate, above = begin, None
    if rate <= 0.0:
        return 0.0
    seeds = count()

    def holds(at: float) -> bool:
        runs = [share_at(at, next(seeds)) >= SHARE for _ in range(2)]
        if runs[0] != runs[1]:
            return share_at(at, next(seeds)) >= SHARE
        return runs[0]

    while not holds(rate):
        above, rate = rate, rate * DOWN
        if rate < begin / 100:
            return 0.0
    if above is None:
        return rate
    for _ in range(STEPS):
        middle = (rate + above) / 2
        if holds(middle):
            rate = middle
        else:
            above = middle
    return rate
