"""What timed runs say: percentiles, intervals, and which runs had contention."""

import os
import subprocess
import sys
import time
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sandbox.enough import is_settled, is_too_slow, is_useful
from profiler.sandbox.limits import PATIENCE, MeasureLimits
from profiler.sandbox.probe import cores_for
from profiler.timing.contention import Contention, Mark, Watch, contention_between, lost_s
from profiler.timing.statistics import KEPT, Round, Sample, median_interval, percentile_point
from variants.types import LatencyPoint

pytestmark = pytest.mark.slow

LIMITS = MeasureLimits(rounds=4, precision=0.02, point_s=9.0, slowest_batch_s=5.0)
times = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60)


def rounds(*medians_ms: float, size: int = 1) -> Sample:
    """Each round has 5 runs, all within 0.1 % of its median."""
    around = (0.999, 0.9995, 1.0, 1.0005, 1.001)
    return Sample(size, tuple(Round(tuple(ms / 1000 * f for f in around)) for ms in medians_ms))


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
    restless, most = [5.0, 6.0] * 20, PATIENCE * LIMITS.rounds
    found = [is_settled(rounds(*restless[:n]), LIMITS) for n in (4, most - 1, most)]
    assert found == [False, False, True]


def test_more_rounds_end_when_their_time_is_up() -> None:
    """Four rounds of five runs of 0.3 s take 6 s, more than twice 1 s."""
    quick = MeasureLimits(rounds=4, precision=0.02, point_s=1.0)
    assert is_settled(rounds(300.0, 400.0, 300.0, 400.0), quick)
    assert not is_settled(rounds(300.0, 400.0, 300.0), quick)


def test_a_batch_that_is_too_slow_is_settled_at_once() -> None:
    slow = rounds(6_000.0, size=8)
    assert (is_too_slow(slow, LIMITS), is_settled(slow, LIMITS)) == (True, True)


def test_batches_grow_while_two_doublings_raise_the_throughput() -> None:
    flat = [point(1, 1.0), point(2, 2.0), point(4, 4.0)]
    rising = [point(1, 1.0), point(2, 1.99), point(4, 3.8)]
    stair = [point(1, 1.0), point(2, 1.5), point(4, 3.0)]
    found = [is_useful(points, 0.03) for points in ([], flat[:2], flat, rising, stair)]
    assert found == [True, True, False, True, True]


def sample(*found: Round) -> Sample:
    return Sample(1, found)


def test_runs_with_contention_are_counted_and_are_no_times() -> None:
    found = sample(Round((0.001,) * 4, (0.002,) * 3, (0.009,) * 2), Round((0.001,) * 4))
    assert (found.contention, found.runs, found.dropped) == (Contention.NONE, 13, 5)
    assert found.point == point(1, 1.0)


def test_where_hardly_a_run_was_alone_those_with_others_beside_count() -> None:
    found = sample(Round((), (0.002,) * 20, (0.009,) * 2), Round((0.001,), (0.002,) * 20))
    assert (found.contention, found.runs, found.dropped) == (Contention.BESIDE, 43, 2)
    assert found.point == point(1, 2.0)


def test_where_hardly_a_run_was_left_its_processor_all_count() -> None:
    found = sample(Round((0.001,), (0.002,), (0.009,) * 40), Round((), (), (0.009,)))
    assert (found.contention, found.runs, found.dropped) == (Contention.INSTEAD, 43, 0)
    assert found.point == point(1, 9.0)


def test_one_quiet_moment_is_not_enough() -> None:
    found = sample(Round((0.001,) * 20), Round((), (0.002,) * 20))
    assert (found.contention, found.dropped) == (Contention.BESIDE, 0)


@given(
    st.lists(
        st.tuples(*[st.lists(st.floats(1e-6, 1.0), max_size=9).map(tuple)] * 3).map(
            lambda times: Round(*times)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_run_is_left_out_for_being_slow(rounds: list[Round]) -> None:
    """Of each contention all runs count, or none."""
    found = sample(*rounds)
    counted = [time for one in rounds for times in one[: found.contention + 1] for time in times]
    left_out = [time for one in rounds for times in one[found.contention + 1 :] for time in times]
    assert sorted(found.times_s) == sorted(counted)
    assert found.dropped == len(left_out)


def test_all_runs_are_kept_up_to_a_bound_the_newest_for_sure() -> None:
    a_third = KEPT // 3
    found = Sample(1)
    for _ in range(3):
        found = found.merged(sample(Round((0.001,) * a_third)))
    assert (found.runs, len(found.rounds)) == (3 * a_third, 3)
    found = found.merged(sample(Round((0.002,) * a_third)))
    assert (len(found.rounds), found.times_s[-1]) == (3, 0.002)


def mark(
    wall_ms: float,
    *,
    ran_ms: float = 0,
    waited_ms: float = 0,
    helpers_waited_ms: float = 0,
    sleeps: int = 0,
    runnable: int = 1,
) -> Mark:
    return Mark(
        wall_s=wall_ms / 1000,
        processor_s=ran_ms / 1000,
        waited_s=waited_ms / 1000,
        helpers_waited_s=helpers_waited_ms / 1000,
        sleeps=sleeps,
        runnable=runnable,
    )


@pytest.mark.parametrize(
    ("after", "found", "lost_ms"),
    [
        (mark(10, ran_ms=10), Contention.NONE, 0),
        (mark(10, ran_ms=10, runnable=2), Contention.BESIDE, 0),
        (mark(10, ran_ms=9, waited_ms=1, runnable=2), Contention.INSTEAD, 1),
        (mark(10, ran_ms=5, waited_ms=1, sleeps=4), Contention.INSTEAD, 1),
        (mark(10, ran_ms=10, helpers_waited_ms=1), Contention.INSTEAD, 0),
        (mark(10, ran_ms=9), Contention.INSTEAD, 1),  # for a hypervisor: it neither ran nor slept
        (mark(10, ran_ms=2, sleeps=3), Contention.NONE, 0),  # it slept, as it liked
        (mark(10, ran_ms=9.85, waited_ms=0.15), Contention.NONE, 0.15),  # less than 2 %
        (mark(0.5, ran_ms=0.42, waited_ms=0.08), Contention.NONE, 0.08),  # less than 0.1 ms
    ],
)
def test_what_contention_a_run_had_and_what_it_lost(
    after: Mark, found: Contention, lost_ms: float
) -> None:
    assert contention_between(mark(0), after, threads=1) is found
    assert lost_s(mark(0), after) == pytest.approx(lost_ms / 1000)


def test_threads_of_its_own_are_no_contention() -> None:
    after = mark(10, ran_ms=10, runnable=2)
    assert contention_between(mark(0), after, threads=2) is Contention.NONE


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
        after = watch.mark()
        assert contention_between(before, after, threads=1) is Contention.INSTEAD
        assert lost_s(before, after) > 0.05
    finally:
        os.sched_setaffinity(0, cores)
        watch.close()
        neighbour.kill()
        neighbour.wait()


def test_a_child_gets_the_last_cores() -> None:
    assert cores_for(1, [3, 0, 2]) == (3,)
    assert cores_for(2, [3, 0, 2]) == (2, 3)
    assert cores_for(8, [0, 1]) == (0, 1)
