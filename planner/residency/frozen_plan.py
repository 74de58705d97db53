"""What becomes of a plan that is frozen, by the workers and the catalog of now.

Nothing in it is decided anew. The part of a worker that is gone goes to one of its kind that came
after the plan was made. What the catalog has no more, or what was forbidden since, is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.residency.pins import Arrangement, arrange
from planner.types import Action, Load, Observation, Unload, WorkerReport
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    Rule,
    RuleKind,
    TaskName,
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
    heirs = _heirs(plan, observation, memory_mib)
    kinds = {worker.id: worker.device_kind for worker in observation.workers}
    here = {worker.id for worker in observation.workers if not worker.draining}

    def goes_on(worker: WorkerId, task: TaskName, variant: VariantName) -> bool:
        kind = kinds.get(worker)
        return kind is None or (kind, task, variant) in memory_mib

    placements = [replace(one, worker=heirs.get(one.worker, one.worker)) for one in plan.placements]
    placements = [one for one in placements if goes_on(one.worker, one.task, one.variant)]
    routes = tuple(replace(one, worker=heirs.get(one.worker, one.worker)) for one in plan.routes)
    routes = tuple(one for one in routes if goes_on(one.worker, one.task, one.variant))
    placed = {(one.worker, one.task, one.variant) for one in placements}
    pinned = {rule.key for rule in observation.catalog.rules if rule.kind is RuleKind.PIN}
    beside_mib: dict[WorkerId, float] = {}
    for one in placements:
        if one.worker in here and (one.task, one.variant) not in pinned:
            size_mib = memory_mib[kinds[one.worker], one.task, one.variant]
            beside_mib[one.worker] = beside_mib.get(one.worker, 0.0) + size_mib
    found = arrange(observation.catalog, observation.workers, placements, beside_mib)
    more = [
        Placement(worker=worker, task=task, variant=variant, share=0.0)
        for worker, keys in sorted(found.held.items())
        for task, variant in keys
        if (worker, task, variant) not in placed
    ]
    kept = (one for one in plan.explanation if not one.startswith(FROZEN))
    frozen = Plan(
        version=0,
        epoch=0,
        placements=(*placements, *more),
        workers=plan.workers,
        explanation=(sentence(rule), *kept),
        routes=routes,
    )
    return frozen, found


def sentence(rule: Rule) -> str:
    """That the plan is frozen, and why."""
    why = f": {rule.why}" if rule.why else ""
    return f"{FROZEN} (rule {rule.id}{why}). What it places is restored, and nothing else is done."


def _heirs(plan: Plan, observation: Observation, memory_mib: MemoryMib) -> dict[WorkerId, WorkerId]:
    """For each worker of the plan that is gone, the one of its kind that takes its part over."""
    named = {one.worker for one in plan.placements} | {one.worker for one in plan.routes}
    reports = sorted(observation.workers, key=lambda one: one.id)
    here = {one.id for one in reports if not one.draining}
    newcomers: dict[DeviceKindName, list[WorkerId]] = {}
    for one in reports:
        if one.id in here and one.id not in named:
            newcomers.setdefault(one.device_kind, []).append(one.id)
    known = {kind.name for kind in observation.catalog.device_kinds} | newcomers.keys()
    heirs: dict[WorkerId, WorkerId] = {}
    for gone in sorted(named - here):
        # A worker's name begins with its kind (cpu-2-on4wnd2d), and the plan says no more of it.
        kind = max((k for k in known if gone.startswith(f"{k}-")), key=len, default=None)
        if kind is None:  # it was named otherwise: one of a kind that could hold all of it
            had = [(one.task, one.variant) for one in plan.placements if one.worker == gone]
            able = (k for k in sorted(newcomers) if all((k, *key) in memory_mib for key in had))
            kind = next((k for k in able if newcomers[k]), None)
        if kind is not None and newcomers.get(kind):
            heirs[gone] = newcomers[kind].pop(0)
    return heirs


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
