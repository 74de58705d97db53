"""The adaptive point forecast: how far it looks back while it has seen little."""

import numpy as np
import pytest

from planner.forecasting.point_forecasts import Adaptive

STEP_S = 10.0


def fed(buckets: np.ndarray) -> np.ndarray:
    """The forecast after buckets of rates, shape ``(buckets, rows)``."""
    it = Adaptive(STEP_S)
    it.widen(buckets.shape[1])
    answer = np.zeros(0)
    for slot, rates in enumerate(buckets):
        answer = it.advance(slot, rates)
    return answer


def test_a_steady_rate_is_known_better_with_each_bucket() -> None:
    """46 queries per second, of 300 tasks: their first bucket is 2.1 off, the mean of twelve 0.6.
    Averages that began at their first bucket would still be 1.4 off."""
    buckets = np.random.default_rng(0).poisson(460.0, (12, 300)) / STEP_S
    off = np.sqrt(np.mean((fed(buckets) - 46.0) ** 2))
    assert off < 1.1


def test_a_jump_begins_all_averages_anew() -> None:
    """What was before the jump has no part in the mean after it."""
    rates = [46.0] * 20 + [92.0, 93.0, 94.0]
    [found] = fed(np.array(rates)[:, None])
    assert found == pytest.approx(93.0, abs=1.01)


def test_a_task_that_was_silent_for_a_bucket_nobody_saw_goes_on() -> None:
    rates = np.array([10.0, 12.0, np.nan, 14.0])[:, None]
    [found] = fed(rates)
    assert 10.0 <= found <= 14.0
