"""A worker's memory while a placement is made: what it is to hold so far, and what is left."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from planner.selection.eligibility import kept_out
from planner.types import Candidate, ReplicaReport, WorkerReport
from variants.types import DeviceKindName, ReplicaState, TaskName, VariantKey, VariantName

RECENT_S = 300.0
"""A replica idle for less than this is kept before variants that no query asked for."""
SETTLING_S = 10.0
"""What was loaded for queries stays for so long, whatever the plan says: their demand has to be
counted and assigned first."""


Holdings = set[tuple[DeviceKindName, TaskName, VariantName]]
"""What some worker of a kind is to hold."""


@dataclass(slots=True, kw_only=True)
class WorkerMemory:
    """What a worker is to hold so far, and what is left of its memory."""

    report: WorkerReport
    left_mib: float
    replicas: Mapping[VariantKey, ReplicaReport]
    kept_out: Collection[VariantKey]
    """What must not be placed here."""
    held: dict[VariantKey, Candidate] = field(default_factory=dict)
    together: Holdings = field(default_factory=set)
    """What it and the other workers of the same placement are to hold."""

    @classmethod
    def of(cls, report: WorkerReport) -> "WorkerMemory":
        return cls(
            report=report,
            left_mib=report.memory_mib,
            replicas={(replica.task, replica.variant): replica for replica in report.replicas},
            kept_out=kept_out(report),
        )

    def emptied(self, together: Holdings) -> "WorkerMemory":
        """The same worker holding nothing, as one of a placement that is begun anew."""
        return replace(self, left_mib=self.report.memory_mib, held={}, together=together)

    def size_mib(self, key: VariantKey, candidate: Candidate) -> float:
        """What it takes here: the larger of its profile and what the worker reports."""
        replica = self.replicas.get(key)
        return max(candidate.memory_mib, replica.memory_mib if replica else 0.0)

    def is_short_for(self, offers: Mapping[VariantKey, Candidate]) -> bool:
        """Whether all of these together are too much for it, empty."""
        most_mib, total_mib = self.report.memory_mib, 0.0
        for key, candidate in offers.items():
            total_mib += self.size_mib(key, candidate)
            if total_mib > most_mib:
                return True
        return False

    def take(self, key: VariantKey, candidate: Candidate) -> bool:
        """Hold it, if that is allowed and there is room; True when it is held now."""
        if key in self.held:
            return True
        if key in self.kept_out:
            return False
        size_mib = self.size_mib(key, candidate)
        if size_mib > self.left_mib:
            return False
        self.held[key] = candidate
        self.together.add((candidate.device_kind, candidate.task, candidate.variant))
        self.left_mib -= size_mib
        return True

    def is_there(self, key: VariantKey) -> bool:
        """Whether it is loaded here, or being loaded."""
        replica = self.replicas.get(key)
        return replica is not None and replica.state in (ReplicaState.READY, ReplicaState.LOADING)

    def fresh(self, within_s: float = SETTLING_S) -> list[VariantKey]:
        """What was loaded for queries a moment ago."""
        return sorted(
            key
            for key, replica in self.replicas.items()
            if self.is_there(key)
            and replica.asked
            and (replica.state is ReplicaState.LOADING or replica.loaded_for_s < within_s)
        )

    def recent(self) -> list[VariantKey]:
        """What is here and has been asked for recently, the latest first."""
        used = [
            (replica.in_flight == 0, replica.idle_s, key)
            for key, replica in self.replicas.items()
            if self.is_there(key)
            and (replica.in_flight > 0 or (replica.asked and replica.idle_s < RECENT_S))
        ]
        return [key for _, _, key in sorted(used)]
