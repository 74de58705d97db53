"""Standing: what has become of the rules of operators, by what the workers say now."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controlplane.controller.met_workers.worker_reports import report_of
from planner.residency.frozen_plan import frozen_by
from planner.residency.pins import Arrangement, arrange
from planner.types import WorkerReport
from variants.figures import counted
from variants.types import CatalogSnapshot, ReplicaState, Rule, RuleKind, Stage, TaskName
from workers.types import WorkerStatus


class Standing(NamedTuple):
    """What has become of one rule."""

    kept: bool
    """Whether all is as it says."""
    sentence: str


def standings(
    catalog: CatalogSnapshot, statuses: Iterable[WorkerStatus], now_s: float
) -> dict[int, Standing]:
    """What has become of each rule, by its id.

    Args:
        now_s: Unix time.
    """
    if not catalog.rules:
        return {}
    reports = [report_of(status) for status in statuses]
    found = arrange(catalog, reports)
    return {rule.id: _standing(catalog, rule, reports, found, now_s) for rule in catalog.rules}


def _standing(
    catalog: CatalogSnapshot,
    rule: Rule,
    reports: Sequence[WorkerReport],
    found: Arrangement,
    now_s: float,
) -> Standing:
    if rule.kind is RuleKind.FREEZE:
        if frozen_by((rule,), now_s) is None:
            return Standing(False, "Its time is over.")
        return Standing(True, "No new plan is made; what the plan places is restored.")
    on = [one for one in reports if rule.device_kind in ("", one.device_kind)]
    if rule.kind is RuleKind.FORBID:
        still = [one.id for one in on if _state(one, rule) in _IN_MEMORY]
        alone = ""
        if rule.task not in answerable_tasks(catalog):
            alone = f" Nothing answers queries of {rule.task} that name no variant now."
        if still:
            return Standing(False, f"It still leaves {', '.join(still[:5])}.{alone}")
        return Standing(True, f"It is loaded nowhere.{alone}")
    states = [_state(one, rule) for one in on if not one.draining]
    ready, loading = states.count(ReplicaState.READY), states.count(ReplicaState.LOADING)
    held = min(ready, rule.replicas)
    there = f"{held} of {counted(rule.replicas, 'replica')} ready"
    if ready > held:
        there += f", and {ready - held} more"
    if ready >= rule.replicas:
        return Standing(True, f"{there}.")
    if (lack := next((one for one in found.lacks if one.rule.id == rule.id), None)) is not None:
        return Standing(False, f"{there}: {lack.why}.")
    if loading:
        return Standing(False, f"{there}, {loading} loading.")
    frozen = frozen_by(catalog.rules, now_s)
    why = "; while the plan is frozen it is loaded into memory that the plan leaves" * bool(frozen)
    return Standing(False, f"{there}, to be loaded{why}.")


def answerable_tasks(catalog: CatalogSnapshot) -> frozenset[TaskName]:
    """Tasks of which a live version has a variant that nobody has forbidden on all device kinds."""
    forbidden = {
        rule.key for rule in catalog.rules if rule.kind is RuleKind.FORBID and not rule.device_kind
    }
    live = {(v.task, v.model, v.version) for v in catalog.versions if v.stage is Stage.LIVE}
    return frozenset(
        one.task
        for one in catalog.variants
        if (one.task, one.model, one.version) in live and one.key not in forbidden
    )


_IN_MEMORY = (ReplicaState.READY, ReplicaState.LOADING, ReplicaState.UNLOADING)


def _state(report: WorkerReport, rule: Rule) -> ReplicaState | None:
    for one in report.replicas:
        if (one.task, one.variant) == rule.key:
            return one.state
    return None
