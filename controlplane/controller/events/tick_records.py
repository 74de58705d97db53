"""A turn of the control loop as it is stored: what it saw, what it began, and why.

Fields are taken over as they are: values do not change, and what JSON makes of them is made where
they are written, beside the event loop. Copying them first took ten times as long as all else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

from controlplane.controller.events.plan_changes import plan_changes
from controlplane.timestamps import timestamp
from planner.types import Action, Decision, Demand, Observation, WorkerReport
from variants.types import ReplicaState, TickRecord

MANY_REPLICAS = 1_000
"""Beyond so many on all workers together a record says of those that are ready only how many each
worker has, and not what may leave it: what a plan places stands in the plan. Of a thousand workers
it would be a megabyte and a half, up to once a second."""

_WORKER = tuple(field.name for field in fields(WorkerReport))
_DEMAND = tuple(field.name for field in fields(Demand))


def tick_record(
    observation: Observation,
    decision: Decision,
    begun: Iterable[Action],
    epoch: int,
    version: int,
) -> TickRecord:
    """The record of a turn that led to a decision, of which these actions were begun."""
    body = {
        "epoch": epoch,
        "catalog_revision": observation.catalog.revision,
        "workers": _workers(observation.workers),
        "demand": _demands(observation.demand),
        "expected": _demands(observation.expected or ()),
        "objective": observation.objective.value,
        "interference": dict(observation.interference),
        "zones": dict(observation.zones.usual),
        "kind_zones": {kind: sorted(at) for kind, at in observation.kind_zones.items()},
        "round_trips_ms": [
            {"from": asked, "to": to, "ms": away_ms}
            for (asked, to), away_ms in sorted(observation.zones.round_trips_ms.items())
        ],
        "inventory": dict(observation.inventory),
        "running": dict(observation.running),
        "actions": [
            {"action": type(action).__name__.lower(), **asdict(action)} for action in begun
        ],
        "explanation": list(decision.plan.explanation),
        "changes": plan_changes(observation.plan, decision.plan) if decision.changed else [],
    }
    return TickRecord(plan_version=version, at=timestamp(), body=body)


def _workers(reports: Sequence[WorkerReport]) -> list[dict[str, Any]]:
    whole = [{name: getattr(report, name) for name in _WORKER} for report in reports]
    if sum(len(report.replicas) for report in reports) <= MANY_REPLICAS:
        return whole
    for row in whole:
        others = [one for one in row["replicas"] if one.state is not ReplicaState.READY]
        row["ready"] = len(row["replicas"]) - len(others)
        row["replicas"] = others
        del row["evictable"]
    return whole


def _demands(demands: Iterable[Demand]) -> list[dict[str, Any]]:
    return [{name: getattr(demand, name) for name in _DEMAND} for demand in demands]
