"""What a forecast remembers: a successor says the same, and goes on from there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.forecasting.demand import SloClass
from planner.forecasting.demand_estimator import DemandEstimator
from planner.forecasting.forecast import Forecaster, adaptive
from planner.forecasting.point_forecasts import FULL
from planner.types import Objective
from tests.planner.builders import DIGITS
from variants.types import TaskName

LEVELS = (0.5, 0.95)
CLASS: tuple[TaskName, SloClass] = (DIGITS, (50.0, None))
FLOORED: tuple[TaskName, SloClass] = (DIGITS, (50.0, 0.9))

histories = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.floats(0.0, 1e4)), min_size=1, max_size=40
)


def fed(it: Forecaster[str], history: Sequence[Mapping[str, float]], from_s: float = 0.0) -> None:
    for index, counted in enumerate(history, start=1):
        it.observe(from_s + index * 10.0, 10.0, counted)


@settings(max_examples=40, deadline=None)
@given(histories, histories, st.integers(-1_000, 1_000).map(float))
@example([{"a": 5.0}], [*[{}] * 6, {"a": 1.5e-241}], 0.0)
def test_a_successor_forecasts_the_same_on_its_own_clock(
    before: list[dict[str, float]], after: list[dict[str, float]], shift_s: float
) -> None:
    first: Forecaster[str] = adaptive()
    fed(first, before)
    first.predict(LEVELS)
    second: Forecaster[str] = adaptive()
    second.recall(first.memory(), shift_s)
    ended_s = 10.0 * len(before)
    fed(first, after, ended_s)
    fed(second, after, ended_s + shift_s)
    expected, found = first.predict(LEVELS), second.predict(LEVELS)
    assert found.keys() == expected.keys()
    for key, rates in expected.items():
        assert found[key] == pytest.approx(rates, rel=1e-4, abs=1e-6)


def estimator(**changes: Any) -> DemandEstimator:
    return DemandEstimator(
        Objective.COST,
        **{"step_s": 1.0, "horizon_s": 5.0, "envelope_s": 60.0, "settled_s": 30.0, **changes},
    )


def watched(seconds: int = 100) -> DemandEstimator:
    it = estimator()
    random = np.random.default_rng(0)
    for second in range(seconds):
        counts = {CLASS: float(random.poisson(100.0)), FLOORED: float(random.poisson(10.0))}
        it.observe(second + 1.0, counts, {CLASS: 60.0}, 1.0)
    return it


def test_an_estimator_goes_on_where_another_ended() -> None:
    first, second = watched(), estimator()
    second.recall(first.memory(), 1_000.0, 1_090.0)
    assert second.watched == 1.0
    assert [d.qps for d in second.expected] == pytest.approx(
        [d.qps for d in first.expected], rel=1e-4
    )
    assert [d.qps for d in second.envelope] == [d.qps for d in first.envelope]
    for it, now_s in ((first, 106.0), (second, 1_106.0)):
        it.observe(now_s, {CLASS: 100.0, FLOORED: 10.0}, {}, 1.0)
    for ours, theirs in zip(second.expected, first.expected, strict=True):
        assert (ours.accuracy, ours.slo_ms) == (theirs.accuracy, theirs.slo_ms)
        assert ours.qps == pytest.approx(theirs.qps, rel=1e-4)


def test_after_long_the_demand_has_to_be_watched_anew() -> None:
    it = estimator()
    it.recall(watched().memory(), 1_000.0, 1_000.0 + 100.0 + 61.0 + 1.0)
    assert (it.watched, it.expected, it.envelope) == (0.0, (), ())


@pytest.mark.parametrize("changes", [{"step_s": 2.0}, {"horizon_s": 60.0}])
def test_a_memory_of_another_kind_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"another length|shape"):
        estimator(**changes).recall(watched().memory(), 0.0, 100.0)


def without(memory: Any, path: Sequence[str]) -> Any:
    """A copy of a memory that lacks what stands at a path."""
    copy = dict(memory)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(copy[path[0]], path[1:])
    return copy


def paths(memory: Any, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in memory.items():
        found.append((*before, name))
        if isinstance(value, Mapping):
            found += paths(value, (*before, name))
    return found


LATER = ("begun", "rough", "room", "stays", "stride")

NEEDED = [path for path in paths(watched(20).memory()) if path[-1] not in ("first_s", *LATER)]
"""``first_s`` may be missing: it is None where nothing was counted; what came later as well:
releases before it did not write it."""


@pytest.mark.parametrize("path", NEEDED, ids=".".join)
def test_a_memory_that_lacks_something_is_refused(path: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"no (array|number|list|memory)"):
        estimator().recall(without(watched(20).memory(), path), 0.0, 20.0)


def test_averages_of_a_memory_without_their_age_count_as_full() -> None:
    memory = watched(20).memory()
    for part in ("totals", "parts"):
        memory = without(memory, ("forecast", part, "point", "begun"))
    old, new = estimator(), estimator()
    old.recall(memory, 0.0, 20.0)
    new.recall(watched(20).memory(), 0.0, 20.0)
    assert old.expected == new.expected
    kept = old.memory()["forecast"]["totals"]["point"]["begun"]
    assert (kept >= FULL).all()
