"""Demand: the rows that are asked for, by what they need. Plans are made for it."""

from collections.abc import Callable, Collection

from planner.selection.eligibility import counts_for_ms, in_vain
from planner.selection.select import suited
from planner.types import Query, Snapshot
from variants.types import DeviceKindName, TaskName, VariantName

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
        self.coming: Collection[DeviceKindName] = ()
        """Device kinds of which there may be workers, whether there are any now or not."""
        self._rows: dict[DemandKey, int] = {}

    def count(self, query: Query) -> None:
        """Count a query as demand."""
        task, rows, _, latency_ms, accuracy, _, _, _, variant = query[:9]
        if query.version is not None or query.unread:
            variant = self._answering(query)
        key = (task, latency_ms, accuracy, variant)
        before = self._rows.get(key)
        if before is not None:
            self._rows[key] = before + rows
        elif len(self._rows) < MAX_CLASSES:
            self._rows[key] = rows

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
        if not in_vain(query, self._snapshot_for(query)):
            self.out_of_reach(query)
            return
        variant = self._answering(query) if query.of_some_versions else query.variant
        key = (query.task, query.latency_ms, query.accuracy, variant)
        self._take_out(key, query.rows)

    def out_of_reach(self, query: Query) -> None:
        """Count a query whose time or price no variant can keep apart from those that can be met
        (``planner.selection.eligibility.counts_for_ms``)."""
        latency_ms = counts_for_ms(query, self._snapshot_for(query), self.coming)
        if latency_ms != query.latency_ms:
            self._move(query, latency_ms)

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
