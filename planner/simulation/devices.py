"""Devices that come and go: ordered, usable, on their way out, failed.

A device on its way out takes nothing new and is billed until its last query is done. One that fails
loses all it has and is away for as long as a new one takes to come.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from planner.eviction.displacement import Ladder
from planner.simulation.fleet import Fleet, Ticket, Worker
from planner.simulation.policy import Policy
from planner.simulation.setting import Setting
from variants.types import DeviceKindName, WorkerId


class At(Protocol):
    """Has something done later: ``at(when_ms, act, *what)``."""

    def __call__(self, when_ms: float, act: Callable[..., None], *what: object) -> None: ...


class Devices:
    """All devices of one simulation; those that are usable are the fleet's."""

    def __init__(
        self,
        setting: Setting,
        fleet: Fleet,
        policy: Policy,
        at: At,
        ladder_of: Callable[[Worker], Ladder],
    ) -> None:
        """
        Args:
            ladder_of: what a device tells of what may leave it.
        """
        self._setting = setting
        self._fleet = fleet
        self._policy = policy
        self._at = at
        self._ladder_of = ladder_of
        self._numbers: dict[DeviceKindName, int] = {}
        self.billed: list[Worker] = []
        """Every device that was ever billed."""

    def open(self, counts: Mapping[DeviceKindName, int] | None = None) -> None:
        """Make so many of each kind usable from the beginning, or else all that there may be."""
        for kind in self._setting.kinds:
            for _ in range(kind.count if counts is None else counts.get(kind.name, 0)):
                self._usable(self._order(kind.name, 0.0))

    def _order(self, kind: DeviceKindName, now_ms: float) -> Worker:
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        name = WorkerId(f"{kind}-{number}")
        worker = Worker(name, self._fleet.kinds[kind], self._policy.queue(), now_ms)
        worker.view.evictable = self._ladder_of(worker)
        self.billed.append(worker)
        self._fleet.ordered[worker.id] = worker
        return worker

    def _usable(self, worker: Worker) -> None:
        if self._fleet.ordered.pop(worker.id, None) is not None:
            self._fleet.workers[worker.id] = worker
            self._policy.changed()

    # -- as many as are wanted --------------------------------------------------------------------

    def scale(self, kind: DeviceKindName, count: int, now_ms: float) -> None:
        """Order or release devices; a fleet that is not elastic stays as it is."""
        if not self._setting.fleet_is_elastic:
            return
        fleet = self._fleet
        have = fleet.count(kind)
        drain = sum(1 for w in fleet.workers.values() if w.draining and w.kind.name == kind)
        for _ in range(have, min(count, fleet.kinds[kind].count - drain)):
            worker = self._order(kind, now_ms)
            self._at(now_ms + self._setting.provision_s * 1_000, self._usable, worker)
        for worker in self._leaving(kind, have - count):
            if worker.id in fleet.ordered:
                del fleet.ordered[worker.id]
                worker.released_ms = now_ms
            else:
                worker.draining = worker.view.draining = True
                self.release_if_idle(worker, now_ms)
        self._policy.changed()

    def _leaving(self, kind: DeviceKindName, count: int) -> Sequence[Worker]:
        """Which devices go: the newest on order first, then those with the least loaded."""
        if count <= 0:
            return ()
        fleet = self._fleet
        ordered = [w for w in reversed(fleet.ordered.values()) if w.kind.name == kind]
        there = [w for w in fleet.workers.values() if w.kind.name == kind and not w.draining]
        there.sort(key=lambda w: (_reload_ms(w), w.view.busy_until_ms))
        return (*ordered, *there)[:count]

    def release_if_idle(self, worker: Worker, now_ms: float) -> None:
        """Let a device go that is on its way out, unless something is in flight there."""
        if any(replica.in_flight for replica in worker.replicas.values()):
            return
        worker.released_ms = now_ms
        worker.clear()
        del self._fleet.workers[worker.id]
        self._policy.changed()

    # -- failures ---------------------------------------------------------------------------------

    def fail(self, draw: Callable[[int], int], now_ms: float) -> tuple[WorkerId, list[Ticket]]:
        """A device, drawn at random, loses all it has; another takes its place.

        Which one it was, and the queries that were on it. Some device must be usable.
        """
        fleet = self._fleet
        names = list(fleet.workers)
        worker = fleet.workers.pop(names[draw(len(names))])
        worker.view.draining = True
        lost = [ticket for replica in worker.replicas.values() for ticket in replica.waiting]
        for replica in worker.replicas.values():
            lost += [t for t in worker.queue.take(replica.queue) if isinstance(t, Ticket)]
        lost += [t for t in worker.batch or () if isinstance(t, Ticket)]
        worker.batch = None
        worker.clear()
        self._policy.changed()
        if not self._setting.fleet_is_elastic:
            again = Worker(worker.id, worker.kind, self._policy.queue(), worker.ordered_ms)
            again.view.evictable = self._ladder_of(again)
            self.billed[self.billed.index(worker)] = again
            again.busy_ms = worker.busy_ms
            fleet.ordered[again.id] = again
            self._at(now_ms + self._setting.provision_s * 1_000, self._usable, again)
        else:
            worker.released_ms = now_ms
        return worker.id, sorted(lost, key=lambda ticket: ticket.arrived_ms)


def _reload_ms(worker: Worker) -> float:
    return sum(replica.candidate.load_ms for replica in worker.replicas.values())
