"""Where demand comes from, and how far it is from there to the workers.

A zone is a name that nodes carry as a label; "" stands for all that have none. The zone of a query
is that of the gateway which took it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from variants.types import TaskName, VariantName

Zone = str
ASKED_IN = "Asked for in "
"""How a sentence begins that says what becomes of a zone's demand."""
CROSSES = "are served in"
"""What it says of demand that is served in another zone."""
ShareKey = tuple[TaskName, float, float | None, VariantName | None]
"""A class of the demand: task, latency SLO in ms, accuracy floor, pinned variant."""


def named(zone: Zone) -> str:
    """A zone in a sentence."""
    return f"zone {zone}" if zone else "no zone"


def share_key(
    task: TaskName, latency_ms: float, accuracy: float | None, variant: VariantName | None
) -> ShareKey:
    """What the shares of a class are kept by; queries that are pinned to a variant are one class,
    whatever their SLO."""
    return (task, latency_ms, accuracy, None) if variant is None else (task, 0.0, None, variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDemand:
    """Which part of each class is asked for in which zone."""

    shares: Mapping[ShareKey, Mapping[Zone, float]] = field(default_factory=dict)
    """They sum up to 1 for each class."""
    usual: Mapping[Zone, float] = field(default_factory=dict)
    """Of all classes together, for those of which nothing was asked lately; empty where nothing is
    known."""
    round_trips_ms: Mapping[tuple[Zone, Zone], float] = field(default_factory=dict)
    """From the gateways of a zone to the workers of a zone and back; 0 where it is missing."""

    def matters(self, zones: Collection[Zone]) -> bool:
        """Whether it makes a difference for workers in these zones: some of the demand has workers
        of its own zone and some elsewhere, or it is a way to workers. Where none of the zones has a
        name there are none."""
        if not any(zones) and not any(self.usual):
            return False
        if any(away_ms for (_, to), away_ms in self.round_trips_ms.items() if to in zones):
            return bool(self.usual)
        return len(zones) > 1 and any(zone in zones for zone in self.usual)

    def of(self, key: ShareKey) -> Mapping[Zone, float]:
        """The part of a class that is asked for in each zone."""
        return self.shares.get(key) or self.usual

    def away_ms(self, asked: Zone, worker: Zone) -> float:
        """The round trip from the gateways of a zone to the workers of another, or of the same."""
        return self.round_trips_ms.get((asked, worker), 0.0)


NOWHERE = ZoneDemand()
"""Nothing is known of zones: all demand and all workers are in one place."""
