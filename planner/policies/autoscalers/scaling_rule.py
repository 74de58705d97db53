"""What an autoscaler looks at, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from planner.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is observed of a deployment over the time since it was asked last."""

    now_s: float
    target: int
    """Replicas that there are to be by the last answer."""
    ready: int
    """Of them, those that answer queries."""
    ongoing: float
    """Queries that wait or run, now."""
    busy: float
    """Busy parts of the devices' time, added up over the replicas that are ready."""
    arrived: int
    """Queries that came."""
    done: int
    """Queries that were answered."""
    mean_ms: float
    """From their arrival to their answer; 0 where there was none."""


class ScalingRule(Protocol):
    """One for each deployment."""

    period_s: float
    """How often it is asked."""

    def wanted(self, load: Load) -> int:
        """The number of replicas from now on, at least 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What a deployment runs, as its rule knows it before anything is observed."""

    candidate: Candidate
    """On the device kind that is preferred."""
    latency_ms: float
    """The tightest SLO that the variant meets."""
    batch: int
    """The largest batch within half of that."""


RuleOf = Callable[[Deployed], ScalingRule]
