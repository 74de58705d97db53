"""From the columns of a trace to queries, one at a time."""

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import ANYBODY, DEFAULT_PRIORITY, Query
from variants.types import Prefer

if TYPE_CHECKING:
    from numpy.random import Generator

DRAWS = 65_536
"""Random bits are drawn for so many queries at once, which is much quicker."""

DRAW_BITS = 62
"""Of each query."""
GATEWAY_BITS = 16
"""The highest of them say to which of several gateways it comes; the lowest 56 are those by which
selection draws workers."""


def gateway_of(query: Query, count: int) -> int:
    """To which of so many gateways a query comes that is dealt to one of them at random."""
    return (query.draw >> DRAW_BITS - GATEWAY_BITS) * count >> GATEWAY_BITS


def drawn_again(before: int, draw: int, setting: Setting) -> int:
    """The bits of a query that is chosen for anew, by the same gateway as ``before``."""
    if setting.gateways == 1:
        return draw
    chooses = DRAW_BITS - GATEWAY_BITS
    return before >> chooses << chooses | draw & (1 << chooses) - 1


def queries_of(trace: Trace, prefer: Prefer, random: "Generator") -> Iterator[Query]:
    """The queries of a trace in their order; times in ms since the beginning.

    Args:
        prefer: what all of them prefer.
        random: gives each query the bits for its choice among workers.
    """
    names = trace.tasks
    columns = zip(
        trace.arrival_s, trace.task, trace.latency_ms, trace.min_accuracy, trace.max_cost,
        strict=True,
    )  # fmt: skip
    draws: list[int] = []
    new = tuple.__new__
    for arrival_s, task, latency_ms, floor, ceiling in columns:
        if not draws:
            draws = random.integers(0, 2**DRAW_BITS, DRAWS).tolist()
        # A query's own constructor would take twice as long.
        yield new(
            Query,
            (
                names[task],
                1,
                arrival_s * 1_000,
                latency_ms,
                None if floor == -inf else floor,
                None if ceiling == inf else ceiling,
                prefer,
                False,
                None,
                draws.pop(),
                None,
                DEFAULT_PRIORITY,
                ANYBODY,
                (),
                None,
            ),
        )
