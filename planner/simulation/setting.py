"""What a simulation is given besides its trace and its policy."""

from dataclasses import dataclass

from planner.problem import Kind, Objective
from variants.types import CatalogSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A catalog, the devices there may be, and the rules of the game."""

    catalog: CatalogSnapshot
    """Latencies are exact: profiles come with ``ProfileSource.EXACT``."""
    kinds: tuple[Kind, ...]
    objective: Objective = Objective.COST
    """``accuracy``: all devices are there and billed throughout. ``cost``: a device is billed from
    its order to its release, 60 s at least."""
    eviction: str = "modelless"
    """A name in ``planner.eviction.RULES``."""
    seed: int = 0
    tick_s: float = 10.0
    provision_s: float = 30.0
    """From the order of a device to its use; also how long a failed one is away."""
    instant: bool = False
    """Runs and loads take no time, every query is admitted, and nothing is planned."""
    failures_every_s: float | None = None
    """A worker, drawn at random, fails this often; it comes back empty."""
