"""The relaxation's answer for plans that are packed: what may be too much is found out quickly."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.solver.options import Options
from planner.solver.relaxation.aggregate import _answer
from planner.solver.relaxation.bound import Relaxation
from planner.types import Objective
from tests.planner.solver.instances import small


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from((1.0, 0.9, 0.5, 0.1)))
def test_what_may_be_too_much_gets_the_same_answer(seed: int, factor: float) -> None:
    options = Options(small(seed))
    served = options.reachable_qps * Random(seed).choice((0.5, 1.0))
    found = []
    for doubtful in (False, True):
        relaxation = Relaxation(options, Objective.COST)
        relaxation.narrow([factor] * len(options.counts))
        answer, reached = _answer(
            relaxation, Objective.COST, served, lambda: 60.0, hopeful=True, doubtful=doubtful
        )
        found.append((answer.values is None, answer.objective, answer.bound, reached))
    one, other = found
    assert one[0] == other[0]
    assert other[1:] == pytest.approx(one[1:], rel=1e-6, abs=1e-9)
