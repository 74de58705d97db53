"""How much more than the forecast is provided, and for how long."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.forecasting.provisioning import MARGINS, STAYS, TOLERATED, Provisioning

STEP_S, AHEAD = 10.0, 4


def beginning(linger_s: float = 1_200.0) -> Provisioning:
    return Provisioning(step_s=STEP_S, horizon_s=AHEAD * STEP_S, linger_s=linger_s)


def replayed(rates: list[float], it: Provisioning | None = None) -> list[float]:
    """What is provided after each step, where each rate is forecast to stay."""
    it = it or beginning()
    found = []
    for rate in rates:
        it.observe(rate, rate)
        found.append(it.target(rate))
    return found


def missing(rates: list[float], provided: list[float], begin: int) -> float:
    """The part of what comes from a step on that finds no room, with orders that take a horizon."""
    lost = sum(
        max(0.0, rates[k] - min(provided[k - AHEAD - 1 : k])) for k in range(begin, len(rates))
    )
    return lost / sum(rates[begin:])


def test_a_steady_rate_gets_hardly_more_than_comes() -> None:
    random = np.random.default_rng(0)
    rates = [float(rate) for rate in random.poisson(4_630, 120) / 10]
    provided = replayed(rates)
    assert max(provided[20:]) < 1.06 * 463
    assert missing(rates, provided, 20) <= TOLERATED


def test_of_a_steady_rate_chance_asks_for_no_room() -> None:
    """Its mean is followed, not the highest of the last steps."""
    random = np.random.default_rng(0)
    it = beginning()
    provided = []
    for rows in random.poisson(4_630, 120):
        it.observe(rows / STEP_S, 463.0, float(np.sqrt(rows)) / STEP_S)
        provided.append(it.target(463.0))
    assert np.mean(provided[20:]) < 1.01 * 463
    assert max(provided[20:]) < 1.02 * 463


def test_one_count_that_chance_made_large_is_no_reason_for_a_margin() -> None:
    """In the first minutes it is more than ``TOLERATED`` of all that came."""
    it = beginning()
    for seen in (*[100.0] * 8, 107.0, *[100.0] * 8):
        it.observe(seen, 100.0, float(np.sqrt(100.0 / STEP_S)))
    assert it.target(100.0) < 1.02 * 100.0


def test_a_change_is_followed_in_the_step_that_shows_it() -> None:
    """Not by and by, as a mean over a minute would."""
    it = beginning()
    for rate in (*[100.0] * 60, 200.0):
        before = it.target(100.0)
        it.observe(rate, 100.0, float(np.sqrt(rate / STEP_S)))
    assert (before, it.target(100.0)) == (100.0, 200.0)


def looked_at(rates: list[float], it: Provisioning | None = None) -> Provisioning:
    """With what Poisson arrivals of such rates are off by chance."""
    it = it or beginning()
    for rate in rates:
        it.observe(rate, rate, float(np.sqrt(rate / STEP_S)))
    return it


def test_a_rate_that_rises_within_a_step_is_provided_for_at_once_and_until_a_step_shows_it() -> (
    None
):
    it = beginning()
    replayed([0.0] * 12, it)
    it.begun(rate=20.0, forecast=100.0, chance=2.0)
    assert it.target(100.0) == 100.0
    it.observe(rate=60.0, forecast=100.0, chance=2.0)  # half of the step
    assert it.target(100.0) == 100.0
    it.observe(rate=98.0, forecast=100.0, chance=2.0)
    assert it.target(100.0) == pytest.approx(98.0)


@pytest.mark.parametrize("rate", [106.0, 94.0, 20.0])
def test_what_chance_makes_of_a_part_of_a_step_or_a_lower_rate_is_not_provided_for(
    rate: float,
) -> None:
    it = beginning()
    before = replayed([100.0] * 12, it)[-1]
    it.begun(rate=rate, forecast=130.0, chance=2.5)
    assert it.target(130.0) == before


def test_what_rose_within_a_step_and_fell_again_is_not_provided_for() -> None:
    it = beginning()
    replayed([0.0] * 12, it)
    it.begun(rate=20.0, forecast=100.0, chance=2.0)
    it.begun(rate=10.0, forecast=1.0, chance=1.0)
    assert it.target(1.0) == 1.0


def test_a_steady_rate_stays_and_one_that_moves_by_more_than_chance_does_not() -> None:
    assert not beginning().stays, "nothing was seen"
    random = np.random.default_rng(0)
    steady = [float(rate) for rate in random.poisson(4_630, 360) / 10]
    assert all(looked_at(steady[:steps]).stays for steps in range(1, len(steady), 7))
    swing = [463.0 + 100.0 * float(np.cos(k)) for k in range(60)]
    assert not looked_at(swing).stays


def test_a_rate_stays_that_moved_once_and_one_that_did_often_when_that_is_long_ago() -> None:
    assert looked_at([100.0] * 5 + [200.0] * 5).stays
    often = looked_at([100.0, 200.0] * 10)
    later = [looked_at([200.0], often).stays for _ in range(int(20 / STAYS))]
    assert not any(later[: len(later) // 2])
    assert later[-1]


@given(
    st.lists(st.floats(0, 1e4), min_size=1, max_size=60),
    st.lists(st.floats(0, 1e4), min_size=1, max_size=20),
    st.sampled_from([0.25, 2.0, 1_024.0]),
)
def test_the_unit_of_work_does_not_matter(
    before: list[float], after: list[float], factor: float
) -> None:
    one, other = beginning(), beginning()
    replayed(before, one)
    replayed(before, other)
    other.rescale(factor)
    found = replayed([factor * rate for rate in after], other)
    assert found == [factor * rate for rate in replayed(after, one)]


def test_jumps_that_come_again_and_again_find_room() -> None:
    rates = ([100.0] * 20 + [300.0] * 2) * 20
    provided = replayed(rates)
    assert missing(rates, provided, 100) == 0.0
    assert min(provided[100:]) >= 300.0


def test_a_burst_that_nothing_announced_keeps_no_fleet_afterwards() -> None:
    provided = replayed([100.0] * 80 + [500.0] * 2 + [110.0] * 40)
    assert provided[80] >= 500.0
    assert max(provided[95:]) < 1.3 * 110.0


def test_a_slow_change_is_followed_downwards() -> None:
    rates = [200.0 + 100.0 * float(np.cos(k / 200)) for k in range(1_200)]
    provided = replayed(rates)
    lowest = int(np.argmin(rates[:1_000]))
    assert provided[lowest] < 1.2 * rates[lowest]
    assert missing(rates, provided, 100) <= 2 * TOLERATED


def test_what_a_forecast_overstates_is_not_provided_for() -> None:
    it = beginning()
    for _ in range(30):
        it.observe(100.0, 200.0)
    assert it.target(200.0) == 100.0


def test_a_forecast_that_knows_better_is_believed() -> None:
    it = beginning(linger_s=160.0)
    rates = ([100.0] * 30 + [300.0] * 30) * 8
    for now, later in zip(rates, rates[AHEAD + 1 :], strict=False):
        it.observe(now, max(now, later))
    assert it.target(300.0) >= 300.0


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=60), st.floats(0, 1e4))
def test_at_least_what_the_rule_asks_for_now_and_at_most_the_largest_margin(
    rates: list[float], forecast: float
) -> None:
    it = beginning()
    replayed(rates, it)
    found = it.target(forecast)
    assert min(rates[-1], forecast) <= found <= max(MARGINS) * max(*rates, forecast) * (1 + 1e-9)


def test_another_one_goes_on_from_a_memory() -> None:
    first, second = beginning(), beginning()
    replayed([100.0] * 20 + [300.0] * 5 + [100.0] * 30, first)
    second.recall(first.memory())
    rates = [100.0] * 10 + [300.0] * 5
    assert replayed(rates, first) == replayed(rates, second)
    assert (first._looked, first._changes) == (second._looked, second._changes)
    with pytest.raises(ValueError, match="shape"):
        beginning(linger_s=2_400.0).recall(first.memory())


def test_a_memory_from_before_changes_were_counted_says_nothing_of_them() -> None:
    one, other = looked_at([100.0, 200.0] * 10), beginning()
    memory = one.memory()
    other.recall({name: part for name, part in memory.items() if name != "stays"})
    assert not other.stays
    assert looked_at([200.0], other).stays
