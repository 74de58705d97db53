"""Candidates, devices and replicas with round numbers, for the published policies."""

from math import inf

from planner.batching.variant_queues import TaskShare, VariantQueue
from planner.latency_table import LatencyTable
from planner.simulation.fleet import Replica, Ticket, Worker
from planner.solver.problem import AvailableKind
from planner.types import Candidate, Query
from tests.planner.simulation.builders import Fifo
from variants.types import DeviceKindName, ReplicaState, TaskName, VariantName, WorkerId

GPU = DeviceKindName("gpu")
DIGITS = TaskName("digits")


def candidate(variant: str, accuracy: float, row_ms: float, largest: int = 8) -> Candidate:
    """A batch of b rows takes b times as long as a row."""
    return Candidate(
        task=DIGITS,
        variant=VariantName(variant),
        model_version="m-v1",
        device_kind=GPU,
        accuracy=accuracy,
        price_usd_per_1k=1.0,
        usd_per_hour=1.0,
        table=LatencyTable([(1, row_ms), (largest, row_ms * largest)]),
        memory_mib=100.0,
        load_ms=0.0,
        canary=False,
        ready=(),
        hosts=(),
    )


def kind(count: int = 1, memory_mib: float = inf, name: str = GPU) -> AvailableKind:
    return AvailableKind(
        name=DeviceKindName(name), count=count, memory_mib=memory_mib, usd_per_hour=1.0
    )


def device(*offers: Candidate, name: str = "gpu-1") -> Worker:
    """A device on which these are ready."""
    worker = Worker(WorkerId(name), kind(), Fifo(), 0.0)
    for offer in offers:
        key = (offer.task, offer.variant)
        queue = VariantQueue(offer.task, TaskShare(), offer.table)
        replica = worker.replicas[key] = Replica(key, offer, worker, queue)
        replica.state = ReplicaState.READY
    return worker


def query(
    deadline_ms: float, floor: float | None = None, received_ms: float = 0.0, draw: int = 0
) -> Query:
    return Query(DIGITS, 1, received_ms, deadline_ms - received_ms, accuracy=floor, draw=draw)


def ticket(replica: Replica, deadline_ms: float, floor: float | None = None) -> Ticket:
    """A query that was counted on a replica."""
    replica.in_flight += 1
    return Ticket(replica, query(deadline_ms, floor), 1)
