"""What is told of long work: how much of it is done, and how long the rest takes."""

from controlplane.building.meter import Meter
from controlplane.building.types import Progress
from controlplane.profiling.telling import Telling


class Told:
    """What a meter passes on, and a clock."""

    def __init__(self, parts: int) -> None:
        self.now_s = 0.0
        self._heard: list[Progress] = []
        self.telling = Telling(
            Meter(self._heard.append), parts, unit="rows", over="judged",
            clock_s=lambda: self.now_s,
        )  # fmt: skip

    def at(self, second: float, done: int, total: int = 1_000) -> str:
        self.now_s = second
        self.telling.told(done, total)
        return self._heard[-1].message


def test_rows_are_told_of_all_and_the_time_until_all_variants_are_judged() -> None:
    told = Told(parts=3)
    told.telling.begin("judging a")
    assert told.at(0.0, 0) == "judging a: 0 of 1,000 rows"
    assert told.at(10.0, 100) == "judging a: 100 of 1,000 rows, about 5 min until all are judged"
    told.telling.end()
    told.telling.begin("judging b")
    assert told.at(120.0, 500) == "judging b: 500 of 1,000 rows, about 2 min until all are judged"


def test_what_was_done_before_takes_no_time() -> None:
    told = Told(parts=3)
    told.telling.begin("judged before")
    told.telling.end(worked=False)
    told.telling.begin("judging b")
    assert told.at(10.0, 500) == "judging b: 500 of 1,000 rows, about 30 s until all are judged"


def test_of_one_part_alone_the_rest_is_told() -> None:
    told = Told(parts=1)
    told.telling.begin("judging a")
    assert told.at(40.0, 800) == "judging a: 800 of 1,000 rows, about 10 s left"


def test_what_goes_in_rounds_is_foreseen_by_its_share() -> None:
    told = Told(parts=1)
    told.telling.begin("measuring a")
    told.now_s = 30.0
    assert told.telling.words(0, 7, 0.75) == "measuring a: 0 of 7 rows, about 10 s left"
