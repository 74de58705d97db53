"""Moved: whether answers fall into classes in other parts than they did before, or elsewhere.

Of a class, ``r`` of ``m`` answers were of it first and ``x`` of ``n`` later. If its share is the
same ``p`` for both, then with the mixture ``q(s, n) = B(1/2 + s, 1/2 + n - s) / B(1/2, 1/2)`` of
all shares, and ``p(s, n) = p^s (1 - p)^(n - s)``,

    q(r, m) q(x, n) / p(r + x, m + n)

is a martingale over the answers that begins at 1, and what stands at the largest ``p(...)`` in
place of the true one is at no time more than it (universal inference: Wasserman, Ramdas and
Balakrishnan, 2020, section 8). So is the mean over all classes, and it is ever above ``1 / alpha``
with probability ``alpha`` at most (Ville, 1939), however often one looks and whatever the shares
are. By a class at a time it is much sharper than all classes at once where a few of many move, at
the price of the logarithm of how many there are.

Answers that come in clumps, such as the frames of one film, say less than as many by themselves. By
how much is the dispersion: Pearson's statistic over blocks of the first ones, for each degree of
freedom. So many answers count as one.
"""

from collections.abc import Sequence
from math import lgamma, log, pi

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""Answers in each cell of classes, ``(cells,)``."""
_Floats = NDArray[np.float64]

SURE = 2.0
"""A share has moved by what lies further apart than so many standard deviations."""


def evidence(first: Counts, later: Counts, dispersion: float = 1.0) -> float:
    """The logarithm of the evidence that the shares are not the same."""
    if not first.any() or not later.any():
        return 0.0
    there = (first + later) > 0
    one, other = first / dispersion, later / dispersion
    apart = _mixed(one[there], one.sum()) + _mixed(other[there], other.sum())
    each = apart - _largest((one + other)[there], one.sum() + other.sum())
    highest = float(each.max())
    return highest + log(float(np.exp(each - highest).sum()) / len(first))


def moved(first: Counts, later: Counts, dispersion: float = 1.0) -> float:
    """The part of the answers that falls into other cells, in [0, 1], without what chance alone
    would move: half the sum of the differences of the shares."""
    differences = _beyond_chance(first, later, dispersion)
    return max(float(differences.clip(0).sum()), float(-differences.clip(max=0).sum()))


def most_moved(first: Counts, later: Counts, most: int, dispersion: float = 1.0) -> list[int]:
    """The cells whose shares have moved most, beyond chance."""
    sizes = np.abs(_beyond_chance(first, later, dispersion))
    order = np.argsort(-sizes, kind="stable")[:most]
    return [int(cell) for cell in order if sizes[cell]]


def dispersion_of(blocks: Sequence[Counts]) -> float:
    """How many times as much the shares of blocks differ as those of single answers would; at least
    1."""
    table = np.array([block for block in blocks if block.sum()], np.float64)
    if len(table) < 2:
        return 1.0
    table = table[:, table.sum(axis=0) > 0]
    freedom = (len(table) - 1) * (table.shape[1] - 1)
    if not freedom:
        return 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    pearson = float(((table - expected) ** 2 / expected).sum())
    return max(1.0, pearson / float(freedom))


def shares(counts: Counts) -> _Floats:
    """Of all answers; 0 without any."""
    return np.asarray(counts / max(1, int(counts.sum())))


def _beyond_chance(first: Counts, later: Counts, dispersion: float) -> _Floats:
    """The differences of the shares, 0 where they may be chance."""
    m, n = int(first.sum()), int(later.sum())
    if not m or not n:
        return np.zeros(len(first))
    differences = shares(later) - shares(first)
    both = shares(first + later)
    spread = np.sqrt(dispersion * both * (1 - both) * (1 / m + 1 / n))
    return np.where(np.abs(differences) > SURE * spread, differences, 0.0)


def _mixed(counts: _Floats, of: float) -> _Floats:
    """The logarithm of ``q`` for each cell."""
    half = [lgamma(0.5 + s) + lgamma(0.5 + of - s) for s in counts.tolist()]
    return np.array(half) - lgamma(of + 1) - log(pi)


def _largest(counts: _Floats, of: float) -> _Floats:
    """The logarithm of the largest likelihood for each cell, of which none is empty."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(counts < of, (of - counts) * np.log1p(-counts / of), 0.0)
    return np.asarray(counts * np.log(counts / of) + rest)
