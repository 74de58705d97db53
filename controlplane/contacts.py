"""The control loop's connections to the workers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from controlplane.cluster import WorkerAddress
from variants.errors import ModellessError, ReplicaLost
from workers.channel import WorkerConnection
from workers.types import WorkerStatus

log = logging.getLogger(__name__)

REQUESTS = 16
"""Loads and unloads under way at one worker: it does one at a time, and refuses above 64."""


@dataclass(slots=True)
class _Contact:
    connection: WorkerConnection
    requests: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REQUESTS))


class Contacts:
    """One connection to each worker that runs; ``on_lost`` is called when one breaks."""

    def __init__(self, secret: bytes, on_lost: Callable[[], None]) -> None:
        self._secret = secret
        self._on_lost = on_lost
        self._contacts: dict[str, _Contact] = {}
        self._silent: set[str] = set()

    async def meet(self, workers: Iterable[WorkerAddress]) -> None:
        """Connect to workers that are new, all at once, and leave those that are gone."""
        here = {worker.id: worker for worker in workers}
        for id_, contact in tuple(self._contacts.items()):
            if id_ not in here or here[id_].address != contact.connection.address:
                del self._contacts[id_]
                contact.connection.close()
        self._silent &= here.keys()
        new = (worker for id_, worker in here.items() if id_ not in self._contacts)
        await asyncio.gather(*(self._connect(worker) for worker in new))

    def statuses(self) -> dict[str, WorkerStatus]:
        """What each worker last said, ordered by worker."""
        return {id_: self._contacts[id_].connection.status for id_ in sorted(self._contacts)}

    @asynccontextmanager
    async def at(self, worker: str) -> AsyncIterator[WorkerConnection]:
        """The connection to a worker, when it takes one more request.

        Raises:
            ReplicaLost: there is none, or it broke while we waited.
        """
        contact = self._contacts.get(worker)
        if contact is not None:
            async with contact.requests:
                if self._contacts.get(worker) is contact:
                    yield contact.connection
                    return
        raise ReplicaLost(f"worker {worker} is gone")

    def close(self) -> None:
        contacts, self._contacts = self._contacts, {}
        for contact in contacts.values():
            contact.connection.close()

    async def _connect(self, worker: WorkerAddress) -> None:
        lost = False

        def on_lost(reason: str) -> None:
            nonlocal lost
            lost = True
            contact = self._contacts.get(worker.id)
            if contact is not None and contact.connection is connection:
                log.warning("worker %s is gone: %s", worker.id, reason)
                del self._contacts[worker.id]
                self._on_lost()

        connection: WorkerConnection | None = None
        try:
            connection = await WorkerConnection.open(
                worker.address, self._secret, on_status=lambda _: None, on_lost=on_lost
            )
        except ModellessError as error:
            if worker.id not in self._silent:
                log.info("worker %s cannot be reached yet: %s", worker.id, error)
            self._silent.add(worker.id)
            return
        self._silent.discard(worker.id)
        if not lost:  # it may break between its first status and here
            self._contacts[worker.id] = _Contact(connection)
