"""Which batches a device can run: how long they may take, and which of them are worth running.

A query that just missed a batch waits for the longest batch of its device and then takes its own.
So on a device whose longest batch takes m, the batches of a class with latency SLO L take at most
``min(m, L - overhead - m)``. Alone on a device a class waits for its own batch, and the limit is
half of ``L - overhead``, as in Nexus (Shen et al., SOSP'19, section 4.1), where a session alone is
given the largest batch whose latency is under half of its SLO. When classes share a device, their
batches shrink together, as in the duty cycles of the same paper (section 6.1). Where variants that
share a device slow one another down, all of this is about the prolonged batches.
"""

from collections.abc import Iterable
from itertools import pairwise

from planner.latency_curve import Curve, SizedBatch
from planner.solver.problem import OVERHEAD_MS

SLACK = 1e-9
"""Relative tolerance of every comparison with a limit: rounding, and nothing else."""


def limit_ms(slo_ms: float, *, overhead_ms: float = OVERHEAD_MS) -> float:
    """The latency that a batch of a class may have that is alone on its device, in milliseconds:
    the longest batch, which it may have to wait for, is its own.

    Args:
        slo_ms: the latency that the class asks for.
        overhead_ms: time of a query outside of its device.

    Returns:
        The limit; negative when no batch is in time.
    """
    return (slo_ms - overhead_ms + SLACK * slo_ms) / 2


def frontier(curve: Curve, within_ms: float, most: int | None = None) -> list[SizedBatch]:
    """The batches worth running within a limit, ascending by size and by latency.

    Each takes less time per row than all smaller ones. Empty when not even one row fits. ``most``
    is the most rows that one may have; None for no limit.
    """
    largest = curve.largest(within_ms)
    if most is not None:
        largest = min(largest, max(1, most))
    made: list[SizedBatch] = []
    for size in _turning(curve, largest):
        ms = curve.latency_ms(size)
        if not made or ms / size < made[-1].unit_ms * (1 - 1e-12):
            made.append(SizedBatch(size, ms, ms / size))
    # Of equal latencies the larger batch costs less: the smaller one is never run.
    shorter = [one for one, larger in pairwise(made) if one.latency_ms < larger.latency_ms]
    return [*shorter, *made[-1:]]


def _turning(curve: Curve, largest: int) -> Iterable[int]:
    """Sizes at which latency per row can reach a new low, ascending.

    Along a linear piece it is monotone: where it falls, every size is a new low; where it rises,
    none is.
    """
    if largest == 0:
        return
    first = min(curve.points[0][0], largest)
    yield first
    for (low, low_ms), (high, high_ms) in pairwise(curve.points):
        if low >= largest:
            return
        if high_ms * low < low_ms * high:
            yield from range(low + 1, min(high, largest) + 1)
