"""What a simulation is given besides its trace and its policy."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.planning_settings import DEFAULTS, PlanningSettings
from planner.solver.problem import AvailableKind
from planner.types import Objective
from variants.types import CatalogSnapshot, DeviceKindName, Peak

MOST_GATEWAYS = 64
"""Of one simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One machine that may be split in several ways, of which our own policy's plans choose."""

    layouts: tuple[Mapping[DeviceKindName, int], ...]
    """Workers of each kind; the machine begins with the first."""
    cores: Mapping[DeviceKindName, int]
    """Of one worker of each kind."""

    @property
    def machine_cores(self) -> int:
        """Those of the largest layout."""
        return max(sum(self.cores[kind] * n for kind, n in one.items()) for one in self.layouts)

    @property
    def most(self) -> dict[DeviceKindName, int]:
        """How many workers of each kind a layout has at most."""
        kinds = {kind: None for one in self.layouts for kind in one}
        return {kind: max(one.get(kind, 0) for one in self.layouts) for kind in kinds}

    @property
    def least(self) -> dict[DeviceKindName, int]:
        """How many plans leave at least: those of a kind that all layouts have alike."""
        return {
            kind: most if all(one.get(kind) == most for one in self.layouts) else 0
            for kind, most in self.most.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A catalog, the devices there may be, and the rules of the game."""

    catalog: CatalogSnapshot
    """Profiles come with ``ProfileSource.EXACT``: without a margin, and right unless
    ``latency_error`` or ``latency_noise`` says otherwise."""
    kinds: tuple[AvailableKind, ...]
    objective: Objective = DEFAULTS.objective
    """What plans optimise, and what queries prefer."""
    elastic: bool | None = None
    """Whether devices are ordered and released: then a device is billed from its order to its
    release, 60 s at least. Otherwise all devices are there and billed throughout. None: they are
    ordered and released unless accuracy counts."""
    eviction: str = DEFAULTS.eviction
    """A name in ``planner.eviction.registry.RULES``."""
    batching: str = DEFAULTS.batching
    """Of our own policy: a name in ``planner.batching.registry.BATCHING``."""
    linger_s: float = DEFAULTS.linger_s
    """Of our own policy: how long fewer devices must have sufficed before any goes, at most."""
    seed: int = 0
    tick_s: float = 10.0
    provision_s: float = 30.0
    """From the order of a device to its use; also how long a failed one is away."""
    instant: bool = False
    """Runs and loads take no time, every query is admitted, and nothing is planned."""
    loads_in_turn: bool = True
    """A device loads one variant after the other, as workers do; otherwise all at once."""
    peaks: tuple[Peak, ...] = ()
    """That were declared to our own policy; times from the beginning."""
    failures_every_s: float | None = None
    """A worker, drawn at random, fails this often; it comes back empty."""
    latency_error: tuple[float, float] = (1.0, 1.0)
    """Devices take so many times as long as the profiles say that policies are told: a factor for
    each profile, drawn between these two."""
    latency_noise: float = 0.0
    """Standard deviation of the logarithm of each batch's latency."""
    latency_pause: float = 1.0
    """How many times as long a batch takes that begins a millisecond or more after the one before
    it on its device: caches are cold, and cores slept."""

    split: Split | None = None
    """How the one machine that there is may be split; then ``kinds`` has as many devices of each as
    a layout has at most, those that are there are billed, and ``provision_s`` is what a worker
    takes to start."""
    live_correction: bool = True
    """Of our own policy: whether it decides by profiles corrected by live latency."""
    gateways: int = 1
    """Of our own policy: how many choose, each by what it knows of queues itself, at most
    ``MOST_GATEWAYS``."""
    by_replies: bool | None = None
    """Of our own policy: whether one gateway, too, knows of a queue only what it sent and what
    workers tell with their replies; otherwise it knows the queues as they are. None: where accuracy
    counts, because there workers also tell which batches form."""
    tasks_stay: bool = False
    """All queries of a task come to one gateway, as over connections that stay; otherwise each
    comes to one that is drawn."""

    @property
    def latency_is_uncertain(self) -> bool:
        """Whether devices play other latencies than the catalog's, interference aside."""
        wrong = self.latency_error != (1.0, 1.0) or self.latency_pause != 1.0
        return wrong or self.latency_noise > 0.0

    @property
    def replies_tell(self) -> bool:
        """Whether a gateway knows of a queue only what it has sent and what replies say."""
        if self.gateways != 1:
            return True
        if self.by_replies is None:
            return self.objective is Objective.ACCURACY and not self.instant
        return self.by_replies

    @property
    def fleet_is_elastic(self) -> bool:
        """Whether devices are ordered and released."""
        if self.split is not None:
            return True
        return self.objective is not Objective.ACCURACY if self.elastic is None else self.elastic

    @property
    def planning(self) -> PlanningSettings:
        """What an installation with these settings decides by."""
        return PlanningSettings(
            objective=self.objective,
            elastic=self.fleet_is_elastic,
            eviction=self.eviction,
            batching=self.batching,
            linger_s=self.linger_s,
        )
