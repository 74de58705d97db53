"""Variants that a worker lists without having loaded them, each with the reason.

They are in quarantine, damaged or failed. As long as they are listed, no plan places them here and
no query is sent to them.
"""

import asyncio
import logging
import time
from collections.abc import Iterable

from planner.batching.variant_queues import VariantQueue
from planner.latency_table import LatencyTable
from variants.artifacts.integrity import Seen
from variants.errors import ArtifactDamaged, Conflict, ModellessError, VariantNotLoadable
from variants.types import Digest, ReplicaState, TaskName, VariantName
from workers.execution.failures import Failures, not_loadable, why_of
from workers.execution.replicas import Replica
from workers.process.quarantine import CRASHES
from workers.types import LoadSpec, variant_id

log = logging.getLogger(__name__)


class Absent:
    """Puts such variants into the worker's list and takes them out again."""

    def __init__(
        self, replicas: dict[int, Replica], failures: Failures, changed: asyncio.Event
    ) -> None:
        """``replicas`` is the worker's list; ``changed`` is set when it changed."""
        self._replicas = replicas
        self._failures = failures
        self._changed = changed

    def quarantine(self, spec: LoadSpec, since_s: float) -> Replica:
        """List what earlier processes crashed on."""
        message = f"it crashed a worker {CRASHES} times within a day"
        replica = self._show(spec, ReplicaState.QUARANTINED, message)
        replica.quarantined_s = since_s
        return replica

    def list_quarantined(self, found: Iterable[tuple[str, str, float]]) -> None:
        """List variants of which only the task, the name and the time are known."""
        for task, variant, since_s in found:
            spec = LoadSpec(
                task=TaskName(task), variant=VariantName(variant), runtime="", artifact=Digest(""),
                path="", inputs=(), outputs=(), latency=((1, 0.0),), memory_mib=0.0, load_s=0.0,
            )  # fmt: skip
            self.quarantine(spec, since_s)

    def fail(self, spec: LoadSpec, error: ModellessError, file: Seen | None) -> VariantNotLoadable:
        """Note a failed load and list it; return the error for the caller.

        ``file`` is how the artifact looked before the load.
        """
        told = not_loadable(spec, error)
        log.error("%s", told)
        self._failures.note(spec, told, file, time.monotonic())
        if variant_id(spec.task, spec.variant) not in self._replicas:
            damaged = isinstance(told, ArtifactDamaged)
            state = ReplicaState.DAMAGED if damaged else ReplicaState.FAILED
            self._show(spec, state, why_of(spec, told))
        return told

    def delist(self, variant: int) -> None:
        """Show a failed load no more."""
        replica = self._replicas.get(variant)
        if replica is not None and is_failed(replica):
            del self._replicas[variant]
            self._changed.set()

    def readmit(self, variant: int) -> None:
        """Show a quarantine no more.

        Raises:
            Conflict: the runtime of the variant is still being closed.
        """
        replica = self._replicas.get(variant)
        if replica is not None and replica.state is ReplicaState.QUARANTINED:
            if replica.runtime is not None:
                raise Conflict(f"{replica.name} is still being closed")
            del self._replicas[variant]
            self._changed.set()

    def _show(self, spec: LoadSpec, state: ReplicaState, message: str) -> Replica:
        queue = VariantQueue.detached(spec.task, LatencyTable(spec.latency))
        replica = Replica(spec, queue, None, time.monotonic())
        replica.state = state
        replica.message = message
        replica.loaded.set_result(None)
        self._replicas[replica.variant] = replica
        self._changed.set()
        return replica


def is_failed(replica: Replica) -> bool:
    """Whether it is listed because its last load failed."""
    return replica.state is ReplicaState.FAILED or replica.state is ReplicaState.DAMAGED
