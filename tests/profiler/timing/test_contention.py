"""How much of a run's time was stolen, by what the kernel counts."""

import pytest

from profiler.timing.contention import Contention, Mark, contention_between, lost_s


def mark(wall_s: float, processor_s: float, waited_s: float = 0.0, sleeps: int = 0) -> Mark:
    return Mark(wall_s, processor_s, waited_s, helpers_waited_s=0.0, sleeps=sleeps)


def test_a_thread_that_neither_slept_nor_computed_has_lost_that_time() -> None:
    """A hypervisor's theft is in no count of waiting."""
    begin, end = mark(1.0, 5.0), mark(1.010, 5.004, waited_s=0.001)
    assert lost_s(begin, end) == pytest.approx(0.006)
    assert contention_between(begin, end, 1) is Contention.INSTEAD


def test_of_a_thread_that_slept_only_its_waiting_counts() -> None:
    assert lost_s(mark(1.0, 5.0), mark(1.010, 5.004, 0.001, sleeps=1)) == pytest.approx(0.001)


@pytest.mark.parametrize("sleeps", [0, 1])
def test_no_more_is_lost_than_was_not_computed(sleeps: int) -> None:
    """Else runs would have taken no time at all, or less: a thread had to wait while it marked the
    end, after it had read the time and before it read for how long it had waited."""
    assert lost_s(mark(1.0, 5.0), mark(1.010, 5.004, 0.150, sleeps)) == pytest.approx(0.006)


def test_what_is_read_a_moment_later_is_no_time_that_was_won() -> None:
    assert lost_s(mark(1.0, 5.0), mark(1.010, 5.0101)) == 0.0
