"""A clock that is set back is told, because Ray Serve does not see lost workers until then."""

from datetime import UTC, datetime
from socket import gethostname

from controlplane.controller.events.clock_watch import SET_BACK_S, ClockWatch

AT_S = datetime(2026, 11, 29, 22, 9, 23, tzinfo=UTC).timestamp()


def test_a_clock_that_is_set_back_is_told_once_with_until_when_it_matters() -> None:
    watch = ClockWatch()
    assert list(watch.look(AT_S)) == []
    assert list(watch.look(AT_S - 3_600.0)) == [
        (
            "clock_set_back",
            gethostname(),
            "the clock was set back by 60 min, to 2026-11-29 21:09:23 UTC: until it says 22:09:23"
            " again, Ray Serve starts no other worker in the place of one that ends; `modelless"
            " down` and `modelless up` end that at once",
        )
    ]
    assert list(watch.look(AT_S - 3_599.0)) == []


def test_one_that_is_set_ahead_or_corrected_a_little_is_not() -> None:
    watch = ClockWatch()
    for at_s in (AT_S, AT_S + 3_600.0, AT_S + 3_600.0 - SET_BACK_S, AT_S + 3_601.0 - SET_BACK_S):
        assert list(watch.look(at_s)) == []
