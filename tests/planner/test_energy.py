"""Energy curves, and what their energy emits by the hour."""

from math import inf

import pytest

from planner.energy import HourlyCarbon, carbon_at, carbon_at_hour, energy_curve, hour_of
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import LatencyPoint


def points(*joules: float | None) -> tuple[LatencyPoint, ...]:
    """Of batches of 1, 4, 8, ... rows."""
    sizes = (1, *range(4, 100, 4))
    return tuple(
        LatencyPoint(batch_size=size, p50_ms=1, p95_ms=1, p99_ms=1, energy_j=j)
        for size, j in zip(sizes, joules, strict=False)
    )


def test_joules_are_linear_between_measured_sizes() -> None:
    curve = energy_curve(points(1.0, None, 8.0))
    assert curve is not None
    assert [curve.joules(rows) for rows in (1, 4, 8, 9)] == [1.0, 4.0, 8.0, inf]


@pytest.mark.parametrize("joules", [(), (None, 2.0), (1.0, None), (None, None)])
def test_nothing_is_said_beyond_what_was_measured(joules: tuple[float | None, ...]) -> None:
    assert energy_curve(points(*joules)) is None


DAY = tuple(float(hour) for hour in range(24))


def test_carbon_is_of_the_hour_in_utc() -> None:
    assert hour_of(3_600 * 24 * 19_000 + 3_600 * 5.5) == 5
    assert [carbon_at(curve, 5) for curve in ((), (300.0,), DAY)] == [None, 300.0, 5.0]


def test_the_catalog_of_an_hour_is_made_once_an_hour() -> None:
    known = catalog([variant("a")], [profile("a")], kinds=[kind(carbon=DAY)])
    hourly = HourlyCarbon()
    made = hourly.at(known, 7_200.0)
    assert made == carbon_at_hour(known, 2) != known
    assert made.device_kinds[0].carbon_g_per_kwh == (2.0,)
    assert hourly.at(known, 7_201.0) is made
    assert not hourly.moved(10_799.0)
    assert hourly.moved(10_800.0)
    assert hourly.at(known, 10_800.0).device_kinds[0].carbon_g_per_kwh == (3.0,)


def test_a_catalog_that_never_changes_stays_the_same_object() -> None:
    known = catalog([variant("a")], [profile("a")], kinds=[kind(carbon=(300.0,))])
    hourly = HourlyCarbon()
    assert hourly.at(known, 0.0) is known
    assert not hourly.moved(3_600.0)
