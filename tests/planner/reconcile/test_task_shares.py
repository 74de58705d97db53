"""Shares of a worker's time that a plan gives."""

from hypothesis import given
from hypothesis import strategies as st

from planner.reconcile.task_shares import planned_shares
from tests.planner.builders import DIGITS
from variants.types import VariantName

KEY = (DIGITS, VariantName("a"))


@given(st.floats(1e-6, 1.0))
def test_a_variant_that_has_all_of_a_worker_has_no_more_than_that(part: float) -> None:
    [(_, share)] = planned_shares({KEY: None}, {KEY: part})  # type: ignore[dict-item]

    assert 1.0 - 1e-9 < share <= 1.0
