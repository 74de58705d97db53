"""A change of layouts that takes too long is given up, for longer each time."""

from planner.reconcile.by_layout.change_limits import AGAIN_S, LIMIT_S, ChangeLimits
from variants.types import DeviceKindName

ONE, TWO = DeviceKindName("cpu-1"), DeviceKindName("cpu-2")
WIDE, NARROW, BOTH = {TWO: 1}, {ONE: 2}, {TWO: 1, ONE: 2}


def stuck(limits: ChangeLimits, now_s: float) -> str:
    """Workers of both run from now on, and nothing comes of it."""
    assert limits.look(now_s, WIDE, WIDE) == ""
    assert limits.look(now_s, NARROW, BOTH) == ""
    assert limits.look(now_s + LIMIT_S - 1, NARROW, BOTH) == ""
    return limits.look(now_s + LIMIT_S, NARROW, BOTH)


def test_it_is_given_up_after_a_while_and_tried_again_later() -> None:
    limits = ChangeLimits()
    assert stuck(limits, 0.0).startswith("2xcpu-1 could not take over within 180 s")
    assert limits.refused(LIMIT_S) == (NARROW,)
    assert limits.refused(LIMIT_S + AGAIN_S) == ()
    later_s = LIMIT_S + AGAIN_S
    assert "after 1,800 s" in stuck(limits, later_s)
    assert limits.refused(later_s + LIMIT_S + AGAIN_S) == (NARROW,)


def test_a_change_that_comes_to_its_end_is_not_given_up() -> None:
    limits = ChangeLimits()
    limits.look(0.0, WIDE, WIDE)
    limits.look(1.0, NARROW, BOTH)
    assert limits.look(LIMIT_S, NARROW, NARROW) == ""
    assert limits.look(3 * LIMIT_S, NARROW, NARROW) == ""
    assert limits.refused(3 * LIMIT_S) == ()


def test_it_rests_after_a_change_and_not_at_a_start() -> None:
    limits = ChangeLimits()
    limits.look(0.0, WIDE, WIDE)
    assert not limits.rests(0.0, 60.0)
    limits.look(10.0, NARROW, BOTH)
    assert limits.rests(69.0, 60.0)
    assert not limits.rests(70.0, 60.0)
