"""How time is cut, and what the pieces say."""

import numpy as np
import pytest

from planner.bounds.row_times import batch_sizes, least_row_ms
from planner.bounds.windows import AFTER_MS, MOST_CELLS, Windows, range_least, windows_of
from planner.latency_table import LatencyTable


def times(*each: float) -> np.ndarray:
    return np.array(each, dtype=float)


def test_every_event_of_a_few_is_an_edge() -> None:
    found = windows_of(times(10, 30), times(60, 80), [20.0])

    assert list(found.edges_ms[:6]) == [0, 10, 20, 30, 60, 80]


def test_windows_of_a_long_trace_are_longer_not_more() -> None:
    arrivals = np.arange(0, 10_000_000, 1_000.0)

    one = windows_of(arrivals, arrivals + 300, tasks=1)
    ten = windows_of(arrivals, arrivals + 300, tasks=10)

    assert one.count - len(AFTER_MS) == pytest.approx(MOST_CELLS, rel=0.01)
    assert ten.count - len(AFTER_MS) == pytest.approx(MOST_CELLS / 10, rel=0.01)


def test_an_interval_touches_the_windows_it_has_time_in() -> None:
    windows = Windows(times(0, 10, 20, 30))

    assert list(windows.first(times(0, 10, 15))) == [0, 1, 1]
    assert list(windows.last(times(10, 15, 30))) == [0, 1, 2]


def test_the_least_of_a_range() -> None:
    values = times(5, 3, 4, 1, 2, 6)
    first, last = np.array([0, 0, 1, 4, 5]), np.array([0, 2, 5, 5, 5])

    assert list(range_least(values, first, last)) == [5, 3, 1, 2, 6]


def test_a_share_is_that_of_the_largest_batch_that_can_come_together() -> None:
    """A batch takes 20 ms and 10 for each row, up to four: 30, 20, 16.7, 15 ms a row. With 60 ms
    four rows have to come at once, three within 10 ms and two within 20 ms."""
    table = LatencyTable([(1, 30.0), (4, 60.0)])

    def shares(*arrivals: float) -> list[float]:
        return [
            round(float(ms), 1)
            for ms in least_row_ms(times(*arrivals), times(*arrivals) + 60, table)
        ]

    assert shares(0, 0, 0, 0) == [15.0] * 4
    assert shares(0, 5, 10) == [16.7] * 3
    assert shares(0, 5, 15) == [20.0] * 3
    assert shares(0, 21, 42) == [30.0] * 3


def test_no_batch_is_in_time_where_one_row_is_not() -> None:
    table = LatencyTable([(1, 30.0)])

    assert list(least_row_ms(times(0, 100), times(29, 130), table)) == [np.inf, 30.0]


def test_all_small_batches_are_looked_at_and_four_in_each_doubling() -> None:
    assert batch_sizes(3) == [1, 2, 3]
    assert batch_sizes(32) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]
