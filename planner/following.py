"""Following the plan: the choice for a query, when there are routes for it.

Legs are tried in their order, each on the less busy of two of its workers, drawn in proportion to
their rates. What finds no room on any of them completes wherever it does first.
"""

from bisect import bisect_right

from planner.refusal import crowded
from planner.routes import Legs, RouteTable
from planner.selection import select
from planner.types import Choice, Query, Reason, Refusal, Snapshot
from variants.types import Prefer

PATIENCE = 0.5
"""Part of the deadline that a query may be predicted to take on any leg but its last, as long as
nobody is refused."""
OVERFLOW = 0.3
"""Part of its slack that a query may wait for workers that the plan gives to others, in the end."""
CROWDED_S = 20.0
"""How long it takes to get there, while queries are being refused: about two plans. Until then the
plan may be wrong and others idle; after that there is simply too much."""
LEAST_PATIENCE = 0.02
PATIENCE_LOST = 0.1
"""Part of the patience that a refusal costs."""
PATIENCE_REGAINED_PER_S = 0.05


class Patience:
    """How long queries may queue for the replicas that the plan prefers.

    It falls with every refusal and comes back with time, as windows do under congestion: between
    two plans, that is what turns the fleet from accurate to fast within a fraction of a second
    when a crowd arrives. Written by whoever learns of refusals, read by decisions.
    """

    __slots__ = ("_at_ms", "_since_ms", "_value")

    def __init__(self) -> None:
        self._value = PATIENCE
        self._at_ms = 0.0
        self._since_ms = 0.0

    def at(self, now_ms: float) -> float:
        value = self._value
        if value < PATIENCE:
            value += PATIENCE_REGAINED_PER_S * max(0.0, now_ms - self._at_ms) / 1_000
        return min(value, PATIENCE)

    def overflow(self, now_ms: float) -> float:
        """Part of its slack that a query may wait for workers that the plan gives to others."""
        if self.at(now_ms) >= PATIENCE:
            return 1.0
        return max(OVERFLOW, 1.0 - (now_ms - self._since_ms) / (1_000 * CROWDED_S))

    def refused(self, now_ms: float) -> None:
        """A worker refused a query, or none was found."""
        before = self.at(now_ms)
        if before >= PATIENCE:
            self._since_ms = now_ms
        self._value = max(LEAST_PATIENCE, before * (1.0 - PATIENCE_LOST))
        self._at_ms = now_ms


def choose(
    snapshot: Snapshot, routes: RouteTable, patience: Patience, query: Query, now_ms: float
) -> Choice | Refusal:
    """The variant and worker that answer a query, or why none does: by the plan, if it can.

    What finds no room on its legs, or was refused there, completes wherever it does first: that
    spreads a crowd over all workers, on the variants that take least. Once queries are being
    refused, it may not wait long elsewhere any more: the batches of those who belong there would
    become smaller, and fewer be served in all. A class that the plan does not know takes the
    cheapest variant that fits, as long as nobody is refused. Pinned queries, and those that prefer
    something else than the plan does, do not follow it.
    """
    if query.variant is not None or not routes.used or query.prefer is not routes.prefer:
        return select(snapshot, query, now_ms)
    legs = routes.legs(query)
    part = patience.at(now_ms)
    if not legs and part >= PATIENCE:
        return select(snapshot, query._replace(prefer=Prefer.COST), now_ms)
    if query.avoid is None:
        own = follow(legs, query, now_ms, snapshot.transport_ms, part)
        if own is not None:
            return own
    query = query._replace(prefer=Prefer.LATENCY)
    found = select(snapshot, query, now_ms)
    overflow = patience.overflow(now_ms)
    if overflow < 1.0 and isinstance(found, Choice) and not found.cold:
        run_ms = found.candidate.table.ms[query.rows] + snapshot.transport_ms
        slack_ms = query.received_ms + query.latency_ms - now_ms - run_ms
        if found.predicted_ms - run_ms > overflow * slack_ms:
            return crowded(snapshot, query, now_ms)
    return found


def follow(
    legs: Legs, query: Query, now_ms: float, transport_ms: float, patience: float = PATIENCE
) -> Choice | None:
    """The first leg with room for a query, on the one of two of its workers that is done first.

    A leg has room while the query is predicted to take at most ``patience`` of its deadline there,
    on the leg of the quickest variants all of it. None when no leg has room.
    """
    _, rows, received_ms, budget_ms, floor, ceiling, *_ = query
    left_ms = received_ms + budget_ms - now_ms - transport_ms
    patient_ms = left_ms - (1.0 - patience) * budget_ms
    draw = query.draw
    for candidates, workers, bounds, quickest in legs:
        candidate, worker = candidates[0], workers[0]
        table = candidate.table
        if len(workers) > 1:
            total = bounds[-1]
            first = bisect_right(bounds, (draw & 0xFFFFFFF) / 0x10000000 * total)
            second = bisect_right(bounds, (draw >> 28 & 0xFFFFFFF) / 0x10000000 * total)
            if second == first:
                second = (first + 1) % len(workers)
            candidate, worker = candidates[first], workers[first]
            table = candidate.table
            one_ms = max(worker.busy_until_ms, now_ms) + table.ms[min(rows, table.max_batch)]
            other, other_worker = candidates[second], workers[second]
            other_table = other.table
            two_ms = (
                max(other_worker.busy_until_ms, now_ms)
                + other_table.ms[min(rows, other_table.max_batch)]
            )
            if two_ms < one_ms:
                candidate, worker, table = other, other_worker, other_table
        if rows > table.max_batch or worker.draining:
            continue
        if ceiling is not None and candidate.price_usd_per_1k > ceiling:
            continue
        if floor is not None and candidate.accuracy < floor:
            continue
        busy_ms = worker.busy_until_ms
        predicted_ms = table.ms[rows] + (busy_ms - now_ms if busy_ms > now_ms else 0.0)
        if predicted_ms <= (left_ms if quickest else patient_ms):
            return Choice(
                candidate, worker, predicted_ms + transport_ms, False, Reason.PLANNED, True
            )
    return None
