"""ConnectionPool: one connection to each worker that a process knows, and no more than one.

The gateway and the control loop both read a directory of workers, connect to those that are new,
close connections to workers that moved, and forget workers whose connection breaks. That is done
here, once. What a connection means to its process is said to a listener.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from variants.errors import ModellessError
from variants.types import WorkerId
from workers.channel.client import WorkerConnection
from workers.channel.handshake import NoCommonVersion
from workers.channel.shared_memory import Budget
from workers.types import WorkerStatus

log = logging.getLogger(__name__)


class PoolListener(Protocol):
    """What a process does when its connections change. None of these methods may block."""

    def joined(self, worker: WorkerId, connection: WorkerConnection) -> None:
        """A worker is connected, and ``connection.status`` is its first report."""

    def reported(self, worker: WorkerId, status: WorkerStatus) -> None:
        """A connected worker sent another report."""

    def left(self, worker: WorkerId, connection: WorkerConnection, reason: str) -> None:
        """A worker is not connected any more.

        ``reason`` says why its connection broke; it is empty where this side closed it. A
        connection that this side closes is still open now, and closed when this returns.
        """


class ConnectionPool:
    """The open connections of one process. All methods run on one event loop."""

    def __init__(
        self,
        secret: bytes,
        listener: PoolListener,
        *,
        max_frame_mib: int = 64,
        budget: Budget | None = None,
    ) -> None:
        """
        Args:
            max_frame_mib: the largest frame that is taken.
            budget: memory that is lent to workers of this machine, over all connections.
        """
        self._budget = Budget() if budget is None else budget
        self._secret = secret
        self._listener = listener
        self._max_frame_mib = max_frame_mib
        self.connections: dict[WorkerId, WorkerConnection] = {}
        """The connections that are open, by worker. Only the pool changes it."""
        self._opening: set[WorkerId] = set()
        self._unreachable: set[WorkerId] = set()
        """Workers that could not be reached when it was last tried, so that it is logged once."""
        self._strangers: dict[WorkerId, str] = {}
        """Addresses of workers that speak other versions of the channel. They are not tried again:
        what a process speaks does not change."""

    def update(
        self, addresses: Mapping[WorkerId, str], *, close_unlisted: bool = False
    ) -> dict[WorkerId, str]:
        """Compare the open connections with a directory of workers.

        A connection to a worker that has another address by now is closed, and with
        ``close_unlisted`` also one to a worker that is not in the directory.

        Returns:
            The addresses of the workers that ``open`` has to be called for, by worker.
        """
        self._unreachable &= addresses.keys()
        self._strangers = {
            worker: address
            for worker, address in self._strangers.items()
            if addresses.get(worker) == address
        }
        for worker, connection in tuple(self.connections.items()):
            address = addresses.get(worker, None if close_unlisted else connection.address)
            if address != connection.address:
                self._remove(worker)
        known = self.connections.keys() | self._opening | self._strangers.keys()
        return {worker: address for worker, address in addresses.items() if worker not in known}

    async def open(self, worker: WorkerId, address: str) -> None:
        """Connect to a worker, unless that is done or under way.

        A worker that cannot be reached is no error: right after a worker has died, the directory
        still lists it.
        """
        if worker in self.connections or worker in self._opening:
            return
        connection: WorkerConnection | None = None
        lost = False

        def is_pooled() -> bool:
            return connection is not None and self.connections.get(worker) is connection

        def on_status(status: WorkerStatus) -> None:
            if is_pooled():
                self._listener.reported(worker, status)

        def on_lost(reason: str) -> None:
            nonlocal lost
            lost = True
            if is_pooled():
                if connection is not None and connection.status.draining:
                    log.info("worker %s has left: it had drained", worker)
                else:
                    log.warning("worker %s is gone: %s", worker, reason)
                self._remove(worker, reason or "its connection broke")

        self._opening.add(worker)
        try:
            connection = await WorkerConnection.open(
                address,
                self._secret,
                on_status=on_status,
                on_lost=on_lost,
                max_frame_mib=self._max_frame_mib,
                budget=self._budget,
            )
        except NoCommonVersion as error:
            log.warning("worker %s gets no queries from here: %s", worker, error)
            self._strangers[worker] = address
            return
        except ModellessError as error:
            if worker not in self._unreachable:
                log.info("worker %s cannot be reached now: %s", worker, error)
            self._unreachable.add(worker)
            return
        finally:
            self._opening.discard(worker)
        self._unreachable.discard(worker)
        if not lost:  # a connection may break between its first report and here
            self.connections[worker] = connection
            self._listener.joined(worker, connection)

    def close(self) -> None:
        """Close all connections."""
        for worker in tuple(self.connections):
            self._remove(worker)

    def _remove(self, worker: WorkerId, reason: str = "") -> None:
        connection = self.connections.pop(worker)
        self._listener.left(worker, connection, reason)
        connection.close()
