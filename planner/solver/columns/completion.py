"""What a set of pieces may still become: what the pieces behind the last one looked at can add.

Time is priced, so that each option adds what its pieces are worth over what their time costs.
``PricedMemory`` prices memory as well, which takes little and is enough to rank sets by.
``FilledMemory`` leaves memory as it is: at a price of time, which options may still come is a
knapsack in memory alone, whose best fillings are known for each memory that is left (Kellerer,
Pferschy and Pisinger, Knapsack Problems, 2004, section 2.3). It promises less, so that fewer sets
are looked at before it is proven that there is no better device. That a device serves a class by
one offer is left out by both.
"""

from typing import Protocol

import numpy as np

from planner.solver.capacity import SLACK
from planner.solver.columns.column import Array, Flags, Indices
from planner.solver.columns.lagrange import Relaxed

UNITS = 200
"""Into which memory is divided. What options need is rounded down, what is left is not."""


class Completion(Protocol):
    """Pieces in the order in which they are looked at, at several prices each."""

    start: Array
    """What the limits of an empty device are worth, at each price."""
    surplus: Array
    """What each piece adds over its time; shape ``(prices, pieces)``."""
    spare: Array
    """The same, if it adds something."""
    rise: Array
    """What a set gains by the first piece of an option, with what may still come of the others."""

    def rest(self, step: int, charged: Array) -> Array:
        """What options that begin at a piece or behind it can add to sets, at each price.

        Args:
            step: the piece.
            charged: memory that each set takes, divided among the options of an offer.
        """
        ...


class PricedMemory:
    """Time and memory at pairs of prices."""

    __slots__ = ("_rest", "rise", "spare", "start", "surplus")

    def __init__(self, found: Relaxed, order: Indices) -> None:
        self.start: Array = found.prices.sum(axis=1)
        self.surplus: Array = found.surplus[:, order]
        self.spare: Array = found.positive[:, order]
        charge = found.charge[:, found.of][:, order]
        total = found.total[:, found.of][:, order]
        self.rise: Array = total - self.spare + self.surplus - charge
        group = np.where(found.first[order], found.group[:, found.of][:, order], 0.0)
        self._rest: Array = np.cumsum(group[:, ::-1], axis=1)[:, ::-1]

    def rest(self, step: int, charged: Array) -> Array:
        """As in ``Completion``; the same for all sets."""
        return self._rest[:, step : step + 1]


class FilledMemory:
    """Time at a price, memory as it is."""

    __slots__ = ("_rows", "rise", "spare", "start", "surplus")

    def __init__(
        self, found: Relaxed, order: Indices, *, time: Array, worth: Array, memory: Array
    ) -> None:
        """
        Args:
            found: the relaxation of the pieces; its prices of time are taken.
            order: in which the pieces are looked at.
            time: of each piece, in the order of ``found``.
            worth: of each piece, likewise.
            memory: of the option of each piece, likewise.
        """
        self.start: Array = np.unique(found.prices[:, 0])
        surplus = worth - self.start[:, None] * time
        positive = np.maximum(surplus, 0.0)
        by_option = np.add.reduceat(positive, np.flatnonzero(found.first), axis=1)
        total = by_option[:, found.of][:, order]
        self.surplus: Array = surplus[:, order]
        self.spare: Array = positive[:, order]
        self.rise: Array = total - self.spare + self.surplus
        self._rows = _fillings(found.first[order], memory[order], total)

    def rest(self, step: int, charged: Array) -> Array:
        """As in ``Completion``."""
        left: Indices = ((1 - charged + SLACK) * UNITS + 1e-6).astype(np.int64)
        return self._rows[step].take(left, axis=1)


def _fillings(first: Flags, memory: Array, total: Array) -> list[Array]:
    """For each piece, what options that begin there or behind can add, by price and units left.

    Args:
        first: whether a piece is the first of its option.
        memory: of its option.
        total: what its option adds at each price.
    """
    needed = np.floor(memory * UNITS).astype(np.int64).tolist()
    best: Array = np.zeros((len(total), UNITS + 1))
    rows = [best] * first.size
    for step in range(first.size - 1, -1, -1):
        taken = needed[step]
        if first[step] and taken <= UNITS:
            filled = best[:, : UNITS + 1 - taken] + total[:, step, None]
            best = best.copy()
            np.maximum(best[:, taken:], filled, out=best[:, taken:])
        rows[step] = best
    return rows
