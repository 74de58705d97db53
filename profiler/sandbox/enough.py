"""When sampling is enough: a batch size is known, too slow, or larger than is of use."""

from collections.abc import Sequence

from profiler.sandbox.limits import PATIENCE, MeasureLimits
from profiler.timing.contention import Contention
from profiler.timing.statistics import Sample
from variants.types import LatencyPoint

CALM = 2
"""How many times the usual number of rounds is made, until some had no contention."""


def is_settled(sample: Sample, limits: MeasureLimits) -> bool:
    """Whether the median is known well enough, or it is time to stop; a batch too slow is."""
    if is_too_slow(sample, limits):
        return True
    if len(sample.rounds) < limits.rounds:
        return False
    if sample.contention is not Contention.NONE and len(sample.rounds) < CALM * limits.rounds:
        return False
    if sample.half_width <= limits.precision or sample.seconds >= PATIENCE * limits.point_s:
        return True
    return len(sample.rounds) >= PATIENCE * limits.rounds


def is_too_slow(sample: Sample, limits: MeasureLimits) -> bool:
    """Whether one batch takes longer than the limits want."""
    return sample.point.p50_ms / 1000 > limits.slowest_batch_s


def is_useful(points: Sequence[LatencyPoint], gain: float) -> bool:
    """Whether batches larger than the last of these can be expected to raise the throughput.

    They can if it grew by more than ``gain`` over the last two doublings; one alone says little,
    for kernels change with the shape.
    """
    if not points:
        return True
    last = points[-1]
    before = [point for point in points if point.batch_size * 4 <= last.batch_size]
    if not before:
        return True
    quarter = before[-1]
    grown = last.batch_size * quarter.p50_ms / (quarter.batch_size * max(last.p50_ms, 1e-9))
    return grown > 1 + gain
