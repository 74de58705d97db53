"""What is chosen from for a query: variants on device kinds, workers, and a snapshot of all.

All are immutable except ``WorkerView``: between decisions, the gateway writes into it what it
learns of a worker's load. Decisions only read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from planner.energy import EnergyCurve
from planner.eviction.displacement import Ladder
from planner.eviction.query_rates import QueryRates
from planner.latency_table import LatencyTable
from planner.worker_starts import Wanted
from variants.slots import puts_of
from variants.types import (
    CatalogState,
    DeviceKindName,
    Task,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)

T = TypeVar("T")

ProfileKey = tuple[TaskName, VariantName, DeviceKindName]
"""Which profile: a variant of a task on a device kind."""
TRANSPORT_MS = 0.3
"""Allowance for the way to a worker and back, unless a snapshot says otherwise."""
RETURN_MS = 0.2
"""Kept back from what a worker may use: the reply's way home and its encoding."""
LATEST = 0.1
"""Weight of a reply in what a gateway knows of others, at least."""
SAME_REPLY_MS = 1.0
"""Replies that come within so long are those of one batch, and count as one."""
TOLD_AGAIN_MS = 5.0
"""With replies that come sooner after news of a worker's queue it tells none: many small batches
may end in that time, and of those that form meanwhile little is gained."""
LONGEST_SILENCE_MS = 5_000.0
"""Longer silences count as this: queues are forgotten by then."""


class FormingBatch(NamedTuple):
    """A batch that forms on a worker: queries of a variant that wait there, which more may join."""

    task: TaskName
    variant: VariantName
    rows: int
    """That wait for it."""
    most: int
    """Rows that it may grow to."""
    in_ms: float
    """Until it is expected to begin."""


class QueueNews(NamedTuple):
    """What a worker tells of its queue."""

    backlog_ms: float
    """Predicted time until all admitted work is done."""
    forming: Sequence[FormingBatch] = ()


@dataclass(slots=True, kw_only=True)
class WorkerView:
    """What a gateway knows of one worker. Written by the gateway, read by decisions."""

    id: WorkerId
    device_kind: DeviceKindName
    busy_until_ms: float = 0.0
    """When the worker is expected to have finished all it was given, on the gateway's clock."""
    own_until_ms: float = 0.0
    """The same as far as the gateway knows itself: by the latest reply, and what it sent since."""
    others_ms: float = 0.0
    """By how much its queue was longer than that when it replied, in the mean: others had sent."""
    silence_ms: float = 0.0
    """How long it had not replied until then, in the mean."""
    replied_ms: float = 0.0
    """When it replied last."""
    replies: int = 0
    """These means are of so many, the latest counting most."""
    shared: bool = True
    """Whether other gateways may send to it."""
    given_ms: float = -inf
    """When this gateway sent it a query last."""
    free_mib: float = 0.0
    draining: bool = False
    loading: tuple[tuple[TaskName, VariantName], ...] = ()
    """What it loads and will load: first what queries ask for."""
    loading_asked: int = 0
    """So many of them queries ask for; their loads come before the others, but for one of these
    that may be under way."""
    evictable: Ladder = ()
    """What may leave it for a load, in the order in which it would, and what that would cost."""
    churn_per_s: float = 0.0
    """The share of its memory that is evicted per second (``planner.eviction.churn``)."""
    beyond_ms: float = 0.0
    """What answers took lately beyond their time at the worker, as the worker has it: the way there
    and back, and whatever keeps its process from running."""
    answers: int = 0
    """That came from it."""
    zone: str = ""
    """Which zone its machine is in, as it says."""
    round_trip_ms: float = 0.0
    """To it and back, as measured; 0 where that is noise, as on one machine."""
    return_ms: float = RETURN_MS
    """Kept back from the time that a query has left when it is sent."""
    withheld: frozenset[VariantKey] = frozenset()
    """What it holds and is not asked for, while it is slow or says nothing: others of its kind hold
    that as well. There is nothing to load."""
    _loads: set[VariantKey] = field(default_factory=set, init=False, repr=False, compare=False)
    _loads_of: tuple[VariantKey, ...] = field(default=(), init=False, repr=False, compare=False)
    """The tuple that ``_loads`` was made of."""

    def given(self, added_ms: float, now_ms: float) -> None:
        """Note that a query is sent to it, which takes so long after all that it was given."""
        own_ms, busy_ms = self.own_until_ms, self.busy_until_ms
        self.given_ms = now_ms
        self.own_until_ms = (own_ms if own_ms > now_ms else now_ms) + added_ms
        self.busy_until_ms = (busy_ms if busy_ms > now_ms else now_ms) + added_ms

    def asked_by(self, askers: int | None, lately_ms: float, now_ms: float) -> None:
        """Note how many have lately sent it queries, as it says. Where others have not, its queue
        is longer than was thought for another reason: its batches took longer.

        Args:
            askers: None: it does not say.
            lately_ms: how long ago counts.
        """
        own = now_ms - self.given_ms <= lately_ms
        shared = askers is None or askers > own
        if self.shared and not shared:
            self.others_ms = self.silence_ms = 0.0
            self.replies = 0
        self.shared = shared

    def told(self, backlog_ms: float, now_ms: float) -> bool:
        """Take in how long it has work for, as it said with a reply. Returns whether it is free
        sooner than was thought."""
        since_ms = now_ms - self.replied_ms
        if since_ms > SAME_REPLY_MS and self.shared:
            own_ms = self.own_until_ms - now_ms
            beyond_ms = backlog_ms - own_ms if own_ms > 0.0 else backlog_ms
            self.replies += 1
            weight = max(1.0 / self.replies, LATEST)
            self.others_ms += (beyond_ms - self.others_ms) * weight
            self.silence_ms += (min(since_ms, LONGEST_SILENCE_MS) - self.silence_ms) * weight
            self.replied_ms = now_ms
        until_ms = now_ms + backlog_ms
        sooner = until_ms < self.busy_until_ms
        self.own_until_ms = self.busy_until_ms = until_ms
        return sooner

    def expected_until_ms(self, now_ms: float) -> float:
        """When it is expected to have finished, with what others have sent since it replied last:
        as much as they usually had, or less where it has not been as long."""
        others_ms, busy_ms = self.others_ms, self.busy_until_ms
        if others_ms <= 0.0:
            return busy_ms
        since_ms = now_ms - self.replied_ms
        if since_ms < self.silence_ms:
            others_ms *= since_ms / self.silence_ms
        own_ms = self.own_until_ms
        until_ms = (own_ms if own_ms > now_ms else now_ms) + others_ms
        return until_ms if until_ms > busy_ms else busy_ms

    def loads(self, key: VariantKey) -> bool:
        """Whether it loads a variant, or will: there may be hundreds, and this is asked of each
        host of a cold variant, so it is looked up."""
        return key in self._known()

    def _known(self) -> set[VariantKey]:
        """The variants that it loads or will load."""
        if self._loads_of is not self.loading:
            self._loads, self._loads_of = set(self.loading), self.loading
        return self._loads

    def will_load(self, key: tuple[TaskName, VariantName], *, asked: bool) -> bool:
        """Note that it loads a variant, and whether queries ask for it. Returns whether it did not
        load it before."""
        loading, known = self.loading, self._known()
        new = key not in known
        if asked and key not in loading[: self.loading_asked]:
            first = (*loading[: self.loading_asked], key)
            self.loading = (*first, *[one for one in loading if one not in first])
            self.loading_asked += 1
        elif new:
            self.loading = (*loading, key)
        known.add(key)
        self._loads_of = self.loading
        return new

    def loads_no_more(self, key: tuple[TaskName, VariantName]) -> None:
        """Note that a load is over."""
        known, at = self._known(), self.loading.index(key)
        known.discard(key)
        self._loads_of = self.loading = self.loading[:at] + self.loading[at + 1 :]
        self.loading_asked -= at < self.loading_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A variant on a device kind, with all that selection compares precomputed."""

    task: TaskName
    variant: VariantName
    model_version: str
    device_kind: DeviceKindName
    accuracy: float
    price_usd_per_1k: float
    """Reservation price: ``usd_per_hour * latency_ms(1) / 3,600``, per 1,000 queries."""
    usd_per_hour: float
    table: LatencyTable
    """Whole-batch p95, the safety margin of its source already multiplied in."""
    memory_mib: float
    load_ms: float
    canary: bool
    ready: tuple[WorkerView, ...]
    """Workers that hold it and are not draining. Equal sets are the same tuple."""
    hosts: tuple[WorkerView, ...]
    """Workers of its device kind that could load it and do not hold it."""
    unloadable: str = ""
    """Why it cannot be loaded, where a worker of its device kind has tried and says so."""
    energy: EnergyCurve | None = None
    """Joules of whole batches; None where they were not measured."""
    accuracy_rows: int = 0
    """Rows that the accuracy was counted on; 0 where that is not known."""
    measured_accuracy: float | None = None
    """Where ``accuracy`` is what clients have said of its answers: what was measured."""
    busy: LatencyTable | None = None
    """Of batches that follow on one another, by which it is planned what a worker can serve; None
    where that was not told apart."""
    busy_error: float = 0.0
    """How sure that is: the standard deviation of the logarithm."""
    footprint: float = inf
    """Of one row in a batch of its own: joules, or grams of CO2 where every device kind says what
    its energy emits. Infinite where it was not measured: it comes after all that were."""

    @property
    def busy_table(self) -> LatencyTable:
        """Whole batches on a worker that has always another one to run."""
        return self.busy or self.table

    def moved(
        self, ready: tuple[WorkerView, ...], hosts: tuple[WorkerView, ...], unloadable: str
    ) -> "Candidate":
        """The same with other workers, as ``dataclasses.replace``, in a third of the time."""
        made = object.__new__(Candidate)
        for put, value in zip(_PUTS, _what_stays(self), strict=True):
            put(made, value)
        _put_ready(made, ready)
        _put_hosts(made, hosts)
        _put_unloadable(made, unloadable)
        return made


_MOVES = ("ready", "hosts", "unloadable")
_put_ready, _put_hosts, _put_unloadable = puts_of(Candidate, *_MOVES)
_STAYS = [each.name for each in fields(Candidate) if each.name not in _MOVES]
_PUTS = puts_of(Candidate, *_STAYS)
_what_stays = attrgetter(*_STAYS)


class FrontierLeaf(NamedTuple):
    """The lower level of a frontier index: neighbouring candidates and bounds for all of them.

    No candidate is more accurate, faster or cheaper than the bounds, so that a search can skip all
    of them after one comparison.
    """

    accuracy: float
    latency_ms: tuple[float, ...]
    """``latency_ms[k]`` is a lower bound for batches of ``2**k`` rows and more; infinite where no
    member takes so many. As long everywhere in a task."""
    price_usd_per_1k: float
    ready: tuple[WorkerView, ...] | None
    """The workers that hold every member; None when they differ."""
    candidates: tuple[Candidate, ...]


class FrontierBranch(NamedTuple):
    """The upper level of a frontier index: neighbouring leaves and bounds for all of them."""

    accuracy: float
    latency_ms: tuple[float, ...]
    price_usd_per_1k: float
    ready: tuple[WorkerView, ...] | None
    leaves: tuple[FrontierLeaf, ...]


class Frontiers(Protocol):
    """The frontiers of a task; each is made when it is asked for first."""

    @property
    def cost(self) -> tuple[FrontierBranch, ...]: ...
    @property
    def accuracy(self) -> tuple[FrontierBranch, ...]: ...
    @property
    def latency(self) -> tuple[FrontierBranch, ...]: ...
    @property
    def energy(self) -> tuple[FrontierBranch, ...]: ...
    def once(self, what: str, make: Callable[[], T]) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task with its candidates, ordered once for each preference.

    Made by ``planner.selection.frontier_index.task_view``. The frontiers hold the candidates that
    are ready on a worker, are no canary and are not dominated by another one ready on the same
    workers.
    """

    task: Task
    by_cost: tuple[Candidate, ...]
    """All candidates, ascending by price, then latency, then name."""
    by_accuracy: tuple[Candidate, ...]
    """Descending by accuracy, then as ``by_cost``."""
    by_latency: tuple[Candidate, ...]
    """Ascending by latency of one row, then price, then name."""
    by_energy: tuple[Candidate, ...]
    """Ascending by footprint, then as ``by_cost``: as that where nothing was measured."""
    frontiers: Frontiers = field(repr=False, compare=False)
    """What can be gained at which price; made from the orders above."""
    by_variant: Mapping[VariantName, tuple[Candidate, ...]]
    """The candidates of each variant, in the order of ``by_cost``: for pinned queries."""
    excluded: Mapping[VariantName, str]
    """Variants that cannot answer whatever the SLO, with the reason: their version's stage, or
    no profile."""
    accuracies: tuple[float, ...]
    """Of all candidates that are no canary, ascending, each once: the steps of SLO classes."""
    unmeasured: Mapping[VariantName, frozenset[DeviceKindName]] = field(default_factory=dict)
    """The device kinds that a variant may answer on once it was measured there."""

    def of(self, variant: VariantName, kind: DeviceKindName) -> Candidate | None:
        """The candidate of a variant on a device kind; None without a profile there."""
        for candidate in self.by_variant.get(variant, ()):
            if candidate.device_kind == kind:
                return candidate
        return None

    def pinned_to(self, variant: VariantName | None) -> tuple[Candidate, ...]:
        """Those that may answer a query that names this variant; all where it names none."""
        return self.by_cost if variant is None else self.by_variant.get(variant, ())

    @property
    def cost_frontier(self) -> tuple[FrontierBranch, ...]:
        """In the order of ``by_cost``."""
        return self.frontiers.cost

    @property
    def accuracy_frontier(self) -> tuple[FrontierBranch, ...]:
        """In the order of ``by_accuracy``."""
        return self.frontiers.accuracy

    @property
    def latency_frontier(self) -> tuple[FrontierBranch, ...]:
        """In the order of ``by_latency``: all of it, or, where there are few sets of workers, what
        is ready on each of them."""
        return self.frontiers.latency

    @property
    def energy_frontier(self) -> tuple[FrontierBranch, ...]:
        """In the order of ``by_energy``; that of cost where nothing was measured."""
        return self.frontiers.energy

    def once(self, what: str, make: Callable[[], T]) -> T:
        """What ``make`` makes of the candidates alone, made once: in a snapshot for ticks the view
        of a task is the same from one tick to the next."""
        return self.frontiers.once(what, make)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that choosing needs, in memory: rebuilt when the catalog or a worker changes."""

    revision: int
    tasks: Mapping[TaskName, TaskView]
    workers: Mapping[WorkerId, WorkerView]
    mark: str = ""
    """Of the revision (``CatalogSnapshot.mark``): a database that went back gives its number to
    another one."""
    kinds: frozenset[DeviceKindName] = frozenset()
    """The device kinds of the workers that do not drain."""
    transport_ms: float = TRANSPORT_MS
    """Allowance for the way to the worker and back."""
    wanted: Wanted = field(default_factory=Wanted)
    """For refusals while a worker is missing."""
    measures: bool = False
    """Whether what was not measured yet on a kind of workers that are there will be."""
    unconfirmed: frozenset[ProfileKey] = frozenset()
    """Profiles of what is ready and has run no batch yet: what is refused for their sake has them
    checked (``planner.doubtful_profiles``)."""
    unmeasurable: Mapping[ProfileKey, str] = field(default_factory=dict)
    """What could not be measured where it was tried, and why: it is not waited for."""
    asked: QueryRates[VariantKey] = field(default_factory=QueryRates, repr=False, compare=False)
    """What queries ask for. The caller counts them in it; decisions only read its rates."""
    parts: object = field(default=None, repr=False, compare=False)
    """What it was made of, for ``planner.selection.snapshot`` to reuse in the next one."""

    @property
    def state(self) -> CatalogState:
        """Of which state of the catalog it is."""
        return self.revision, self.mark
