"""The snapshot: the catalog and the workers, prepared for selection.

The price of a candidate is its reservation price, ``usd_per_hour * latency_ms(1) / 3,600``. Its
latency is the median of a batch of one row without any margin: a price is what a query is expected
to take, whereas the margin on p95 is there to keep a promise. Its footprint is the energy of such a
batch, where that was measured.
"""

from collections.abc import Collection, Iterable, Mapping
from math import exp, inf
from typing import NamedTuple

from planner import sentences as explain
from planner.energy import counts_carbon, energy_curve, weight_of
from planner.eviction.query_rates import QueryRates
from planner.latency_table import LatencyTable, latency_table
from planner.selection.eligibility import forbidding, stage_answers
from planner.selection.frontier_index import moved_view, task_view
from planner.selection.worker_index import WorkerIndex
from planner.types import (
    TRANSPORT_MS,
    Candidate,
    ProfileKey,
    Snapshot,
    TaskView,
    WorkerView,
)
from planner.worker_starts import Wanted
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    ModelVersion,
    Profile,
    ProfileSource,
    Rule,
    RuleKind,
    Stage,
    Task,
    TaskName,
    Variant,
    VariantKey,
    VariantName,
    WorkerId,
)
from variants.working_memory import counted_mib

MEASURED_MARGIN = 1.2
"""Factor on a measured p95, until live latency corrects it."""
PREDICTED_MARGIN = 1.5
"""Factor on a p95 that a cost model predicted without an error."""
SURE = 1.645
"""Standard deviations that are added to a prediction: 19 of 20 batches are not slower, as with a
measured 95th percentile."""
MOST_MARGIN = 5.0
"""Most that a prediction is multiplied by. Live latency corrects it in any case."""


Unloadable = Mapping[WorkerId, Mapping[VariantKey, str]]
"""The variants that each worker cannot load, and why."""
Failed = tuple[tuple[WorkerId, str], ...]
"""Workers that cannot load a variant, and why."""

NONE_UNLOADABLE: Unloadable = {}


def build_snapshot(
    catalog: CatalogSnapshot,
    workers: Iterable[tuple[WorkerView, Collection[VariantKey]]],
    *,
    transport_ms: float = TRANSPORT_MS,
    unloadable: Unloadable = NONE_UNLOADABLE,
    before: Snapshot | None = None,
    wanted: Wanted | None = None,
    asked: QueryRates[VariantKey] | None = None,
    unconfirmed: frozenset[ProfileKey] = frozenset(),
    unmeasurable: Mapping[ProfileKey, str] | None = None,
    measures: bool = False,
) -> Snapshot:
    """All that choosing needs, from a catalog and what is ready on each worker.

    Only variants of live and canary versions become candidates, one for each device kind they
    have a profile on and are not forbidden on, whether or not there is a worker of that kind.
    Workers that drain are in the snapshot, but neither hold nor host anything. Linear in profiles,
    apart from sorting.
    ``unloadable`` says what workers cannot load; those that hold it already go on answering.

    ``before`` is an earlier snapshot: what did not change since is taken from it, and the result is
    the same. Cheapest when the catalog, or most of what is in it, is the same object
    (``variants.catalog.known_objects``). What queries
    have ``asked`` for is that of ``before`` where nothing is given. Refusals name the profiles that
    are ``unconfirmed`` as such, and with ``measures`` what is yet to be measured, or is
    ``unmeasurable``.
    """
    workers = list(workers)
    known = before.parts if before is not None and isinstance(before.parts, _Parts) else None
    worker_index = WorkerIndex(workers, None if known is None else known.worker_index)
    same_catalog = known is not None and known.catalog is catalog and known.unloadable == unloadable
    entries = known.entries if known is not None and same_catalog else _entries(catalog, unloadable)
    reuse = None if known is None or before is None else _Reuse(before, known, worker_index)
    made: dict[TaskName, _BuiltTask] = {}
    tasks: dict[TaskName, TaskView] = {}
    suspects: Collection[TaskName] = entries.keys()
    origin: _Origin | None = None
    if known is not None and before is not None and reuse is not None and same_catalog:
        made, tasks = dict(known.made), dict(before.tasks)
        suspects = reuse.suspects()
        origin = _Origin(known.name, suspects)
    for name in suspects:
        entry = entries[name]
        kept = None if reuse is None else reuse.task(name, entry)
        if kept is None:
            old = None if reuse is None else reuse.made(name)
            moved = None if reuse is None else reuse.moved(name)
            made[name] = _built_task(entry, worker_index, old, moved)
            view = None if before is None else before.tasks.get(name)
            tasks[name] = _task_view(made[name], old, view)
        else:
            made[name], tasks[name] = kept
    if before is not None and worker_index.same_workers:
        views, kinds = before.workers, before.kinds
    else:
        views = {view.id: view for view, _ in workers}
        kinds = frozenset([view.device_kind for view, _ in workers if not view.draining])
    return Snapshot(
        revision=catalog.revision,
        mark=catalog.mark,
        tasks=tasks,
        workers=views,
        kinds=kinds,
        transport_ms=transport_ms,
        wanted=wanted or Wanted(),
        asked=asked or (QueryRates() if before is None else before.asked),
        measures=measures,
        unconfirmed=unconfirmed,
        unmeasurable=unmeasurable or {},
        parts=_Parts(catalog, unloadable, worker_index, entries, made, object(), origin),
    )


def same_catalog(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots are of the same catalog, latencies and all: live corrections do not
    change its revision."""
    before, now = one.parts, other.parts
    return isinstance(before, _Parts) and isinstance(now, _Parts) and before.catalog is now.catalog


def changed_tasks(before: Snapshot | None, now: Snapshot) -> Collection[TaskName] | None:
    """The only tasks whose views may differ between two snapshots; None where any may: where the
    second was not made from the first, or the catalog is another one."""
    known = None if before is None else before.parts
    if isinstance(known, _Parts) and isinstance(now.parts, _Parts):
        origin = now.parts.origin
        if origin is not None and origin.name is known.name:
            return origin.changed
    return None


def latency_points(profile: Profile) -> tuple[tuple[int, float], ...]:
    """(batch size, p95 in ms times the margin of its source); workers predict with it as well."""
    return tuple(
        (point.batch_size, point.p95_ms * margin(profile, point)) for point in profile.points
    )


def margin(profile: Profile, point: LatencyPoint) -> float:
    """What a point's 95th percentile is multiplied by to be relied upon."""
    if profile.source is ProfileSource.EXACT:
        return 1.0
    unsure = profile.source is ProfileSource.PREDICTED and not any(p.error for p in profile.points)
    least = PREDICTED_MARGIN if unsure else MEASURED_MARGIN
    if profile.live:
        least = 1.0  # where it is needed it stands in the point's error
    return min(least * exp(SURE * point.error), MOST_MARGIN)


def typical_points(profile: Profile) -> tuple[tuple[int, float], ...]:
    """(batch size, median in ms), what a batch usually takes."""
    return tuple((point.batch_size, point.p50_ms) for point in profile.points)


def reservation_price(profile: Profile, kind: DeviceKind) -> float:
    """USD per 1,000 queries of one row."""
    return kind.usd_per_hour * profile.points[0].p50_ms / 3_600


class _TaskEntry(NamedTuple):
    """All that the catalog says of a task."""

    task: Task
    versions: list[ModelVersion]
    variants: list[Variant]
    profiles: list[Profile]
    kinds: tuple[DeviceKind, ...]
    failed: dict[VariantName, Failed]
    forbids: list[Rule]
    """By which operators have forbidden variants of it."""


class _CandidateSource(NamedTuple):
    """All of the catalog that a candidate is made of."""

    variant: Variant
    canary: bool
    profile: Profile
    kind: DeviceKind
    failed: Failed
    carbon: bool
    """Whether footprints are grams of CO2."""


Unmeasured = Mapping[VariantName, frozenset[DeviceKindName]]
"""The device kinds on which a variant that may answer was not measured yet."""


class _BuiltTask(NamedTuple):
    """What a task's entry became."""

    entry: _TaskEntry
    sources: list[_CandidateSource]
    candidates: list[Candidate]
    """One for each source, in their order."""
    excluded: Mapping[VariantName, str]
    unmeasured: Unmeasured
    places: Mapping[tuple[DeviceKindName, VariantName], int]
    """Of candidates in that order."""


class _Origin(NamedTuple):
    """The snapshot of the same catalog that one was made from."""

    name: object
    """As of its parts: it is not kept for this."""
    changed: Collection[TaskName]
    """The only tasks whose views may be others."""


class _Parts(NamedTuple):
    """What a snapshot was made of, for the next one."""

    catalog: CatalogSnapshot
    unloadable: Unloadable
    worker_index: WorkerIndex
    entries: Mapping[TaskName, _TaskEntry]
    made: Mapping[TaskName, _BuiltTask]
    name: object
    """An object of its own, that stands for the snapshot."""
    origin: _Origin | None


class _Reuse:
    """The parts of an earlier snapshot that are still valid."""

    def __init__(self, before: Snapshot, parts: _Parts, worker_index: WorkerIndex) -> None:
        self._parts = parts
        self._tasks = before.tasks
        self._kinds: set[DeviceKindName] = set()
        """Device kinds for which the workers of every candidate changed."""
        self._touched: dict[TaskName, set[tuple[DeviceKindName, VariantName]]] = {}
        """By task: what became ready on a worker of a kind, or is not any more."""
        for kind, keys in worker_index.changes(parts.worker_index).items():
            if keys is None:
                self._kinds.add(kind)
            else:
                for task, variant in keys:
                    self._touched.setdefault(task, set()).add((kind, variant))

    def suspects(self) -> Collection[TaskName]:
        """Tasks that may have changed, though the catalog did not."""
        known = self._parts.entries
        return known if self._kinds else self._touched.keys() & known.keys()

    def task(self, name: TaskName, entry: _TaskEntry) -> tuple[_BuiltTask, TaskView] | None:
        """The earlier result for a task, if nothing of it changed; None otherwise.

        Comparing entries is quick: lists compare their items by identity first.
        """
        if name in self._touched or self._parts.entries.get(name) != entry:
            return None
        made = self._parts.made[name]
        if self._kinds and any(s.kind.name in self._kinds for s in made.sources):
            return None
        return made, self._tasks[name]

    def moved(self, name: TaskName) -> Collection[tuple[DeviceKindName, VariantName]] | None:
        """The only candidates of a task that may have other workers now; None where any may."""
        return None if self._kinds else self._touched.get(name, ())

    def made(self, name: TaskName) -> _BuiltTask | None:
        return self._parts.made.get(name)


def _entries(catalog: CatalogSnapshot, unloadable: Unloadable) -> dict[TaskName, _TaskEntry]:
    entries = {
        task.name: _TaskEntry(task, [], [], [], catalog.device_kinds, {}, [])
        for task in catalog.tasks
    }
    for rule in catalog.rules:
        if rule.kind is RuleKind.FORBID and (entry := entries.get(rule.task)) is not None:
            entry.forbids.append(rule)
    for worker in sorted(unloadable):
        for (task, name), why in unloadable[worker].items():
            if (entry := entries.get(task)) is not None:
                entry.failed[name] = (*entry.failed.get(name, ()), (worker, why))
    for version in catalog.versions:
        if (entry := entries.get(version.task)) is not None:
            entry.versions.append(version)
    for variant in catalog.variants:
        if (entry := entries.get(variant.task)) is not None:
            entry.variants.append(variant)
    for profile in catalog.profiles:
        if (entry := entries.get(profile.task)) is not None:
            entry.profiles.append(profile)
    return entries


def _built_task(
    entry: _TaskEntry,
    worker_index: WorkerIndex,
    old: _BuiltTask | None,
    moved: Collection[tuple[DeviceKindName, VariantName]] | None,
) -> _BuiltTask:
    """The candidates of a task's entry; old ones are kept where they would be the same.

    ``moved`` has all of them whose workers are others than before; None where any may be.
    """
    if old is not None and old.entry is entry:
        found, places = old.candidates.copy(), old.places
        for at in places.values() if moved is None else map(places.get, moved):
            if at is not None:
                found[at] = _moved(old.sources[at], worker_index, found[at])
        return _BuiltTask(entry, old.sources, found, old.excluded, old.unmeasured, places)
    sources, excluded, unmeasured = _sources(entry)
    known: dict[tuple[VariantName, DeviceKindName], tuple[_CandidateSource, Candidate]] = {}
    if old is not None:
        pairs = zip(old.sources, old.candidates, strict=True)
        known = {(c.variant, c.device_kind): (source, c) for source, c in pairs}
    found = [
        _candidate(source, worker_index, *known.get((source.variant.name, source.kind.name), _NEW))
        for source in sources
    ]
    places = {(c.device_kind, c.variant): at for at, c in enumerate(found)}
    return _BuiltTask(entry, sources, found, excluded, unmeasured, places)


def _task_view(made: _BuiltTask, old: _BuiltTask | None, view: TaskView | None) -> TaskView:
    """The view of a task; where only workers are others, with the orders of the earlier one."""
    if old is None or view is None or old.entry is not made.entry:
        return task_view(made.entry.task, made.candidates, made.excluded, made.unmeasured)
    pairs = zip(old.candidates, made.candidates, strict=True)
    return moved_view(view, {id(was): now for was, now in pairs if was is not now})


_NEW: tuple[None, None] = (None, None)


def _moved(source: _CandidateSource, worker_index: WorkerIndex, candidate: Candidate) -> Candidate:
    """What was made of a source before, with the workers of now."""
    if source.failed:
        return _candidate(source, worker_index, source, candidate)
    key, kind = (candidate.task, candidate.variant), source.kind
    ready, hosts = worker_index.of(key, kind, candidate.memory_mib)
    if candidate.ready is ready and candidate.hosts is hosts:
        return candidate
    return candidate.moved(ready, hosts, "")


def _candidate(
    source: _CandidateSource,
    worker_index: WorkerIndex,
    old: _CandidateSource | None,
    candidate: Candidate | None,
) -> Candidate:
    """The candidate of a source; the earlier one, made of ``old``, where it would be the same."""
    variant, canary, profile, kind, failed, carbon = source
    memory_mib = counted_mib(profile, kind)
    ready, hosts = worker_index.of((variant.task, variant.name), kind, memory_mib)
    why = ""
    if failed:
        failing = dict(failed)
        why = next((failing[host.id] for host in hosts if host.id in failing), "")
        if why:
            hosts = tuple([host for host in hosts if host.id not in failing])
    table: LatencyTable | None = None
    if old is not None and candidate is not None:
        same = candidate.ready is ready and candidate.hosts is hosts
        if same and candidate.unloadable == why and old == source:
            return candidate
        if old is source:  # only its workers are others
            return candidate.moved(ready, hosts, why)
        if old.profile == profile:
            table = candidate.table
    busy = latency_table(profile.busy) if profile.busy else None
    energy = energy_curve(profile.points)
    return Candidate(
        task=variant.task,
        variant=variant.name,
        model_version=variant.model_version,
        device_kind=kind.name,
        accuracy=variant.accuracy,
        accuracy_rows=variant.accuracy_rows,
        measured_accuracy=variant.measured_accuracy,
        price_usd_per_1k=reservation_price(profile, kind),
        usd_per_hour=kind.usd_per_hour,
        table=table or latency_table(latency_points(profile)),
        memory_mib=memory_mib,
        load_ms=profile.load_s * 1_000,
        canary=canary,
        ready=ready,
        hosts=hosts,
        unloadable=why,
        busy=busy,
        busy_error=profile.busy_error,
        energy=energy,
        footprint=inf if energy is None else energy.joules(1) * weight_of(kind, carbon=carbon),
    )


def _sources(
    entry: _TaskEntry,
) -> tuple[list[_CandidateSource], dict[VariantName, str], Unmeasured]:
    """What candidates are made of, why other variants are not candidates, and where variants that
    may answer were not measured."""
    stages = {(v.model, v.version): v.stage for v in entry.versions}
    kinds = {kind.name: kind for kind in entry.kinds}
    carbon = counts_carbon(entry.kinds)
    answers: dict[VariantName, tuple[Variant, bool]] = {}
    excluded: dict[VariantName, str] = {}
    for variant in entry.variants:
        stage = stages.get((variant.model, variant.version), Stage.CANDIDATE)
        if stage_answers(stage):
            answers[variant.name] = (variant, stage is Stage.CANARY)
        else:
            excluded[variant.name] = explain.not_in_service(variant, stage)
    sources: list[_CandidateSource] = []
    profiled: set[VariantName] = set()
    forbidden: dict[VariantName, list[Rule]] = {}
    for profile in entry.profiles:
        found = answers.get(profile.variant)
        kind = kinds.get(profile.device_kind)
        if found is not None and kind is not None:
            rule = entry.forbids and forbidding(entry.forbids, found[0].key, kind.name)
            if rule:
                forbidden.setdefault(profile.variant, []).append(rule)
                continue
            profiled.add(profile.variant)
            failed = entry.failed.get(profile.variant, ())
            sources.append(_CandidateSource(*found, profile, kind, failed, carbon))
    for name in answers:
        if name not in profiled:
            rules = forbidden.get(name)
            excluded[name] = (
                explain.forbidden(rules) if rules else "has no profile on any device kind"
            )
    return sources, excluded, _unmeasured(entry, [variant for variant, _ in answers.values()])


def _unmeasured(entry: _TaskEntry, variants: Iterable[Variant]) -> Unmeasured:
    known = {(profile.variant, profile.device_kind) for profile in entry.profiles}
    found: dict[VariantName, frozenset[DeviceKindName]] = {}
    for one in variants:
        lacks = [
            kind.name
            for kind in entry.kinds
            if (one.name, kind.name) not in known
            and one.runs_on(kind)
            and forbidding(entry.forbids, one.key, kind.name) is None
        ]
        if lacks:
            found[one.name] = frozenset(lacks)
    return found
