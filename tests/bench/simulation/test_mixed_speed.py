"""Arrivals keep their rate and their kind; slow and fast devices are as described; cases repeat."""

from math import inf

import numpy as np
import pytest

from planner.bounds.row_times import least_row_ms
from planner.latency_table import LatencyTable
from tests.bench.simulation.arrivals import Arrivals, arrival_times
from tests.bench.simulation.cases import Case, cases, made
from tests.bench.simulation.distance import best_batches_ms
from tests.bench.simulation.mixed_speed import FAST, SLOW, drawn_workload, ground, swings
from tests.bench.simulation.workloads import draw
from variants.types import TaskName

RATES = [50.0] * 1_000


@pytest.mark.parametrize("kind", list(Arrivals))
def test_streams_keep_their_rate_and_come_in_order(kind: Arrivals) -> None:
    times_s = arrival_times(kind, 2.0, RATES, np.random.default_rng(0))

    assert len(times_s) == pytest.approx(50_000, rel=0.1)
    assert (np.diff(times_s) >= 0).all()
    assert 0 <= times_s[0] <= times_s[-1] <= 1_000


def test_streams_follow_the_rate() -> None:
    times_s = arrival_times(
        Arrivals.GAMMA, 2.0, [10.0] * 500 + [90.0] * 500, np.random.default_rng(0)
    )

    assert (times_s < 500).sum() == pytest.approx(5_000, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [(Arrivals.POISSON, 0.8, 1.2), (Arrivals.GAMMA, 6.0, 12.0), (Arrivals.MODULATED, 6.0, 60.0)],
)
def test_bursts_show_in_counts_per_second(kind: Arrivals, least: float, most: float) -> None:
    # Variance over mean of the counts: 1 for Poisson, about the squared variation for gamma gaps.
    times_s = arrival_times(kind, 3.0, RATES, np.random.default_rng(1))
    counts = np.bincount(times_s.astype(int), minlength=1_000)

    assert least < counts.var() / counts.mean() < most


def test_the_catalog_is_as_described() -> None:
    known = ground(3, slow=2, fast=5, latency_ms=300.0)
    points = {
        (str(p.task), str(p.variant), str(p.device_kind)): p.points for p in known.catalog.profiles
    }
    task = "t0"
    first_ms = points[task, "v0", FAST][0].p95_ms

    assert {kind.name: kind.count for kind in known.kinds} == {SLOW: 2, FAST: 5}
    assert 20 <= first_ms <= 60
    assert points[task, "v0", FAST][-1].p95_ms == pytest.approx(first_ms * (1 + 0.55 * 7))
    assert points[task, "v0", SLOW][0].p95_ms == pytest.approx(6 * first_ms)
    slow_ms = 6 * first_ms * 0.84 * np.exp(-1.5)
    assert points[task, "v2", SLOW][-1].p95_ms == pytest.approx(8 * slow_ms)
    assert all(4 <= len(known.accuracies(each)) <= 6 for each in known.tasks)
    assert known.accuracies(TaskName(task))[-3:] == pytest.approx((0.86, 0.94, 1.0))


def test_the_swing_goes_from_a_sixth_to_the_highest() -> None:
    _, workload = swings(0)[0]

    assert (min(workload.load), max(workload.load)) == pytest.approx((0.2 / 6, 0.2))
    assert workload.load[50] == pytest.approx(0.2)


def test_a_number_has_one_shape_and_every_seed_its_own_catalog() -> None:
    (one, first), (other, second) = drawn_workload(4, 0), drawn_workload(4, 1)

    assert first.about == second.about
    assert [k.count for k in one.kinds] == [k.count for k in other.kinds]
    assert one.catalog != other.catalog


def test_draws_have_all_kinds_of_arrivals_and_loads_over_the_whole_range() -> None:
    shapes = [drawn_workload(number, 0)[1] for number in range(30)]
    loads = sorted(max(shape.load) for shape in shapes)

    assert {shape.arrivals for shape in shapes} == set(Arrivals)
    assert loads[0] < 0.25
    assert loads[-1] > 0.95
    assert sum(1 for load in loads if load <= 0.5) >= 10


def test_cases_are_named_and_repeat() -> None:
    found = cases("draws", [0, 1], "draw-01", quick=False, count=3)

    assert found == [Case(catalog="draws", workload="draw-01", seed=seed) for seed in (0, 1)]
    first = made(found[0])[2]
    made.cache_clear()
    assert made(found[0])[2] == first


def test_queries_of_a_draw_ask_for_its_latency() -> None:
    known, workload = drawn_workload(0, 0)

    assert set(draw(workload, known, 0).trace.latency_ms) == set(known.latency_ms.values())


# -- the bound's shares on draws -------------------------------------------------------------------

TABLE = LatencyTable([(1, 10.0), (3, 14.0)])


@pytest.mark.parametrize(
    ("arrival_ms", "slo_ms", "best_ms"),
    [
        ([0.0, 1.0, 2.0], 20.0, 14.0),
        ([0.0, 1.0, 2.0], 14.0, 22.0),  # three would be late: two and one
        ([0.0, 50.0], 20.0, 20.0),
        ([0.0], 5.0, inf),
    ],
)
def test_best_batches_by_hand(arrival_ms: list[float], slo_ms: float, best_ms: float) -> None:
    arrived = np.array(arrival_ms)
    assert best_batches_ms(arrived, arrived + slo_ms, TABLE) == best_ms


def test_shares_are_never_more_than_the_best_batches() -> None:
    random = np.random.default_rng(0)
    for slo_ms in (12.0, 20.0, 40.0):
        arrived = np.sort(random.uniform(0.0, 2_000.0, 200))
        shares = least_row_ms(arrived, arrived + slo_ms, TABLE).sum()
        assert shares <= best_batches_ms(arrived, arrived + slo_ms, TABLE) + 1e-6
