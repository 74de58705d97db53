"""Refusals: what stands in the way of each variant, and what the whole of it amounts to.

Not on the hot path: everything here is looked at anew, one candidate after the other.
"""

from collections.abc import Sequence
from enum import IntEnum
from math import inf
from typing import NamedTuple

from planner import explain
from planner.routing import least_busy, roomiest
from planner.types import (
    Candidate,
    Query,
    Refusal,
    RefusalCode,
    Snapshot,
    TaskView,
    WorkerView,
)
from variants.errors import Alternative
from variants.types import DeviceKindName, VariantName

ALTERNATIVES = 3
STARTING_RETRY_S = 1.0
"""When to ask again while no worker has started."""


class Obstacle(IntEnum):
    """What stops a candidate, from what never changes to what the next moment may change.

    From ``LATE`` on the candidate is feasible: an idle worker that has it loaded would answer.
    """

    CANARY = 0
    ACCURACY = 1
    COST = 2
    ROWS = 3
    NO_WORKER = 4
    LATENCY = 5
    LATE = 6
    """Too much of the deadline has passed before the decision."""
    COLD = 7
    QUEUE = 8


class Finding(NamedTuple):
    candidate: Candidate
    obstacle: Obstacle
    text: str


def task_not_found(query: Query) -> Refusal:
    return Refusal(code=RefusalCode.TASK_NOT_FOUND, message=f"There is no task {query.task!r}.")


def variant_not_found(view: TaskView, variant: VariantName) -> Refusal:
    """For a pinned variant that has no candidates: unknown, in the wrong stage or unprofiled."""
    why = view.excluded.get(variant)
    if why is None:
        message = f"Task {view.task.name!r} has no variant {variant!r}."
        return Refusal(code=RefusalCode.VARIANT_NOT_FOUND, message=message)
    return Refusal(
        code=RefusalCode.VARIANT_NOT_FOUND,
        message=f"Variant {variant!r} of task {view.task.name!r} does not answer: {why}.",
        reasons={variant: why},
    )


def refuse(
    snapshot: Snapshot,
    view: TaskView,
    candidates: Sequence[Candidate],
    query: Query,
    now_ms: float,
) -> Refusal:
    """Why none of the candidates fits; they come in the query's order of preference.

    Must be called only when indeed none fits.
    """
    left_ms = query.received_ms + query.latency_ms - now_ms
    kinds = {worker.device_kind for worker in snapshot.workers.values() if not worker.draining}
    inspect = _Inspector(query, now_ms, left_ms, snapshot.transport_ms, frozenset(kinds))
    findings = [inspect(candidate) for candidate in candidates]
    reasons = _reasons(view, findings, query)
    wanted = explain.asked(query)
    if not kinds:
        return Refusal(
            code=RefusalCode.COLD,
            message="No worker has started yet.",
            reasons=reasons,
            retry_after_s=STARTING_RETRY_S,
        )
    feasible = [finding for finding in findings if finding.obstacle >= Obstacle.LATE]
    if not feasible:
        return Refusal(
            code=RefusalCode.SLO_INFEASIBLE,
            message=f"No variant of {view.task.name!r} can meet the SLO ({wanted}).",
            reasons=reasons,
            alternatives=_alternatives(findings, query, snapshot.transport_ms),
        )
    if left_ms <= 0.0:
        return Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=f"The deadline of {explain.ms(query.latency_ms)} has passed already.",
            reasons=reasons,
        )
    has_queue = any(finding.obstacle is Obstacle.QUEUE for finding in feasible)
    is_loaded = any(finding.candidate.ready for finding in feasible)
    if has_queue or not is_loaded:
        load = inspect.load(feasible, idle_only=has_queue)
        if load is not None:
            candidate, worker = load
            return Refusal(
                code=RefusalCode.COLD,
                message=(
                    f"{candidate.variant} meets the SLO ({wanted}) once it is loaded on "
                    f"{worker.id}, which takes {candidate.load_ms / 1_000:.1f} s."
                ),
                reasons=reasons,
                load=load,
                retry_after_s=candidate.load_ms / 1_000,
            )
    if is_loaded and not has_queue:
        return Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=(
                f"Only {explain.ms(left_ms)} of the deadline of {explain.ms(query.latency_ms)} "
                "are left, less than any variant needs."
            ),
            reasons=reasons,
        )
    return Refusal(
        code=RefusalCode.OVERLOADED,
        message=f"Every variant that meets the SLO ({wanted}) has too long a queue.",
        reasons=reasons,
    )


class _Inspector:
    """Finds the first obstacle of a candidate; remembers what it learned of sets of workers."""

    def __init__(
        self,
        query: Query,
        now_ms: float,
        left_ms: float,
        transport_ms: float,
        kinds: frozenset[DeviceKindName],
    ) -> None:
        self.query = query
        self.now_ms = now_ms
        self.left_ms = left_ms
        self.transport_ms = transport_ms
        self.kinds = kinds
        self.floor = -inf if query.accuracy is None else query.accuracy
        self.ceiling = inf if query.cost is None else query.cost
        self._least_busy: dict[int, WorkerView | None] = {}

    def __call__(self, candidate: Candidate) -> Finding:
        query = self.query
        if candidate.canary and query.variant is None:
            return Finding(candidate, Obstacle.CANARY, explain.is_canary())
        if candidate.accuracy < self.floor:
            text = explain.below_floor(candidate, self.floor)
            return Finding(candidate, Obstacle.ACCURACY, text)
        if candidate.price_usd_per_1k > self.ceiling:
            text = explain.above_ceiling(candidate, self.ceiling)
            return Finding(candidate, Obstacle.COST, text)
        if query.rows > candidate.table.max_batch:
            text = explain.too_many_rows(candidate, query.rows)
            return Finding(candidate, Obstacle.ROWS, text)
        if not candidate.ready and not candidate.hosts:
            text = explain.no_worker(candidate, candidate.device_kind in self.kinds)
            return Finding(candidate, Obstacle.NO_WORKER, text)
        run_ms = candidate.table.ms[query.rows] + self.transport_ms
        if run_ms > query.latency_ms:
            text = explain.too_slow(run_ms, query.latency_ms)
            return Finding(candidate, Obstacle.LATENCY, text)
        if not candidate.ready:
            return Finding(candidate, Obstacle.COLD, explain.not_loaded(candidate.load_ms))
        if run_ms > self.left_ms:
            return Finding(candidate, Obstacle.LATE, explain.too_late(run_ms, self.left_ms))
        return Finding(candidate, Obstacle.QUEUE, self._queue(candidate, run_ms))

    def _queue(self, candidate: Candidate, run_ms: float) -> str:
        key = id(candidate.ready)
        if key not in self._least_busy:
            self._least_busy[key] = least_busy(candidate.ready, 0, self.now_ms, self.query.avoid)
        worker = self._least_busy[key]
        if worker is None:
            return explain.avoided(str(self.query.avoid))
        return explain.queued(worker.busy_until_ms - self.now_ms, run_ms, self.left_ms)

    def load(
        self, feasible: Sequence[Finding], *, idle_only: bool
    ) -> tuple[Candidate, WorkerView] | None:
        """What to load, and where: the first that has a host.

        With ``idle_only`` a host counts only if it could answer such a query in time once it has
        the variant: while replicas have queues, one more on a busy worker helps nobody.
        """
        hosts: dict[int, WorkerView | None] = {}
        for candidate, _, _ in feasible:
            key = id(candidate.hosts)
            if key not in hosts:
                hosts[key] = roomiest(candidate.hosts, 0, self.now_ms, self.query.avoid)
            host = hosts[key]
            if host is None:
                continue
            wait_ms = max(0.0, host.busy_until_ms - self.now_ms)
            run_ms = candidate.table.ms[self.query.rows] + self.transport_ms
            if not idle_only or wait_ms + run_ms <= self.query.latency_ms:
                return candidate, host
        return None


def _reasons(view: TaskView, findings: Sequence[Finding], query: Query) -> dict[str, str]:
    """One reason for each variant: of its device kinds, the one that comes closest."""
    closest: dict[str, Finding] = {}
    for finding in findings:
        name = finding.candidate.variant
        known = closest.get(name)
        if known is None or finding.obstacle > known.obstacle:
            closest[name] = finding
    reasons = {name: finding.text for name, finding in closest.items()}
    if query.variant is None:
        reasons.update((str(name), why) for name, why in view.excluded.items())
    return reasons


def _alternatives(
    findings: Sequence[Finding], query: Query, transport_ms: float
) -> tuple[Alternative, ...]:
    """The variants that some worker could run and that miss the SLO least."""
    nearest: dict[str, tuple[float, Finding]] = {}
    for finding in findings:
        candidate = finding.candidate
        can_run = finding.obstacle in (Obstacle.ACCURACY, Obstacle.COST, Obstacle.LATENCY)
        if (
            not can_run
            or query.rows > candidate.table.max_batch
            or not (candidate.ready or candidate.hosts)
        ):
            continue
        distance = _distance(candidate, query, transport_ms)
        known = nearest.get(candidate.variant)
        if known is None or distance < known[0]:
            nearest[candidate.variant] = (distance, finding)
    ranked = sorted(nearest.values(), key=lambda entry: (entry[0], entry[1].candidate.variant))
    return tuple(
        Alternative(
            variant=finding.candidate.variant,
            accuracy=finding.candidate.accuracy,
            latency_ms=finding.candidate.table.ms[query.rows] + transport_ms,
            cost_usd_per_1k=finding.candidate.price_usd_per_1k,
            reason=finding.text,
        )
        for _, finding in ranked[:ALTERNATIVES]
    )


def _distance(candidate: Candidate, query: Query, transport_ms: float) -> float:
    """How far a candidate is off: the relative excess of latency, of cost and of the error rate."""
    run_ms = candidate.table.ms[query.rows] + transport_ms
    distance = max(0.0, run_ms / max(query.latency_ms, 1e-3) - 1.0)
    if query.cost is not None:
        distance += max(0.0, candidate.price_usd_per_1k / max(query.cost, 1e-9) - 1.0)
    if query.accuracy is not None:
        missing = max(0.0, query.accuracy - candidate.accuracy)
        distance += missing / max(1.0 - query.accuracy, 1e-3)
    return distance
