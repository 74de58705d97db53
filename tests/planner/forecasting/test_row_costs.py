"""What rows cost beside each other."""

import pytest

from planner.forecasting.row_costs import RowCosts
from tests.planner.builders import DIGITS, catalog, kind, profile, variant
from variants.types import Stage, TaskName

USD = 0.36 * 10.0 / 3_600_000.0
"""Of 10 ms on the usual kind."""


def cost(costs: RowCosts, floor: float | None = None, task: str = DIGITS) -> float:
    return costs.of(TaskName(task), (50.0, floor))


def test_a_row_costs_what_the_cheapest_variant_takes_that_is_accurate_enough() -> None:
    known = catalog(
        [variant("a", 0.8), variant("b", 0.9), variant("c", 0.95)],
        [profile("a", 10.0), profile("b", 40.0), profile("c", 20.0)],
    )
    found = [cost(RowCosts(known), floor) for floor in (None, 0.8, 0.85, 0.95, 0.99)]
    assert found == pytest.approx([USD, USD, 2 * USD, 2 * USD, 0.0])


def test_it_costs_what_the_cheapest_device_takes() -> None:
    known = catalog(
        [variant("a")],
        [profile("a", 10.0), profile("a", 1.0, kind="gpu")],
        kinds=[kind(), kind("gpu", usd_per_hour=1.8)],
    )
    assert cost(RowCosts(known)) == pytest.approx(USD / 2)


def test_where_a_kind_has_no_price_time_counts_alone() -> None:
    known = catalog(
        [variant("a"), variant("b", task="faces")],
        [profile("a", 10.0), profile("b", 30.0, kind="gpu", task="faces")],
        kinds=[kind(), kind("gpu", usd_per_hour=0.0)],
    )
    costs = RowCosts(known)
    assert cost(costs, task="faces") == pytest.approx(3 * cost(costs))


def test_what_nobody_may_or_can_answer_costs_nothing() -> None:
    known = catalog(
        [variant("a"), variant("b", task="faces")],
        [profile("a", 10.0)],
        stages={"a": Stage.CANARY},
    )
    costs = RowCosts(known)
    assert [cost(costs), cost(costs, task="faces"), cost(costs, task="other")] == [0.0] * 3
