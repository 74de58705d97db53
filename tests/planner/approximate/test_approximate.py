"""Approximate simulation: what is played, and what is made of it."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from planner.approximate.approximate import approximate
from planner.approximate.rates import RateTrace
from planner.approximate.sample import (
    DEVICES,
    LEAST_OF_A_KIND,
    WINDOWS,
    Sample,
    Slice,
    drawn,
    sample_of,
    shrunk,
)
from planner.approximate.sampled_policy import moved, sampled
from planner.approximate.sampled_tally import SampledTally
from planner.policies.registry import make
from planner.policies.several_gateways import SeveralGateways
from planner.simulate import offers_of, simulate
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.simulation.setting import Setting
from planner.solver.problem import AvailableKind
from planner.types import Objective
from tests.planner.builders import demand
from tests.planner.simulation.builders import Model, models
from variants.types import DeviceKindName, TaskName

GPU = DeviceKindName("gpu")


def kind(count: int, name: str = "gpu") -> AvailableKind:
    return AvailableKind(
        name=DeviceKindName(name), count=count, memory_mib=1_000.0, usd_per_hour=3.6
    )


def setting(devices: int, objective: Objective = Objective.ACCURACY) -> Setting:
    """A variant that is fast, and one that is accurate and five times as slow."""
    catalog = models(Model(name="fast", accuracy=0.8), Model(name="good", latency_ms=50.0))
    return Setting(catalog=catalog, kinds=(kind(devices),), objective=objective, provision_s=5.0)


def rates(*qps: float, seconds: int = 1_000, latency_ms: float = 200.0) -> RateTrace:
    """Each rate for so many seconds, one after the other."""
    requests = np.repeat(qps, seconds)
    return RateTrace(
        tasks=(TaskName("a"),),
        second=np.arange(len(requests)),
        task=np.zeros(len(requests), int),
        requests=requests,
        latency_ms=np.full(len(requests), latency_ms),
        min_accuracy=np.full(len(requests), -inf),
    )


def ticking() -> float:
    return 0.0


# -- what is played ---------------------------------------------------------------------------


def test_a_small_fleet_is_played_as_it_is() -> None:
    kinds = (kind(DEVICES - 10), kind(10, "cpu"))

    assert shrunk(kinds) == (kinds, 1.0)


def test_a_large_fleet_keeps_its_mixture() -> None:
    smaller, scale = shrunk((kind(16 * DEVICES), kind(4 * DEVICES, "cpu")))

    assert [each.count for each in smaller] == [DEVICES * 4 // 5, DEVICES // 5]
    assert scale == pytest.approx(20.0)


def test_some_of_a_rare_kind_stay() -> None:
    smaller, _ = shrunk((kind(1_000), kind(8, "cpu")))

    assert smaller[1].count >= LEAST_OF_A_KIND


def test_every_window_has_a_slice_inside_it() -> None:
    sample = sample_of(rates(100.0, 10.0, seconds=40_000), (kind(4),), seed=3)

    assert 1 < len(sample.slices) <= WINDOWS
    for index, each in enumerate(sample.slices):
        begin_s = index * sample.width_s
        assert begin_s <= each.begin_s <= each.counts_s < each.end_s
        assert each.end_s <= begin_s + sample.width_s
    assert sample.start_s <= sample.slices[0].begin_s


def test_only_what_is_in_slices_is_drawn_and_at_the_scale_of_the_fleet() -> None:
    trace = rates(600.0, seconds=30_000)
    sample = sample_of(trace, (kind(10 * DEVICES),), seed=0)
    queries = drawn(trace, sample, seed=0)

    played_s = [s for each in sample.slices for s in range(each.begin_s, each.end_s)]
    played_s += range(sample.start_s)
    seconds = [int(each) for each in queries.arrival_s]
    assert seconds == sorted(seconds)
    assert set(seconds) <= set(played_s)
    assert len(queries) == pytest.approx(60.0 * len(played_s), rel=0.05)


# -- from the sample to the whole -------------------------------------------------------------


def tally_of(slices: tuple[Slice, ...], expected: list[float], start_s: int = 0) -> SampledTally:
    sample = Sample(kinds=(), scale=2.0, width_s=100, start_s=start_s, slices=slices)
    return SampledTally(sample, 100 * len(slices), expected)


def test_a_window_has_the_shares_of_its_slice() -> None:
    tally = tally_of((Slice(10, 12, 20), Slice(150, 152, 160)), [1_000.0, 200.0])
    for _ in range(3):
        tally.answered(13_000.0, 0.9)
    tally.rejects(14_000.0)
    tally.answered(155_000.0, 0.7)
    tally.extrapolate()

    assert (tally.punctual, tally.rejected, tally.late) == ([750, 200], [250, 0], [0, 0])
    assert tally.accuracy == pytest.approx([675.0, 140.0])


def test_the_lead_of_a_slice_does_not_count() -> None:
    tally = tally_of((Slice(10, 12, 20),), [100.0])
    tally.rejects(11_000.0)
    tally.answered(13_000.0, 0.9)
    tally.extrapolate()

    assert (tally.punctual, tally.rejected) == ([100], [0])


def test_the_beginning_stands_for_itself() -> None:
    """Ten of a twice as large fleet's first queries were rejected: twenty, not half of all."""
    tally = tally_of((Slice(50, 52, 60),), [1_000.0], start_s=20)
    for _ in range(10):
        tally.rejects(5_000.0)
        tally.answered(55_000.0, 0.9)
    tally.extrapolate()

    assert (tally.punctual, tally.rejected) == ([980], [20])


def test_a_window_of_which_nothing_was_played_is_like_all_others() -> None:
    tally = tally_of((Slice(10, 12, 20), Slice(150, 152, 160)), [100.0, 100.0])
    tally.rejects(13_000.0)
    tally.never(13_000.0)
    tally.extrapolate()

    assert (tally.rejected, tally.late) == ([50, 50], [50, 50])


def test_errors_are_zero_where_windows_are_alike_and_grow_where_they_differ() -> None:
    def error(rejected: list[int]) -> float:
        tally = tally_of(
            tuple(Slice(100 * i, 100 * i, 100 * i + 10) for i in range(len(rejected))),
            [100.0] * len(rejected),
        )
        for index, count in enumerate(rejected):
            for number in range(10):
                at_ms = 100_000.0 * index + 1_000.0
                if number < count:
                    tally.rejects(at_ms)
                else:
                    tally.answered(at_ms, 0.9)
        return tally.extrapolate().violation_ratio

    assert error([2, 2, 2, 2]) == 0.0
    assert 0.0 < error([2, 3, 2, 3]) < error([0, 9, 0, 9])


# -- the whole --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [Objective.ACCURACY, pytest.param(Objective.COST, marks=pytest.mark.campaign)],
)
def test_an_estimate_is_near_the_exact_run(objective: Objective) -> None:
    """Half of the time the fleet is far too small, so that much is at stake."""
    trace = rates(25.0, 130.0, 25.0, 130.0, seconds=240)
    known = setting(1, objective)
    made = approximate(known, trace, clock=ticking, windows=32)
    whole = Sample(
        kinds=known.kinds, scale=1.0, width_s=trace.duration_s, start_s=0,
        slices=(Slice(0, 0, trace.duration_s),),
    )  # fmt: skip
    exact = simulate(known, drawn(trace, whole, 0), "modelless", clock=ticking)

    report = made.report
    assert exact.violation_ratio > 0.05
    assert report.requests == pytest.approx(exact.requests, rel=0.01)
    assert report.requests == report.in_time + report.late + report.rejected
    assert report.violation_ratio == pytest.approx(exact.violation_ratio, abs=0.04)
    assert report.effective_accuracy == pytest.approx(exact.effective_accuracy, abs=0.02)
    assert report.cost_usd == pytest.approx(exact.cost_usd, rel=0.05)
    assert made.played < exact.requests / 2


@pytest.mark.slow
def test_a_fleet_five_times_as_large_serves_and_costs_as_much_more() -> None:
    small = approximate(setting(DEVICES), rates(300.0, seconds=200), clock=ticking, windows=2)
    large = approximate(setting(5 * DEVICES), rates(1_500.0, seconds=200), clock=ticking, windows=2)

    assert large.scale == pytest.approx(5.0)
    assert large.report.cost_usd == pytest.approx(5.0 * small.report.cost_usd, rel=0.01)
    assert large.report.in_time == pytest.approx(5.0 * small.report.in_time, rel=0.02)
    assert large.played == pytest.approx(small.played, rel=0.05)


def test_the_same_seed_gives_the_same_estimate() -> None:
    trace = rates(20.0, 60.0, seconds=60)
    first, again = (approximate(setting(3), trace, clock=ticking) for _ in range(2))

    assert first == again


@pytest.mark.parametrize("objective", [Objective.ACCURACY, Objective.COST])
def test_gateways_of_a_sample_know_of_queues_what_those_of_a_whole_run_know(
    objective: Objective,
) -> None:
    known, trace = setting(3, objective), rates(20.0, seconds=60)
    brief = Brief(setting=known, average=lambda: (), clock_s=ticking)
    fleet = Fleet(offers_of(known.catalog), known.kinds)
    playing = sampled(brief, fleet, trace, sample_of(trace, known.kinds, 0, 2))

    by_replies = isinstance(playing, SeveralGateways)
    assert by_replies is isinstance(make("modelless")(brief, fleet), SeveralGateways)
    assert by_replies is (objective is Objective.ACCURACY)


def test_rates_need_whole_seconds_between_plans_and_time() -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        approximate(replace(setting(1), tick_s=0.5), rates(1.0), clock=ticking)
    with pytest.raises(ValueError, match="nothing to sample"):
        approximate(replace(setting(1), instant=True), rates(1.0), clock=ticking)
    with pytest.raises(ValueError, match="no query"):
        approximate(setting(1), rates(0.0, seconds=20), clock=ticking)


def test_demand_moves_by_the_sum_of_its_changes() -> None:
    before = [demand(100.0), demand(100.0, task="b")]

    assert moved(before, before) == 0.0
    assert moved(before, [demand(110.0), demand(90.0, task="b")]) == pytest.approx(0.1)
    assert moved(before, [demand(100.0)]) == pytest.approx(0.5)
    assert moved([], [demand(1.0)]) == inf
