"""The tick: from what is observed to what is done about it.

Everything is derived from the observation, nothing is remembered: a controller that starts anew
decides what the one before it would have decided.
"""

from collections.abc import Iterable, Mapping, Sequence

from planner.diff import MemoryMib, diff, free
from planner.placement import place
from planner.snapshot import build_snapshot
from planner.types import (
    Action,
    Decision,
    Observation,
    Scale,
    Snapshot,
    WorkerReport,
    WorkerView,
)
from variants.types import DeviceKindName, Placement, Plan, ReplicaState, TaskName, VariantName


def tick(observation: Observation) -> Decision:
    """One turn of the control loop: scale, place, and say what has to change.

    The same observation gives the same decision. Actions come in the order to apply: scaling,
    unloads, loads.
    """
    snapshot = build_snapshot(
        observation.catalog, ((_view(report), _ready(report)) for report in observation.workers)
    )
    before = observation.plan.placements if observation.plan else ()
    placements = place(snapshot, observation.workers, observation.demand, before)
    workers = {kind: count for kind, count in sorted(observation.inventory.items()) if count > 0}
    plan = Plan(
        version=0,
        epoch=0,
        placements=placements,
        workers=workers,
        explanation=_explanation(snapshot, observation, placements),
    )
    changed = (
        observation.plan is None
        or observation.plan.placements != placements
        or dict(observation.plan.workers) != workers
    )
    return Decision(
        plan=plan,
        changed=changed,
        actions=(
            *_scaling(observation.inventory, observation.running),
            *diff(placements, observation.workers, memory_of(snapshot)),
        ),
    )


def memory_of(snapshot: Snapshot) -> MemoryMib:
    """What each variant takes on each device kind it has a profile on."""
    return {
        (candidate.device_kind, candidate.task, candidate.variant): candidate.memory_mib
        for view in snapshot.tasks.values()
        for candidate in view.by_cost
    }


def _view(report: WorkerReport) -> WorkerView:
    return WorkerView(
        id=report.id,
        device_kind=report.device_kind,
        free_mib=free(report),
        draining=report.draining,
    )


def _ready(report: WorkerReport) -> frozenset[tuple[TaskName, VariantName]]:
    return frozenset(
        (replica.task, replica.variant)
        for replica in report.replicas
        if replica.state is ReplicaState.READY
    )


def _scaling(
    inventory: Mapping[DeviceKindName, int], running: Mapping[DeviceKindName, int]
) -> Iterable[Action]:
    for kind in sorted({*inventory, *running}):
        want, have = inventory.get(kind, 0), running.get(kind, 0)
        if want != have:
            why = f"the inventory has {want}, {have} were asked for"
            yield Scale(device_kind=kind, count=want, why=why)


def _explanation(
    snapshot: Snapshot, observation: Observation, placements: Sequence[Placement]
) -> tuple[str, ...]:
    """A sentence for each worker: what it holds and what does not fit."""
    memory_mib = memory_of(snapshot)
    sentences = []
    for report in sorted(observation.workers, key=lambda r: r.id):
        if report.draining:
            sentences.append(f"{report.id} drains and gets nothing.")
            continue
        placed = {(p.task, p.variant) for p in placements if p.worker == report.id}
        sizes = {key[1:]: mib for key, mib in memory_mib.items() if key[0] == report.device_kind}
        used_mib = sum(sizes[key] for key in placed)
        tasks = sorted({task for task, _ in placed})
        quarantined = sorted(
            replica.variant
            for replica in report.replicas
            if replica.state is ReplicaState.QUARANTINED
        )
        left_out = len(sizes) - len(placed) - len(quarantined)
        text = (
            f"{report.id} ({report.device_kind}) holds {len(placed)} of {len(sizes)} variants "
            f"of {', '.join(tasks) or 'no task'} in {used_mib:.0f} of {report.memory_mib:.0f} MiB"
        )
        if quarantined:
            text += f"; quarantined: {', '.join(quarantined)}"
        if left_out > 0:
            text += f"; no room for {left_out}: what demand and recent use ask for came first"
        sentences.append(f"{text}.")
    return tuple(sentences)
