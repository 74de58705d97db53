"""How far away a worker is: what load adds is not believed, a longer way soon is."""

import pytest

from workers.channel.round_trip import REMEMBERED, RoundTrip


def after(*took_ms: float) -> float:
    trip = RoundTrip()
    for each in took_ms:
        trip.saw(each)
    return trip.ms


@pytest.mark.parametrize(
    ("took_ms", "is_ms"),
    [
        ((0.4,), 0.0),
        ((0.4, 0.3, 25.0, 0.5), 0.0),
        ((20.0,), 20.0),
        ((20.0, 21.0, 90.0, 300.0), 20.0),
        ((20.0, 22.0, 19.0, 21.0), 20.0),
        ((90.0, 20.0, 20.5), 20.5),
    ],
)
def test_what_counts_is_nearly_the_least(took_ms: tuple[float, ...], is_ms: float) -> None:
    assert after(*took_ms) == is_ms


def test_a_way_that_becomes_longer_is_believed_when_the_short_ones_are_forgotten() -> None:
    assert after(*[20.0] * 4, *[60.0] * (REMEMBERED - 2)) == 20.0
    assert after(*[20.0] * 4, *[60.0] * (REMEMBERED - 1)) == 60.0


def test_a_way_that_becomes_shorter_is_believed_at_the_second_look() -> None:
    assert after(*[60.0] * REMEMBERED, 5.0) == 60.0
    assert after(*[60.0] * REMEMBERED, 5.0, 5.0) == 5.0
