"""How much slower than its profiles a device kind is, by those of its variants that run.

What else computes on a machine slows whatever runs there. Variants that run show it, and are
counted with what their batches take. One that does not run shows nothing: by its profile it would
look cheaper than those that do, however much dearer it is.

So what a batch takes longer than its profile says is taken to be a product of two factors: one of
the machine, which all variants of a kind share, and one of the variant, by which its profile is
wrong. The logarithms of both are normal around 0. What is known of the machine's is then the mean
of what variants show, drawn towards 0, the less so the more of them there are: the best linear
unbiased prediction of a random effect (G. K. Robinson, *That BLUP is a Good Thing*, Statistical
Science 1991). In place of the mean stands the median, so that one profile that is far off says
nothing of the others.
"""

from collections.abc import Iterable
from math import log, sqrt
from statistics import median_low
from typing import NamedTuple

MACHINE = 0.5
"""Standard deviation of the logarithm of a machine's factor: half as long again is usual where
others compute beside it."""
OWN = 0.2
"""The same of a variant's own factor: profiles are measured while nothing else runs."""
LEAST = log(1.5)
"""Less is not said of others: it may as well be that batches vary, and that profiles are wrong."""
SURE = 0.3
"""Of a variant of which less is known nothing is taken: standard deviation of its logarithm."""


class Slowness(NamedTuple):
    """Of a variant that does not run, on a kind of which others do."""

    ratio: float
    """Logarithm of how many times its profile a batch takes, at least ``LEAST``."""
    error: float
    """Standard deviation of that."""


def shared_slowness(shown: Iterable[tuple[float, float]]) -> Slowness | None:
    """What variants of a kind that run say of those that do not; None if not that they are slow.

    Args:
        shown: of each variant that runs the logarithm of how many times its profile a batch takes,
            and how sure that is, as a standard deviation.
    """
    sure = [ratio for ratio, error in shown if error <= SURE]
    if not sure:
        return None
    part = MACHINE**2 / (MACHINE**2 + OWN**2 / len(sure))
    ratio = median_low(sure) * part
    return Slowness(ratio, sqrt(OWN**2 + MACHINE**2 * (1.0 - part))) if ratio >= LEAST else None
