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
from planner.reconcile.unchanged import alike
from planner.types import ReplicaReport, WorkerReport
from variants.errors import DeadlineExceeded, ReplicaLost
from variants.types import DeviceKindName, WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.pool import ConnectionPool
from workers.process.ending import WatchedProcess, ending_words
from workers.types import Occurrence, ReplicaStatus, WorkerStatus

log = logging.getLogger(__name__)

REQUESTS = 16
"""Loads and unloads under way at one worker. A worker does one at a time, and refuses above 64."""
HISTORY_TIMEOUT_S = 2.0
SILENT_S = 3.0
"""A worker reports once a second; one that has said nothing for so long is not planned for."""

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

        It is stopped, or hangs: it goes on, or Ray Serve replaces it.
        """
        return [
            replace(connection.status, draining=True) if _silent(connection) else connection.status
            for _, connection in sorted(self._connections.items())
        ]

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
        self._departures[worker] = Departure(status=connection.status, broke=reason)
        process = self._processes.pop(worker, None)
        if process is not None and reason:
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


class Reports:
    """What workers say of themselves, as decisions take it.

    A report is the same object for as long as nothing that counts has changed, so that a tick sees
    that by identity (``planner.reconcile.unchanged``). The times of a replica are then those of the
    first report that counted the same.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[WorkerStatus, WorkerReport]] = {}

    def of(self, statuses: Iterable[WorkerStatus]) -> tuple[WorkerReport, ...]:
        """The reports of all workers that are there, in this order; others are forgotten."""
        known = {s.worker: _reported(s, self._known.get(s.worker)) for s in statuses}
        self._known = known
        return tuple([report for _, report in known.values()])


def _reported(
    status: WorkerStatus, before: tuple[WorkerStatus, WorkerReport] | None
) -> tuple[WorkerStatus, WorkerReport]:
    """The report of a worker, with what it was made of."""
    if before is None or len(before[0].replicas) != len(status.replicas):
        return status, report_of(status)
    if before[0] is status:
        return before
    known = before[1].replicas
    pairs = zip(before[0].replicas, status.replicas, strict=True)
    replicas: tuple[ReplicaReport, ...] | None = known
    if not all(one is other or alike(one, other) for one, other in pairs):
        pairs = zip(before[0].replicas, status.replicas, strict=True)
        replicas = tuple(
            [
                old if alike(one, other) else _replica(other)
                for old, (one, other) in zip(known, pairs, strict=True)
            ]
        )
    report = report_of(status, replicas)
    return status, before[1] if report == before[1] else report


def report_of(
    status: WorkerStatus, replicas: tuple[ReplicaReport, ...] | None = None
) -> WorkerReport:
    """What a worker says of itself, as decisions take it; with the reports of its replicas, where
    they are there already."""
    return WorkerReport(
        id=WorkerId(status.worker),
        device_kind=DeviceKindName(status.device_kind),
        memory_mib=status.memory_mib,
        reserved_mib=status.reserved_mib,
        draining=status.draining,
        evictable=status.evictable,
        churn_per_s=status.churn_per_s,
        zone=status.zone,
        replicas=tuple(map(_replica, status.replicas)) if replicas is None else replicas,
    )


def _replica(status: ReplicaStatus) -> ReplicaReport:
    return ReplicaReport(
        task=status.task,
        variant=status.variant,
        state=status.state,
        memory_mib=status.memory_mib,
        in_flight=status.queued,
        idle_s=status.idle_s,
        rate_qps=status.rate_qps,
        urgent=status.urgent,
        rows_per_query=status.rows_per_query,
        asked=status.asked,
        load_no=status.load_no,
        loaded_for_s=status.loaded_for_s,
    )
