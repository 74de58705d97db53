"""Which workers that are found to be slow are worth a warning."""

import pytest

from controlplane.gateway.reports.slow_warnings import SlowWarnings
from planner.slow_workers import Episode
from variants.types import WorkerId

W1, W2 = WorkerId("w1"), WorkerId("w2")
BOTH = (W1, W2)


def slow(times: float) -> Episode:
    return Episode(times, 0.0, 0, 0.0)


@pytest.fixture
def warnings() -> SlowWarnings:
    return SlowWarnings()


def test_each_worker_is_warned_of_once(warnings: SlowWarnings) -> None:
    said = [warnings.news(120.0 * at, {W1: slow(2.5)}, BOTH) for at in range(20)]
    assert said == [{W1}, *[frozenset()] * 19]
    assert warnings.news(2_400.0, {W1: slow(2.5), W2: slow(2.5)}, BOTH) == {W2}


def test_it_is_warned_of_again_where_it_has_become_much_slower(warnings: SlowWarnings) -> None:
    said = [bool(warnings.news(0.0, {W1: slow(times)}, BOTH)) for times in (2.0, 3.9, 4.0, 7.9, 8)]
    assert said == [True, False, True, False, True]


def test_it_is_warned_of_again_after_an_hour(warnings: SlowWarnings) -> None:
    said = [bool(warnings.news(at, {W1: slow(2.5)}, BOTH)) for at in (0.0, 3_599.0, 3_600.0)]
    assert said == [True, False, True]


def test_of_one_that_has_left_nothing_is_remembered(warnings: SlowWarnings) -> None:
    assert warnings.news(0.0, {W1: slow(2.5)}, BOTH)
    assert not warnings.news(1.0, {}, (W2,))
    assert warnings.news(2.0, {W1: slow(2.5)}, BOTH) == {W1}
