"""What workers learn from their batches, and what gateways and the control loop make of it.

Our own policy's part where latencies are uncertain. A worker corrects its queue after each batch
and follows the ratio to the profile, as ``workers.execution`` does; at each tick what the workers
say becomes the catalog that is decided by, as in ``controlplane``.
"""

from typing import cast

from planner.batching.protocol import LiveQueue
from planner.batching.variant_queues import learned, relaxed
from planner.reconcile.drift import Live, LiveRatio
from planner.reconcile.live_corrections import LiveCorrections, Seen
from planner.simulation.fleet import Fleet, Replica
from planner.types import Query


class LiveLatency:
    """Of all workers of a simulated fleet."""

    def __init__(self, fleet: Fleet, corrects: bool) -> None:
        """Take whether what workers say is decided by; they learn for their queues in any case."""
        self._fleet = fleet
        self._corrects = corrects
        self.corrections = LiveCorrections()
        self._ratios: dict[Replica, LiveRatio] = {}
        self._relaxed_ms: dict[Replica, float] = {}

    def ran(self, replica: Replica, rows: int, run_ms: float, now_ms: float) -> None:
        """A batch is done: ``workers.execution.executor`` learns the same from it."""
        profiled_ms = replica.candidate.table.ms[rows]
        self._ratios.setdefault(replica, LiveRatio()).seen(run_ms, profiled_ms)
        self._relaxed_ms[replica] = now_ms
        queue = cast(LiveQueue, replica.worker.queue)
        correction = learned(replica.queue.correction, run_ms / max(profiled_ms, 1e-9))
        queue.correct(replica.queue, correction)

    def refused(self, query: Query, now_ms: float) -> None:
        """A worker that runs none of a task any more forgets that its variants were slow."""
        worker = self._fleet.workers.get(query.avoid) if query.avoid else None
        for key, replica in worker.replicas.items() if worker is not None else ():
            since_ms = self._relaxed_ms.get(replica)
            if key[0] != query.task or replica.in_flight or since_ms is None:
                continue
            correction = relaxed(replica.queue.correction, now_ms - since_ms)
            cast(LiveQueue, replica.worker.queue).correct(replica.queue, correction)
            self._relaxed_ms[replica] = now_ms

    def look(self, now_s: float) -> bool:
        """Take over what workers report; whether a correction has changed."""
        if not self._corrects:
            return False
        there = {
            replica
            for worker in self._fleet.workers.values()
            for replica in worker.replicas.values()
        }
        self._ratios = {r: ratio for r, ratio in self._ratios.items() if r in there}
        self._relaxed_ms = {r: ms for r, ms in self._relaxed_ms.items() if r in there}
        return self.corrections.look(
            now_s,
            (
                Seen(
                    (*replica.key, replica.worker.kind.name),
                    "",
                    Live(ratio=live.ratio, batches=live.batches),
                )
                for replica, live in self._ratios.items()
            ),
        )
