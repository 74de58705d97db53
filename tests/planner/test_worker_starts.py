"""When the first worker of a kind may be expected."""

import pytest

from planner.worker_starts import (
    CAUTION,
    MOST_LEAD_S,
    MOST_ORDER_S,
    MOST_START_MS,
    START_MS,
    OrderTimes,
    Start,
    Starts,
    Wanted,
    lead_s,
)
from variants.types import DeviceKindName

CPU, GPU = DeviceKindName("cpu-1"), DeviceKindName("gpu")


@pytest.mark.parametrize(
    ("since_ms", "left_ms"),
    [
        (0.0, 6_000.0),
        (2_000.0, 4_000.0),
        # Nearly there, just overdue, long overdue, and so long that it says nothing any more.
        (5_900.0, 1_000.0),
        (6_500.0, 1_000.0),
        (10_000.0, 4_000.0),
        (3_600_000.0, 60_000.0),
    ],
)
def test_what_is_overdue_is_expected_to_take_as_long_again(since_ms: float, left_ms: float) -> None:
    assert Start(since_ms=-since_ms, usual_ms=6_000.0).remaining_ms(0.0) == left_ms


def test_only_kinds_that_are_wanted_and_absent_are_starting() -> None:
    starting = Starts().see({CPU: 1, GPU: 1, DeviceKindName("cpu-8"): 0}, {CPU}, 500.0)
    assert starting == {GPU: Start(since_ms=500.0, usual_ms=START_MS)}


def test_a_start_that_was_seen_is_what_the_next_is_expected_to_take() -> None:
    starts = Starts()
    starts.see({CPU: 1}, {CPU}, 0.0)
    starts.see({CPU: 1}, (), 10_000.0)
    assert starts.see({CPU: 1}, (), 11_000.0) == {CPU: Start(since_ms=10_000.0)}
    assert starts.see({CPU: 1}, {CPU}, 14_000.0) == {}
    usual_ms = starts.see({CPU: 1}, (), 20_000.0)[CPU].usual_ms
    assert usual_ms == 4_000.0
    starts.see({CPU: 1}, {CPU}, 22_000.0)
    assert starts.see({CPU: 1}, (), 30_000.0)[CPU].usual_ms == 3_000.0


def test_growing_from_none_is_a_start_too() -> None:
    starts = Starts()
    starts.see({CPU: 0}, (), 0.0)
    starts.see({CPU: 1}, (), 5_000.0)
    starts.see({CPU: 1}, {CPU}, 8_000.0)
    assert starts.see({CPU: 1}, (), 9_000.0)[CPU].usual_ms == 3_000.0


@pytest.mark.parametrize("took_ms", [50.0, MOST_START_MS + 1])
def test_what_is_no_start_of_a_process_is_not_learned(took_ms: float) -> None:
    """A connection that broke and came back, or a wait for a machine with room."""
    starts = Starts()
    starts.see({CPU: 1}, {CPU}, 0.0)
    starts.see({CPU: 1}, (), 0.0)
    starts.see({CPU: 1}, {CPU}, took_ms)
    assert starts.see({CPU: 1}, (), took_ms)[CPU].usual_ms == START_MS


def test_an_absence_without_a_seen_beginning_teaches_nothing() -> None:
    starts = Starts()
    starts.see({CPU: 1}, (), 0.0)
    starts.see({CPU: 1}, {CPU}, 2_000.0)
    assert starts.see({CPU: 1}, (), 3_000.0)[CPU].usual_ms == START_MS


def test_a_start_that_is_called_off_teaches_nothing() -> None:
    starts = Starts()
    starts.see({CPU: 0}, (), 0.0)
    starts.see({CPU: 1}, (), 0.0)
    assert starts.see({CPU: 0}, (), 2_000.0) == {}
    starts.see({CPU: 1}, (), 3_000.0)
    starts.see({CPU: 1}, {CPU}, 5_000.0)
    assert starts.see({CPU: 1}, (), 6_000.0) == {CPU: Start(since_ms=6_000.0, usual_ms=2_000.0)}


def test_of_several_kinds_the_first_to_come_counts() -> None:
    wanted = Wanted(
        counts={GPU: 1, CPU: 2},
        starting={CPU: Start(since_ms=0.0), GPU: Start(since_ms=-4_000.0)},
    )
    assert wanted.kinds() == [CPU, GPU]
    assert wanted.first_ms([CPU, GPU], 0.0) == 2_000.0
    assert wanted.first_ms([CPU], 0.0) == START_MS


def test_an_order_is_timed_until_all_that_was_ordered_is_there() -> None:
    times = OrderTimes()
    assert times.longest_s([CPU]) == START_MS / 1_000
    times.see({CPU: 1}, {CPU: 1}, 0.0)
    times.see({CPU: 3}, {CPU: 1}, 10.0)
    times.see({CPU: 3}, {CPU: 2}, 14.0)
    assert times.usual_s == {}
    times.see({CPU: 3}, {CPU: 3}, 18.0)
    assert times.longest_s([CPU, GPU]) == 8.0
    # A slow start counts at once, a quick one by half.
    times.see({CPU: 4}, {CPU: 3}, 20.0)
    times.see({CPU: 4}, {CPU: 4}, 24.0)
    assert times.usual_s == {CPU: 6.0}
    times.see({CPU: 5}, {CPU: 4}, 30.0)
    times.see({CPU: 5}, {CPU: 5}, 60.0)
    assert times.usual_s == {CPU: 30.0}


def test_what_is_no_start_teaches_nothing() -> None:
    times = OrderTimes({CPU: 5.0})
    times.see({CPU: 2}, {CPU: 0}, 0.0)  # when these were ordered is not known
    times.see({CPU: 2}, {CPU: 2}, 3.0)
    times.see({CPU: 3}, {CPU: 2}, 4.0)
    times.see({CPU: 2}, {CPU: 2}, 5.0)  # the order was taken back
    times.see({CPU: 3}, {CPU: 2}, 10.0)
    times.see({CPU: 3}, {CPU: 3}, 11.0 + MOST_ORDER_S)
    assert times.usual_s == {CPU: 5.0}


def test_the_lead_allows_for_a_start_and_the_loads_and_has_a_most() -> None:
    assert lead_s(10.0, 2.0, 1.0) == CAUTION * 12.0 + 3.0
    assert lead_s(0.0, 0.0, 1.0) == 3.0
    assert lead_s(1e6, 0.0, 1.0) == MOST_LEAD_S
