"""What becomes of a plan that is frozen, by the workers and the catalog of now.

Nothing in it is decided anew. The part of a worker that is gone goes to one of its kind that came
after the plan was made; one that came beside the others holds what one of them does, so that it may
replace it. What the catalog has no more, or what was forbidden since, is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.residency.pins import NOTHING, Arrangement, arrange
from planner.types import Action, Load, Observation, ReplicaKey, Unload, WorkerReport
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    Rule,
    RuleKind,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)

FROZEN = "The plan is frozen"
"""How the sentence begins that says so."""

MemoryMib = Mapping[tuple[DeviceKindName, TaskName, VariantName], float]
"""What each variant that may run takes on a device kind."""


def frozen_by(rules: Iterable[Rule], wall_s: float) -> Rule | None:
    """The rule by which the plan stays as it is at a Unix time; None where there is none, or it is
    over."""
    for rule in rules:
        if rule.kind is RuleKind.FREEZE and (rule.until_s is None or wall_s < rule.until_s):
            return rule
    return None


def frozen_plan(
    observation: Observation, plan: Plan, rule: Rule, memory_mib: MemoryMib
) -> tuple[Plan, Arrangement]:
    """The plan that is kept, with what is pinned beside it where it leaves memory; and where what
    is pinned is held then."""
    heirs, copies = _heirs(plan, observation, memory_mib)
    kinds = {worker.id: worker.device_kind for worker in observation.workers}

    def goes_on(worker: WorkerId, task: TaskName, variant: VariantName) -> bool:
        kind = kinds.get(worker)
        return kind is None or (kind, task, variant) in memory_mib

    moved = [replace(one, worker=heirs.get(one.worker, one.worker)) for one in plan.placements]
    moved += [
        replace(one, worker=new) for new, like in copies.items() for one in moved
        if one.worker == like
    ]  # fmt: skip
    going_on = {
        (one.worker, one.task, one.variant): one
        for one in moved
        if goes_on(one.worker, one.task, one.variant)
    }
    placements, left_out = _fitting(observation, going_on, memory_mib)
    routes = tuple(replace(one, worker=heirs.get(one.worker, one.worker)) for one in plan.routes)
    routes = tuple(
        one
        for one in routes
        if goes_on(one.worker, one.task, one.variant)
        and (one.worker, one.task, one.variant) not in left_out
    )
    with_pins, found = _with_pins(observation, placements, memory_mib)
    kept = (one for one in plan.explanation if not one.startswith(FROZEN))
    frozen = Plan(
        version=0,
        epoch=0,
        placements=tuple(with_pins.values()),
        workers=plan.workers,
        explanation=(sentence(rule), *kept),
        routes=routes,
    )
    return frozen, found


def _fitting(
    observation: Observation, placements: Mapping[ReplicaKey, Placement], memory_mib: MemoryMib
) -> tuple[dict[ReplicaKey, Placement], set[ReplicaKey]]:
    """The placements that their workers have memory for, the first ones first, and the others: who
    takes over from a worker may have less than that had."""
    workers = {worker.id: worker for worker in observation.workers}
    left_mib = {id_: worker.memory_mib for id_, worker in workers.items()}
    fitting: dict[ReplicaKey, Placement] = {}
    for key, one in placements.items():
        id_, task, variant = key
        if id_ in workers:
            size_mib = memory_mib[workers[id_].device_kind, task, variant]
            if size_mib > left_mib[id_]:
                continue
            left_mib[id_] -= size_mib
        fitting[key] = one
    return fitting, placements.keys() - fitting.keys()


def _with_pins(
    observation: Observation, placements: Mapping[ReplicaKey, Placement], memory_mib: MemoryMib
) -> tuple[Mapping[ReplicaKey, Placement], Arrangement]:
    """Placements with what is pinned beside them, as far as they leave memory; and where pinned
    variants are held then."""
    catalog = observation.catalog
    pinned = {rule.key for rule in catalog.rules if rule.kind is RuleKind.PIN}
    if not pinned:
        return placements, NOTHING
    workers = {worker.id: worker for worker in observation.workers if not worker.draining}
    taken_mib = dict.fromkeys(workers, 0.0)
    beside_mib = dict.fromkeys(workers, 0.0)
    for id_, task, variant in placements:
        if id_ in workers:
            size_mib = memory_mib[workers[id_].device_kind, task, variant]
            taken_mib[id_] += size_mib
            beside_mib[id_] += 0.0 if (task, variant) in pinned else size_mib
    found = arrange(catalog, observation.workers, placements.values(), beside_mib)
    with_pins = dict(placements)
    for id_, keys in sorted(found.held.items()):
        for task, variant in keys:
            size_mib = memory_mib[workers[id_].device_kind, task, variant]
            # More of what is pinned may be placed there than its pin asks for.
            if (id_, task, variant) not in with_pins:
                if taken_mib[id_] + size_mib > workers[id_].memory_mib:
                    continue
                taken_mib[id_] += size_mib
                with_pins[id_, task, variant] = Placement(
                    worker=id_, task=task, variant=variant, share=0.0
                )
    held = {
        id_: tuple(key for key in keys if (id_, *key) in with_pins)
        for id_, keys in found.held.items()
    }
    return with_pins, found._replace(held=held)


def sentence(rule: Rule) -> str:
    """That the plan is frozen, and why."""
    why = f": {rule.why}" if rule.why else ""
    return f"{FROZEN} (rule {rule.id}{why}). What it places is restored, and nothing else is done."


def _heirs(
    plan: Plan, observation: Observation, memory_mib: MemoryMib
) -> tuple[dict[WorkerId, WorkerId], dict[WorkerId, WorkerId]]:
    """Who takes over from whom, as (by worker that is gone, by worker that came).

    The part of a worker that is gone goes to one of its kind that came; else its routes go to one
    without any that holds the same. Whoever else came holds what another one of its kind does.
    """
    held: dict[WorkerId, set[VariantKey]] = {}
    for one in plan.placements:
        held.setdefault(one.worker, set()).add((one.task, one.variant))
    routed = {one.worker for one in plan.routes}
    named = held.keys() | routed
    here = {
        one.id: one.device_kind
        for one in sorted(observation.workers, key=lambda one: one.id)
        if not one.draining
    }
    newcomers: dict[DeviceKindName, list[WorkerId]] = {}
    for id_, kind in here.items():
        if id_ not in named:
            newcomers.setdefault(kind, []).append(id_)
    known = {kind.name for kind in observation.catalog.device_kinds} | {*here.values()}
    heirs: dict[WorkerId, WorkerId] = {}
    for gone in sorted(named - here.keys()):
        # A worker's name begins with its kind (cpu-2-on4wnd2d), and the plan says no more of it.
        of = max((kind for kind in known if gone.startswith(f"{kind}-")), key=len, default=None)
        if of is None:  # it was named otherwise: one of a kind that could hold all of it
            had = held.get(gone, set())
            able = (k for k in sorted(newcomers) if all((k, *key) in memory_mib for key in had))
            of = next((kind for kind in able if newcomers[kind]), None)
        if of is None:
            continue
        if newcomers.get(of):
            heirs[gone] = newcomers[of].pop(0)
            continue
        alike = (
            id_
            for id_, kind in here.items()
            if kind == of
            and id_ not in routed
            and id_ not in heirs.values()
            and held.get(id_, set()) >= held.get(gone, set())
        )
        if (same := next(alike, None)) is not None:
            heirs[gone] = same
    copies = {
        new: like
        for kind, left in newcomers.items()
        for new in left
        if (like := next((i for i in here if here[i] == kind and i in held), None)) is not None
    }
    return heirs, copies


def restoring(
    actions: Iterable[Action], workers: Iterable[WorkerReport], memory_mib: MemoryMib
) -> tuple[Action, ...]:
    """Of what brings workers to a frozen plan, the loads, and what has to leave for them.

    What queries had loaded stays while its memory is free; what may run no more leaves at once.
    """
    reports = {worker.id: worker for worker in workers}
    short_mib = {
        id_: -max(
            0.0,
            worker.memory_mib
            - max(worker.reserved_mib, sum(one.memory_mib for one in worker.replicas)),
        )
        for id_, worker in reports.items()
    }
    known = list(actions)
    for one in known:
        if isinstance(one, Load):
            kind = reports[one.worker].device_kind
            short_mib[one.worker] += memory_mib[kind, one.task, one.variant]
    kept: list[Action] = []
    for one in known:
        if isinstance(one, Load):
            kept.append(one)
        elif isinstance(one, Unload):
            worker = reports[one.worker]
            may_run = (worker.device_kind, one.task, one.variant) in memory_mib
            if not may_run or short_mib[one.worker] > 0.0:
                kept.append(one)
                short_mib[one.worker] -= sum(
                    each.memory_mib
                    for each in worker.replicas
                    if (each.task, each.variant) == (one.task, one.variant)
                )
    return tuple(kept)
