"""Where demand comes from, and how far it is from there to the workers.

A zone is a name that nodes carry as a label; "" stands for all that have none. The zone of a query
is that of the gateway which took it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Zone = str
ClassKey = tuple[Any, ...]
"""Names a class of the demand, as ``planner.reconcile.demand_assignment.class_of`` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDemand:
    """Which part of each class is asked for in which zone."""

    shares: Mapping[ClassKey, Mapping[Zone, float]] = field(default_factory=dict)
    """They sum up to 1 for each class."""
    usual: Mapping[Zone, float] = field(default_factory=dict)
    """Of all classes together, for those of which nothing was asked lately."""
    round_trips_ms: Mapping[tuple[Zone, Zone], float] = field(default_factory=dict)
    """From the gateways of a zone to the workers of a zone and back; 0 where it is missing."""

    def of(self, key: ClassKey) -> Mapping[Zone, float]:
        """The part of a class that is asked for in each zone."""
        return self.shares.get(key) or self.usual or {"": 1.0}

    def away_ms(self, asked: Zone, worker: Zone) -> float:
        """The round trip from the gateways of a zone to the workers of another, or of the same."""
        return self.round_trips_ms.get((asked, worker), 0.0)


NOWHERE = ZoneDemand()
"""Nothing is known of zones: all demand and all workers are in one place."""
