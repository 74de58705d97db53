"""No schedule beats the bound in which batches are not interrupted, whatever its prices."""

from math import inf

import numpy as np
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from tests.bench.simulation.regret.uninterrupted import Uninterrupted
from tests.planner.bounds.brute_force import best_accuracies
from tests.planner.bounds.instances import settings, traces
from tests.planner.simulation.builders import Asked, Model, setting, trace

CLOSE = 1e-9


@given(
    settings(),
    traces(),
    st.sampled_from((7.0, 20.0)),
    st.integers(0, 1_000),
)
@effort(max_examples=25, deadline=None)
def test_no_schedule_beats_it(small: Setting, few: Trace, cell_ms: float, seed: int) -> None:
    best = best_accuracies(small, few)
    most = max(n for n, accuracy in enumerate(best) if accuracy > -inf)
    for count in range(1, most + 1):
        found = Uninterrupted(small, few, count, cell_ms)
        assert found.least_accuracy(5) >= best[count] / count - CLOSE
        other = np.random.default_rng(seed).exponential(0.02, found.prices.shape)
        assert found.accuracy(other, found.beta)[0] >= best[count] / count - CLOSE


def test_a_run_pays_for_dear_moments_that_it_cannot_avoid() -> None:
    """One query has 29 ms for a run of 20 ms: from 2,010 to 2,020 ms it runs in any case."""
    known = setting(Model(accuracy=0.9, latency_ms=20.0, max_batch=1))
    found = Uninterrupted(known, trace(Asked(2.0, 29.0)), 1, 10.0)
    prices = np.zeros_like(found.prices)
    prices[0, 201] = 0.01
    accuracy, _ = found.accuracy(prices, 0.0)
    # 0.1 is paid for these ten ms, and as much is what the device's time is worth.
    assert abs(accuracy - (0.9 - 0.1 + 0.1)) < CLOSE
    prices[0, 201], prices[0, 203] = 0.0, 0.01
    assert abs(found.accuracy(prices, 0.0)[0] - (0.9 + 0.1)) < CLOSE
