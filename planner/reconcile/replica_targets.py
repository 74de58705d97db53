"""What a plan gives to each replica: queries, a share of the worker's time, the longest batch.

Plans divide rows, because device time is of rows. What a replica is worth follows from queries
(``planner.eviction.expected``), so rows are told in queries here.

The control loop tells workers these targets, and the simulated policy tells its queues: both take
them from the decision of the tick (``planner.types.Decision.targets``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from planner.reconcile.kept.routes import RouteClasses
from planner.reconcile.worker_memory import PlannedWork
from planner.selection.snapshot import same_catalog
from planner.types import ReplicaKey, ReplicaTarget, Snapshot, WorkerReport
from variants.types import DeviceKindName, Plan, Route, TaskName, VariantKey, WorkerId


class PlannedRate(NamedTuple):
    """What routes bring to one replica."""

    qps: float = 0.0
    """Queries per second."""
    urgent: float = 0.0
    """Share of them that cannot wait for a load."""


PlannedRates = Mapping[WorkerId, Mapping[VariantKey, PlannedRate]]
"""By worker and variant."""


def rows_per_query(workers: Iterable[WorkerReport]) -> dict[TaskName, float]:
    """How many rows a query of each task has, by what workers that hold it have seen.

    Each replica that has answered weighs by its rate. The mean has two digits, so that it moves
    only where the queries do. Tasks of which nothing is known are missing: 1.
    """
    rows: dict[TaskName, float] = {}
    queries: dict[TaskName, float] = {}
    for worker in workers:
        for replica in worker.replicas:
            qps = replica.rate_qps
            if qps > 0.0 and replica.rows_per_query > 0.0:
                task = replica.task
                queries[task] = queries.get(task, 0.0) + qps
                rows[task] = rows.get(task, 0.0) + qps * replica.rows_per_query
    means = {task: float(f"{rows[task] / qps:.2g}") for task, qps in queries.items()}
    return {task: mean for task, mean in means.items() if mean != 1.0}


def planned_rates(
    routes: Iterable[Route], snapshot: Snapshot, rows: Mapping[TaskName, float]
) -> dict[WorkerId, dict[VariantKey, PlannedRate]]:
    """What routes bring to each replica, by worker.

    Args:
        rows: how many a query of each task has; 1 where it is missing.
    """
    rates: dict[WorkerId, dict[VariantKey, PlannedRate]] = {}
    cold_ms: dict[tuple[DeviceKindName, VariantKey], float] = {}
    """What a query takes by a variant that has to be loaded first."""
    for route in routes:
        kind = snapshot.workers[route.worker].device_kind
        held = rates.setdefault(route.worker, {})
        key = (route.task, route.variant)
        needs_ms = cold_ms.get((kind, key))
        if needs_ms is None:
            needs_ms = cold_ms[kind, key] = min(
                one.load_ms + one.table.ms[1]
                for one in snapshot.tasks[route.task].by_variant[route.variant]
                if one.device_kind == kind
            )
        known = held.get(key, PlannedRate())
        qps = route.qps / rows.get(route.task, 1.0)
        total = known.qps + qps
        new = qps if needs_ms > route.latency_ms else 0.0
        held[key] = PlannedRate(total, (known.qps * known.urgent + new) / total if total else 0.0)
    return rates


class RoutedWork(NamedTuple):
    """What routes bring to each worker, and what that follows from."""

    routes: Sequence[Route]
    shares: Mapping[WorkerId, Mapping[VariantKey, float]]
    rows: Mapping[TaskName, float]
    snapshot: Snapshot
    classes: RouteClasses
    rates: PlannedRates
    work: Mapping[WorkerId, Mapping[VariantKey, PlannedWork]]

    def are(self, routes: Sequence[Route], snapshot: Snapshot) -> bool:
        """Whether it is of the same routes, on the same workers and of the same catalog."""
        return (
            self.routes == routes
            and self.snapshot.workers == snapshot.workers
            and same_catalog(self.snapshot, snapshot)
        )


def routed_work(
    before: RoutedWork | None,
    routes: Sequence[Route],
    shares: Mapping[WorkerId, Mapping[VariantKey, float]],
    snapshot: Snapshot,
    rows: Mapping[TaskName, float],
) -> RoutedWork:
    """What routes bring to each worker: ``before``, the same object, where that is the same.

    Args:
        shares: the part of each worker's time that they take, by variant.
        rows: as of ``planned_rates``.
    """
    if (
        before is not None
        and (before.shares is shares or before.shares == shares)
        and before.rows == rows
        and before.are(routes, snapshot)
    ):
        return before
    rates = planned_rates(routes, snapshot, rows)
    work = {
        worker: {
            key: PlannedWork(share, *rates[worker].get(key, PlannedRate()))
            for key, share in held.items()
        }
        for worker, held in shares.items()
    }
    return RoutedWork(routes, shares, rows, snapshot, RouteClasses.of(routes), rates, work)


def replica_targets(
    plan: Plan,
    snapshot: Snapshot,
    rates: PlannedRates,
    interference: Mapping[DeviceKindName, float] | None = None,
    pinned: Collection[ReplicaKey] = (),
) -> dict[ReplicaKey, ReplicaTarget]:
    """The target of every replica that the plan places.

    The share is that of the whole task on the worker, because queues are fair between tasks: all
    variants of a task on one worker have the same. On a worker without routes the longest batch is
    0, and its queue decides by itself.

    Args:
        snapshot: the catalog and the workers that the plan was made for; its ``transport_ms`` is
            taken off the deadlines.
        rates: what the plan's routes bring to each replica.
        interference: by what part batches take longer on a worker that serves with several
            variants; of kinds that are missing by none.
        pinned: the replicas that operators have stay where they are.
    """
    shares: dict[WorkerId, dict[TaskName, float]] = {}
    worker: WorkerId | None = None
    for placed in plan.placements:
        if placed.worker is not worker:  # plans list them worker by worker
            worker = placed.worker
            on_worker = shares.setdefault(worker, {})
        on_worker[placed.task] = on_worker.get(placed.task, 0.0) + placed.share
    longest_ms = longest_batches_ms(plan.routes, snapshot, interference or {})
    targets: dict[ReplicaKey, ReplicaTarget] = {}
    nothing: Mapping[VariantKey, PlannedRate] = {}
    unplanned: dict[WorkerId, dict[TaskName, ReplicaTarget]] = {id_: {} for id_ in shares}
    """Of replicas to which no route leads, which most are: all of a task on a worker have one."""
    worker = None
    for placed in plan.placements:
        if placed.worker is not worker:
            worker = placed.worker
            of_worker, alike = rates.get(worker, nothing), unplanned[worker]
            on_worker, longest = shares[worker], longest_ms.get(worker, 0.0)
            routed = {task for task, _ in of_worker}
        task, variant = placed.task, placed.variant
        rate = of_worker.get((task, variant)) if task in routed else None
        target = alike.get(task) if rate is None else None
        if target is None:
            target = ReplicaTarget(
                min(1.0, on_worker[task]), longest, 0.0 if rate is None else rate.qps
            )
            if rate is None:
                alike[task] = target
        key = (placed.worker, task, variant)
        targets[key] = target._replace(pinned=True) if pinned and key in pinned else target
    return targets


def longest_batches_ms(
    routes: Iterable[Route], snapshot: Snapshot, interference: Mapping[DeviceKindName, float]
) -> Mapping[WorkerId, float]:
    """How long a batch may take on each worker that has routes, in ms.

    A query that arrives just after a batch has begun waits for the whole of it, and then needs time
    for a batch of its own. So a batch may take half of the tightest SLO that the plan gives to the
    worker, less transport; or as long as the longest batch that was planned there, should that be
    more; where routes name several variants it takes longer than the catalog for plans says.
    Shorter batches would help no query, and leave no way to form larger ones when more queries come
    than were planned for.
    """
    planned_ms: dict[WorkerId, float] = {}
    half_slo_ms: dict[WorkerId, float] = {}
    variants: dict[WorkerId, set[VariantKey]] = {}
    for route in routes:
        worker = snapshot.workers.get(route.worker)
        view = snapshot.tasks.get(route.task)
        if worker is None or view is None:
            continue
        variants.setdefault(worker.id, set()).add((route.task, route.variant))
        half_ms = (route.tightest_ms - snapshot.transport_ms) / 2
        candidate = view.of(route.variant, worker.device_kind)
        if candidate is not None:
            size = min(route.batch_size, candidate.table.max_batch)
            batch_ms = candidate.table.ms[size]
            planned_ms[worker.id] = max(planned_ms.get(worker.id, 0.0), batch_ms)
            half_slo_ms[worker.id] = min(half_slo_ms.get(worker.id, inf), half_ms)
    for id_, served in variants.items():
        if len(served) > 1 and id_ in planned_ms:
            kind = snapshot.workers[id_].device_kind
            planned_ms[id_] *= 1.0 + interference.get(kind, 0.0)
    return {worker: max(ms, half_slo_ms[worker]) for worker, ms in planned_ms.items()}
