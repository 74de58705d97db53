"""Shares of a worker's time that a plan gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reconcile.task_shares import planned_shares, shares
from planner.types import Demand
from tests.planner.builders import DIGITS, catalog, profile, snapshot, variant
from variants.types import VariantKey, VariantName, WorkerId

KEY = (DIGITS, VariantName("a"))


@given(st.floats(1e-6, 1.0))
def test_a_variant_that_has_all_of_a_worker_has_no_more_than_that(part: float) -> None:
    [(_, share)] = planned_shares({KEY: None}, {KEY: part}, {})  # type: ignore[dict-item]

    assert 1.0 - 1e-9 < share <= 1.0


@given(st.floats(1e-3, 1e6))
def test_a_task_that_all_demand_is_for_has_no_more_than_all_of_a_worker(qps: float) -> None:
    """One rate in ten came out at 1.0000000000000002, and no catalog takes such a plan: nothing was
    stored or loaded for as long as the rate stayed."""
    [candidate] = snapshot(catalog([variant("a")], [profile("a")])).tasks[DIGITS].by_cost
    asked = Demand(task=DIGITS, latency_ms=100.0, accuracy=None, qps=qps)

    [(_, share)] = shares(WorkerId("w1"), {KEY: candidate}, [asked], (), 0.0)

    assert 1.0 - 1e-9 < share <= 1.0


OTHER = (DIGITS, VariantName("b"))


def test_shares_that_hardly_move_stay() -> None:
    """Otherwise each batch that is measured would make another plan."""
    held = {KEY: None, OTHER: None}
    before = {KEY: 0.5, OTHER: 0.5}

    def found(one: float, other: float) -> dict[VariantKey, float]:
        return dict(planned_shares(held, {KEY: one, OTHER: other}, before))  # type: ignore[arg-type]

    assert found(0.22, 0.20) == before
    assert found(0.40, 0.20)[KEY] == pytest.approx(0.65)
    assert dict(planned_shares({KEY: None}, {KEY: 0.2}, before)) == {KEY: 1.0}  # type: ignore[dict-item]


def test_who_has_work_now_gets_a_share_of_it_however_little() -> None:
    held = {KEY: None, OTHER: None}
    before = {KEY: 0.95, OTHER: 0.05}

    found = dict(planned_shares(held, {KEY: 0.19, OTHER: 0.01}, before))  # type: ignore[arg-type]

    assert found[OTHER] == pytest.approx(0.05 + 0.9 * 0.05)
