"""What a placement has to choose from: the classes of the demand and the variants of each kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from planner.reconcile.worker_memory import Holdings, WorkerMemory
from planner.selection.eligibility import able, answers
from planner.types import Candidate, Demand, Snapshot, TaskView
from variants.types import DeviceKindName, TaskName, VariantKey, VariantName


@dataclass(slots=True, kw_only=True)
class DemandAndOffers:
    """The demand, and what each device kind could hold for it."""

    views: Mapping[TaskName, TaskView]
    transport_ms: float
    demand: tuple[Demand, ...]
    """The classes of the demand, the most wanted first, by queries."""
    defaults: tuple[Demand, ...]
    """The default SLO of each task, the most popular first, as a class without a rate."""
    offers: Mapping[DeviceKindName, Mapping[VariantKey, Candidate]]
    """All that a kind could hold, the most popular task first, then by accuracy per MiB."""
    rows: Mapping[TaskName, float] = field(default_factory=dict)
    """How many rows a query of each task has; 1 where it is missing."""
    _suitable: dict[Demand, Sequence[Candidate]] = field(default_factory=dict)
    """The candidates that meet a class, where they were asked for."""
    _ranks: dict[DeviceKindName, dict[VariantKey, int]] = field(default_factory=dict)
    """The places of offers in that order, where they were asked for."""
    _totals_mib: dict[DeviceKindName, float] = field(default_factory=dict)
    _least_mib: dict[DeviceKindName, float] = field(default_factory=dict)
    _quickest: dict[tuple[TaskName, DeviceKindName], list[tuple[VariantKey, Candidate]]] = field(
        default_factory=dict
    )
    """The variants of a task on a kind by what they take, where they were asked for."""

    _needed: dict[DeviceKindName, list[tuple[VariantKey, Candidate, float]]] = field(
        default_factory=dict
    )
    """By kind, what ``needed`` has found; filled when it is asked for."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, demand: Iterable[Demand], rows: Mapping[TaskName, float]
    ) -> "DemandAndOffers":
        wanted = [entry for entry in demand if entry.task in snapshot.tasks and entry.qps > 0]
        popularity = dict.fromkeys(snapshot.tasks, 0.0)
        for entry in wanted:
            popularity[entry.task] += _queries_qps(entry, rows)
        ranked = sorted(snapshot.tasks, key=lambda name: (-popularity[name], name))
        offers: dict[DeviceKindName, dict[VariantKey, Candidate]] = {}
        for name in ranked:
            view = snapshot.tasks[name]
            for key, candidate in view.once("dense first", partial(_dense_first, view)):
                offers.setdefault(candidate.device_kind, {})[key] = candidate
        return cls(
            views=snapshot.tasks,
            transport_ms=snapshot.transport_ms,
            demand=tuple(sorted(wanted, key=lambda entry: _urgency(entry, rows))),
            defaults=tuple(_default_class(snapshot.tasks[name]) for name in ranked),
            offers=offers,
            rows=rows,
        )

    def queries_qps(self, wanted: Demand) -> float:
        """The rate of a class in queries per second; ``Demand.qps`` is in rows."""
        return _queries_qps(wanted, self.rows)

    def suitable(self, wanted: Demand) -> Sequence[Candidate]:
        """The candidates that meet a class, the cheapest first."""
        found = self._suitable.get(wanted)
        if found is None:
            found = able(self.views[wanted.task], wanted, self.transport_ms, wanted.latency_ms)
            self._suitable[wanted] = found
        return found

    def ranked(self, kind: DeviceKindName, keys: Iterable[VariantKey]) -> list[VariantKey]:
        """Of some variants, those that a kind could hold, in the order of its offers."""
        ranks = self._ranks.get(kind)
        if ranks is None:
            ranks = {key: rank for rank, key in enumerate(self.offers.get(kind, {}))}
            self._ranks[kind] = ranks
        return sorted([key for key in keys if key in ranks], key=ranks.__getitem__)

    def total_mib(self, kind: DeviceKindName) -> float:
        """What all variants take on a kind by their profiles, added up in the order of offers."""
        found = self._totals_mib.get(kind)
        if found is None:
            sizes = [candidate.memory_mib for candidate in self.offers.get(kind, {}).values()]
            found = self._totals_mib[kind] = sum(sizes)
        return found

    def least_mib(self, kind: DeviceKindName) -> float:
        """What the smallest variant takes on a kind."""
        found = self._least_mib.get(kind)
        if found is None:
            sizes = [candidate.memory_mib for candidate in self.offers.get(kind, {}).values()]
            found = self._least_mib[kind] = min(sizes, default=0.0)
        return found

    def roomy(
        self, memories: Iterable[WorkerMemory]
    ) -> Iterator[tuple[WorkerMemory, Mapping[VariantKey, Candidate], float]]:
        """The workers that have room for something, one after the other as they are then; each with
        what its kind could hold and what the smallest of that takes."""
        of_kind: dict[DeviceKindName, tuple[Mapping[VariantKey, Candidate], float]] = {}
        for memory in memories:
            kind = memory.report.device_kind
            known = of_kind.get(kind)
            if known is None:
                known = of_kind[kind] = (self.offers.get(kind, {}), self.least_mib(kind))
            offers, least_mib = known
            if memory.left_mib >= least_mib:
                yield memory, offers, least_mib

    def quickest(self, task: TaskName, kind: DeviceKindName) -> list[tuple[VariantKey, Candidate]]:
        """The variants of a task on a kind, the one that takes least per row first."""
        found = self._quickest.get((task, kind))
        if found is None:
            view = self.views[task]
            by_kind = view.once("quickest", partial(_quickest_first, view))
            found = self._quickest[task, kind] = by_kind.get(kind, [])
        return found

    def needed(self, kind: DeviceKindName) -> list[tuple[VariantKey, Candidate, float]]:
        """The cheapest variant on a kind for each class of the demand that it can meet, with the
        class's rate in queries per second; the most wanted first."""
        if not self._needed:
            for wanted in self.demand:
                met: set[DeviceKindName] = set()
                for each in self.suitable(wanted):
                    if each.device_kind not in met:
                        met.add(each.device_kind)
                        entry = ((each.task, each.variant), each, self.queries_qps(wanted))
                        self._needed.setdefault(each.device_kind, []).append(entry)
        return self._needed.get(kind, [])


def _dense_first(view: TaskView) -> list[tuple[VariantKey, Candidate]]:
    """The candidates of a task, those of most accuracy per MiB first."""
    ranked = sorted(view.by_cost, key=_density)
    return [((each.task, each.variant), each) for each in ranked]


def _quickest_first(view: TaskView) -> dict[DeviceKindName, list[tuple[VariantKey, Candidate]]]:
    """The candidates of a task that queries may be given, by kind, the quickest per row first."""
    found: dict[DeviceKindName, list[tuple[VariantKey, Candidate]]] = {}
    for each in view.by_cost:
        if answers(each, None):
            found.setdefault(each.device_kind, []).append(((each.task, each.variant), each))
    for entries in found.values():
        entries.sort(key=lambda entry: (entry[1].table.row_ms, entry[1].variant))
    return found


def _density(candidate: Candidate) -> tuple[float, VariantName]:
    return (-candidate.accuracy / max(candidate.memory_mib, 1.0), candidate.variant)


def _queries_qps(demand: Demand, rows: Mapping[TaskName, float]) -> float:
    return demand.qps / rows.get(demand.task, 1.0)


def _urgency(
    demand: Demand, rows: Mapping[TaskName, float]
) -> tuple[float, TaskName, float, float]:
    floor = -1.0 if demand.accuracy is None else demand.accuracy
    return (-_queries_qps(demand, rows), demand.task, demand.latency_ms, floor)


def _default_class(view: TaskView) -> Demand:
    slo = view.task.slo
    return Demand(task=view.task.name, latency_ms=slo.latency_ms, accuracy=slo.accuracy, qps=0.0)


def first_held(suitable: Iterable[Candidate], held: Holdings) -> Candidate | None:
    """The first of the candidates that some worker is to hold."""
    return next((c for c in suitable if (c.task, c.variant) in held.get(c.device_kind, ())), None)
