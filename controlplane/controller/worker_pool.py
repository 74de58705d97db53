"""The control loop's connections to the workers, and how many requests it sends on each at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

from controlplane.controller.status_events import Departure
from planner.types import ReplicaReport, WorkerReport
from variants.errors import ReplicaLost
from variants.types import DeviceKindName, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.pool import ConnectionPool
from workers.types import Occurrence, WorkerStatus

REQUESTS = 16
"""Loads and unloads under way at one worker. A worker does one at a time, and refuses above 64."""
HISTORY_TIMEOUT_S = 2.0


class Address(Protocol):
    """Where a worker is reached."""

    @property
    def id(self) -> str: ...
    @property
    def address(self) -> str: ...


class WorkerPool:
    """The workers that the control loop is connected to; ``on_lost`` is called when one breaks."""

    def __init__(self, secret: bytes, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._pool = ConnectionPool(secret, self)
        self._requests: dict[WorkerId, asyncio.Semaphore] = {}
        self._departures: dict[str, Departure] = {}

    async def meet(self, workers: Iterable[Address]) -> None:
        """Connect to workers that are new, all at once, and close connections to the others."""
        addresses = {WorkerId(worker.id): worker.address for worker in workers}
        new = self._pool.update(addresses, close_unlisted=True)
        await asyncio.gather(*(self._pool.open(id_, address) for id_, address in new.items()))

    def statuses(self) -> dict[str, WorkerStatus]:
        """What each worker last said, ordered by worker."""
        return {id_: connection.status for id_, connection in sorted(self._connections.items())}

    def departures(self) -> dict[str, Departure]:
        """Workers that left since this was last called; some may have come back since."""
        found, self._departures = self._departures, {}
        return found

    async def history(self, worker: str, told: Collection[int], after: int) -> list[Occurrence]:
        """Loads and evictions for queries at a worker. This does not wait for loads under way.

        Raises:
            ModellessError: the worker is gone, or does not answer.
        """
        connection = self._connections.get(WorkerId(worker))
        if connection is None:
            raise ReplicaLost(f"worker {worker} is gone")
        return await connection.history(told, after, HISTORY_TIMEOUT_S)

    @asynccontextmanager
    async def at(self, worker: str) -> AsyncIterator[WorkerConnection]:
        """The connection to a worker, as soon as the worker takes one more request.

        Raises:
            ReplicaLost: there is no connection, or it broke while this waited.
        """
        connection = self._connections.get(WorkerId(worker))
        if connection is not None:
            async with self._requests[WorkerId(worker)]:
                if self._connections.get(WorkerId(worker)) is connection:
                    yield connection
                    return
        raise ReplicaLost(f"worker {worker} is gone")

    def close(self) -> None:
        self._pool.close()

    @property
    def _connections(self) -> dict[WorkerId, WorkerConnection]:
        return self._pool.connections

    # -- what the pool of connections says ------------------------------------------------------

    def joined(self, worker: WorkerId, connection: WorkerConnection) -> None:
        self._requests[worker] = asyncio.Semaphore(REQUESTS)

    def reported(self, worker: WorkerId, status: WorkerStatus) -> None:
        """Each tick reads the statuses by itself."""

    def left(self, worker: WorkerId, connection: WorkerConnection, reason: str) -> None:
        del self._requests[worker]
        self._departures[worker] = Departure(status=connection.status, broke=reason)
        if reason:
            self._on_lost()


def report_of(status: WorkerStatus) -> WorkerReport:
    """What a worker says of itself, as decisions take it."""
    return WorkerReport(
        id=WorkerId(status.worker),
        device_kind=DeviceKindName(status.device_kind),
        memory_mib=status.memory_mib,
        reserved_mib=status.reserved_mib,
        draining=status.draining,
        evictable=status.evictable,
        replicas=tuple(
            ReplicaReport(
                task=replica.task,
                variant=replica.variant,
                state=replica.state,
                memory_mib=replica.memory_mib,
                in_flight=replica.queued,
                idle_s=replica.idle_s,
                rate_qps=replica.rate_qps,
                asked=replica.asked,
                load_no=replica.load_no,
                loaded_for_s=replica.loaded_for_s,
            )
            for replica in status.replicas
        ),
    )
