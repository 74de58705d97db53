"""A worker's memory while a placement is made: what it is to hold so far, and what is left."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from planner.eviction.churn import pays_ahead
from planner.selection.eligibility import LOADING, READY, kept_out
from planner.types import Candidate, ReplicaReport, WorkerReport
from variants.types import DeviceKindName, TaskName, VariantKey

RECENT_S = 300.0
"""A replica idle for less than this is kept before variants that no query asked for."""
CONTESTED_S = 60.0
"""Memory that variants were loaded into for queries within so long is left to queries."""
SETTLING_S = 10.0
"""What was loaded for queries stays for so long, whatever the plan says: their demand has to be
counted and assigned first."""

COPY_STAYS_S = 60.0
"""For how long a copy may be expected to stay where memory is short."""

ROUNDING = 1e-9
"""Part of a memory that has to be left where sizes are added up in another order."""

Rank = Callable[[], Iterable[VariantKey]]
"""In which order variants are to be taken."""


class _Ranks(NamedTuple):
    """What of a worker's variants is still to be put in order."""

    many: int
    """How many variants come first, in any order among themselves."""
    rank: Rank


Holdings = Mapping[DeviceKindName, Collection[VariantKey]]
"""What some worker of each kind is to hold."""


class There:
    """What is loaded on some workers, or being loaded, found once that is asked for."""

    def __init__(self, memories: Sequence["WorkerMemory"] = ()) -> None:
        self._memories = memories
        self._keys: dict[DeviceKindName, set[VariantKey]] = {}
        self._tasks: set[TaskName] | None = None

    def answers(self, task: TaskName) -> bool:
        """Whether anything of a task is on some worker of any kind."""
        if self._tasks is None:
            self._tasks = {task for each in self._memories for task, _ in each.there}
        return task in self._tasks

    def has(self, kind: DeviceKindName, key: VariantKey) -> bool:
        """Whether it is on some worker of a kind."""
        found = self._keys.get(kind)
        if found is None:
            those = [each.there for each in self._memories if each.report.device_kind == kind]
            found = self._keys[kind] = set().union(*those)
        return key in found


NOWHERE = There()
"""Of no workers."""


@dataclass(slots=True, kw_only=True)
class WorkerMemory:
    """What a worker is to hold so far, and what is left of its memory."""

    report: WorkerReport
    left_mib: float
    replicas: Mapping[VariantKey, ReplicaReport]
    there: Collection[VariantKey]
    """What is loaded here, or being loaded."""
    kept_out: Collection[VariantKey]
    """What must not be placed here."""
    contested: bool = False
    """Whether queries had to load here within the last minute."""
    held: dict[VariantKey, Candidate] = field(default_factory=dict)
    together: set[VariantKey] = field(default_factory=set)
    """What it and the other workers of its kind, of the same placement, are to hold."""
    anywhere: There = NOWHERE
    """What is on it and the other workers of the same placement."""
    ranks: "_Ranks | None" = None
    """What is held in whatever order, until that is asked for."""

    @classmethod
    def of(cls, report: WorkerReport) -> "WorkerMemory":
        # A slice, because a key is made for each variant on each worker.
        replicas = {replica[:2]: replica for replica in report.replicas}
        made = cls(
            report=report,
            left_mib=report.memory_mib,
            replicas=replicas,
            there=replicas.keys(),
            kept_out=(),
        )
        # One look at each tells that nothing is to be told apart, as mostly.
        odd = [r for r in report.replicas if r.state is not READY or r.loaded_for_s < CONTESTED_S]
        if [replica for replica in odd if replica.state is not READY]:
            made.there = frozenset(
                [key for key, one in replicas.items() if one.state is READY or one.state is LOADING]
            )
            made.kept_out = kept_out(report)
        if odd:
            made.contested = bool(made._loaded_within(CONTESTED_S))
        return made

    def emptied(self, together: set[VariantKey]) -> "WorkerMemory":
        """The same worker holding nothing, as one of a placement that is begun anew.

        Args:
            together: what the workers of its kind are to hold; it grows with what is taken here.
        """
        return WorkerMemory(
            report=self.report,
            left_mib=self.report.memory_mib,
            replicas=self.replicas,
            there=self.there,
            kept_out=self.kept_out,
            contested=self.contested,
            together=together,
        )

    def size_mib(self, key: VariantKey, candidate: Candidate) -> float:
        """What it takes here: the larger of its profile and what the worker reports."""
        replica, size_mib = self.replicas.get(key), candidate.memory_mib
        return size_mib if replica is None else max(size_mib, replica.memory_mib)

    def is_short_for(self, offers: Mapping[VariantKey, Candidate], least_mib: float) -> bool:
        """Whether all of these together are too much for it, empty.

        ``least_mib`` is what they take by their profiles: here they take no less.
        """
        most_mib, total_mib = self.report.memory_mib, 0.0
        if least_mib > most_mib:
            return True
        for key, candidate in offers.items():
            total_mib += self.size_mib(key, candidate)
            if total_mib > most_mib:
                return True
        return False

    def take(self, key: VariantKey, candidate: Candidate) -> bool:
        """Hold it, if that is allowed and there is room; True when it is held now."""
        if key in self.held:
            return True
        size_mib = candidate.memory_mib
        if size_mib > self.left_mib or key in self.kept_out:
            return False
        replica = self.replicas.get(key)
        if replica is not None and replica.memory_mib > size_mib:
            size_mib = replica.memory_mib  # as of ``size_mib``
            if size_mib > self.left_mib:
                return False
        self.held[key] = candidate
        self.together.add(key)
        self.left_mib -= size_mib
        return True

    def take_each(
        self,
        keys: Iterable[VariantKey],
        offers: Mapping[VariantKey, Candidate],
        least_mib: float = 0.0,
    ) -> None:
        """Hold those of them that its kind could hold, that are allowed and have room, in their
        order: as ``take`` of each, where there are hundreds.

        ``least_mib`` is what the smallest of all takes: with less left nothing has room.
        """
        held, kept_out, replicas, left_mib = self.held, self.kept_out, self.replicas, self.left_mib
        for key in keys:
            if left_mib < least_mib:
                break
            candidate = offers.get(key)
            if candidate is None or key in held or key in kept_out:
                continue
            size_mib, replica = candidate.memory_mib, replicas.get(key)
            if replica is not None and replica.memory_mib > size_mib:
                size_mib = replica.memory_mib
            if size_mib <= left_mib:
                held[key] = candidate
                left_mib -= size_mib
        self.left_mib = left_mib
        self.together.update(held)

    def take_all_of_worth(
        self,
        offers: Mapping[VariantKey, Candidate],
        planned: Collection[VariantKey],
        beside: Collection[VariantKey],
        rank: Rank,
    ) -> bool:
        """Hold all that ``by_worth`` has, if all that is planned is there and they have room in
        whatever order; True when they are held now.

        Mostly that is so, and then nobody has to know what each is worth.

        Args:
            planned: what has work here.
            beside: the variants of the kind that queries may come for though they have none.
            rank: says in which order they are, where that is asked for.
        """
        there, left_mib = self.there, self.left_mib
        if self.held:
            return False
        for key in planned:
            if key not in there or key not in offers:
                return False
        replicas = self.replicas
        keys = planned
        if beside:
            keys = [
                key
                for key, replica in replicas.items()
                if (replica.asked and replica.rate_qps > 0.0 and key in beside and key in there)
                or key in planned
            ]
        some: dict[VariantKey, Candidate] = {}
        for key in keys:
            some[key] = candidate = offers[key]
            size_mib, there_mib = candidate.memory_mib, replicas[key].memory_mib
            left_mib -= there_mib if there_mib > size_mib else size_mib
        if left_mib < ROUNDING * self.report.memory_mib:
            return False
        self.held, self.left_mib, self.ranks = some, left_mib, _Ranks(len(some), rank)
        self.together.update(some)
        return True

    def put_in_order(self) -> None:
        """Have what is held in the order in which it was to be taken."""
        if self.ranks is None:
            return
        many, rank = self.ranks
        held, self.ranks = self.held, None
        some = set(list(held)[:many])
        ordered = [key for key in rank() if key in some]
        self.held = {key: held[key] for key in (*ordered, *list(held)[many:])}

    def is_there(self, key: VariantKey) -> bool:
        """Whether it is loaded here, or being loaded."""
        return key in self.there

    def fresh(self) -> list[VariantKey]:
        """What was loaded for queries a moment ago."""
        return sorted(self._loaded_within(SETTLING_S)) if self.contested else []

    def _loaded_within(self, within_s: float) -> list[VariantKey]:
        """What was loaded for queries within so long, or is being loaded."""
        there = self.there
        return [
            key
            for key, replica in self.replicas.items()
            if (replica.loaded_for_s < within_s or replica.state is LOADING)
            and replica.asked
            and key in there
        ]

    def pays_ahead(
        self,
        candidate: Candidate,
        qps: float,
        urgent: float,
    ) -> bool:
        """Whether something is worth loading here before a query asks for it.

        Always, unless queries had to load here within the last minute. Where nothing of its task is
        on any worker, the next query loads it itself.
        """
        if not self.contested:
            return True
        load_s, churn_per_s = candidate.load_ms / 1_000, self.report.churn_per_s
        loads_itself = not self.anywhere.answers(candidate.task)
        return pays_ahead(qps, load_s, urgent, churn_per_s, loads_itself=loads_itself)

    @property
    def copy_churn_per_s(self) -> float:
        """The share of the memory that leaves per second, as it counts for a copy of what other
        workers hold as well: a copy may be expected to stay for ``COPY_STAYS_S``, then the plan may
        want another one."""
        return max(self.report.churn_per_s, 1.0 / COPY_STAYS_S)

    def asked(self) -> list[VariantKey]:
        """What is here and was asked for."""
        there = self.there
        return [key for key, replica in self.replicas.items() if replica.asked and key in there]

    def recent(self) -> list[VariantKey]:
        """What is here and has been asked for recently, the latest first."""
        there = self.there
        used = [
            (replica.in_flight == 0, replica.idle_s, key)
            for key, replica in self.replicas.items()
            if key in there
            and (replica.in_flight > 0 or (replica.asked and replica.idle_s < RECENT_S))
        ]
        return [key for _, _, key in sorted(used)]


class Hosts:
    """Workers whose memory is short, by kind. While a placement is made, none gets more room."""

    def __init__(self, memories: Iterable[WorkerMemory]) -> None:
        self._of: dict[DeviceKindName, list[WorkerMemory]] = {}
        for memory in memories:
            self._of.setdefault(memory.report.device_kind, []).append(memory)
        self._most_mib = dict.fromkeys(self._of, inf)
        """What the one with the most room had left, when none had enough last."""

    def with_room(self, candidate: Candidate) -> list[WorkerMemory]:
        """Those that could take it, found at once where none could: once all memory is full, each
        of thousands of tasks would else be held against each worker."""
        kind, need_mib = candidate.device_kind, candidate.memory_mib
        if need_mib > self._most_mib.get(kind, -inf):
            return []
        found = [memory for memory in self._of[kind] if memory.left_mib >= need_mib]
        if not found:
            self._most_mib[kind] = max(memory.left_mib for memory in self._of[kind])
        return found


class PlannedWork(NamedTuple):
    """What a worker does for the demand by one variant."""

    share: float
    """Of the worker's time."""
    qps: float = 0.0
    """Queries per second."""
    urgent: float = 0.0
    """Share of them that cannot wait for a load."""
