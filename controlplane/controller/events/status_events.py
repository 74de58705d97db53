"""The difference between two looks of the control loop, as events that an operator may ask about.

Pure functions from what was seen before and now; ``recorder`` remembers and stores.
``docs/reference/watching.md`` lists all kinds of events.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from variants.types import ReplicaState
from workers.types import ReplicaStatus, WorkerStatus

StatusEvent = tuple[str, str, str]
"""Kind, subject, message."""
ENDED = "Ray Serve has ended it, though no fewer workers were asked for"
"""Of a worker that is lost, or the beginning of the end of everything: the next look tells."""
ANEW = "the workers of its kind are started anew, as the nodes of the kind are others now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A worker that is not reached any more: what it said last, and what became of it."""

    status: WorkerStatus
    broke: str = ""
    """Why its connection ended; empty where the cluster listed it no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How many workers of a device kind Ray Serve was last told to run."""

    count: int
    why: str = ""
    """``1 instead of 2: the inventory``; empty where another controller said so."""
    nodes: str = ""
    """Which nodes they are bound to; where that changes, Ray Serve starts all of them anew."""


def status_events(
    before: Mapping[str, WorkerStatus],
    after: Mapping[str, WorkerStatus],
    departures: Mapping[str, Departure] | None = None,
    targets: Mapping[str, Target] | None = None,
    renewed: Collection[str] = (),
) -> Iterator[StatusEvent]:
    """Workers that came, left, began to drain or warn, variants put into quarantine, and artifacts
    that turned out to be damaged.

    Where fewer workers are wanted than there were, as many of those that are gone have left as
    they were told, however suddenly; the others are lost. One that counted as draining and did not
    say so was on a node that goes. ``renewed`` are those that others replace.
    """
    yield from _departed(before, after, departures or {}, targets or {}, renewed)
    for id_ in sorted(after.keys() - before.keys()):
        status = after[id_]
        yield "worker_joined", id_, f"it takes up to {status.memory_mib:,.0f} MiB of variants"
    for id_ in sorted(after):
        status, old = after[id_], before.get(id_)
        if status.draining and old is not None and not old.draining:
            yield "worker_draining", id_, f"worker {id_} finishes its work and leaves"
        known = _quarantined(old) if old is not None else {}
        for name, replica in _quarantined(status).items():
            if name not in known:
                yield "quarantined", f"{name} on {id_}", replica.message
        warned = set(old.warnings) if old is not None else set()
        for warning in status.warnings:
            if warning not in warned:
                yield "worker_warning", id_, warning

    known_damage = damaged(before.values())
    for name, message in damaged(after.values()).items():
        if known_damage.get(name) != message:
            yield "artifact_invalid", name, f"it is not loaded: {message}"


def damaged(workers: Iterable[WorkerStatus]) -> dict[str, str]:
    """Variants whose artifact some worker found damaged, and what it says; one artifact is one
    piece of news, however many workers read it."""
    return {
        f"{replica.task}/{replica.variant}": replica.message
        for status in workers
        for replica in status.replicas
        if replica.state is ReplicaState.DAMAGED
    }


def _departed(
    before: Mapping[str, WorkerStatus],
    after: Mapping[str, WorkerStatus],
    departures: Mapping[str, Departure],
    targets: Mapping[str, Target],
    renewed: Collection[str],
) -> Iterator[StatusEvent]:
    """Workers that are gone, those first that were seen to leave."""
    gone = {
        id_: departures.get(id_, Departure(status=status, broke="its connection broke"))
        for id_, status in before.items()
        if id_ not in after
    }
    there = Counter(status.device_kind for status in before.values())
    for id_ in sorted(gone, key=lambda id_: (_suddenness(gone[id_]), id_)):
        departure = gone[id_]
        kind = departure.status.device_kind
        target = targets.get(kind)
        if before[id_].draining and not departure.status.draining:
            there[kind] -= 1
            yield "worker_left", id_, f"worker {id_} is gone: its node goes"
        elif target is not None and there[kind] > target.count:
            there[kind] -= 1
            why = target.why or str(target.count)
            yield "worker_left", id_, f"worker {id_} is gone: scaled down to {why}"
        elif departure.status.draining:
            yield "worker_left", id_, f"worker {id_} is gone: it had drained"
        elif departure.broke:
            yield "worker_lost", id_, f"worker {id_} is gone: {departure.broke}"
        elif id_ in renewed:
            yield "worker_left", id_, f"worker {id_} is gone: {ANEW}"
        else:
            yield "worker_lost", id_, f"worker {id_} is gone: {ENDED}"


def _suddenness(departure: Departure) -> int:
    return 0 if departure.status.draining else 2 if departure.broke else 1


def in_quarantine(status: WorkerStatus) -> list[ReplicaStatus]:
    """What a worker keeps out because it failed or crashed it."""
    return [one for one in status.replicas if one.state is ReplicaState.QUARANTINED]


def _quarantined(status: WorkerStatus) -> dict[str, ReplicaStatus]:
    return {f"{replica.task}/{replica.variant}": replica for replica in in_quarantine(status)}
