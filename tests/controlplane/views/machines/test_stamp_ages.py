"""Ages of stamps, while clocks are set."""

from controlplane.timestamps import MOST_KNOWN, StampAges

HOUR_S = 3_600.0


class Clocks:
    """One that nobody sets, and Unix time."""

    def __init__(self) -> None:
        self.now_s, self.wall_s = 50.0, 1_000_000.0
        self.ages = StampAges(lambda: self.now_s, lambda: self.wall_s)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds

    def age_s(self, at_s: float, of: str = "loop") -> float:
        return self.ages.age_s(of, at_s)


def test_what_is_seen_for_the_first_time_is_as_old_as_its_stamp_says() -> None:
    clocks = Clocks()
    assert clocks.age_s(clocks.wall_s - 300.0) == 300.0
    clocks.passes(5.0)
    assert clocks.age_s(clocks.wall_s - 305.0) == 305.0
    assert clocks.age_s(clocks.wall_s - 7.0, "other") == 7.0


def test_one_of_a_clock_that_is_ahead_grows_old_too() -> None:
    clocks = Clocks()
    stamp = clocks.wall_s + HOUR_S
    assert clocks.age_s(stamp) == 0.0
    clocks.passes(30.0)
    assert clocks.age_s(stamp) == 30.0


def test_one_of_a_clock_that_is_behind_is_new_where_it_is_another() -> None:
    clocks = Clocks()
    assert clocks.age_s(clocks.wall_s - HOUR_S) == HOUR_S
    for _ in range(3):
        clocks.passes(1.0)
        assert clocks.age_s(clocks.wall_s - HOUR_S) == 1.0


def test_a_clock_that_is_set_ahead_makes_nobody_gone() -> None:
    clocks = Clocks()
    stamp = clocks.wall_s
    assert clocks.age_s(stamp) == 0.0
    clocks.wall_s += HOUR_S
    clocks.passes(1.0)
    assert clocks.age_s(stamp) == 1.0
    assert clocks.age_s(stamp, "never seen before") == 0.0  # it may be of just now
    clocks.passes(30.0)
    assert clocks.age_s(stamp) == 31.0  # nobody is there
    assert clocks.age_s(stamp, "never seen before") == 30.0
    assert clocks.age_s(clocks.wall_s) == 0.0


def test_a_clock_that_is_set_back_hides_nobody_who_is_gone() -> None:
    clocks = Clocks()
    stamp = clocks.wall_s
    clocks.age_s(stamp)
    clocks.wall_s -= HOUR_S
    clocks.passes(25.0)
    assert clocks.age_s(stamp) == 25.0
    assert clocks.age_s(clocks.wall_s) == 0.0


def test_not_more_is_remembered_than_there_are_at_once() -> None:
    clocks = Clocks()
    for number in range(3 * MOST_KNOWN):
        clocks.age_s(clocks.wall_s, str(number))
    assert len(clocks.ages._known) <= MOST_KNOWN
