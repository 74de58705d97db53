"""What happened between two looks at the workers, as events an operator may ask about."""

from collections.abc import Iterator, Mapping

from variants.types import ReplicaState
from workers.types import ReplicaStatus, WorkerStatus

Happening = tuple[str, str, str]
"""Kind, subject, message."""


def happened(
    before: Mapping[str, WorkerStatus], after: Mapping[str, WorkerStatus]
) -> Iterator[Happening]:
    """Workers that came, left or began to drain, and variants put into quarantine."""
    for id_ in sorted(before.keys() - after.keys()):
        drained = before[id_].draining
        kind = "worker_left" if drained else "worker_lost"
        why = "it had drained" if drained else "its connection broke"
        yield kind, id_, f"worker {id_} is gone: {why}"
    for id_ in sorted(after.keys() - before.keys()):
        status = after[id_]
        yield "worker_joined", id_, f"worker {id_} takes up to {status.memory_mib:.0f} MiB"
    for id_ in sorted(after):
        status, old = after[id_], before.get(id_)
        if status.draining and old is not None and not old.draining:
            yield "worker_draining", id_, f"worker {id_} finishes its work and leaves"
        known = _quarantined(old) if old is not None else {}
        for name, replica in _quarantined(status).items():
            if name not in known:
                yield "quarantined", f"{name} on {id_}", replica.message


def _quarantined(status: WorkerStatus) -> dict[str, ReplicaStatus]:
    return {
        f"{replica.task}/{replica.variant}": replica
        for replica in status.replicas
        if replica.state is ReplicaState.QUARANTINED
    }
