"""What workers say of themselves, as decisions take it."""

from collections.abc import Iterable
from operator import attrgetter, is_

from planner.reconcile.unchanged import alike
from planner.types import ReplicaReport, WorkerReport
from variants.types import DeviceKindName, WorkerId
from workers.types import ReplicaStatus, WorkerStatus


class Reports:
    """What workers say of themselves, as decisions take it.

    A report is the same object for as long as nothing that counts has changed, so that a tick sees
    that by identity (``planner.reconcile.unchanged``). The times of a replica are then those of the
    first report that counted the same.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[WorkerStatus, WorkerReport]] = {}

    def of(self, statuses: Iterable[WorkerStatus]) -> tuple[WorkerReport, ...]:
        """The reports of all workers that are there, in this order; others are forgotten."""
        known = {s.worker: _reported(s, self._known.get(s.worker)) for s in statuses}
        self._known = known
        return tuple([report for _, report in known.values()])


def _reported(
    status: WorkerStatus, before: tuple[WorkerStatus, WorkerReport] | None
) -> tuple[WorkerStatus, WorkerReport]:
    """The report of a worker, with what it was made of."""
    if before is None or len(before[0].replicas) != len(status.replicas):
        return status, report_of(status)
    if before[0] is status:
        return before
    known = before[1].replicas
    pairs = zip(before[0].replicas, status.replicas, known, strict=True)
    found = [old if one is now or alike(one, now) else _replica(now) for one, now, old in pairs]
    replicas = known if all(map(is_, found, known)) else tuple(found)
    report = report_of(status, replicas)
    return status, before[1] if report == before[1] else report


def report_of(
    status: WorkerStatus, replicas: tuple[ReplicaReport, ...] | None = None
) -> WorkerReport:
    """What a worker says of itself, as decisions take it; with the reports of its replicas, where
    they are there already."""
    return WorkerReport(
        id=WorkerId(status.worker),
        device_kind=DeviceKindName(status.device_kind),
        memory_mib=status.memory_mib,
        reserved_mib=status.reserved_mib,
        draining=status.draining,
        evictable=status.evictable,
        churn_per_s=status.churn_per_s,
        zone=status.zone,
        replicas=tuple(map(_replica, status.replicas)) if replicas is None else replicas,
    )


_said = attrgetter(*ReplicaReport._fields)


def _replica(status: ReplicaStatus) -> ReplicaReport:
    # Its own constructor would take four times as long, and there are thousands each second.
    return tuple.__new__(ReplicaReport, _said(status))
