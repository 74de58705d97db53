"""What a plan gives to each replica: a share of its worker's time, and how long batches may be.

The control loop tells workers these targets, and the simulated policy tells its queues: both take
them from the decision of the tick (``planner.types.Decision.targets``).
"""

from collections.abc import Iterable, Mapping
from math import inf

from planner.types import ReplicaKey, ReplicaTarget, Snapshot
from variants.types import Plan, Route, TaskName, WorkerId


def replica_targets(plan: Plan, snapshot: Snapshot) -> dict[ReplicaKey, ReplicaTarget]:
    """The target of every replica that the plan places.

    The share is that of the whole task on the worker, because queues are fair between tasks: all
    variants of a task on one worker have the same. On a worker without routes the longest batch is
    0, and its queue decides by itself.

    Args:
        snapshot: the catalog and the workers that the plan was made for; its ``transport_ms`` is
            taken off the deadlines.
    """
    shares: dict[tuple[WorkerId, TaskName], float] = {}
    for placed in plan.placements:
        on_worker = (placed.worker, placed.task)
        shares[on_worker] = shares.get(on_worker, 0.0) + placed.share
    longest_ms = longest_batches_ms(plan.routes, snapshot)
    qps: dict[ReplicaKey, float] = {}
    for route in plan.routes:
        replica = (route.worker, route.task, route.variant)
        qps[replica] = qps.get(replica, 0.0) + route.qps
    return {
        (placed.worker, placed.task, placed.variant): ReplicaTarget(
            share=min(1.0, shares[placed.worker, placed.task]),
            longest_batch_ms=longest_ms.get(placed.worker, 0.0),
            qps=qps.get((placed.worker, placed.task, placed.variant), 0.0),
        )
        for placed in plan.placements
    }


def longest_batches_ms(routes: Iterable[Route], snapshot: Snapshot) -> Mapping[WorkerId, float]:
    """How long a batch may take on each worker that has routes, in ms.

    A query that arrives just after a batch has begun waits for the whole of it, and then needs time
    for a batch of its own. So a batch may take half of the tightest SLO that the plan gives to the
    worker, less transport; or as long as the longest batch that was planned there, should that be
    more. Shorter batches would help no query, and leave no way to form larger ones when more
    queries come than were planned for.
    """
    planned_ms: dict[WorkerId, float] = {}
    half_slo_ms: dict[WorkerId, float] = {}
    for route in routes:
        worker = snapshot.workers.get(route.worker)
        view = snapshot.tasks.get(route.task)
        if worker is None or view is None:
            continue
        half_ms = (route.latency_ms - snapshot.transport_ms) / 2
        for candidate in view.by_variant.get(route.variant, ()):
            if candidate.device_kind == worker.device_kind:
                size = min(route.batch_size, candidate.table.max_batch)
                batch_ms = candidate.table.ms[size]
                planned_ms[worker.id] = max(planned_ms.get(worker.id, 0.0), batch_ms)
                half_slo_ms[worker.id] = min(half_slo_ms.get(worker.id, inf), half_ms)
    return {worker: max(ms, half_slo_ms[worker]) for worker, ms in planned_ms.items()}
