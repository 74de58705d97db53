"""The control loop's connections to the workers, and how many requests it sends on each at once.

A worker that does not answer, stopped or cut off, holds up no turn: it is connected to beside the
turns, and while it says nothing it is asked for nothing that a turn would wait for.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from controlplane.backoff import Backoff
from controlplane.controller.events.status_events import Departure
from variants.errors import DeadlineExceeded, ReplicaLost
from variants.types import WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.pool import ConnectionPool
from workers.process.ending import WatchedProcess, ending_words, ran_words
from workers.types import Occurrence, WorkerStatus

log = logging.getLogger(__name__)

REQUESTS = 16
"""Loads and unloads under way at one worker. A worker does one at a time, and refuses above 64."""
HISTORY_TIMEOUT_S = 2.0
SILENT_S = 3.0
"""A worker reports once a second; one that has said nothing for so long is not planned for."""
SPEAKS_S = 1.5
"""One that was heard within this goes on as it did."""

FIRST_WAIT_S = 2.0
"""How long the first turn waits for those that are there: it must not plan as if none were."""
WAIT_S = 0.5
"""The same later, for those that have not failed to answer before."""
OPEN_AGAIN_S = 10.0
"""The longest wait before another try to connect to a worker that is listed and did not answer."""


_Place = tuple[WorkerId, str]
"""A worker, and an address at which it is listed."""


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
        self._met = False
        self._opening: dict[_Place, asyncio.Task[None]] = {}
        self._unreached: Backoff[_Place] = Backoff(longest_s=OPEN_AGAIN_S)
        self._requests: dict[WorkerId, asyncio.Semaphore] = {}
        self._departures: dict[str, Departure] = {}
        self._processes: dict[WorkerId, WatchedProcess] = {}
        """Those of this machine."""
        self._ended_for: dict[WorkerId, str] = {}
        """Workers that were ended, and why."""
        self._ending: set[asyncio.Task[None]] = set()

    async def meet(self, workers: Iterable[Address]) -> None:
        """Connect to workers that are new, all at once, and close connections to the others.

        This waits a moment for them. One that has not answered by then, or did not answer before,
        is met when it does: ``statuses`` has it from then on.
        """
        addresses = {WorkerId(worker.id): worker.address for worker in workers}
        await self._forget(addresses)
        new = self._pool.update(addresses, close_unlisted=True)
        now_s = asyncio.get_running_loop().time()
        begun = {
            place: asyncio.create_task(self._open(*place))
            for place in new.items()
            if self._unreached.waits(place, now_s) is None
        }
        self._opening.update(begun)
        expected = [task for place, task in begun.items() if not self._unreached.has(place)]
        wait_s, self._met = WAIT_S if self._met else FIRST_WAIT_S, True
        if expected:
            await asyncio.wait(expected, timeout=wait_s)

    async def _forget(self, addresses: Mapping[WorkerId, str]) -> None:
        """Give up connecting to where no worker is any more."""
        listed = addresses.items()
        self._unreached.forget(lambda place: place not in listed)
        gone = [task for place, task in self._opening.items() if place not in listed]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)

    async def _open(self, worker: WorkerId, address: str) -> None:
        place, loop = (worker, address), asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await self._pool.open(worker, address)
        except Exception:
            log.exception("connecting to worker %s at %s failed", worker, address)
        finally:
            self._opening.pop(place, None)
        if worker in self._connections:
            self._unreached.succeeded(place)
        else:
            now_s = loop.time()
            self._unreached.failed(place, "it does not answer", now_s, now_s - began_s)

    def statuses(self) -> dict[str, WorkerStatus]:
        """What each worker last said, ordered by worker."""
        return {id_: connection.status for id_, connection in sorted(self._connections.items())}

    def as_planned_for(self) -> list[WorkerStatus]:
        """The same; one that says nothing counts as draining, so that others get what it had.

        It is stopped, or hangs: it goes on, or is ended before long (``silent_workers``).
        """
        return [
            replace(connection.status, draining=True) if _silent(connection) else connection.status
            for _, connection in sorted(self._connections.items())
        ]

    def speaking(self) -> set[str]:
        """Workers that were heard since they should have reported last, and stay."""
        since_s = asyncio.get_running_loop().time() - SPEAKS_S
        return {
            id_
            for id_, connection in self._connections.items()
            if connection.heard_s >= since_s and not connection.status.draining
        }

    def silent(self) -> dict[WorkerId, tuple[WorkerStatus, float]]:
        """Workers that say nothing: what each said last, and when by the event loop's clock."""
        return {
            id_: (connection.status, connection.heard_s)
            for id_, connection in sorted(self._connections.items())
            if _silent(connection)
        }

    def end(self, worker: WorkerId, why: str) -> bool:
        """Have a worker's departure say why, and end its process.

        Returns whether it could: the process may be one of another machine, or gone, and then only
        the cluster can end it. It has no time to finish anything.
        """
        if worker not in self._connections:
            return True
        self._ended_for[worker] = why
        process = self._processes.get(worker)
        return process is not None and process.kill()

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
        if _silent(connection):
            raise DeadlineExceeded(f"worker {worker} says nothing")
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
        for task in (*self._opening.values(), *self._ending):
            task.cancel()
        self._pool.close()
        for process in self._processes.values():
            process.close()

    @property
    def _connections(self) -> dict[WorkerId, WorkerConnection]:
        return self._pool.connections

    # -- what the pool of connections says ------------------------------------------------------

    def joined(self, worker: WorkerId, connection: WorkerConnection) -> None:
        self._requests[worker] = asyncio.Semaphore(REQUESTS)
        process = WatchedProcess.of(connection.peer_pid)
        if process is not None:
            self._processes[worker] = process

    def reported(self, worker: WorkerId, status: WorkerStatus) -> None:
        """Each tick reads the statuses by itself."""

    def left(self, worker: WorkerId, connection: WorkerConnection, reason: str) -> None:
        del self._requests[worker]
        # One that could not be ended, and has spoken since, leaves for another reason.
        why = self._ended_for.pop(worker, "")
        why = why if why and _silent(connection) else ""
        if why:
            reason = f"{why}{ran_words(connection.status.page)}"
        self._departures[worker] = Departure(status=connection.status, broke=reason)
        process = self._processes.pop(worker, None)
        if process is not None and reason and not why:
            ending = asyncio.create_task(self._ended(worker, process))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            return
        if process is not None:
            process.close()
        if reason:
            self._on_lost()

    async def _ended(self, worker: WorkerId, process: WatchedProcess) -> None:
        """Learn how the process of a lost worker ended, which is known a moment after its
        connections have closed."""
        try:
            ended, status = await process.ending()
        finally:
            process.close()
        if ended and (departure := self._departures.get(worker)) is not None:
            how = ending_words(status, departure.status.page)
            self._departures[worker] = replace(departure, broke=how or departure.broke)
        self._on_lost()


def _silent(connection: WorkerConnection) -> bool:
    """Whether a worker has said nothing for so long that it is not planned for."""
    return asyncio.get_running_loop().time() - connection.heard_s > SILENT_S
