"""For how long what was measured is left alone."""

from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.profiles import Cause, DueProfile
from controlplane.profiling.due.rests import LONGEST_S, Rests
from tests.variants.catalog_builders import kind, task, variant


def order(
    cause: Cause = Cause.REQUESTED, reason: str = "is slow", asked_at: str = ""
) -> MeasuringOrder:
    due = DueProfile(variant=variant(), kind=kind(), cause=cause, reason=reason, asked_at=asked_at)
    return MeasuringOrder(task=task(), due=due)


def test_each_rest_is_twice_as_long_up_to_a_day() -> None:
    rests, now_s = Rests(), 0.0
    for hours in (6, 12, 24, 24):
        rests.measured(order(), now_s, 6 * 3_600.0)
        assert rests.rests(order(reason="is slower"), now_s + hours * 3_600.0 - 1)
        now_s += hours * 3_600.0
        assert not rests.rests(order(), now_s)
    assert LONGEST_S == 24 * 3_600.0


def test_what_kept_true_for_as_long_as_it_rested_begins_anew() -> None:
    rests = Rests()
    for now_s in (0.0, 100.0, 500.0):
        rests.measured(order(), now_s, 100.0)
    assert not rests.rests(order(), 600.0)


def test_another_cause_and_an_operator_do_not_wait() -> None:
    rests = Rests()
    rests.measured(order(), 0.0, 100.0)
    assert not rests.rests(order(Cause.STALE), 1.0)
    assert not rests.rests(order(asked_at="noon"), 1.0)


def test_a_request_that_was_read_before_it_was_met_is_not_met_again() -> None:
    rests = Rests()
    rests.measured(order(asked_at="noon"), 0.0, 100.0)
    assert rests.rests(order(asked_at="noon"), 1.0)
    assert not rests.rests(order(asked_at="one o'clock"), 1.0)


def test_what_was_refused_is_tried_again_for_the_next_operator_who_asks() -> None:
    rests = Rests()
    rests.refused(order(asked_at="noon"), 0.0, 100.0)
    assert rests.rests(order(asked_at="noon"), 99.0)
    assert not rests.rests(order(asked_at="noon"), 100.0)
    assert not rests.rests(order(asked_at="one o'clock"), 1.0)
