"""Demand: the rows that are asked for, by what they need. Plans are made for it."""

from collections.abc import Callable, Sequence
from math import inf, nextafter

from planner.forecasting.demand import SERIES_MS, slo_class
from planner.selection.eligibility import profile_rule, without_slo
from planner.selection.select import suited
from planner.types import Candidate, Query, Snapshot
from variants.types import TaskName, VariantName

MAX_CLASSES = 10_000
"""Distinct needs that are counted between two reports; clients may ask for anything."""

DemandKey = tuple[TaskName, float, float | None, VariantName | None]
"""What demand is counted by: task, latency SLO in ms, accuracy floor, and the variant that the
query is pinned to, or that is to answer it where not every version may."""


class Demand:
    """Counts queries as they come, until somebody takes what was counted."""

    def __init__(self, snapshot_for: Callable[[Query], Snapshot]) -> None:
        """
        Args:
            snapshot_for: what can be chosen for a query now.
        """
        self._snapshot_for = snapshot_for
        self._rows: dict[DemandKey, int] = {}

    def count(self, query: Query) -> None:
        """Count a query as demand."""
        task, rows, _, latency_ms, accuracy, _, _, _, variant = query[:9]
        if query.version is not None or query.unread:
            variant = self._answering(query)
        key = (task, latency_ms, accuracy, variant)
        counted = self._rows
        if key in counted or len(counted) < MAX_CLASSES:
            counted[key] = counted.get(key, 0) + rows

    def _answering(self, query: Query) -> VariantName | None:
        """For which variant a query counts that only some versions may answer.

        What a plan has for all queries of its class is no use to it. For one that is pinned a plan
        has a place already, so it counts as if it named the variant that suits it best.
        """
        if query.variant is not None:
            return query.variant
        found = suited(self._snapshot_for(query), query)
        return None if found is None else found.variant

    def discount(self, query: Query) -> None:
        """Take a refused query out of the demand if no variant could ever have answered it.

        No plan can do anything for it: it asks for more rows than any batch has, or for more
        accuracy than there is. What another worker, another device kind or a load would help stays
        demand, because that is what plans are made for. So does what takes too long or costs too
        much: a profile says so, which may be wrong, and is found out because it is asked for. But
        that counts apart (``out_of_reach``).
        """
        snapshot = self._snapshot_for(query)
        view = snapshot.tasks.get(query.task)
        candidates = () if view is None else view.pinned_to(query.variant)
        floor = None if query.best_effort else query.accuracy
        needs = without_slo(query)._replace(accuracy=floor)
        obstacle = profile_rule(needs, snapshot.transport_ms)
        if any(obstacle(candidate) is None for candidate in candidates):
            self.out_of_reach(query)
            return
        variant = self._answering(query) if query.of_some_versions else query.variant
        key = (query.task, query.latency_ms, query.accuracy, variant)
        self._take_out(key, query.rows)

    def out_of_reach(self, query: Query) -> None:
        """Count a query whose time or price no variant can keep apart from those that can be met.

        The class of an SLO is planned for by the tightest one in it, and where nothing keeps that,
        not at all: a client who asks for 5 ms where 6 are needed would take the workers from who
        asks for 9. And classes know no price: for a client who would pay less than any variant
        costs workers would be held, and more of them started, that never answer it. So the query
        counts for a class that is too tight altogether. It stays demand, for another device kind or
        another profile may keep its time.

        A query of many rows, whose batch takes so many times longer than a row, counts as rows
        with so much less time. One that would pay a half counts as one with half of the time that
        is needed, as prices are of time.
        """
        snapshot = self._snapshot_for(query)
        view = snapshot.tasks.get(query.task)
        if view is None:
            return
        obstacle = profile_rule(query._replace(cost=None, latency_ms=inf))
        fitting = [c for c in view.pinned_to(query.variant) if obstacle(c) is None]
        # Under best effort it is answered whatever it costs.
        ceiling = inf if query.cost is None or query.best_effort else query.cost
        affordable = [c for c in fitting if c.price_usd_per_1k <= ceiling]
        if affordable:
            able = _with_workers(affordable)
            if not able:  # nothing but the demand itself has workers of its kind started
                return
            needed_ms = min(c.table.ms[query.rows] for c in able) + snapshot.transport_ms
            kept, fitting = query.latency_ms / needed_ms, _with_workers(fitting)
        elif fitting:
            kept = ceiling / min(c.price_usd_per_1k for c in fitting)
        else:
            return
        if kept >= 1.0:
            return
        row_ms = min(c.table.ms[1] for c in fitting) + snapshot.transport_ms
        as_row_ms = max(kept * row_ms, SERIES_MS[0])
        step_ms, _ = slo_class(row_ms, None, ())
        if as_row_ms >= step_ms:
            as_row_ms = nextafter(step_ms, 0.0)
        self._move(query, as_row_ms)

    def _move(self, query: Query, latency_ms: float) -> None:
        """Have a query that was counted count as one with another latency SLO."""
        variant = self._answering(query) if query.of_some_versions else query.variant
        key = (query.task, query.latency_ms, query.accuracy, variant)
        if self._take_out(key, query.rows):
            moved = (query.task, latency_ms, query.accuracy, variant)
            if moved in self._rows or len(self._rows) < MAX_CLASSES:
                self._rows[moved] = self._rows.get(moved, 0) + query.rows

    def _take_out(self, key: DemandKey, rows: int) -> bool:
        """Whether so many rows were still counted."""
        left = self._rows.get(key, 0) - rows
        if left > 0:
            self._rows[key] = left
        else:  # they may have been reported already, where the query was held for a while
            self._rows.pop(key, None)
        return left >= 0

    def take(self) -> dict[DemandKey, int]:
        """Rows that were asked for since this was last called."""
        taken, self._rows = self._rows, {}
        return taken


def _with_workers(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that some worker holds or could load."""
    return [candidate for candidate in candidates if candidate.ready or candidate.hosts]
