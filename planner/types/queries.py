"""A query as selection sees it, who asks, and what comes of it: a choice, or a refusal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from planner.types.candidates import Candidate, WorkerView
from variants.errors import Alternative
from variants.types import Prefer, TaskName, VariantName, WorkerId


class Client(NamedTuple):
    """Who asks, as far as fairness needs to know: by the name of a key, never the key."""

    name: str = ""
    weight: float = 1.0
    """Its share is in proportion to this."""


ANYBODY = Client()
"""All who ask without a key of their own."""
DEFAULT_PRIORITY = 100
"""Of a query that names none."""
MAX_PRIORITY = 2**16 - 1
"""Lower ones, which larger numbers are, count as this."""


class Query(NamedTuple):
    """One request as selection sees it."""

    task: TaskName
    rows: int
    received_ms: float
    """When its first byte arrived, on the same clock as ``now_ms``."""
    latency_ms: float
    accuracy: float | None = None
    cost: float | None = None
    prefer: Prefer = Prefer.COST
    best_effort: bool = False
    variant: VariantName | None = None
    """Pinned: only this variant may answer."""
    draw: int = 0
    """Random bits for the choice among workers, from the caller."""
    avoid: WorkerId | None = None
    """A worker that has just refused or lost this query."""
    priority: int = DEFAULT_PRIORITY
    """1 is the highest."""
    client: Client = ANYBODY
    unread: tuple[tuple[str | None, str], ...] = ()
    """Of texts: the ways of reading by which they are too long, with what is to be said of versions
    that read so. None stands for the task's own."""
    version: str | None = None
    """Named: only variants of the model version of this label, ``cnn-v2``, may answer."""

    @property
    def of_some_versions(self) -> bool:
        """Whether only some versions of its task may answer, so that no plan is made for it."""
        return self.version is not None or bool(self.unread)


class Reason(StrEnum):
    """Why a variant was chosen."""

    CHEAPEST_THAT_FITS = "cheapest_that_fits"
    MOST_ACCURATE_THAT_FITS = "most_accurate_that_fits"
    EARLIEST_COMPLETION = "earliest_completion"
    LEAST_ENERGY_THAT_FITS = "least_energy_that_fits"
    ENERGY_NOT_MEASURED = "energy_not_measured"
    """Least energy was asked for, and none that fits has a measured one: it is the cheapest."""
    PINNED = "pinned"
    LOADED_ON_DEMAND = "loaded_on_demand"
    BEST_EFFORT = "best_effort"
    PLANNED = "planned"
    CANARY = "canary"
    """The query was drawn for a new version that proves itself on a share of the queries."""
    CACHED = "cached"
    """Nothing was: a kept answer of the variant was given again."""


class PlacedReason(str):
    """A reason where workers of several zones could be asked: it is equal to the ``Reason``."""

    __slots__ = ("place", "why")
    place: str
    """Where the worker is, in words."""
    why: str
    """Why it is one there, in words."""


class Choice(NamedTuple):
    """The variant and worker picked, with the reason."""

    candidate: Candidate
    worker: WorkerView
    predicted_ms: float
    """From now to the reply, waiting included."""
    cold: bool
    """It has to be loaded first; ``predicted_ms`` includes that."""
    reason: Reason | PlacedReason
    meets_slo: bool
    """False only under best effort."""


class RefusalCode(StrEnum):
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    VARIANT_NOT_FOUND = "NOT_FOUND"
    SLO_INFEASIBLE = "SLO_INFEASIBLE"
    NO_WORKERS = "NO_WORKERS"
    ARTIFACT_INVALID = "ARTIFACT_INVALID"
    COLD = "COLD"
    OVERLOADED = "OVERLOADED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing was chosen: a true reason for every variant, and what comes closest."""

    code: RefusalCode
    message: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Variant name to its reason: ``p95 31.0 ms > 20 ms``."""
    alternatives: tuple[Alternative, ...] = ()
    """At most three, nearest first."""
    load: tuple[Candidate, WorkerView] | None = None
    """With ``COLD``: what to start loading, and where."""
    retry_after_s: float | None = None
    """With ``COLD`` and ``NO_WORKERS``: when to ask again; None where that is not known."""
    awaited: bool = False
    """With ``NO_WORKERS``: a worker is expected while the query has time, so that it may wait."""
    shed: bool = False
    """With ``OVERLOADED``: for what it costs, so that no room is kept for such a query."""
