"""The tally of a simulation: queries in time, and what each stretch of time looked like."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, inf

from planner.simulation.fleet import Ticket, Worker
from planner.simulation.results import Interval, Report
from variants.types import ReplicaState, VariantKey, WorkerId

INTERVALS = 300
"""At most so many, of whole seconds each."""
_TOLERANCE_MS = 1e-6
_READY = ReplicaState.READY


class Tally:
    """Counts outcomes by the interval in which the query arrived."""

    def __init__(
        self, arrival_s: Sequence[float], *, end_s: float | None = None, width_s: int | None = None
    ) -> None:
        """Take when queries arrive, ascending.

        Args:
            end_s: end of the timeline; None: the last arrival.
            width_s: of an interval; None: such that there are at most ``INTERVALS``.
        """
        if end_s is None:
            end_s = arrival_s[-1] if len(arrival_s) else 0.0
        self.width_ms = width_ms = 1_000.0 * (width_s or max(1, ceil(end_s / INTERVALS)))
        count = int(end_s * 1_000 / width_ms) + 1

        def interval(arrived_s: float) -> int:
            return int(arrived_s * 1_000 / width_ms)

        edges = [bisect_left(arrival_s, index, key=interval) for index in range(count)]
        self.arrived = [high - low for low, high in pairwise([*edges, len(arrival_s)])]
        self.punctual = [0] * count
        self.late = [0] * count
        self.rejected = [0] * count
        self.accuracy = [0.0] * count
        self.devices = [0] * count
        self.capacity_qps = [0.0] * count
        self.usd_per_hour = [0.0] * count
        self.busy_ms = [0.0] * count
        self.loads = [0] * count
        self.evictions = [0] * count
        self.load_s_total = 0.0
        self._fastest_qps: dict[WorkerId, tuple[frozenset[VariantKey], float]] = {}
        """Of each device, as long as what is ready there is the same object."""
        self.decisions_s = array("d")
        self.plans_s = array("d")

    def _at(self, ms: float) -> int:
        return min(int(ms / self.width_ms), len(self.arrived) - 1)

    def rejects(self, arrived_ms: float) -> None:
        self.rejected[self._at(arrived_ms)] += 1

    def never(self, arrived_ms: float) -> None:
        """Accepted, and given up."""
        self.late[self._at(arrived_ms)] += 1

    def answered(self, arrived_ms: float, accuracy: float) -> None:
        """In time, because time plays no part."""
        index = self._at(arrived_ms)
        self.punctual[index] += 1
        self.accuracy[index] += accuracy

    def ran(self, tickets: Iterable[Ticket], now_ms: float, run_ms: float, accuracy: float) -> None:
        """A batch is done."""
        self.busy_ms[self._at(now_ms)] += run_ms
        width_ms, punctual, accuracies = self.width_ms, self.punctual, self.accuracy
        due_ms = now_ms - _TOLERANCE_MS
        for ticket in tickets:
            index = int(ticket.arrived_ms / width_ms)
            if due_ms <= ticket.deadline_ms:
                punctual[index] += 1
                accuracies[index] += accuracy
            else:
                self.late[index] += 1

    @staticmethod
    def in_time(ticket: Ticket, now_ms: float) -> bool:
        """Whether a query that is done now keeps its deadline."""
        return now_ms - _TOLERANCE_MS <= ticket.deadline_ms

    def loaded(self, now_ms: float, load_s: float) -> None:
        self.loads[self._at(now_ms)] += 1
        self.load_s_total += load_s

    def evicted(self, now_ms: float) -> None:
        self.evictions[self._at(now_ms)] += 1

    def look(self, index: int, usable: Iterable[Worker], billed: Iterable[Worker]) -> None:
        """Note what there is at the end of an interval."""
        usable = list(usable)
        self.devices[index] = len(usable)
        self.capacity_qps[index] = sum(self._fastest(worker) for worker in usable)
        self.usd_per_hour[index] = sum(worker.kind.usd_per_hour for worker in billed)

    def _fastest(self, worker: Worker) -> float:
        known = self._fastest_qps.get(worker.id)
        if known is None or known[0] is not worker.ready:
            known = self._fastest_qps[worker.id] = (worker.ready, _fastest_qps(worker))
        return known[1]

    def report(
        self, policy: str, workers: Sequence[Worker], end_ms: float, least_billed_ms: float
    ) -> Report:
        """The outcome, all devices billed until they were released, or to the end."""
        requests, in_time = sum(self.arrived), sum(self.punctual)
        late, rejected = sum(self.late), sum(self.rejected)
        billed_ms = [
            max(
                least_billed_ms, (end_ms if w.released_ms is None else w.released_ms) - w.ordered_ms
            )
            for w in workers
        ]
        total_ms = sum(billed_ms)
        decisions_s, plans_s = sorted(self.decisions_s), sorted(self.plans_s)
        return Report(
            policy=policy,
            requests=requests,
            in_time=in_time,
            late=late,
            rejected=rejected,
            violation_ratio=(late + rejected) / requests if requests else 0.0,
            effective_accuracy=sum(self.accuracy) / in_time if in_time else 0.0,
            cost_usd=sum(
                ms / 3_600_000 * w.kind.usd_per_hour
                for ms, w in zip(billed_ms, workers, strict=True)
            ),
            busy_ratio=sum(self.busy_ms) / total_ms if total_ms else 0.0,
            loads=sum(self.loads),
            evictions=sum(self.evictions),
            load_s_total=self.load_s_total,
            decision_us_p50=_percentile(decisions_s, 0.50) * 1e6,
            decision_us_p99=_percentile(decisions_s, 0.99) * 1e6,
            plan_ms_p50=_percentile(plans_s, 0.50) * 1_000,
            plan_ms_p99=_percentile(plans_s, 0.99) * 1_000,
            timeline=tuple(self._intervals()),
        )

    def _intervals(self) -> Iterable[Interval]:
        for index, arrived in enumerate(self.arrived):
            there_ms = self.devices[index] * self.width_ms
            in_time = self.punctual[index]
            yield Interval(
                start_s=index * self.width_ms / 1_000,
                arrived=arrived,
                in_time=in_time,
                late=self.late[index],
                rejected=self.rejected[index],
                accuracy=self.accuracy[index] / in_time if in_time else 0.0,
                devices=self.devices[index],
                capacity_qps=self.capacity_qps[index],
                usd_per_hour=self.usd_per_hour[index],
                busy_ratio=min(1.0, self.busy_ms[index] / there_ms) if there_ms else 0.0,
                loads=self.loads[index],
                evictions=self.evictions[index],
            )


def _fastest_qps(worker: Worker) -> float:
    """What a device could serve with the fastest variant that it has ready."""
    found = [each.queue.unit_ms for each in worker.replicas.values() if each.state is _READY]
    least_ms = min(found, default=inf)
    return 1_000 / max(least_ms, 1e-6)


def _percentile(ordered: Sequence[float], fraction: float) -> float:
    if not ordered:
        return 0.0
    return float(ordered[min(len(ordered) - 1, int(fraction * len(ordered)))])
