"""What timed runs say: percentiles, intervals, and runs that lost the processor."""

import os
import subprocess
import sys
import time
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.measure import MeasureLimits
from profiler.probe import cores_for, is_settled, is_too_slow, is_useful
from profiler.theft import Mark, Watch, is_stolen
from profiler.timing import KEPT, Sample, median_interval, percentile_point
from variants.types import LatencyPoint

LIMITS = MeasureLimits(rounds=4, precision=0.02, slowest_batch_s=5.0)
times = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60)


def rounds(*medians_ms: float, size: int = 1) -> Sample:
    """Each round has 5 runs, all within 0.1 % of its median."""
    around = (0.999, 0.9995, 1.0, 1.0005, 1.001)
    clean = tuple(tuple(median / 1000 * f for f in around) for median in medians_ms)
    return Sample(size, clean, ((),) * len(clean))


def point(size: int, p50_ms: float) -> LatencyPoint:
    return LatencyPoint(batch_size=size, p50_ms=p50_ms, p95_ms=p50_ms, p99_ms=p50_ms)


def test_percentiles_are_times_that_were_seen() -> None:
    seen = [index / 1000 for index in range(1, 101)]
    assert percentile_point(8, seen) == LatencyPoint(
        batch_size=8, p50_ms=51.0, p95_ms=96.0, p99_ms=100.0
    )


@given(times)
def test_percentiles_ascend_within_what_was_seen(seen: list[float]) -> None:
    found = percentile_point(1, seen)
    assert found.p50_ms <= found.p95_ms <= found.p99_ms <= round(max(seen) * 1000, 5)
    assert found.p50_ms >= round(float(np.median(seen)) * 1000, 5)


@given(times)
def test_the_interval_holds_the_median(seen: list[float]) -> None:
    low, high = median_interval(seen)
    assert low <= np.median(seen) <= high


@pytest.mark.parametrize("count", [6, 7, 12, 48, 100, 1_000])
def test_the_interval_misses_the_true_median_in_one_of_twenty_at_most(count: int) -> None:
    """It misses when more than ``count - 1 - low`` runs fall on one side: exact, for any law."""
    low, high = median_interval([float(rank) for rank in range(count)])
    assert (low, high) == (low, count - 1 - low)
    misses = 2 * sum(comb(count, k) for k in range(int(low) + 1)) / 2**count
    assert misses <= 0.05


def test_nothing_is_known_of_a_median_from_one_round() -> None:
    assert rounds(5.0).half_width == inf


def test_rounds_that_differ_widen_the_interval_of_runs_that_do_not() -> None:
    assert rounds(5.0, 5.0, 5.0, 5.0).half_width == pytest.approx(0.0005)
    assert rounds(5.0, 5.5, 5.0, 5.5).half_width == pytest.approx(0.087, abs=0.001)


def test_a_steady_median_is_settled_after_the_least_rounds() -> None:
    assert [is_settled(rounds(*[5.0] * n), LIMITS) for n in (1, 3, 4)] == [False, False, True]


def test_an_unsteady_median_gets_more_rounds_but_not_for_ever() -> None:
    restless = [5.0, 6.0] * 6
    found = [is_settled(rounds(*restless[:n]), LIMITS) for n in (4, 11, 12)]
    assert found == [False, False, True]


def test_a_batch_that_is_too_slow_is_settled_at_once() -> None:
    slow = rounds(6_000.0, size=8)
    assert (is_too_slow(slow, LIMITS), is_settled(slow, LIMITS)) == (True, True)


def test_batches_grow_while_two_doublings_raise_the_throughput() -> None:
    flat = [point(1, 1.0), point(2, 2.0), point(4, 4.0)]
    rising = [point(1, 1.0), point(2, 1.99), point(4, 3.8)]
    stair = [point(1, 1.0), point(2, 1.5), point(4, 3.0)]
    found = [is_useful(points, 0.03) for points in ([], flat[:2], flat, rising, stair)]
    assert found == [True, True, False, True, True]


def test_stolen_runs_are_counted_and_are_no_times() -> None:
    sample = Sample(1, ((0.001,) * 4, (0.001,) * 4), ((0.009,) * 2, ()))
    assert (sample.runs, sample.stolen, sample.counts_stolen) == (10, 2, False)
    assert sample.point == point(1, 1.0)


def test_where_hardly_a_run_was_left_alone_all_count() -> None:
    sample = Sample(1, ((0.001,), ()), ((0.009,) * 2, (0.009,) * 3))
    assert (sample.runs, sample.stolen, sample.counts_stolen) == (6, 5, True)
    assert sample.point == point(1, 9.0)


def test_all_runs_are_kept_up_to_a_bound_the_newest_for_sure() -> None:
    a_third = KEPT // 3
    sample = Sample(1)
    for _ in range(3):
        sample = sample.merged(Sample(1, ((0.001,) * a_third,), ((),)))
    assert (sample.runs, sample.rounds) == (3 * a_third, 3)
    sample = sample.merged(Sample(1, ((0.002,) * a_third,), ((),)))
    assert (sample.rounds, sample.clean_s[-1][0]) == (3, 0.002)


def mark(wall_ms: float, *, ran_ms: float = 0, waited_ms: float = 0, sleeps: int = 0) -> Mark:
    return Mark(wall_ms / 1000, ran_ms / 1000, waited_ms / 1000, sleeps)


@pytest.mark.parametrize(
    ("after", "stolen"),
    [
        (mark(10, ran_ms=10), False),
        (mark(10, ran_ms=9, waited_ms=1), True),
        (mark(10, ran_ms=10, waited_ms=1), True),  # another thread of ours
        (mark(10, ran_ms=9), True),  # by a hypervisor: it neither ran nor slept
        (mark(10, ran_ms=2, sleeps=3), False),  # it slept, as it liked
        (mark(10, ran_ms=9.85, waited_ms=0.15), False),  # less than 2 %
        (mark(0.5, ran_ms=0.42, waited_ms=0.08), False),  # less than 0.1 ms
    ],
)
def test_a_processor_is_stolen_if_it_was_wanted_and_missing(after: Mark, stolen: bool) -> None:
    assert is_stolen(mark(0), after) is stolen


def test_the_scheduler_tells_of_a_neighbour_on_the_same_core() -> None:
    cores = os.sched_getaffinity(0)
    core = cores_for(1)
    neighbour = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {core})\nwhile True: pass"]
    )
    watch = Watch()
    try:
        os.sched_setaffinity(0, core)
        watch.look()
        before = watch.mark()
        until_s = time.process_time() + 0.1
        while time.process_time() < until_s or time.perf_counter() < before.wall_s + 0.5:
            pass
        assert is_stolen(before, watch.mark())
    finally:
        os.sched_setaffinity(0, cores)
        watch.close()
        neighbour.kill()
        neighbour.wait()


def test_a_child_gets_the_last_cores() -> None:
    assert cores_for(1, [3, 0, 2]) == (3,)
    assert cores_for(2, [3, 0, 2]) == (2, 3)
    assert cores_for(8, [0, 1]) == (0, 1)
