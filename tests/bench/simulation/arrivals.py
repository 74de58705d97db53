"""When queries arrive, given the rate of each second: by chance, in spells, or in bursts.

Every stream is made on a clock of its own, on which one query comes per unit of time on average,
and laid over seconds by the rate: where the rate is high, that clock runs fast (the time change of
a point process, Daley and Vere-Jones, *An Introduction to the Theory of Point Processes*, section
7.4).
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HIGH, LOW = 2.5, 0.5
"""Factors on the rate in the two states of the Markov-modulated stream; their mean over time is 1
when the low state lasts three times as long."""
HIGH_S, LOW_S = 4.0, 12.0
"""Mean length of a stay in each."""
STEP_S = 0.1
"""The rate is constant within so long."""


class Arrivals(StrEnum):
    """The kind of a stream of queries."""

    POISSON = "Poisson"
    """Independent of each other."""
    MODULATED = "Markov-modulated"
    """Poisson, with a rate that jumps between two levels after exponential times."""
    GAMMA = "gamma"
    """Gaps from a gamma distribution: with a coefficient of variation above 1 they come in
    bursts."""


def arrival_times(
    kind: Arrivals, variation: float, rates: Sequence[float], random: np.random.Generator
) -> Floats:
    """Arrival times in s of one stream, ascending.

    Args:
        kind: of the stream.
        variation: the coefficient of variation of gamma gaps; the others do not use it.
        rates: queries per second in each second.
        random: where the randomness comes from.
    """
    steps = round(1 / STEP_S)
    fine = np.repeat(np.asarray(rates, dtype=float), steps)
    if kind is Arrivals.MODULATED:
        fine = fine * _levels(len(fine), random)
    elapsed = np.concatenate(([0.0], np.cumsum(fine * STEP_S)))
    times_s = np.arange(len(elapsed)) * STEP_S
    gaps = _gaps(kind, variation, elapsed[-1], random)
    points = np.cumsum(gaps)
    points = points[points < elapsed[-1]]
    found: Floats = np.interp(points, elapsed, times_s)
    return found


def _gaps(kind: Arrivals, variation: float, total: float, random: np.random.Generator) -> Floats:
    """Gaps of mean 1, enough of them to cover ``total`` but for the rarest of draws."""
    spread = variation if kind is Arrivals.GAMMA else 1.0
    count = int(total + 10 * spread * np.sqrt(total + 1) + 10 * (1 + spread**2))
    if kind is Arrivals.GAMMA:
        shape = 1.0 / variation**2
        return random.gamma(shape, 1.0 / shape, count)
    return random.exponential(1.0, count)


def _levels(count: int, random: np.random.Generator) -> Floats:
    """The factor on the rate in each step; the stream begins in the low state."""
    levels = np.empty(count)
    at, high = 0, False
    while at < count:
        stay_s = random.exponential(HIGH_S if high else LOW_S)
        until = min(count, at + max(1, round(stay_s / STEP_S)))
        levels[at:until] = HIGH if high else LOW
        at, high = until, not high
    return levels
