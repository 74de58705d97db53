"""Which variant a static policy takes for a task."""

import pytest

from planner.policies.static import Pick, least_cost, most_accurate, pick
from planner.types import Candidate, Demand
from tests.planner.builders import DIGITS, catalog, demand, kind, profile, snapshot, variant

CATALOG = catalog(
    [variant("small", 0.7), variant("middle", 0.8), variant("large", 0.9)],
    [
        profile("small", 10.0),
        profile("middle", 20.0),
        profile("large", 40.0),
        profile("small", 2.0, kind="gpu"),
        profile("large", 5.0, kind="gpu"),
    ],
    kinds=[kind(), kind("gpu", 3.6)],
)
"""Measured, so that 1.2 times as much is counted: 12, 24 and 48 ms, and 2.4 and 6 on the GPU."""


def candidates(*kinds: str) -> list[Candidate]:
    view = snapshot(CATALOG).tasks[DIGITS]
    return [c for c in view.by_cost if not kinds or c.device_kind in kinds]


def name(found: Pick | None) -> str | None:
    return None if found is None else found.variant


@pytest.mark.parametrize(
    ("latency_ms", "best", "cheapest"),
    [(100.0, "large", "small"), (50.0, "middle", "small"), (30.0, "small", "small")],
)
def test_the_most_accurate_and_the_cheapest_within_half_of_the_slo(
    latency_ms: float, best: str, cheapest: str
) -> None:
    """On CPUs only: 48 ms need an SLO of 96, 24 ms one of 48."""
    offered, wanted = candidates("cpu-1"), [demand(10.0, latency_ms)]
    assert name(pick(offered, wanted, most_accurate)) == best
    assert name(pick(offered, wanted, least_cost)) == cheapest


def test_one_row_that_meets_the_slo_is_better_than_nothing() -> None:
    assert name(pick(candidates("cpu-1"), [demand(10.0, 13.0)], most_accurate)) == "small"
    assert pick(candidates("cpu-1"), [demand(10.0, 11.0)], most_accurate) is None


def test_a_floor_leaves_only_who_meets_it() -> None:
    wanted = [demand(10.0, 100.0, accuracy=0.8)]
    assert name(pick(candidates("cpu-1"), wanted, least_cost)) == "middle"


@pytest.mark.parametrize(
    ("tight_qps", "loose_qps", "expected"), [(10.0, 10.0, "middle"), (0.0, 10.0, "large")]
)
def test_meeting_all_classes_comes_first(tight_qps: float, loose_qps: float, expected: str) -> None:
    """The large one would miss the tight class; without that class it is the best."""
    wanted: list[Demand] = [demand(loose_qps, 100.0), demand(tight_qps, 50.0)]
    assert name(pick(candidates("cpu-1"), wanted, most_accurate)) == expected


def test_a_variant_is_used_on_every_kind_where_it_meets_the_slo() -> None:
    """Within 50 ms the large one does so on the GPU alone."""
    found = pick(candidates(), [demand(10.0, 50.0)], most_accurate)
    assert found is not None
    assert (found.variant, list(found.offers)) == ("large", ["gpu"])


def test_cost_is_of_the_device_time_at_the_planned_batch() -> None:
    """12 ms per query at 0.36 USD per hour."""
    found = pick(candidates("cpu-1"), [demand(10.0, 30.0)], least_cost)
    assert found is not None
    assert found.usd_per_1k == pytest.approx(0.0012)
