"""What timed runs say, and what one process measures on a runtime whose cost is known."""

from profiler.timing import percentile_point
from variants.types import LatencyPoint


def test_percentiles_are_times_that_were_seen() -> None:
    times = [index / 1000 for index in range(1, 101)]
    assert percentile_point(8, times) == LatencyPoint(
        batch_size=8, p50_ms=51.0, p95_ms=96.0, p99_ms=100.0
    )
