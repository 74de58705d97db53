"""OnDemandLoads: variants that are loaded because a query asks for them now."""

import asyncio
from collections.abc import Iterable
from time import monotonic

from controlplane.backoff import Backoff
from controlplane.gateway.knowledge import Knowledge
from planner.types import Candidate
from variants.errors import (
    DeadlineExceeded,
    ModellessError,
    Overloaded,
    ReplicaLost,
    VariantNotLoadable,
)
from variants.types import ReplicaState, TaskName, VariantName, WorkerId

LOAD_TIMEOUT_S = 120.0
LOADS_PER_WORKER = 16
"""Loads under way at one worker; it refuses a connection with more than 64."""


class OnDemandLoads:
    """The loads under way: one for all queries that ask for the same variant on the same worker."""

    def __init__(self, known: Knowledge) -> None:
        self._known = known
        self._loads: dict[tuple[WorkerId, str, str, bool], asyncio.Future[None]] = {}
        self._joined: dict[tuple[WorkerId, str, str, bool], int] = {}
        """Queries that joined a load, of which its worker does not know yet."""
        self._sent: set[tuple[WorkerId, str, str, bool]] = set()
        """Those of which the worker knows; others failed here, and who joined them counts as
        little there as the first."""
        self._failures: Backoff[tuple[WorkerId, str, str]] = Backoff()

    def load(
        self,
        candidate: Candidate,
        worker: WorkerId,
        slack_ms: float | None,
        need: str = "",
    ) -> "asyncio.Future[None]":
        """Load a variant on a worker, or join the load that is under way there.

        Args:
            slack_ms: how much later than now it may begin, in ms, for the query that waits; None
                for queries to come, when the future ends as soon as the load has begun.
            need: what the query asks for, to be told.
        """
        waits = slack_ms is not None
        key = (worker, str(candidate.task), str(candidate.variant), waits)
        self._known.asked.urgency.missed((candidate.task, candidate.variant), waits=waits)
        running = self._loads.get(key)
        if running is not None:
            self._joined[key] = self._joined.get(key, 0) + 1
        else:
            self._begins(candidate, worker)
            running = asyncio.ensure_future(self._load(candidate, worker, slack_ms, need))
            self._loads[key] = running
            running.add_done_callback(lambda _: self._over(key))
            # Looked at, so that a failure that no query waits for is not reported as forgotten.
            running.add_done_callback(lambda load: load.cancelled() or load.exception())
        return running

    def under_way(self) -> Iterable[asyncio.Future[None]]:
        """The loads that have not ended."""
        return self._loads.values()

    def forget_failures(self, worker: WorkerId | None = None) -> None:
        """Try again at once what has failed on a worker, or on any: it has changed."""
        self._failures.forget(lambda key: worker is None or key[0] == worker)

    def _over(self, key: tuple[WorkerId, str, str, bool]) -> None:
        """A load has ended, well or not: tell its worker how many queries joined it."""
        self._loads.pop(key, None)
        worker, task, variant, waits = key
        connected, queries = self._known.workers.get(worker), self._joined.pop(key, 0)
        if connected is not None and (worker, task, variant, not waits) not in self._loads:
            connected.answered(TaskName(task), VariantName(variant))
        known = key in self._sent
        self._sent.discard(key)
        if connected is not None and queries and known:
            connected.connection.joined(task, variant, queries, waits=waits)

    def _begins(self, candidate: Candidate, worker: WorkerId) -> None:
        """From this moment on others that look for a host know of the load."""
        connected = self._known.workers.get(worker)
        key = (worker, str(candidate.task), str(candidate.variant))
        if connected is not None and self._failures.waits(key, monotonic()) is None:
            connected.begins(candidate.task, candidate.variant, candidate.memory_mib)

    async def _load(
        self, candidate: Candidate, worker: WorkerId, slack_ms: float | None, need: str
    ) -> None:
        """Have a worker load a variant, and wait for that; failures are remembered for a while.

        Raises:
            Overloaded: it failed a moment ago, or the worker has too much to load.
            ReplicaLost: the worker is gone.
            VariantNotLoadable: it cannot be loaded.
            DeadlineExceeded: it takes too long.
        """
        key = (worker, str(candidate.task), str(candidate.variant))
        connected = self._known.workers.get(worker)
        if connected is None:
            raise ReplicaLost(f"worker {worker} is gone")
        if (reason := self._failures.waits(key, monotonic())) is not None:
            raise Overloaded(f"{candidate.task}/{candidate.variant} could not be loaded: {reason}")
        if sum(other[0] == worker for other in self._loads) > LOADS_PER_WORKER:
            raise Overloaded(f"worker {worker} is loading {LOADS_PER_WORKER} variants already")
        try:
            spec = self._known.specs.of_candidate(candidate)
            self._sent.add((*key, slack_ms is not None))
            status = await connected.connection.load(
                spec,
                LOAD_TIMEOUT_S,
                make_room=True,
                waiting=slack_ms is not None,
                patience_s=(slack_ms or 0.0) / 1000,
                begin=slack_ms is None,
                need=need,
                evicts=not self._known.frozen,
            )
        except Overloaded:
            raise  # nothing is wrong with the variant
        except ReplicaLost as error:  # nor then; where the worker listens is no client's affair
            raise ReplicaLost(f"worker {worker} is lost") from error
        except VariantNotLoadable as error:
            name = f"{candidate.task}/{candidate.variant} cannot be loaded: "
            why = error.message.removeprefix(name)
            connected.cannot_load(candidate.task, candidate.variant, why)
            self._known.rebuild()
            raise
        except DeadlineExceeded as error:
            late = (
                f"{candidate.task}/{candidate.variant} was not loaded within {LOAD_TIMEOUT_S:,g} s"
            )
            self._failures.failed(key, late, monotonic())
            raise DeadlineExceeded(late) from error
        except ModellessError as error:
            self._failures.failed(key, error.message, monotonic())
            raise
        if status.state is ReplicaState.READY:
            self._known.workers.loaded(worker, candidate.task, candidate.variant)
        if slack_ms is not None:
            self._failures.succeeded(key)
