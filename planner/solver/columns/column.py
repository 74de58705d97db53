"""What one device can be: a kind, and what part of which class it serves by which option."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.latency_curve import SizedBatch
from planner.solver.options import Options

Array = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

NOTHING = 1e-9
"""Part of a class that is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A device with what it does; a part is of the whole rate of its class, in (0, 1]."""

    kind: int
    parts: Mapping[int, tuple[SizedBatch, float]]
    """Per option: the batch it runs in, and the part of its class."""

    def classes(self, options: Options) -> dict[int, float]:
        """The part of each class that it serves, by class."""
        made: dict[int, float] = {}
        for index, (_, part) in self.parts.items():
            demand = options.all[index].demand
            made[demand] = made.get(demand, 0.0) + part
        return made

    def slowdown(self, options: Options) -> float:
        """Times what profiles say that batches take on it."""
        return options.slowdown(self.kind, len({options.all[index].offer for index in self.parts}))
