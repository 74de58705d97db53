"""What pinned variants leave of the workers' memory, for whoever divides the demand.

A solver knows only how many devices of a kind there are, all alike. So each has the room of the one
with the least, and what is pinned to all of a kind takes none of it. What is pinned to some of them
only is counted twice where it is planned for: that wastes room on the others, and breaks none.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from planner.residency.pins import Held
from planner.types import Snapshot, WorkerReport
from variants.types import DeviceKindName, Route, VariantKey, WorkerId


class PinnedRoom(NamedTuple):
    """What is pinned to each worker, and what variants take."""

    held: Held
    snapshot: Snapshot

    def left_mib(self, worker: WorkerReport) -> float:
        """What is left of a worker beside what is pinned to it."""
        return worker.memory_mib - self._takes_mib(worker, self.held.get(worker.id, ()))

    def everywhere(
        self, workers: Iterable[WorkerReport]
    ) -> dict[DeviceKindName, frozenset[VariantKey]]:
        """What is pinned to every one of some workers, by kind."""
        found: dict[DeviceKindName, frozenset[VariantKey]] = {}
        for worker in workers:
            own = frozenset(self.held.get(worker.id, ()))
            known = found.get(worker.device_kind)
            found[worker.device_kind] = own if known is None else known & own
        return found

    def leaves_room(self, routes: Iterable[Route], workers: Iterable[WorkerReport]) -> bool:
        """Whether what routes lead to fits on its workers beside what is pinned there."""
        led: dict[WorkerId, set[VariantKey]] = {}
        for route in routes:
            led.setdefault(route.worker, set()).add((route.task, route.variant))
        return all(
            self._takes_mib(worker, {*self.held[worker.id], *led.get(worker.id, ())})
            <= worker.memory_mib
            for worker in workers
            if worker.id in self.held
        )

    def _takes_mib(self, worker: WorkerReport, keys: Collection[VariantKey]) -> float:
        reported = {(one.task, one.variant): one.memory_mib for one in worker.replicas}
        return sum(
            max(candidate.memory_mib, reported.get(key, 0.0))
            for key in sorted(keys)
            if key[0] in self.snapshot.tasks
            and (candidate := self.snapshot.tasks[key[0]].of(key[1], worker.device_kind))
        )
