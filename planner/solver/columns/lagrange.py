"""What a device may still be worth: its limits of time and memory, relaxed at pairs of prices.

At a price of time and one of memory, a device is worth at most what both limits cost, and beside
that what each option adds over what it takes, if it adds anything. Memory is charged as it is, or
by a dual feasible function (Fekete and Schepers, Math. Program. 91, 2001): two variants that need
more than half of it never fit together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.solver.columns.column import Array, Flags, Indices

TIMES: Array = np.array([*np.arange(0.0, 1.15, 0.1), 1.25, 1.5, 2.0])
"""Prices of time that are tried, as parts of what a device must be worth."""
FILLED: Array = np.array([1.0, 0.5])
"""Parts of the memory at which what is worth most per memory fills it; what is taken last there
gives the price. 4 and 6 of them bounded no better."""
LEFT: Array = np.array([[t, m] for t in (1.0, 0.6, 0.3, 0.1) for m in (1.0, 0.6, 0.3, 0.1)])
"""Time and memory that may be left, for which the best pair is kept; with 4 instead of 16, up to a
third more labels."""
LATER: Array = np.array([0.0, 0.1, 0.25, 0.5])
"""Parts of the options, in the order of worth per time, that may be behind already; with 0 alone,
up to eight times as many labels."""


@dataclass(slots=True, kw_only=True)
class Relaxed:
    """Both limits priced: pairs of prices, and what each piece and each option adds at them."""

    prices: Array
    """Prices of all time and of all memory; shape ``(pairs, 2)``."""
    first: Flags
    """Whether a piece is the first of its option."""
    of: Indices
    """Per piece, the number of its option."""
    charge: Array
    """For the memory of each option; shape ``(pairs, options)``."""
    surplus: Array
    """Of each piece over its time; shape ``(pairs, pieces)``."""
    total: Array
    """What the pieces of each option that add something add; shape ``(pairs, options)``."""

    @property
    def positive(self) -> Array:
        """Of each piece, if it adds something."""
        made: Array = np.maximum(self.surplus, 0.0)
        return made

    @property
    def group(self) -> Array:
        """What each option adds, memory included, if it adds something."""
        made: Array = np.maximum(self.total - self.charge, 0.0)
        return made

    def at(self, kept: Flags) -> "Relaxed":
        """With these pieces only."""
        names, of = np.unique(self.of[kept], return_inverse=True)
        first = _first(of)
        surplus = self.surplus[:, kept]
        positive = np.maximum(surplus, 0.0)
        return Relaxed(
            prices=self.prices,
            first=first,
            of=of,
            charge=self.charge[:, names],
            surplus=surplus,
            total=np.add.reduceat(positive, np.flatnonzero(first), axis=1),
        )


def relaxed(
    option: Indices, time: Array, worth: Array, charges: Sequence[Array], enough: float
) -> Relaxed:
    """Prices at which both limits together bound well, whatever is left of them.

    Args:
        option: of each piece, ascending.
        time: of each piece.
        worth: of each piece.
        charges: ways to charge for the memory of each option.
        enough: what a device must be worth.
    """
    first = _first(option)
    starts = np.flatnonzero(first)
    times = TIMES * enough
    surplus = worth - times[:, None] * time
    total = np.add.reduceat(np.maximum(surplus, 0.0), starts, axis=1)
    rank = np.argsort(np.argsort(-worth[starts] / np.maximum(time[starts], 1e-12)))
    later = (rank[:, None] >= LATER * starts.size).astype(np.float64)
    ways = [charge[option[starts]] for charge in charges for _ in FILLED]
    parts = [part for _ in charges for part in FILLED]
    price = np.array([_price(total, way, part) for way, part in zip(ways, parts, strict=True)])
    added = np.array(
        [
            np.maximum(total - prices[:, None] * way, 0.0) @ later
            for prices, way in zip(price, ways, strict=True)
        ]
    )
    limits = LEFT[:, 0, None, None] * times + LEFT[:, 1, None, None] * price
    bounds = (limits[..., None] + added).reshape(len(LEFT), -1, len(LATER))
    way, at = np.divmod(np.unique(bounds.argmin(axis=1)), times.size)
    prices = np.stack([times[at], price[way, at]], axis=1)
    return Relaxed(
        prices=prices,
        first=first,
        of=np.cumsum(first) - 1,
        charge=prices[:, [1]] * np.array(ways)[way],
        surplus=surplus[at],
        total=total[at],
    )


def _first(option: Indices) -> Flags:
    first = np.ones(option.size, dtype=np.bool_)
    first[1:] = option[1:] != option[:-1]
    return first


def _price(total: Array, charge: Array, filled: float) -> Array:
    """The price of memory at each price of time: what the option adds per memory that fills it."""
    ratios = total / np.maximum(charge, 1e-9)
    order = np.argsort(-ratios, axis=1)
    last = (np.cumsum(charge[order], axis=1) < filled).sum(axis=1)
    ranked = np.take_along_axis(ratios, order, axis=1)
    made: Array = np.concatenate([ranked, np.zeros((len(total), 1))], axis=1)[
        np.arange(len(total)), last
    ]
    return made
