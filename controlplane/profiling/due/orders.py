"""What is to be measured, and in which order: what tasks need to be answered at all, then what may
be worth it.

Decided from values alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from controlplane.profiling.due.profiles import Cause, DueProfile, Hosts, due_profiles
from controlplane.profiling.due.unanswered import answering
from controlplane.views.catalog.frontier import dominated
from controlplane.views.catalog.stages import SERVING
from planner.types import Demand, ProfileKey
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    ProfilingRequest,
    Stage,
    Task,
    TaskName,
    VariantKey,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringOrder:
    """One profile to be measured on a node; what it takes to do so travels with it."""

    task: Task
    due: DueProfile
    urgent: bool = False
    """No query of its task, or of a class of these, is answered until one of its variants is
    measured."""

    @property
    def key(self) -> ProfileKey:
        return (*self.due.variant.key, self.due.kind.name)

    @property
    def haste(self) -> int:
        """Before whom it is measured: what has less gives way to it."""
        return 2 if self.urgent else 1 if self.due.asked_at else 0

    @property
    def hurried(self) -> bool:
        """Whether it does not wait for calm: an operator waits for it, or all queries of a task."""
        return self.urgent or bool(self.due.asked_at)


def orders(
    catalog: CatalogSnapshot,
    kinds: Iterable[DeviceKind],
    requests: Iterable[ProfilingRequest],
    hosts: Hosts,
    demand_qps: Mapping[TaskName, float],
    *,
    unmet: Sequence[Demand] = (),
    calmer: bool = True,
) -> list[MeasuringOrder]:
    """What to measure, the most pressing first.

    Of variants that were never measured on a kind one comes first for each task of which none was
    measured on any of the kinds, because no query for it can be answered yet: the most accurate.
    Likewise for each class of queries that nothing answers which was measured: the quickest. Then
    come those that live versions have, that no other variant beats wherever both were
    measured, and whose task is asked for most, the quickest on other kinds first: they are measured
    soon. A prediction waits until queries rely on it, which is a request.

    Args:
        unmet: such classes (``unanswered``).
        calmer: whether what was measured beside other work is measured again.
    """
    known = {kind.name: kind for kind in kinds}
    due = _due(catalog, known, requests, hosts, calmer=calmer)
    if not due:
        return []
    tasks = {task.name: task for task in catalog.tasks}
    live = {(v.task, v.model, v.version) for v in catalog.versions if v.stage is Stage.LIVE}
    beaten = _beaten(catalog)
    causes = list(Cause)
    unanswered = [*candidates(due, catalog, known), *answering(due, catalog, unmet, known)]
    firsts = {(*row[0].variant.key, row[0].kind.name) for row in unanswered}
    urgent = {(*one.variant.key, one.kind.name) for row in unanswered for one in row}
    quickest_ms = _quickest_ms(catalog)

    def worth(
        one: DueProfile,
    ) -> tuple[int, bool, bool, bool, float, float, VariantKey, DeviceKindName]:
        variant = one.variant
        return (
            causes.index(one.cause),
            (*variant.key, one.kind.name) not in firsts,
            (variant.task, variant.model, variant.version) not in live,
            variant.key in beaten,
            -demand_qps.get(variant.task, 0.0),
            quickest_ms.get(variant.key, inf),
            variant.key,
            one.kind.name,
        )

    return [
        MeasuringOrder(
            task=tasks[one.variant.task],
            due=one,
            urgent=(*one.variant.key, one.kind.name) in urgent,
        )
        for one in sorted(due, key=worth)
    ]


def _due(
    catalog: CatalogSnapshot,
    kinds: Mapping[DeviceKindName, DeviceKind],
    requests: Iterable[ProfilingRequest],
    hosts: Hosts,
    *,
    calmer: bool,
) -> list[DueProfile]:
    """What is missing, doubted or asked for, and with ``calmer`` what was disturbed."""
    due = [
        one
        for one in due_profiles(catalog, kinds.values(), requests, hosts=hosts)
        if one.cause is not Cause.PREDICTED
    ]
    if calmer:
        due += _disturbed(catalog, kinds, {(*one.variant.key, one.kind.name) for one in due})
    return due


def _quickest_ms(catalog: CatalogSnapshot) -> dict[VariantKey, float]:
    """The median of one row of each variant, on the kind where it is quickest."""
    quickest_ms: dict[VariantKey, float] = {}
    for profile in catalog.profiles:
        key, ms = (profile.task, profile.variant), profile.points[0].p50_ms
        quickest_ms[key] = min(ms, quickest_ms.get(key, inf))
    return quickest_ms


def candidates(
    due: Iterable[DueProfile], catalog: CatalogSnapshot, kinds: Collection[DeviceKindName]
) -> list[list[DueProfile]]:
    """For each task of which no variant that answers was measured on these kinds: what could be,
    the most accurate of a live version first."""
    stages = {(v.task, v.model, v.version): v.stage for v in catalog.versions}
    variants = {variant.key: variant for variant in catalog.variants}
    answered = {
        profile.task
        for profile in catalog.profiles
        if profile.device_kind in kinds
        for one in (variants[profile.task, profile.variant],)
        if stages[one.task, one.model, one.version] in SERVING
    }
    found: dict[TaskName, list[DueProfile]] = defaultdict(list)
    for one in due:
        missing = one.cause is Cause.MISSING and one.kind.name in kinds
        if missing and one.variant.task not in answered:
            found[one.variant.task].append(one)

    def worth(one: DueProfile) -> tuple[bool, float, VariantKey, DeviceKindName]:
        variant = one.variant
        stage = stages[variant.task, variant.model, variant.version]
        return (stage is not Stage.LIVE, -variant.accuracy, variant.key, one.kind.name)

    return [sorted(row, key=worth) for row in found.values()]


def _disturbed(
    catalog: CatalogSnapshot, kinds: Mapping[DeviceKindName, DeviceKind], known: set[ProfileKey]
) -> list[DueProfile]:
    """Profiles of variants that answer which were measured beside other work."""
    variants = {variant.key: variant for variant in catalog.variants}
    serving = {(v.task, v.model, v.version) for v in catalog.versions if v.stage in SERVING}
    return [
        DueProfile(
            variant=variant,
            kind=kinds[profile.device_kind],
            cause=Cause.DISTURBED,
            reason="was measured beside other work",
        )
        for profile in catalog.profiles
        if profile.beside_load and profile.device_kind in kinds
        for variant in (variants[profile.task, profile.variant],)
        if (variant.task, variant.model, variant.version) in serving
        and (*variant.key, profile.device_kind) not in known
    ]


def _beaten(catalog: CatalogSnapshot) -> set[VariantKey]:
    """Variants that another one of their task beats on every kind that they were measured on."""
    measured: dict[VariantKey, set[DeviceKindName]] = defaultdict(set)
    for profile in catalog.profiles:
        measured[profile.task, profile.variant].add(profile.device_kind)
    lost: dict[VariantKey, set[DeviceKindName]] = defaultdict(set)
    for task in catalog.tasks:
        for kind, variant in dominated(
            [one for one in catalog.variants if one.task == task.name],
            [one for one in catalog.profiles if one.task == task.name],
        ):
            lost[task.name, variant].add(kind)
    return {key for key, kinds in lost.items() if kinds == measured[key]}
