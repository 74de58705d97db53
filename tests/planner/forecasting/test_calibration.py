"""Calibration: as many forecasts hold as they say, and from the first minutes of a swing on."""

import numpy as np
import pytest

from planner.forecasting.calibration import MOST, Calibration
from planner.forecasting.forecast import HORIZON_S, STEP_S, Forecaster, adaptive

LEVELS = (0.5, 0.9)
ROW = np.array([0])


def one_row(*levels: float) -> Calibration:
    it = Calibration(1)
    it.widen(1)
    it.track(levels)
    return it


def came(it: Calibration, said: float, actual: float, times: int = 1) -> None:
    for _ in range(times):
        it.issued(0, np.full((1, len(it.levels)), said))
        it.came(0, ROW, np.array([actual]), np.array([2.0]))


def test_a_quantile_moves_up_by_misses_and_down_by_what_held() -> None:
    missed, held = one_row(0.9), one_row(0.9)
    came(missed, said=1.0, actual=2.0)
    came(held, said=1.0, actual=1.0)
    # The first step is five mean errors of 2 long, and what is due of it 0.9 up or 0.1 down.
    assert missed.moves().tolist() == [[pytest.approx(2.0 * MOST)]]
    assert held.moves().tolist() == [[pytest.approx(-1.0)]]


def test_what_was_not_said_moves_nothing() -> None:
    it = one_row(0.5)
    it.came(0, ROW, np.array([5.0]), np.array([2.0]))
    assert it.moves().tolist() == [[0.0]]


def test_other_levels_begin_anew() -> None:
    it = one_row(0.9)
    came(it, said=1.0, actual=2.0, times=3)
    it.track((0.5, 0.95))
    assert it.moves().tolist() == [[0.0, 0.0]]


def test_what_was_moved_fades() -> None:
    it = one_row(0.9)
    came(it, said=1.0, actual=2.0)
    began = it.moves()[0, 0]
    for _ in range(500):
        # Nine of ten hold: steps cancel, and only the fading is left.
        came(it, said=1.0, actual=1.0, times=9)
        came(it, said=1.0, actual=2.0)
    assert abs(it.moves()[0, 0]) < began / 20


def covered(qps: float, seconds: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Of each window of a Poisson swing with a period of 100 s: whether each quantile held."""
    step, ahead = int(STEP_S), int(HORIZON_S)
    random = np.random.default_rng(seed)
    times = np.arange(seconds + ahead)
    counts = random.poisson(qps * (7 / 12 - 5 / 12 * np.cos(2 * np.pi * times / 100)))
    it: Forecaster[str] = adaptive()
    found = []
    for now in range(step, seconds + 1, step):
        it.observe(float(now), STEP_S, {"a": float(counts[now - step : now].sum())})
        actual = counts[now : now + ahead].mean()
        found.append([actual <= said for said in it.predict(LEVELS)["a"]])
    return np.array(found)


@pytest.mark.parametrize("qps", [5.0, 50.0, 500.0])
def test_nine_of_ten_windows_hold_under_a_swing(qps: float) -> None:
    """Over an hour; and in its first five minutes, of which a cold start knew nothing."""
    runs = np.array([covered(qps, 3_600, seed) for seed in range(4)])
    assert 0.88 <= runs[:, :, 1].mean() <= 0.92
    assert 0.84 <= runs[:, :30, 1].mean() <= 0.96
