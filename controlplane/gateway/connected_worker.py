"""ConnectedWorker: a worker that a gateway is connected to, and what it holds.

Its reports become what selection reads: a ``WorkerView``, the variants that are ready and those
that could not be loaded.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from planner.eviction.displacement import after_load
from planner.selection.open_batches import Following, following
from planner.types import RETURN_MS, QueueNews, WorkerView
from variants.types import (
    DeviceKindName,
    Prefer,
    ReplicaState,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)
from workers.channel.client import WorkerConnection
from workers.channel.queue_news import Wanted
from workers.types import ASKED_S, WorkerStatus

ToldOfQueue = Callable[[WorkerView, QueueNews], None]
"""Takes what a worker tells of its queue."""
NOT_AT_ALL = Following(replies=False, every_ms=0.0)


class ConnectedWorker:
    """One worker: its connection, what selection knows of it, and what it holds."""

    __slots__ = ("_begun", "_follows", "connection", "ready", "unloadable", "view")

    def __init__(self, worker: WorkerId, connection: WorkerConnection) -> None:
        kind = DeviceKindName(connection.status.device_kind)
        self.connection = connection
        self._begun: dict[VariantKey, float] = {}
        """Loads that were sent to it and are not answered, with the MiB that each takes."""
        self._follows = NOT_AT_ALL
        """When it was told to tell of its queue."""
        self.view = WorkerView(id=worker, device_kind=kind)
        self.ready: frozenset[tuple[TaskName, VariantName]] = frozenset()
        self.unloadable: dict[tuple[TaskName, VariantName], str] = {}
        """Variants that the worker could not load, with the reasons."""
        self.learn(connection.status)
        self.measured()

    def learn(self, status: WorkerStatus) -> bool:
        """Take in a report. Returns whether it changes which variants can be chosen."""
        ready = frozenset(
            (replica.task, replica.variant)
            for replica in status.replicas
            if replica.state is ReplicaState.READY
        )
        unloadable = {
            (replica.task, replica.variant): replica.message
            for replica in status.replicas
            if replica.state is ReplicaState.FAILED or replica.state is ReplicaState.DAMAGED
        }
        changed = (ready, unloadable, status.draining) != (
            self.ready, self.unloadable, self.view.draining
        )  # fmt: skip
        self.ready = ready
        self.unloadable = unloadable
        self.view.draining = status.draining
        self.view.free_mib = status.memory_mib - status.reserved_mib
        self.view.evictable = status.evictable
        self.view.churn_per_s = status.churn_per_s
        self.view.zone = status.zone
        loading = [one for one in status.replicas if one.state is ReplicaState.LOADING]
        loading.sort(key=lambda one: not one.asked)
        self.view.loading = tuple([(one.task, one.variant) for one in loading])
        self.view.loading_asked = sum([one.asked for one in loading])
        # It may have said so before it heard of them, or while others still leave for them.
        for key, memory_mib in self._begun.items():
            if key not in ready:
                self._will_load(key, memory_mib)
        return changed

    def follow(self, prefer: Prefer, told: ToldOfQueue) -> None:
        """Have it tell of its queue when that helps, by what it said last.

        Args:
            prefer: what plans optimise.
            told: called with what it tells.
        """
        view, now_s = self.view, asyncio.get_running_loop().time()
        view.asked_by(self.connection.status.askers, 1_000 * ASKED_S, 1_000 * now_s)
        wanted = following(prefer, shared=view.shared)
        if wanted != self._follows:
            self._follows = wanted
            replies, every_ms = wanted
            self.connection.follow(Wanted(replies, every_ms / 1_000), partial(told, view))

    def measured(self) -> bool:
        """Take in how far away it is by now. Returns whether that has changed."""
        view, connection = self.view, self.connection
        if view.round_trip_ms == connection.round_trip.ms:
            return False
        view.round_trip_ms = connection.round_trip.ms
        view.return_ms = RETURN_MS + connection.return_ms
        return True

    def begins(self, task: TaskName, variant: VariantName, memory_mib: float) -> None:
        """A load is about to be sent to it, so what leaves for that does not leave for another.
        Its reports say so, too, but only once what leaves is gone."""
        self._begun[task, variant] = memory_mib
        self._will_load((task, variant), memory_mib)

    def _will_load(self, key: VariantKey, memory_mib: float) -> None:
        view = self.view
        if view.will_load(key, asked=True):
            view.free_mib, view.evictable = after_load(view.evictable, view.free_mib, memory_mib)

    def answered(self, task: TaskName, variant: VariantName) -> None:
        """The loads of a variant that were sent to it are answered: what it says from now on, it
        says after that."""
        self._begun.pop((task, variant), None)

    def holds(self, task: TaskName, variant: VariantName) -> bool:
        """A load has succeeded. Its next report says so, too, but may come after the next query.

        Returns whether that is new.
        """
        known = (task, variant) in self.ready
        self.ready |= {(task, variant)}
        return not known

    def cannot_load(self, task: TaskName, variant: VariantName, why: str) -> None:
        """A load has failed. Its next report says so, too, but may come after the next query."""
        self.unloadable = self.unloadable | {(task, variant): why}
