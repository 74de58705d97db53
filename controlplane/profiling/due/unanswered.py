"""Classes of queries that nothing answers which was measured where workers run, and what may.

Pure. A task may be answered, and some of its queries are not: those that are in a hurry, where only
what takes long was measured on a new device kind, or that want more accuracy. And where more is
asked than the workers can do with what was measured, they may with what takes less.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from controlplane.profiling.due.profiles import Cause, DueProfile
from planner.selection.eligibility import meets
from planner.selection.snapshot import build_snapshot
from planner.types import TRANSPORT_MS, Candidate, Demand, DemandClass, Snapshot, class_of
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    ModelName,
    ModelVersion,
    Route,
    Stage,
    TaskName,
    VariantKey,
)

SERVED = 0.8
"""A class of which a plan serves a smaller part has too little of the workers."""
CHEAPER = 0.5
"""What takes less than this part of the time of what was measured may help it."""


def unanswered(
    catalog: CatalogSnapshot,
    kinds: Collection[DeviceKindName],
    demand: Iterable[Demand],
    routes: Sequence[Route] = (),
) -> tuple[Demand, ...]:
    """The classes of a demand that no variant meets by what was measured on these kinds, or of
    which a plan serves too little.

    Args:
        catalog: with the latencies that workers see now.
        kinds: those that workers are there of.
        routes: of the plan; empty where there is none.
    """
    asked = tuple(demand)
    if not asked:
        return ()
    snapshot = build_snapshot(catalog, ())

    def is_met(one: Demand) -> bool:
        view = snapshot.tasks.get(one.task)
        there = () if view is None else view.pinned_to(one.variant)
        return any(candidate.device_kind in kinds and _meets(candidate, one) for candidate in there)

    served: dict[DemandClass, float] = {}
    for route in routes:
        pinned = route.variant if route.pinned else None
        to = (route.task, route.latency_ms, route.accuracy, pinned)
        served[to] = served.get(to, 0.0) + route.qps

    def is_served(one: Demand) -> bool:
        return not routes or served.get(class_of(one), 0.0) >= SERVED * one.qps

    return tuple([one for one in asked if one.qps and not (is_met(one) and is_served(one))])


def answering(
    due: Iterable[DueProfile],
    catalog: CatalogSnapshot,
    unmet: Sequence[Demand],
    kinds: Collection[DeviceKindName],
) -> list[list[DueProfile]]:
    """For each of these classes what would answer it once it was measured, as far as is known: by
    its accuracy, and by its latency on other kinds. The quickest first, and last what was measured
    nowhere. Where something answers that was measured on these kinds, only what takes far less."""
    if not unmet:
        return []
    missing = [one for one in due if one.cause is Cause.MISSING]
    versions = {(v.task, v.model, v.version): v for v in catalog.versions}
    snapshot = build_snapshot(catalog, ())
    rows = []
    for one in unmet:
        quickness = {
            each.variant.key: _quickness_ms(each, snapshot, one)
            for each in missing
            if _may_answer(each, versions, one)
        }
        most_ms = _most_ms(snapshot, one, kinds)
        row = [
            each
            for each in missing
            if (own_ms := quickness.get(each.variant.key)) is not None
            and (most_ms == inf or own_ms < most_ms)
        ]
        rows.append(sorted(row, key=lambda each: _rank(each, quickness)))
    return [row for row in rows if row]


def _may_answer(
    due: DueProfile, versions: Mapping[tuple[TaskName, ModelName, int], ModelVersion], asked: Demand
) -> bool:
    """Whether the stage and the accuracy of a variant allow it to answer."""
    variant = due.variant
    if variant.task != asked.task or variant.accuracy < (asked.accuracy or 0.0):
        return False
    if asked.variant is not None:
        return variant.name == asked.variant
    return versions[variant.task, variant.model, variant.version].stage is Stage.LIVE


def _most_ms(snapshot: Snapshot, asked: Demand, kinds: Collection[DeviceKindName]) -> float:
    """What a row may take of what would help a class; infinity where nothing answers it."""
    view = snapshot.tasks.get(asked.task)
    known = () if view is None else view.pinned_to(asked.variant)
    there = [one for one in known if one.device_kind in kinds and _meets(one, asked)]
    return CHEAPER * min((one.table.ms[1] for one in there), default=inf)


def _quickness_ms(due: DueProfile, snapshot: Snapshot, asked: Demand) -> float | None:
    """What a row takes on the kind where it takes least, infinity where none was measured; None
    where it is nowhere quick enough."""
    view = snapshot.tasks.get(due.variant.task)
    known = () if view is None else view.pinned_to(due.variant.name)
    if not known:
        return inf
    return min((one.table.ms[1] for one in known if _meets(one, asked)), default=None)


def _rank(
    due: DueProfile, quickness: Mapping[VariantKey, float | None]
) -> tuple[float, int, VariantKey, DeviceKindName]:
    key = due.variant.key
    return (quickness[key] or 0.0, due.variant.size_bytes, key, due.kind.name)


def _meets(candidate: Candidate, asked: Demand) -> bool:
    return meets(candidate, replace(asked, latency_ms=asked.tightest_ms), TRANSPORT_MS)
