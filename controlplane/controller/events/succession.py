"""Succession: what a controller that takes over finds of the one before it.

The catalog remembers what was there: the newest plan, the newest tick and the events. All of it is
read once; what is missing by then left while no controller was looking.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controlplane.controller.events.status_events import StatusEvent, Target
from variants.types import Event, EventFilter, Plan, TickRecord

EVENTS_READ = 1_000
"""Newest events that a successor reads, of the kinds that tell it something."""
PATIENCE_S = 5.0
"""How long after taking over what was there before may take to be met: Ray Serve's listing, and a
busy worker's answer, come a little late."""
RESTORED = "restored"
"""The kind of the event that ``modelless restore`` leaves in the catalog."""

TELLING = EventFilter(
    kinds=frozenset(
        {
            RESTORED,
            *("worker_joined", "worker_left", "worker_lost"),
            *("gateway_started", "gateway_returned", "gateway_stopped", "gateway_lost"),
            *("controller_started", "controller_stopped"),
        }
    )
)
"""Those: of all events most say what was loaded, a thousand of them where a worker has started."""

_EPOCH = re.compile(r"epoch (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was there when a controller took over, as the catalog remembers it."""

    epoch: int = 0
    """Of the controller before; 0: there was none."""
    stopped: bool = False
    """It was told to stop; else it ended without a word."""
    workers: Mapping[str, str] = field(default_factory=dict)
    """Device kinds by worker; empty where only the plan names it."""
    ended: frozenset[str] = frozenset()
    """Of the workers, those that were there when the installation was stopped in order, and were
    not seen since: a controller that led for moments only has not told of them."""
    gateways: frozenset[str] = frozenset()
    elsewhere: bool = False
    """It ran on another Ray cluster, and so did the workers: they are not this one's to look after,
    and may go on for a while."""
    restored: bool = False
    """No controller has led since the catalog was filled from a backup: what that remembers ran
    elsewhere, and is not missed."""


def remembered(
    epoch: int,
    plan: Plan | None,
    ticks: Iterable[TickRecord],
    events: Iterable[Event],
    *,
    elsewhere: bool = False,
) -> Past:
    """The past of a controller that leads with ``epoch``.

    Args:
        elsewhere: who led before ran on another Ray cluster.
        ticks: the newest ones; the first of them counts.
        events: newest first, as many as are at hand.
    """
    before = epoch - 1
    stopped = restored = False
    workers: dict[str, str] = {}
    if plan is not None:
        workers = {str(placement.worker): "" for placement in plan.placements}
    for tick in ticks:
        workers |= {
            str(one["id"]): str(one.get("device_kind", "")) for one in tick.body.get("workers", ())
        }
        break
    kinds = dict(workers)
    gateways: set[str] = set()
    joined: set[str] = set()
    ended: set[str] = set()
    for event in sorted(events, key=lambda event: event.seq):
        if event.kind == RESTORED:
            workers, gateways, restored = {}, set(), True
        elif event.kind == "worker_joined":
            workers.setdefault(event.subject, kinds.get(event.subject, ""))
            joined.add(event.subject)
            ended.discard(event.subject)
        elif event.kind in ("worker_left", "worker_lost"):
            workers.pop(event.subject, None)
        elif event.kind in ("gateway_started", "gateway_returned"):
            gateways.add(event.subject)
        elif event.kind in ("gateway_stopped", "gateway_lost"):
            gateways.discard(event.subject)
        elif event.kind in ("controller_started", "controller_stopped"):
            found = _EPOCH.fullmatch(event.subject)
            if found and int(found[1]) < epoch:
                before, stopped = int(found[1]), event.kind == "controller_stopped"
                restored = False
        if stopped and not gateways and event.kind in ("controller_stopped", "gateway_stopped"):
            ended |= joined & workers.keys()
    return Past(
        epoch=before,
        stopped=stopped,
        workers=workers,
        ended=frozenset(ended & workers.keys()),
        gateways=frozenset(gateways),
        elsewhere=elsewhere,
        restored=restored,
    )


def took_over(past: Past, epoch: int, plan: Plan | None) -> StatusEvent:
    """The event that a controller begins with."""
    if not past.epoch:
        how = "it is the first to lead"
    elif past.restored:
        how = "it is the first to lead since the catalog was restored from a backup"
    elif past.elsewhere:
        how = f"it took over from epoch {past.epoch}, of another Ray cluster"
    elif past.stopped:
        how = f"it took over from epoch {past.epoch}, which had been stopped"
    else:
        how = f"it took over from epoch {past.epoch}, which ended without a word"
    goes_on = f"; plan {plan.version} stands" if plan is not None else ""
    return "controller_started", f"epoch {epoch}", f"{how}{goes_on}"


def missed(past: Past, met: Iterable[str], targets: Mapping[str, Target]) -> Iterator[StatusEvent]:
    """Workers of the past that were not met in time: they went while no controller was looking."""
    there = Counter(past.workers.values())
    for id_ in sorted(past.workers.keys() - set(met)):
        kind = past.workers[id_]
        if past.elsewhere:
            why = "it is of the Ray cluster whose control loop led before"
            yield "worker_left", id_, f"worker {id_} is gone: {why}"
        elif past.stopped or id_ in past.ended:
            why = "it ended while the control loop was stopped"
            yield "worker_left", id_, f"worker {id_} is gone: {why}"
        elif kind in targets and there[kind] > targets[kind].count:
            there[kind] -= 1
            why = f"scaled down to {targets[kind].count} while no control loop was running"
            yield "worker_left", id_, f"worker {id_} is gone: {why}"
        else:
            why = "it was lost while no control loop was running"
            yield "worker_lost", id_, f"worker {id_} is gone: {why}"
