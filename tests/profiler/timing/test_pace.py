"""The rest of some work takes as long as what is done of it took, share for share."""

from profiler.timing.pace import SOON_S, Pace


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_left_takes_as_long_as_what_is_done() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now_s += 30.0
    assert pace.left_s(10, 40) == 90.0
    clock.now_s += 30.0  # it has become slower
    assert pace.left_s(15, 40) == 100.0
    assert pace.left_s(40, 40) == 0.0


def test_at_first_nothing_is_foreseen() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now_s += SOON_S / 2
    assert pace.left_s(10, 40) is None
    clock.now_s += 60.0
    assert pace.left_s(0, 40) is None
