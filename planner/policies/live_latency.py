"""What workers learn from their batches, and what gateways and the control loop make of it.

Our own policy's part where latencies are uncertain. After each batch a worker learns how long they
take, as ``workers.execution`` does; at each tick what the workers say becomes the catalog that is
decided by, as in ``controlplane``.
"""

from typing import cast

from planner.batching.live_costs import RELAX_EVERY_MS, LiveCosts
from planner.batching.protocol import LiveQueue
from planner.latency_table import LatencyTable
from planner.live_model import LiveModel
from planner.planning_settings import DEFAULTS
from planner.reconcile.corrections.correction import Seen
from planner.reconcile.live_corrections import LiveCorrections
from planner.reconcile.live_profiles import busy_ratios_to, ratios_to
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.types import Query
from variants.types import WorkerId


class LiveLatency:
    """What batches take of late on all workers of a simulated fleet."""

    def __init__(
        self, fleet: Fleet, corrects: bool, late_share: float = DEFAULTS.late_share
    ) -> None:
        """Take whether what workers say is decided by; they learn for their queues in any case."""
        self._late_share = late_share
        self._fleet = fleet
        self._corrects = corrects
        self.corrections = LiveCorrections()
        self._models: dict[Replica, LiveModel] = {}
        self._costs: dict[Worker, LiveCosts] = {}
        self._relaxed_ms: dict[Replica, float] = {}

    def ran(
        self, replica: Replica, rows: int, run_ms: float, now_ms: float, queries: int, late: int
    ) -> None:
        """A batch is done: ``workers.execution.batch_runner`` learns the same from it."""
        table = replica.candidate.table
        self._relaxed_ms[replica] = now_ms
        model = self._models.get(replica)
        if model is None:
            model = self._models[replica] = LiveModel(table, table)
        self._costs_of(replica.worker).ran(
            replica.queue, model, rows, now_ms - run_ms, run_ms, queries=queries, late=late
        )

    def table(self, replica: Replica) -> LatencyTable:
        """What the replica's queue is to count with."""
        model = self._models.get(replica)
        return replica.candidate.table if model is None else model.table()

    def _costs_of(self, worker: Worker) -> LiveCosts:
        costs = self._costs.get(worker)
        if costs is None:
            costs = self._costs[worker] = LiveCosts(cast(LiveQueue, worker.queue), self._late_share)
        return costs

    def refused(self, query: Query, id_: WorkerId, now_ms: float) -> None:
        """A worker that runs none of a task any more forgets that its variants were slow."""
        # Where devices take what profiles say nothing is learned, and there may be many replicas.
        worker = self._fleet.workers.get(id_) if self._relaxed_ms else None
        for key, replica in worker.replicas.items() if worker is not None else ():
            since_ms = self._relaxed_ms.get(replica)
            if key[0] != query.task or replica.in_flight or since_ms is None:
                continue
            if now_ms - since_ms >= RELAX_EVERY_MS:
                model = self._models[replica]
                self._costs_of(replica.worker).relax(replica.queue, model, now_ms - since_ms)
                self._relaxed_ms[replica] = now_ms

    def look(self, now_s: float) -> bool:
        """Take over what workers report; whether a correction has changed."""
        if not self._corrects or not (self._models or self.corrections.ratios):
            return False
        there = {
            replica
            for worker in self._fleet.workers.values()
            for replica in worker.replicas.values()
        }
        self._models = {r: model for r, model in self._models.items() if r in there}
        workers = set(self._fleet.workers.values())
        self._costs = {w: costs for w, costs in self._costs.items() if w in workers}
        self._relaxed_ms = {r: ms for r, ms in self._relaxed_ms.items() if r in there}
        return self.corrections.look(
            now_s,
            (
                Seen(
                    (*replica.key, replica.worker.kind.name),
                    "",
                    model.batches,
                    ratios_to(
                        [(rows, mean_ms) for rows, mean_ms, _ in model.points()],
                        model.sure,
                        replica.candidate.table,
                        replica.candidate.table,
                    ),
                    model.neighbours(),
                    busy_ratios_to(model.busy(), model.busy_sure, replica.candidate.table),
                )
                for replica, model in self._models.items()
            ),
        )
