"""Demand from the gateways' counters."""

from typing import Any

import pytest

from controlplane.controller.arrivals import Arrivals
from controlplane.controller.outcome_counts import OutcomeCounts
from controlplane.demand_counters import counter_name
from planner.forecasting.demand_estimator import DemandEstimator
from planner.forecasting.estimator_of import DEMAND_WEIGHT as WEIGHT
from planner.types import Demand, Objective
from tests.controlplane.builders import DIGITS, digits_catalog
from variants.types import TaskName, VariantName

CATALOG = digits_catalog().snapshot()
KEY = "digits|100.0|"


def report(**counted: int) -> dict[str, Any]:
    return {"demand": {KEY: counted["rows"]}}


def demand(qps: float) -> tuple[Demand, ...]:
    return (Demand(task=DIGITS.name, latency_ms=100.0, accuracy=None, qps=qps),)


def test_a_first_report_is_where_counting_starts() -> None:
    arrivals = Arrivals()
    arrivals.count({"g1": report(rows=500)}, CATALOG, 0.0)
    assert arrivals.demand == ()
    arrivals.count({"g1": report(rows=510)}, CATALOG, 1.0)
    assert arrivals.demand == demand(WEIGHT * 10)


def test_gateways_add_up_and_one_that_vanishes_fades() -> None:
    arrivals = Arrivals()
    arrivals.count({"g1": report(rows=0), "g2": report(rows=0)}, CATALOG, 0.0)
    arrivals.count({"g1": report(rows=10), "g2": report(rows=30)}, CATALOG, 1.0)
    assert arrivals.demand == demand(WEIGHT * 40)
    arrivals.count({"g1": report(rows=10)}, CATALOG, 2.0)
    assert arrivals.demand == demand((1 - WEIGHT) * (WEIGHT * 40))


def test_a_gateway_that_is_heard_again_counts_from_then_on() -> None:
    """One that has run for weeks and was cut off says nothing of what is asked in that second."""
    arrivals = Arrivals()
    arrivals.count({"g1": report(rows=0)}, CATALOG, 0.0)
    arrivals.count({"g1": report(rows=10), "g2": report(rows=5_000_000)}, CATALOG, 1.0)
    assert arrivals.demand == demand(WEIGHT * 10)
    arrivals.count({"g1": report(rows=20), "g2": report(rows=5_000_010)}, CATALOG, 2.0)
    [both] = arrivals.demand
    assert both.qps == pytest.approx((1 - WEIGHT) * WEIGHT * 10 + WEIGHT * 20)


def test_a_gateway_that_starts_anew_takes_nothing_away() -> None:
    arrivals = Arrivals()
    arrivals.count({"g1": report(rows=1_000)}, CATALOG, 0.0)
    arrivals.count({"g1": report(rows=10)}, CATALOG, 1.0)
    assert arrivals.demand == demand(WEIGHT * 10)


def test_what_came_while_nobody_counted_is_spread_over_that_time() -> None:
    arrivals = Arrivals()
    arrivals.count({"g1": report(rows=0)}, CATALOG, 0.0)
    arrivals.count({"g1": report(rows=300)}, CATALOG, 30.0)
    assert arrivals.demand == demand(WEIGHT * 10)


def test_what_is_expected_is_at_least_what_comes() -> None:
    arrivals = Arrivals()
    for second in range(120):
        arrivals.count({"g1": report(rows=100 * second)}, CATALOG, float(second))
    [expected] = arrivals.estimator.expected

    assert 100.0 <= expected.qps < 120.0


def test_seconds_without_a_gateway_to_ask_are_not_silence() -> None:
    arrivals = Arrivals(DemandEstimator(Objective.ACCURACY))
    for second in range(60):
        arrivals.count({"g1": report(rows=100 * second)}, CATALOG, float(second))
    for second in range(60, 120):
        arrivals.count({}, CATALOG, float(second))
    [middle] = arrivals.estimator.expected

    assert middle.qps == pytest.approx(100.0)


def test_a_class_is_expected_with_the_tightest_slo_that_any_gateway_saw() -> None:
    arrivals = Arrivals()
    for second in range(3):
        reports = {
            f"g{n}": {
                **report(rows=10 * second),
                "tightest": {KEY: 120.0 + 10 * n, "other|1|": 1.0},
            }
            for n in (1, 2)
        }
        arrivals.count(reports, CATALOG, float(second))
    assert [d.slo_ms for d in arrivals.estimator.expected] == [130.0]
    # A variant of 125 ms is not too slow for what is asked: by the class, 100 ms, it would be.
    assert [d.tightest_ms for d in arrivals.demand] == [130.0]


def test_it_is_due_about_once_a_second() -> None:
    arrivals = Arrivals()
    assert arrivals.due(0.0)
    arrivals.count({}, CATALOG, 0.0)
    assert [arrivals.due(s) for s in (0.1, 0.5, 0.99, 1.0)] == [False, False, True, True]


@pytest.mark.parametrize("key", ["", "digits", "digits|fast|", "a|b|c|d"])
def test_counters_of_somebody_else_are_left_out(key: str) -> None:
    arrivals = Arrivals()
    arrivals.count({"g1": {"demand": {key: 0}}, "g2": {}}, CATALOG, 0.0)
    arrivals.count({"g1": {"demand": {key: 9}}, "g2": {}}, CATALOG, 1.0)
    assert arrivals.demand == ()


def test_few_counters_whatever_clients_ask_for() -> None:
    task = TaskName("digits")
    slos = [(50.0 + n / 1_000, 0.90 + n / 10_000) for n in range(1_000)]
    names = {counter_name(task, latency_ms, floor, [0.8, 0.9]) for latency_ms, floor in slos}
    assert names == {"digits|50.0|0.9", "digits|50.0|1.0"}
    assert counter_name(task, 99.0, None, [0.8]) == "digits|50.0|"


def test_looks_between_two_reports_see_no_silence_and_no_surge() -> None:
    """The control loop looks a moment before a report, and a moment after the next."""
    arrivals = Arrivals(DemandEstimator(Objective.ACCURACY))
    for at_s, reported_s in ((0.0, 0), (1.0, 1), (2.0, 1), (3.0, 3), (4.0, 4)):
        told = {**report(rows=100 * reported_s), "at_s": 7.0 + reported_s}
        arrivals.count({"g1": told}, CATALOG, at_s)
        if at_s:
            [expected] = arrivals.estimator.expected
            assert expected.qps == pytest.approx(100.0)


def test_a_report_that_is_late_is_counted_for_all_the_time_since_the_last() -> None:
    """For three seconds the control loop sees the old one and takes it for silence."""
    arrivals = Arrivals(DemandEstimator(Objective.ACCURACY))
    for at_s, reported_s in ((0.0, 0), (1.0, 1), (4.0, 1), (8.0, 8)):
        told = {**report(rows=100 * reported_s), "at_s": 7.0 + reported_s}
        arrivals.count({"g1": told}, CATALOG, at_s)
    weight = 1 - WEIGHT
    [seen] = arrivals.demand
    assert seen.qps == pytest.approx(weight * (weight * WEIGHT * 100) + WEIGHT * 700 / 4)


def test_a_gateway_that_has_stopped_reporting_is_asked_nothing_before_long() -> None:
    arrivals = Arrivals()
    for at_s, reported_s in ((0.0, 0), (1.0, 1), (4.0, 1)):
        told = {**report(rows=100 * reported_s), "at_s": 7.0 + reported_s}
        arrivals.count({"g1": told}, CATALOG, at_s)
    [faded] = arrivals.demand
    assert faded.qps == pytest.approx((1 - WEIGHT) * WEIGHT * 100)


def outcome_report(met: int, missed: int = 0, **errors: int) -> dict[str, Any]:
    """Of a gateway that answered so many queries since it started."""
    tasks = {"digits": {"met": met, "missed": missed, "errors": errors}}
    return {"demand": {KEY: met + missed + sum(errors.values())}, "tasks": tasks}


def test_what_gateways_say_of_answers_and_refusals_reaches_the_room_for_chance() -> None:
    """Steps of provisioning are of ten seconds, and of one, two and four stages at first; what was
    asked wrongly is nobody's want of room."""
    arrivals = Arrivals(DemandEstimator(Objective.COST, settled_s=72.0))
    for second in range(40):
        arrivals.count(
            {"g1": outcome_report(1_000 * second, INVALID_INPUT=second)}, CATALOG, second
        )
    assert arrivals.estimator.room.part == pytest.approx(1.0 - 7 / 20)
    assert arrivals.estimator.room.lost == 0.0
    # Room that had shrunk before anything was lost comes back as soon as its workers can be there.
    for second in range(40, 240):
        late = outcome_report(1_000 * second, second - 39, OVERLOADED=10 * (second - 39))
        arrivals.count({"g1": late}, CATALOG, second)
    assert arrivals.estimator.room.part == 1.0
    assert arrivals.estimator.room.lost > 0.0


def test_a_gateway_that_counts_anew_says_nothing_of_the_room_for_once() -> None:
    counts = OutcomeCounts()
    assert counts.growth({"g1": outcome_report(100, COLD=5)}) == (0, 0)
    assert counts.growth({"g1": outcome_report(90, COLD=7)}) == (0, 0)
    assert counts.growth({"g1": outcome_report(95, COLD=8), "g2": outcome_report(7)}) == (5, 1)
    assert counts.growth({"g2": outcome_report(8, NO_WORKERS=2)}) == (1, 2)
    assert counts.growth({"g2": {"demand": {}}}) == (0, 0)


def test_pins_whose_time_nothing_keeps_leave_those_alone_that_have_enough() -> None:
    """The tightest SLO of all that named a variant was planned for: where nothing keeps that, the
    variant was in no plan for anybody."""
    pin = VariantName("mlp")
    names = [counter_name(DIGITS.name, ms, None, (), pin) for ms in (0.5, 100.0)]
    arrivals = Arrivals()
    for second in range(3):
        told = {
            "demand": dict.fromkeys(names, 10 * second),
            "tightest": dict(zip(names, (0.5, 120.0), strict=True)),
        }
        arrivals.count({"g1": told}, CATALOG, float(second))
    found = [(each.latency_ms, each.slo_ms, each.variant) for each in arrivals.demand]
    assert found == [(0.5, 0.5, pin), (100.0, 120.0, pin)]
