"""INFaaS' rules as functions (Romero et al., USENIX ATC'21, sections 4 and 5).

A *variant* of INFaaS is an architecture on a framework for a piece of hardware: here a variant on a
device kind. A device kind counts as GPU unless its name begins with ``cpu``, ``i7`` or ``i9``. A
device runs one batch at a time, so a second replica on it would bring nothing: a replica is a
device that holds the variant.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from planner.latency_table import LatencyTable

GPU_BATCH = 32
"""A GPU variant is judged by this batch, or by its largest if that is smaller; a CPU variant by
one row."""
RECENT = 5
"""Picks that are looked at first."""
LOOK_UP_MS, LOOK_UP_PART, LEAST_LOOK_UPS = 0.6, 0.15, 3
"""A look-up of a variant's profile takes 0.6 ms; so many fit into 15 % of the latency SLO."""
LOOSE_MS = 100.0
"""Above this SLO, variants that are faster than this are skipped."""
START_MS = 1_000.0
"""What starting a variant takes beside its load."""
REPLICA_CAP_WEIGHT = 1_000.0
"""Factor on what replicas beyond the cap cost."""
UPGRADE_RATIO = 1.5
"""Upgrade when replicating costs more than so many times as much."""
LOAD_MARGIN_PER_MS = 2e-4
LEAST_MARGIN = 0.5
"""Part of a replica's rate that counts however long its load takes. The paper's margin takes
2e-4 off for each ms of load and would turn negative at loads of 5 s."""
GPU_VOTES, CPU_VOTES = 20, 10
"""A variant steps down after more consecutive votes than this."""
BUSY = 0.8
"""A worker is added when even the least utilised one passes this."""


def is_gpu(device_kind: str) -> bool:
    return not device_kind.startswith(("cpu", "i7", "i9"))


class Line(NamedTuple):
    """Latency of a batch, fitted: ``slope * batch + intercept`` in ms."""

    slope_ms: float
    intercept_ms: float

    def at(self, batch: int) -> float:
        return self.slope_ms * batch + self.intercept_ms


def judged_batch(table: LatencyTable, gpu: bool) -> int:
    """The batch by which a variant is judged, scaled and run."""
    return min(GPU_BATCH, table.max_batch) if gpu else 1


def fit(points: Sequence[tuple[int, float]]) -> Line:
    """Least squares through (batch, ms); flat when all batches are one."""
    count = len(points)
    mean_batch = sum(batch for batch, _ in points) / count
    mean_ms = sum(ms for _, ms in points) / count
    spread = sum((batch - mean_batch) ** 2 for batch, _ in points)
    if not spread:
        return Line(0.0, mean_ms)
    slope = sum((batch - mean_batch) * (ms - mean_ms) for batch, ms in points) / spread
    return Line(slope, mean_ms - slope * mean_batch)


def fitted_ms(table: LatencyTable, gpu: bool) -> float:
    """Fitted latency at the batch by which a variant is judged.

    Which three batches are fitted is not said; the ends and the middle of what is used spare
    extrapolation.
    """
    top = judged_batch(table, gpu)
    batches = (1, (1 + top) // 2, top)
    return fit([(batch, table.ms[batch]) for batch in batches]).at(top)


def scan_budget(latency_ms: float) -> int:
    """How many variants a query may look at."""
    return max(LEAST_LOOK_UPS, int(LOOK_UP_PART * latency_ms / LOOK_UP_MS))


class Load(NamedTuple):
    """What a replica went through in the last second."""

    mean_ms: float
    """Mean latency of queries that were done; 0 when none was."""
    qps: float
    outstanding: int


def overloaded(load: Load, fitted: float, batch: int, replicas: int, gpu: bool) -> bool:
    """Whether a variant on a worker is to be blacklisted.

    Outstanding queries are compared with what is done in full batches; the paper's queries fill a
    batch each. The bound on QPS only spares what is hardly used, and is taken as it stands.
    """
    if gpu:
        k, q, r = (min(5.0, 15.0 / fitted) if fitted < 10.0 else 1.5), 0.3, 0.8
    elif replicas == 1:
        k, q, r = 4.0, 1.0, 1.1
    else:
        k, q, r = 2.5, 0.5, 0.8
    per_s = 1_000 / fitted
    return (load.mean_ms > k * fitted and load.qps > q * per_s) or (
        load.outstanding > r * replicas * per_s * batch
    )


def recovered(load: Load, fitted: float, batch: int, replicas: int, gpu: bool) -> bool:
    """Whether a blacklisted variant on a worker may be picked again."""
    return load.mean_ms < (1.25 if gpu else 1.5) * fitted and not overloaded(
        load, fitted, batch, replicas, gpu
    )


def peak_qps(fitted: float, batch: int) -> float:
    """What a replica can serve: thr in the paper."""
    return 1_000 / max(fitted, 1e-6) * batch


def lacking_qps(qps: float, replicas: int, thr: float, load_ms: float) -> float:
    """What replicas leave unserved, less the margin for the time that a load takes."""
    return qps - replicas * thr * max(LEAST_MARGIN, 1 - LOAD_MARGIN_PER_MS * load_ms)


def more_replicas(lacking: float, thr: float) -> int:
    return max(0, ceil(lacking / thr - 1e-9))


def scaling_cost_ms(count: int, load_ms: float, room: int) -> float:
    """What loading ``count`` replicas costs when ``room`` of them are within the cap."""
    beyond = max(0, count - room)
    return load_ms * (count - beyond) + REPLICA_CAP_WEIGHT * load_ms * beyond


def upgrades(replicate_ms: float, upgrade_ms: float) -> bool:
    return replicate_ms > UPGRADE_RATIO * upgrade_ms


def votes(before: int, qps: float, replicas: int, thr: float) -> int:
    """Consecutive seconds in which one replica fewer would have done."""
    return before + 1 if qps <= (replicas - 1) * thr else 0


def steps_down(count: int, gpu: bool) -> bool:
    return count > (GPU_VOTES if gpu else CPU_VOTES)


def more_workers(least_utilised: float, usable: int, ordered: int) -> int:
    """Workers to add now: one each second while even the least utilised passes 80 %.

    No more are on order than are usable, so that the fleet at most doubles while they start.
    """
    return int(usable > 0 and least_utilised > BUSY and ordered < usable)


def workers_for(work: float) -> int:
    """How many workers keep utilisation at or below 80 %, work being in whole workers."""
    return ceil(work / BUSY - 1e-9)
