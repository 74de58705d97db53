"""What classes and rounding cuts are worth, and what devices cost: the duals of a relaxation."""

from dataclasses import dataclass

from planner.solver.columns.column import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The prices at the optimum of a relaxation, in USD per hour."""

    classes: Array
    """Per class, of serving all of it."""
    cuts: Array
    """Per rounding cut, of one more in its sum."""
    slopes: Array
    """Per piece of the rounding, of serving all of its class."""
    kinds: Array
    """Per kind, of a device, what it takes from counts and pools included."""
    asked: float
    """All that classes and cuts ask for, at these prices."""
    scarce: float
    """All counts and pools, at these prices; at most 0."""
