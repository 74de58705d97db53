"""Nothing beats the bound: no schedule of a few queries, and no policy in the simulator."""

from dataclasses import asdict, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from planner.bounds.bound import Bound, bound_of
from planner.policies.registry import POLICIES, make
from planner.simulate import bound as bound_in_truth
from planner.simulate import least_billed_ms, mean_demand, offers_of, simulate
from planner.simulation.engine import Engine
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.planner.bounds.brute_force import best_accuracies, least_costs
from tests.planner.bounds.instances import settings, traces
from tests.planner.builders import catalog, kind, variant
from tests.planner.simulation.builders import GPU, Asked, Model, setting, trace
from variants.types import LatencyPoint, Profile, ProfileSource, TaskName, VariantName

CLOSE = 1e-9
POINTS = tuple(LatencyPoint(batch_size=b, p50_ms=30.0, p95_ms=30.0, p99_ms=30.0) for b in (1, 8))


def bound(given_setting: Setting, asked: Trace, *levels: int) -> Bound:
    return bound_of(given_setting, asked, offers_of(given_setting.catalog), levels)


@pytest.mark.slow
@given(settings(), traces())
@effort(max_examples=40, deadline=None)
def test_no_schedule_beats_it(small: Setting, few: Trace) -> None:
    best = best_accuracies(small, few)
    most = max(n for n, accuracy in enumerate(best) if accuracy > -inf)

    found = bound(small, few, *range(1, most + 1))

    assert found.in_time >= most
    for count in range(1, most + 1):
        assert found.accuracy(count) >= best[count] / count - CLOSE


@pytest.mark.campaign
@pytest.mark.slow
@given(settings(devices=4, objective=Objective.COST), traces(queries=4, spells_s=150))
@effort(max_examples=4, deadline=None)
def test_no_fleet_is_cheaper(small: Setting, few: Trace) -> None:
    best = least_costs(small, few)
    most = max(n for n, cost in enumerate(best) if cost < inf)

    found = bound(small, few, *range(1, most + 1))

    assert found.in_time >= most
    for count in range(1, most + 1):
        assert found.cost_usd(count) <= found.whole_cost_usd(count) <= best[count] * (1 + CLOSE)


@pytest.mark.slow
@given(
    st.sampled_from(Objective).flatmap(lambda objective: settings(objective=objective)),
    traces(queries=12, spells_s=60),
)
@effort(max_examples=2, deadline=None)
def test_no_policy_beats_it(small: Setting, few: Trace) -> None:
    reports = [simulate(small, few, name, clock=lambda: 0.0) for name in POLICIES]

    found = bound(small, few, *(one.in_time for one in reports))

    for one in reports:
        beside = found.beside(one)
        assert beside.regret_violation_ratio >= -CLOSE
        assert one.in_time == 0 or beside.regret_accuracy >= -CLOSE
        assert beside.regret_cost_ratio >= beside.regret_whole_cost_ratio >= -CLOSE


@pytest.mark.slow
@given(settings(objective=Objective.COST), traces(queries=12, spells_s=60), st.integers(1, 150))
@effort(max_examples=3, deadline=None)
def test_no_policy_is_billed_less_after_the_beginning(
    small: Setting, few: Trace, beginning_s: int
) -> None:
    policies = ("modelless", "static-cheapest", "proteus")
    billed = [_billed_after(small, few, name, beginning_s) for name in policies]
    levels = [in_time for in_time, _ in billed]
    offers = offers_of(small.catalog)
    found = bound_of(small, few, offers, levels, beginning_s=float(beginning_s))
    for in_time, usd in billed:
        assert found.later_cost_usd(in_time) <= min(found.cost_usd(in_time), usd) * (1 + CLOSE)


def _billed_after(
    given: Setting, asked: Trace, policy: str, beginning_s: float
) -> tuple[int, float]:
    """Queries in time, and what was billed after a time."""
    brief = Brief(setting=given, average=lambda: mean_demand(asked, {}), clock_s=lambda: 0.0)
    fleet = Fleet(offers_of(given.catalog), given.kinds)
    engine = Engine(given, asked, fleet, lambda known: make(policy)(brief, known), lambda: 0.0)
    end_ms = engine.run(None)
    billed, least_ms = engine.devices.billed, least_billed_ms(given)
    in_time = engine.tally.report(policy, billed, end_ms, least_ms).in_time
    usd = 0.0
    for each in billed:
        gone_ms = end_ms if each.released_ms is None else each.released_ms
        until_ms = max(each.ordered_ms + least_ms, gone_ms)
        left_ms = max(0.0, until_ms - max(each.ordered_ms, beginning_s * 1_000))
        usd += left_ms / 3_600_000 * each.kind.usd_per_hour
    return in_time, usd


# -- by hand: a row takes 10 ms in every batch, loads take a second ------------------------------


def test_a_device_has_time_for_so_many() -> None:
    """Ten arrive together and have 50 ms; after the load one device serves five of them."""
    found = bound(setting(Model()), trace(*[Asked(2.0, 50.0)] * 10))

    assert (found.in_time, found.violation_ratio) == (5, 0.5)


def test_what_arrives_earlier_may_be_served_later_and_not_the_other_way_round() -> None:
    early = bound(setting(Model()), trace(*[Asked(2.0, 50.0)] * 8, *[Asked(2.05, 50.0)] * 2))
    late = bound(setting(Model()), trace(*[Asked(2.0, 50.0)] * 2, *[Asked(2.05, 50.0)] * 8))

    assert (early.in_time, late.in_time) == (7, 7)


def test_nothing_is_served_before_it_is_loaded() -> None:
    found = bound(setting(Model()), trace(Asked(0.0), Asked(0.9, 100.0), Asked(0.92, 100.0)))

    assert found.in_time == 1


def test_who_is_alone_has_no_share_of_a_batch() -> None:
    """A batch takes 30 ms however many rows it has: six that come together are served at once, two
    that come 15 ms apart with 40 ms each need a batch each, and there is no time for both."""
    flat = catalog(
        [variant("v", task="a")],
        [Profile(task=TaskName("a"), variant=VariantName("v"), device_kind=GPU, points=POINTS,
                 memory_mib=0.0, load_s=0.0, source=ProfileSource.EXACT)],
        kinds=[kind(GPU, 3.6)],
    )  # fmt: skip
    known = replace(setting(), catalog=flat)

    assert bound(known, trace(*[Asked(2.0, 40.0)] * 6)).in_time == 6
    assert bound(known, trace(Asked(2.0, 40.0), Asked(2.015, 40.0))).in_time == 1


def test_accuracy_gives_way_to_queries_in_time() -> None:
    """In 40 ms two of the good variant are served, or four of the quick one."""
    both = (
        Model(name="v", accuracy=0.9, latency_ms=20, max_batch=1),
        Model(name="w", accuracy=0.7, latency_ms=10, max_batch=1),
    )
    found = bound(setting(*both), trace(*[Asked(2.0, 40.0)] * 4), 1, 2, 3, 4)

    assert found.in_time == 4
    assert found.accuracy(4) == pytest.approx(0.7)
    assert found.accuracy(3) == pytest.approx((2 * 0.7 + 0.9) / 3)
    assert found.accuracy(2) == pytest.approx(0.9)


def test_floors_and_ceilings_that_nobody_meets_are_violations() -> None:
    asked = trace(Asked(2.0), Asked(2.1, floor=0.95), Asked(2.2, ceiling=1e-9), Asked(2.3, 9.0))

    assert bound(setting(Model()), asked).in_time == 1


def test_a_ceiling_is_of_what_policies_are_told_where_devices_are_slower() -> None:
    """A query costs 0.01 USD per 1,000 by its profile, and truly twice as much."""
    slow = replace(setting(Model()), latency_error=(2.0, 2.0))
    asked = trace(Asked(0.0, 5_000.0), Asked(3.0, ceiling=0.015))
    report = simulate(slow, asked, "static-cheapest", clock=lambda: 0.0)
    found = bound_in_truth(slow, asked, [report])

    assert (report.in_time, found.in_time) == (2, 2)
    assert bound_in_truth(slow, trace(Asked(3.0, ceiling=0.009))).in_time == 0


@pytest.mark.parametrize(
    ("beginning_s", "least_s"),
    [
        pytest.param(0.0, 70.0, marks=pytest.mark.campaign),
        (40.0, 70.0),
        (80.0, 40.0),
        pytest.param(110.0, 10.0, marks=pytest.mark.campaign),
    ],
)
def test_what_is_billed_before_the_beginning_is_over_is_told_apart(
    beginning_s: float, least_s: float
) -> None:
    """A device serves from 90 to 120 s, 100 ms a row. It is ordered 40 s earlier and costs 0.001
    USD a second."""
    slow = Model(latency_ms=100)
    known = replace(setting(slow, objective=Objective.COST), provision_s=40.0)
    asked = trace(*[Asked(90.0 + each / 10, 200.0) for each in range(300)])
    found = bound_of(known, asked, offers_of(known.catalog), [300], beginning_s=beginning_s or 1e-6)
    assert found.later_cost_usd(300) == pytest.approx(least_s / 1_000, rel=0.02)
    assert found.later_cost_usd(300) <= (least_s + 0.1) / 1_000


def test_failures_take_devices_away() -> None:
    """Of two devices one is away from 10 s to 15 s, when 200 arrive that would fill both."""
    asked = trace(*[Asked(11.0, 1_000.0)] * 200, Asked(16.0))
    all_there = bound(setting(Model(), devices=2, provision_s=5.0), asked)
    failing = bound(setting(Model(), devices=2, provision_s=5.0, failures_every_s=10.0), asked)

    assert (all_there.in_time, failing.in_time) == (201, 101)


def test_where_nothing_takes_time_the_best_variant_serves_all() -> None:
    both = (Model(name="v", accuracy=0.9), Model(name="w", accuracy=0.7))
    asked = trace(Asked(0.0, 1.0), Asked(0.0, floor=0.95))
    found = bound(setting(*both, instant=True), asked)

    assert found.in_time == 1
    assert found.accuracy(1) == pytest.approx(0.9)


def test_a_fixed_fleet_costs_its_time() -> None:
    """Two devices at 0.001 USD per second for ten seconds."""
    found = bound(setting(Model(), devices=2), trace(Asked(10.0)))

    assert found.cost_usd(1) == pytest.approx(0.02)


def test_a_device_that_comes_and_goes_costs_a_minute_at_least() -> None:
    """At 0.001 USD per second; usable 5 s after its order."""
    known = setting(Model(), devices=2, objective=Objective.COST, provision_s=5.0)

    assert bound(known, trace(Asked(10.0))).cost_usd(1) == pytest.approx(0.06)
    assert bound(known, trace(Asked(10.0), Asked(60.0))).cost_usd(2) == pytest.approx(0.06)


def test_a_device_that_comes_and_goes_costs_from_its_order_to_its_last_answer() -> None:
    """Usable 5 s after its order and just as the first query comes; the last one is 100 s later,
    and to stay is cheaper than to come again. That it has to load first is not counted."""
    known = setting(Model(max_batch=1), objective=Objective.COST, provision_s=5.0)
    found = bound(known, trace(*[Asked(10.0 + 10 * n, 10.0) for n in range(11)]))

    assert found.cost_usd(11) == pytest.approx(0.10501, rel=1e-3)


def test_a_part_of_a_device_cannot_be_rented() -> None:
    """A device serves two of the three that come together, every 10 s for 100 s: one and a half are
    rented, or two whole ones. Each is usable 5 s after its order. From a window in which a device
    comes or goes nothing is billed, so that about a hundredth is missing."""
    known = setting(Model(max_batch=1), devices=2, objective=Objective.COST, provision_s=5.0)
    found = bound(known, trace(*[Asked(10.0 + n // 3 * 10, 20.0) for n in range(33)]), 22, 33)

    assert found.cost_usd(33) == pytest.approx(1.5 * 0.105, rel=0.01)
    assert found.whole_cost_usd(33) == pytest.approx(2 * 0.105, rel=0.01)
    assert found.whole_cost_usd(22) == pytest.approx(0.105, rel=0.01)


def test_nothing_is_in_time_before_the_first_device_is_usable() -> None:
    known = setting(Model(), objective=Objective.COST, provision_s=30.0)

    assert bound(known, trace(Asked(29.0, 1_999.0), Asked(31.0, 9.0))).in_time == 0
    assert bound(known, trace(Asked(29.0, 2_010.0))).in_time == 1


def test_without_queries_there_is_nothing_to_bound() -> None:
    found = bound(setting(Model()), trace())

    assert (found.violation_ratio, found.accuracy(0), found.cost_usd(0)) == (0.0, 0.0, 0.0)


def test_regret_is_what_the_bound_is_missed_by() -> None:
    known = setting(Model())
    asked = trace(*[Asked(2.0, 50.0)] * 10)
    report = simulate(known, asked, "static-cheapest", clock=lambda: 0.0)
    found = bound(known, asked, report.in_time)

    beside = found.beside(report)

    assert {type(value) for value in asdict(beside).values()} == {float}
    assert beside.bound_violation_ratio == 0.5
    assert beside.regret_violation_ratio == report.violation_ratio - 0.5
