"""Workers that have said nothing for long are ended, so that Ray Serve starts others instead.

A worker reports once a second, whatever it computes. One that does not is stopped, or hangs in
something that holds up its whole process. Serve notices that too, after three checks of five
seconds, and then asks the worker to leave in order, which it cannot: for as long as leaving may
take nobody has its cores, and on one machine no other worker can start.

Who is silent is counted in turns of the control loop, each of which adds two seconds at most: where
the control loop itself was held up, its workers were as well, and may be there again.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from controlplane.controller.events.journal import Journal
from controlplane.controller.met_workers.worker_pool import SILENT_S
from variants.types import ReplicaState, WorkerId
from workers.types import WorkerStatus

END_AFTER_S = 10.0
"""A worker that was silent for so long is ended. Queries were sent elsewhere, and what it held was
planned for others, seconds ago."""
AGAIN_S = 10.0
"""How long one that was ended may take to be gone, before that is tried again."""
MOST_OF_A_TURN_S = 2.0


class Connected(Protocol):
    """The workers that the control loop is connected to: the pool."""

    def silent(self) -> Mapping[WorkerId, tuple[WorkerStatus, float]]:
        """Those that say nothing: what each said last, and when."""
        ...

    def end(self, worker: WorkerId, why: str) -> bool:
        """Note why a worker ends, and end its process if that is one of this machine."""
        ...


class Ending(Protocol):
    """What ends workers wherever they are: the cluster."""

    async def end_worker(self, worker: str, kind: str) -> None: ...


class SilentWorkers:
    """Counts for how long workers say nothing, and ends those that are stuck."""

    def __init__(self, pool: Connected, cluster: Ending, journal: Journal) -> None:
        self._pool = pool
        self._cluster = cluster
        self._journal = journal
        self._silent_s: dict[tuple[WorkerId, float], float] = {}
        """By worker and when it spoke last."""
        self._looked_s = float("inf")
        self._ending: set[asyncio.Task[None]] = set()

    def look(self, now_s: float) -> None:
        """Count on, and end those whose time is over. Called once in each turn."""
        passed_s = min(max(now_s - self._looked_s, 0.0), MOST_OF_A_TURN_S)
        self._looked_s = now_s
        silent = self._pool.silent()
        before, self._silent_s = self._silent_s, {}
        for gone in {worker for worker, _ in before} - silent.keys():
            self._journal.over(_ending(gone))
        for worker, (status, heard_s) in silent.items():
            # Reading a large model may hold up a whole process: that is left to Serve's patience.
            if any(one.state is ReplicaState.LOADING for one in status.replicas):
                continue
            known_s = before.get((worker, heard_s))
            silent_s = SILENT_S if known_s is None else known_s + passed_s
            if silent_s >= END_AFTER_S:
                silent_s = END_AFTER_S - AGAIN_S
                ending = asyncio.create_task(self._end(worker, status.device_kind))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
            self._silent_s[worker, heard_s] = silent_s

    async def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _end(self, worker: WorkerId, kind: str) -> None:
        trouble = _ending(worker)
        why = (
            f"it said nothing for {END_AFTER_S:,.0f} s and was ended, so that Ray Serve starts"
            " another one"
        )
        try:
            if not self._pool.end(worker, why):
                await self._cluster.end_worker(worker, kind)
        except Exception as error:  # private parts of Ray are asked
            self._journal.failed(trouble, error)
        else:
            self._journal.over(trouble)


def _ending(worker: WorkerId) -> str:
    """What cannot be done, as a trouble of the control loop."""
    return f"end of {worker}"
