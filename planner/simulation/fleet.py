"""The simulated fleet: devices, what is loaded on them, and what they cost.

All times are ms since the beginning of the simulation.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from planner.batching.protocol import Queue
from planner.batching.variant_queues import Item, VariantQueue
from planner.eviction.churn import Churn
from planner.eviction.query_rates import QueryRates
from planner.eviction.turns import Order, order_of
from planner.solver.problem import AvailableKind
from planner.types import Candidate, Query, ReplicaReport, WorkerReport, WorkerView
from variants.types import (
    DeviceKindName,
    ReplicaState,
    VariantKey,
    WorkerId,
)

LEAST_BILLED_MS = 60_000.0


class Ticket(Item):
    """A query on its way: an item of a queue that knows where it came from."""

    __slots__ = ("arrived_ms", "query", "replica", "tries")

    def __init__(self, replica: "Replica", query: Query, tries: int) -> None:
        # As the constructor of an item; there is a ticket for each query, and a call takes as long
        # as all of this.
        arrived_ms = self.arrived_ms = query.received_ms
        self.deadline_ms = arrived_ms + query.latency_ms
        self.queue = replica.queue
        self.rows = 1
        self.priority = query.priority
        self.client = query.client
        self.replica = replica
        self.query = query
        self.tries = tries
        """Which worker it is on: its first or its second."""


class Replica:
    """A variant on a device, from the start of its load until it is gone."""

    __slots__ = (
        "arrived", "asked_qps", "candidate", "displaces", "done", "done_ms", "in_flight",
        "inflation", "key", "last_used_ms", "loaded_ms", "planned_qps", "queue", "rate_qps",
        "state", "urgent", "waiting", "worker",
    )  # fmt: skip

    def __init__(
        self, key: VariantKey, candidate: Candidate, worker: "Worker", queue: VariantQueue
    ) -> None:
        self.key = key
        self.candidate = candidate
        self.worker = worker
        self.queue = queue
        self.state = ReplicaState.LOADING
        self.loaded_ms = inf
        self.last_used_ms = 0.0
        self.in_flight = 0
        """Waiting for the load, queued or running."""
        self.displaces = False
        """Others had to leave for it."""
        self.asked_qps: float | None = None
        """Queries per second that ask for it while it waits for its turn to be loaded; None as long
        as none has, or where it keeps its place in line."""
        self.waiting: list[Ticket] = []
        self.inflation = worker.inflation
        """The device's when it was last used."""
        self.planned_qps = 0.0
        """Queries per second that a plan brings to it."""
        self.rate_qps = 0.0
        self.urgent = 0.0
        """With the rate, what its device said of it last (``planner.types.ReplicaReport``)."""
        self.arrived = 0
        """Queries it was given in all; with the next two, for rules that watch a replica."""
        self.done = 0
        self.done_ms = 0.0
        """Time from arrival to completion of those done, added up."""

    def use(self, now_ms: float) -> None:
        """Note a use, for eviction."""
        self.arrived += 1
        self.last_used_ms = now_ms
        self.inflation = self.worker.inflation


class Worker:
    """A device: it runs one batch at a time and holds what its memory allows."""

    __slots__ = (
        "_holds", "_ready", "batch", "batch_ends_ms", "busy_ms", "churn", "draining", "ended_ms",
        "id", "idle_ms", "inflation", "kind", "loads", "loads_until_ms", "ordered_ms", "put_off",
        "queue", "ran_last", "released_ms", "replicas", "reserved_mib", "to_load", "view",
    )  # fmt: skip

    def __init__(self, id_: WorkerId, kind: AvailableKind, queue: Queue, ordered_ms: float) -> None:
        self.id = id_
        self.kind = kind
        self.queue = queue
        self.ordered_ms = ordered_ms
        self.released_ms: float | None = None
        self.view = WorkerView(id=id_, device_kind=kind.name, free_mib=kind.memory_mib)
        self.replicas: dict[VariantKey, Replica] = {}
        self._holds: set[VariantKey] = set()
        """What is ready here."""
        self._ready: frozenset[VariantKey] | None = frozenset()
        """The same, as it was asked for last; None once that has changed."""
        self.reserved_mib = 0.0
        self.busy_ms = 0.0
        self.loads_until_ms = 0.0
        """When the load under way ends, where it loads one after the other."""
        self.loads: Replica | None = None
        """What it loads now, likewise."""
        self.to_load: list[Replica] = []
        """What waits for its turn, in the order in which it came."""
        self.put_off: dict[VariantKey, Candidate] = {}
        """What queries to come ask for, and waits for its turn, in the order in which it came."""
        self.batch: list[Item] | None = None
        """What runs now."""
        self.ran_last: VariantKey | None = None
        """The variant of the latest batch, where that makes a difference."""
        self.ended_ms = ordered_ms
        """When the latest batch ended."""
        self.idle_ms = 0.0
        """For how long nothing ran before the batch that begins or runs now."""
        self.draining = False
        self.inflation = 0.0
        """GreedyDual's L: the worth of the last one that was evicted."""
        self.churn = Churn(kind.memory_mib)

    @property
    def free_mib(self) -> float:
        return self.kind.memory_mib - self.reserved_mib

    def loading_ms(self, now_ms: float) -> float:
        """How long the load under way and those that wait for their turn still take."""
        coming_ms = sum([replica.candidate.load_ms for replica in self.to_load])
        return max(0.0, self.loads_until_ms - now_ms) + coming_ms

    def holds(self, key: VariantKey, *, ready: bool) -> None:
        """Note that a variant became ready here, or is not any more."""
        if ready:
            self._holds.add(key)
        else:
            self._holds.discard(key)
        self._ready = None

    @property
    def ready(self) -> frozenset[VariantKey]:
        """What is ready here: the same object until that changes, so that comparing is quick."""
        known = self._ready
        if known is None:
            known = self._ready = frozenset(self._holds)
        return known

    def clear(self) -> None:
        """Forget all replicas."""
        self.replicas.clear()
        self.to_load.clear()
        self.loads = None
        self._holds.clear()
        self._ready = frozenset()

    def report(self, now_ms: float) -> WorkerReport:
        """What a real worker would say of itself."""
        return WorkerReport(
            id=self.id,
            device_kind=self.kind.name,
            memory_mib=self.kind.memory_mib,
            reserved_mib=self.reserved_mib,
            draining=self.draining,
            churn_per_s=self.view.churn_per_s,
            replicas=tuple([_reported(replica, now_ms) for replica in self.replicas.values()]),
        )


def next_load(waiting: Sequence[Replica]) -> Replica:
    """Of the loads that wait for their turn, at least one, the one whose turn it is."""
    # All that no query asks for come last, in line: often hundreds, of which the first will do.
    asked = [replica for replica in waiting if replica.asked_qps is not None]
    return min(asked, key=_load_order) if asked else waiting[0]


def _load_order(replica: Replica) -> Order:
    return order_of(replica.asked_qps, replica.candidate.load_ms / 1_000)


def _reported(replica: Replica, now_ms: float) -> ReplicaReport:
    task, variant = replica.key
    # There is one for each variant on each device, and its own constructor takes ten times as long.
    return tuple.__new__(
        ReplicaReport,
        (
            task,
            variant,
            replica.state,
            replica.candidate.memory_mib,
            replica.in_flight,
            (now_ms - replica.last_used_ms) / 1_000,
            replica.rate_qps,
            replica.urgent,
            0.0,  # the simulator's queries have a row each
            replica.arrived > 0,
            0,
            (now_ms - replica.loaded_ms) / 1_000,
        ),
    )


class Fleet:
    """All devices that are usable now, and those on order."""

    def __init__(
        self,
        offers: Mapping[DeviceKindName, Mapping[VariantKey, Candidate]],
        kinds: Iterable[AvailableKind],
    ) -> None:
        self.offers = offers
        """What each device kind can hold: the variants that have a profile on it."""
        self.kinds = {kind.name: kind for kind in kinds}
        self.workers: dict[WorkerId, Worker] = {}
        """Usable, in the order they came."""
        self.ordered: dict[WorkerId, Worker] = {}
        """Billed and not usable yet."""
        self.asked: QueryRates[VariantKey] = QueryRates()
        """What queries ask for: one account for all devices, and for the choice of hosts."""

    def count(self, kind: DeviceKindName) -> int:
        """Devices of a kind that are there or on order, and not being released."""
        found = (*self.workers.values(), *self.ordered.values())
        return sum(1 for worker in found if worker.kind.name == kind and not worker.draining)

    def reports(self, now_ms: float) -> tuple[WorkerReport, ...]:
        return tuple(worker.report(now_ms) for worker in self.workers.values())
