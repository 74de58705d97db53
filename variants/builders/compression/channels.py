"""The channels of a graph: which have to leave together, and what leaves with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Units = NDArray[np.int64]
Mask = NDArray[np.bool_]

STAYS = 0
"""The unit that never leaves; what is tied to it stays too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An initialiser loses the positions of units that leave."""

    name: str
    axis: int
    units: Units
    maker: str | None = None
    """The layer whose outputs these are, if the initialiser makes them; by its first output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The multiply-adds of one row in a layer, by what goes in and what comes out."""

    work: int
    sides: tuple[Units, ...]
    """Work shrinks with the share of each that is kept."""

    def left(self, kept: Mask) -> float:
        """Multiply-adds when only ``kept`` units are left."""
        return self.work * float(np.prod([kept[units].mean() for units in self.sides]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """The units of a graph. Those tied together bear the same number."""

    count: int
    """Numbers are below it."""
    cuts: Sequence[Cut]
    depthwise: Sequence[tuple[str, Units]]
    """First output of a node whose groups are its channels."""
    reshapes: Sequence[tuple[str, list[int], int, Units]]
    """Output of a reshape, its shape with -1 for rows, the axis of channels, their units."""
    layers: Sequence[Layer]
    groups: Sequence[Units]
    """Units that may leave, one by one; together in a group are those that the same layers make."""

    def work(self, kept: Mask) -> float:
        """Multiply-adds of one row when only ``kept`` units are left."""
        return sum(layer.left(kept) for layer in self.layers)

    def touched(self, units: Units) -> list[Layer]:
        """Layers that make or read any of these."""
        return [
            layer
            for layer in self.layers
            if any(np.isin(side, units).any() for side in layer.sides)
        ]
