"""Where the cost above the bound goes."""

import pytest

from planner.types import Demand
from tests.bench.planning.catalogs import synthetic
from tests.bench.simulation.cases import Case
from tests.bench.simulation.cost.parts import (
    NAMES,
    Fleets,
    Stretch,
    knowing_from,
    mean,
    ran,
    stretches,
    table,
)
from tests.bench.simulation.workloads import workloads


def test_each_fleet_costs_at_least_as_much_as_the_one_with_less_in_it() -> None:
    ground = synthetic()
    fleets = Fleets(ground)
    [steady] = [each for each in workloads(ground, None) if each.name == "steady"]
    rates = fleets.rates(steady, 200, 210)
    true = [
        Demand(task=a.task, latency_ms=a.latency_ms, accuracy=a.floor, qps=qps)
        for a, qps in rates.items()
    ]
    costs = [
        fleets.in_parts(rates, own=False), fleets.in_parts(rates, own=True),
        fleets.whole(true, 0.0), fleets.whole(true, 1.0),
    ]  # fmt: skip
    assert costs == sorted(costs)
    everything = sum(kind.count * kind.usd_per_hour for kind in ground.kinds)
    assert 0.8 * everything < costs[0] < 0.9 * everything


def test_the_rate_of_a_stretch_is_without_chance_and_knows_the_opening() -> None:
    ground = synthetic()
    fleets = Fleets(ground)
    [steady] = [each for each in workloads(ground, None) if each.name == "steady"]
    calm, full = (sum(fleets.rates(steady, s, s + 10).values()) for s in (0, 300))
    assert calm == pytest.approx(0.02 * full)
    assert sum(fleets.rates(steady, 595, 605).values()) == pytest.approx(full)


def test_the_parts_add_up_to_what_is_billed() -> None:
    case = Case(catalog="synthetic", workload="steady", seed=0, seconds=80)
    report, seen = ran(case)
    found = stretches(case, report, seen)
    assert [each.begin_s for each in found] == [60.0, 70.0]
    billed = [each.usd_per_hour for each in report.timeline if each.start_s >= 60.0]
    assert mean(found)[-1] == pytest.approx(sum(billed) / len(billed), rel=0.01)


def test_who_knows_the_rate_at_a_time_has_everything_until_then() -> None:
    some = [Stretch(s, s + 10.0, (1.0, 1.0, 2.0, 3.0, 3.0, 4.0)) for s in (60.0, 70.0, 80.0)]
    assert knowing_from(some, 70.0, 8.0) == pytest.approx((8.0 + 2.0 + 2.0) / 3)


def test_a_table_says_what_each_part_is_of_the_bound() -> None:
    costs = (11.0, 11.0, 11.2, 11.6, 11.5, 12.0)
    lines = table([Stretch(60.0, 70.0, costs), Stretch(70.0, 80.0, costs)], 10.0)
    assert lines[0] == "| bound | 10.00 | |"
    assert lines[1:] == [
        f"| {name} | {usd:.2f} | {more} |"
        for name, usd, more in zip(
            NAMES, costs, ("+10.0%", "+0.0%", "+2.0%", "+4.0%", "-1.0%", "+5.0%"), strict=True
        )
    ]
