"""The workers that a gateway is connected to, and what each of them holds.

``ConnectedWorkers`` connects to those that the directory lists, hands their reports to a
``ConnectedWorker`` each, and notices those that say nothing any more.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from functools import partial
from statistics import median_low
from types import MappingProxyType
from typing import Any

from controlplane.gateway.connected_worker import ConnectedWorker, ToldOfQueue
from controlplane.gateway.renewal import Renewal
from variants.errors import ReplicaLost
from variants.types import (
    DeviceKindName,
    Prefer,
    TaskName,
    VariantName,
    WorkerId,
)
from workers.channel.client import WorkerConnection
from workers.channel.pool import ConnectionPool
from workers.channel.round_trip import LoopLag
from workers.channel.shared_memory import Budget
from workers.process.sparing_log import SparingLog
from workers.types import WorkerStatus

log = logging.getLogger(__name__)
sparing = SparingLog(log)

CONFIRM_S = 0.1
"""How long a worker has to say anything when it is asked. That also gives a gateway that was kept
from running itself the time to read what was said meanwhile."""
UNLOAD_TIMEOUT_S = 25.0
"""How long an operator waits for an unload; whoever asks over HTTP waits longer."""
DRAIN_TIMEOUT_S = 25.0
"""How long an operator waits until a worker that shall leave has answered what it has."""
SILENT_S = 1.5
"""A worker reports once a second; one that has said nothing for so long is asked."""


class ConnectedWorkers(Mapping[WorkerId, ConnectedWorker]):
    """The workers of one gateway, by their names in the directory.

    A worker that the directory lists no longer stays as long as its connection: the directory may
    be old, or lost and being written anew.
    """

    def __init__(
        self,
        secret: bytes,
        max_frame_mib: int,
        renewal: Renewal,
        left: Callable[[WorkerId], None],
        *,
        prefer: Prefer = Prefer.COST,
        told: ToldOfQueue = lambda *_: None,
        zone: str = "",
        budget: Budget | None = None,
    ) -> None:
        """
        Args:
            renewal: of what is chosen from.
            left: called with a worker that is gone, before that.
            prefer: what plans optimise.
            told: called with what a worker tells of its queue.
            zone: the gateway's; no worker of the same is far away.
            budget: memory that is lent to workers of this machine.
        """
        self._renewal = renewal
        self._left = left
        self._prefer = prefer
        self._told = told
        self._zone = zone
        self._pool = ConnectionPool(secret, self, max_frame_mib=max_frame_mib, budget=budget)
        self._workers: dict[WorkerId, ConnectedWorker] = {}
        self._suspects: set[WorkerId] = set()
        self._lag = LoopLag()
        self.silent: set[WorkerId] = set()
        """Workers that say nothing: stopped, or hanging. They are heard again, or lost."""
        self.connections: Mapping[WorkerId, WorkerConnection] = self._pool.connections
        """The open connections, always as they are now."""

    def __getitem__(self, worker: WorkerId) -> ConnectedWorker:
        return self._workers[worker]

    def __iter__(self) -> Iterator[WorkerId]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    def listed(self, addresses: Mapping[WorkerId, str]) -> dict[WorkerId, str]:
        """Take in the directory. Returns the addresses of those that are to be connected to."""
        return self._pool.update(addresses)

    async def connect(self, worker: WorkerId, address: str) -> None:
        """Connect to a worker, or log that it cannot be reached."""
        await self._pool.open(worker, address)

    def statuses(self) -> list[WorkerStatus]:
        """What the workers last said."""
        return [worker.connection.status for worker in self._workers.values()]

    def seen(
        self,
        slow: Mapping[WorkerId, float] = MappingProxyType({}),
        spared: Collection[WorkerId] = (),
    ) -> list[Mapping[str, Any]]:
        """The same by field, with how far away each is, and what is wrong with it from here.

        Args:
            slow: how many times as long as others of their kind they take.
            spared: those of them that get no queries.
        """
        names = [field.name for field in fields(WorkerStatus)]
        silent_s = self.silent_s()
        return [
            {name: getattr(worker.connection.status, name) for name in names}
            | {
                "round_trip_ms": worker.view.round_trip_ms,
                "silent_s": silent_s.get(id_),
                "slowness": slow.get(id_),
                "spared": id_ in spared,
            }
            for id_, worker in self._workers.items()
        ]

    def silent_s(self) -> dict[WorkerId, float]:
        """Of the workers that say nothing, for how long."""
        if not self.silent:
            return {}
        now_s = asyncio.get_running_loop().time()
        return {id_: round(now_s - self._workers[id_].connection.heard_s, 1) for id_ in self.silent}

    async def unload(self, worker: str, task: str, variant: str) -> None:
        """Unload a variant from a worker, once its queries are answered.

        Raises:
            DeadlineExceeded: it takes too long; it goes on.
            ReplicaLost: the worker is gone.
        """
        await self._connection(worker).unload(task, variant, UNLOAD_TIMEOUT_S)

    async def drain(self, worker: str) -> None:
        """Have a worker take no more queries and leave; return once those that it has are answered.

        Raises:
            DeadlineExceeded: it takes too long; it goes on.
            ReplicaLost: the worker is gone.
        """
        await self._connection(worker).drain(DRAIN_TIMEOUT_S)

    def _connection(self, worker: str) -> WorkerConnection:
        found = self._workers.get(WorkerId(worker))
        if found is None:
            raise ReplicaLost(f"worker {worker} is gone")
        return found.connection

    def kinds(self) -> set[DeviceKindName]:
        """Device kinds of which a worker takes queries."""
        return {
            worker.view.device_kind for worker in self._workers.values() if not worker.view.draining
        }

    def ready(self, task: TaskName) -> set[VariantName]:
        """Variants of a task that a worker holds which takes queries."""
        return {
            variant
            for worker in self._workers.values()
            if not worker.view.draining
            for name, variant in worker.ready
            if name == task
        }

    def sparing(
        self, spared: Collection[WorkerId]
    ) -> Iterator[tuple[ConnectedWorker, frozenset[tuple[TaskName, VariantName]]]]:
        """Each worker with what queries may be sent to it for.

        To those that say nothing only what no other of their kind holds that speaks, and to those
        that are spared what no other holds that is neither. One that says nothing is left out where
        that is nothing, so that it is asked to load nothing either.
        """
        speaking = self._held_but_by(self.silent) if self.silent else {}
        quick = self._held_but_by({*spared, *self.silent}) if spared else {}
        for id_, worker in self._workers.items():
            ready = worker.ready
            silent = id_ in self.silent
            worker.view.withheld = frozenset()
            if silent or id_ in spared:
                others = (speaking if silent else quick).get(worker.view.device_kind)
                ready -= others or set()
                if others is not None and not ready and silent:
                    continue
                worker.view.withheld = worker.ready - ready
            yield worker, ready

    def _held_but_by(
        self, those: Collection[WorkerId]
    ) -> dict[DeviceKindName, set[tuple[TaskName, VariantName]]]:
        """By device kind, what all others hold that do not drain."""
        held: dict[DeviceKindName, set[tuple[TaskName, VariantName]]] = {}
        for id_, worker in self._workers.items():
            if id_ not in those and not worker.view.draining:
                held.setdefault(worker.view.device_kind, set()).update(worker.ready)
        return held

    def round_trips_ms(self) -> dict[str, float]:
        """By zone of the workers, the one in the middle."""
        found: dict[str, list[float]] = {}
        for worker in self._workers.values():
            found.setdefault(worker.view.zone, []).append(worker.view.round_trip_ms)
        return {zone: median_low(all_ms) for zone, all_ms in found.items()}

    def measure(self) -> bool:
        """Have round trips to other zones measured; whether what is known of any has changed since.
        Where there are no zones this asks nothing, and all workers are as good as here."""
        far = [worker for worker in self._workers.values() if worker.view.zone != self._zone]
        changed = [worker.measured() for worker in far]
        for worker in far:
            worker.connection.measure()
        return any(changed)

    # -- workers that say nothing ---------------------------------------------------------------

    def suspect(self, worker: WorkerId) -> None:
        """A worker has not said anything when it should have: ask it. Unless it answers in a
        moment, keep queries from it, and hand back those that it has and does not run."""
        found = self._workers.get(worker)
        if found is None or worker in self._suspects or worker in self.silent:
            return
        self._suspects.add(worker)
        connection, loop = found.connection, asyncio.get_running_loop()
        connection.ping()
        wait_s = CONFIRM_S + connection.round_trip.ms / 1_000
        loop.call_later(wait_s, self._confirm, worker, connection, connection.heard_s)

    def suspect_silent(self) -> None:
        """Suspect those that have not reported for long, whether they have queries or not."""
        now_s = asyncio.get_running_loop().time()
        for id_, worker in self._workers.items():
            if now_s - worker.connection.heard_s > SILENT_S:
                self.suspect(id_)

    def _confirm(self, worker: WorkerId, connection: WorkerConnection, heard_s: float) -> None:
        self._suspects.discard(worker)
        connection.hear()  # what it said may lie there: after a long turn timers come first
        if self.connections.get(worker) is not connection or connection.heard_s != heard_s:
            return
        self.silent.add(worker)
        silent_s = asyncio.get_running_loop().time() - heard_s
        sparing.warning(
            worker,
            "worker %s has said nothing for %.1f s: queries go to others where they can",
            worker, silent_s,
        )  # fmt: skip
        self._renewal.soon(partial(self._hand_back, worker, connection))
        self._listen(worker, connection, heard_s)

    def _hand_back(self, worker: WorkerId, connection: WorkerConnection) -> None:
        """Have the queries that a worker has tried elsewhere, where there is another one."""
        there = worker in self.silent and self.connections.get(worker) is connection
        if there and self._workers.keys() - self.silent:
            connection.hand_back()

    def _listen(self, worker: WorkerId, connection: WorkerConnection, heard_s: float) -> None:
        """Look again and again whether a worker that said nothing has said something."""
        if worker not in self.silent or self.connections.get(worker) is not connection:
            return
        if connection.heard_s != heard_s:
            self._heard(worker)
            self._renewal.soon()
            return
        loop = asyncio.get_running_loop()
        loop.call_later(CONFIRM_S, self._listen, worker, connection, heard_s)

    def _heard(self, worker: WorkerId) -> bool:
        """A worker has said something; whether it was silent until then."""
        if worker not in self.silent:
            return False
        self.silent.discard(worker)
        log.info("worker %s says something again: it gets queries as before", worker)
        return True

    def close(self) -> None:
        """Close all connections; queries in flight on them are answered as lost."""
        self._pool.close()

    # -- what the pool of connections says ------------------------------------------------------

    def joined(self, worker: WorkerId, connection: WorkerConnection) -> None:
        connection.round_trip.lag = self._lag
        found = self._workers[worker] = ConnectedWorker(worker, connection)
        found.follow(self._prefer, self._told)
        self._renewal.soon()

    def reported(self, worker: WorkerId, status: WorkerStatus) -> None:
        heard, found = self._heard(worker), self._workers[worker]
        found.follow(self._prefer, self._told)
        if found.learn(status) or heard:
            self._renewal.soon()

    def loaded(self, worker: WorkerId, task: TaskName, variant: VariantName) -> None:
        """A worker has answered that it holds what this gateway had it load."""
        found = self._workers.get(worker)
        if found is not None and found.holds(task, variant):
            self._renewal.soon()

    def left(self, worker: WorkerId, connection: WorkerConnection, reason: str) -> None:
        del self._workers[worker]
        self.silent.discard(worker)
        self._left(worker)
        self._renewal.soon()
