"""A policy that hands everything on to another one, for tests that look at the fleet meanwhile."""

from collections.abc import Iterable

from planner.batching.protocol import Queue
from planner.simulation.fleet import Fleet, Replica
from planner.simulation.policy import Policy, Refusable, Targeting
from planner.types import Action, Choice, Query, Refusal
from variants.types import WorkerId


class Watched:
    """Derive from it to look, or to note, whenever the engine asks something."""

    def __init__(self, policy: Policy, fleet: Fleet) -> None:
        self.policy = policy
        self.fleet = fleet
        self.tick_s = policy.tick_s

    def look(self) -> None:
        """Called before every question."""

    def queue(self) -> Queue:
        return self.policy.queue()

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        self.look()
        return self.policy.choose(query, now_ms)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        self.look()
        return self.policy.again(query, now_ms)

    def refused(self, query: Query, worker: WorkerId, now_ms: float) -> None:
        self.look()
        if isinstance(self.policy, Refusable):
            self.policy.refused(query, worker, now_ms)

    def begun(self, replica: Replica) -> None:
        self.look()
        if isinstance(self.policy, Targeting):
            self.policy.begun(replica)

    def changed(self) -> None:
        self.look()
        self.policy.changed()

    def tick(self, now_s: float) -> Iterable[Action]:
        self.look()
        return self.policy.tick(now_s)


class Guarded(Watched):
    """Fails when a device reserves more than it has, or its book-keeping is off."""

    def look(self) -> None:
        for worker in (*self.fleet.workers.values(), *self.fleet.ordered.values()):
            used = sum(each.candidate.memory_mib for each in worker.replicas.values())
            assert used <= worker.kind.memory_mib + 1e-6, f"{worker.id} holds {used} MiB"
            assert worker.free_mib <= worker.kind.memory_mib - used + 1e-6
            assert worker.view.free_mib <= worker.kind.memory_mib
            assert all(each.in_flight >= 0 for each in worker.replicas.values())
