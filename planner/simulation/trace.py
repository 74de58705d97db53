"""A trace: the queries to simulate, column by column.

A million queries are a million small objects too many, so there are none: a query is an index.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from variants.types import TaskName


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Queries of one row each, ascending by arrival. All columns have the same length.

    Columns are ``array.array`` or lists: plain numbers come out of both without a conversion.
    """

    tasks: tuple[TaskName, ...]
    """The names that ``task`` refers to."""
    arrival_s: Sequence[float]
    """From the beginning of the simulation."""
    task: Sequence[int]
    """Index into ``tasks``."""
    latency_ms: Sequence[float]
    """Latency SLO."""
    min_accuracy: Sequence[float]
    """Floor; minus infinity when none is asked for."""
    max_cost: Sequence[float]
    """Ceiling in USD per 1,000 queries; infinite when none is asked for."""

    def __len__(self) -> int:
        return len(self.arrival_s)
