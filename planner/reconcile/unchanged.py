"""Whether two observations lead to the same decision, because nothing that counts has changed.

Most ticks of a calm fleet find what the one before found. Comparing is a hundred times as quick as
deciding again, most of all where the reports are the same objects.
"""

from operator import attrgetter
from typing import Protocol

from planner.reconcile.worker_memory import CONTESTED_S, RECENT_S, SETTLING_S
from planner.types import Observation, WorkerReport
from variants.types import ReplicaState, TaskName, VariantName

LONG_LOADED_S = max(CONTESTED_S, SETTLING_S)


def unchanged(before: Observation, now: Observation) -> bool:
    """Whether a decision made for ``before`` is the one for ``now`` as well.

    What must be equal is compared by identity first. The time itself does not count, and how long a
    replica has been idle or loaded only where a decision asks for it. What may leave a worker
    counts for new plans only, and changes all the time.
    """
    if len(before.workers) != len(now.workers) or not (
        not now.corrected
        and before.catalog is now.catalog
        and before.plan is now.plan
        and before.demand == now.demand
        and before.expected == now.expected
        and before.envelope == now.envelope
        and before.declared == now.declared
        and before.inventory == now.inventory
        and before.least == now.least
        and (before.layouts, before.horizon_s) == (now.layouts, now.horizon_s)
        and (before.refused, before.rests) == (now.refused, now.rests)
        and before.absent == now.absent
        and before.frozen == now.frozen
        and before.interference == now.interference
        and before.swaps_s == now.swaps_s
        and before.running == now.running
        and (before.zones, before.zones_settled) == (now.zones, now.zones_settled)
        and before.kind_zones == now.kind_zones
        and before.objective is now.objective
        and before.eviction == now.eviction
        and (before.watched, before.steady) == (now.watched, now.steady)
        and before.elastic == now.elastic
        and before.room.part == now.room.part
        and (before.transport_ms, before.seed) == (now.transport_ms, now.seed)
    ):
        return False
    rates_count = bool(now.demand or now.expected)
    return all(
        one is other or _alike(one, other, rates_count)
        for one, other in zip(before.workers, now.workers, strict=True)
    )


_worker = attrgetter(
    "id",
    "device_kind",
    "memory_mib",
    "reserved_mib",
    "draining",
    "churn_per_s",
    "zone",
)


class Replica(Protocol):
    """A variant on a worker, as a report has it, or as the worker told it."""

    @property
    def variant(self) -> VariantName: ...
    @property
    def task(self) -> TaskName: ...
    @property
    def state(self) -> ReplicaState: ...
    @property
    def memory_mib(self) -> float: ...
    @property
    def asked(self) -> bool: ...
    @property
    def load_no(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def rate_qps(self) -> float: ...
    @property
    def rows_per_query(self) -> float: ...
    @property
    def idle_s(self) -> float: ...
    @property
    def loaded_for_s(self) -> float: ...


def _alike(before: WorkerReport, now: WorkerReport, rates_count: bool) -> bool:
    if _worker(before) != _worker(now):
        return False
    if before.replicas is now.replicas:
        return True
    return len(before.replicas) == len(now.replicas) and all(
        one is other or alike(one, other, rates_count)
        for one, other in zip(before.replicas, now.replicas, strict=True)
    )


def alike(before: Replica, now: Replica, rates_count: bool = True) -> bool:
    """Whether no decision tells one replica from the other."""
    if (
        before.variant != now.variant
        or before.asked != now.asked
        or before.load_no != now.load_no
        or before.state != now.state
        or before.memory_mib != now.memory_mib
        or before.task != now.task
    ):
        return False
    # Rows of queries and what is planned are weighed by rates, whether or not a query came here.
    if rates_count and (
        before.rate_qps != now.rate_qps or before.rows_per_query != now.rows_per_query
    ):
        return False
    # Nobody asks how long it has been there where no query asked for it.
    wanted = now.asked or before.in_flight or now.in_flight
    return not wanted or _alike_in_use(before, now)


def _alike_in_use(before: Replica, now: Replica) -> bool:
    """Whether it counts as used and loaded at the same time."""
    if (before.in_flight > 0) != (now.in_flight > 0):
        return False
    forgotten = (
        not now.in_flight
        and min(before.idle_s, now.idle_s) >= RECENT_S
        and min(before.loaded_for_s, now.loaded_for_s) >= LONG_LOADED_S
    )
    same_times = before.idle_s == now.idle_s and before.loaded_for_s == now.loaded_for_s
    return forgotten or same_times
