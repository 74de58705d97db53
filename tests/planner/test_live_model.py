"""Live latency: it begins at the profile, comes to what happens, and says how sure it is."""

import random
from math import log

import pytest

from planner.latency_table import LatencyTable
from planner.live_model import MEMORY, RECENT, Context, LiveModel, Neighbours

AGAIN, IDLE, BESIDE = Context.BACK_TO_BACK, Context.AFTER_IDLE, Context.BESIDE
TYPICAL = LatencyTable([(1, 10.0), (8, 80.0)])
HIGH = LatencyTable([(1, 12.0), (8, 96.0)])


def model() -> LiveModel:
    return LiveModel(TYPICAL, HIGH)


def taught(
    took_ms: float, rows: int = 1, context: Context = AGAIN, batches: int = 100
) -> LiveModel:
    made = model()
    for _ in range(batches):
        made.learn(rows, context, took_ms)
    return made


def drawn(seed: int, median_ms: float, sigma: float, stalls: float, count: int) -> list[float]:
    """Log-normal times, a share of them five times as long."""
    draw = random.Random(seed)
    return [
        median_ms * draw.lognormvariate(0.0, sigma) * (5.0 if draw.random() < stalls else 1.0)
        for _ in range(count)
    ]


def test_it_begins_at_the_profile() -> None:
    assert model().p95_ms(1, AGAIN) == pytest.approx(12.0)
    assert model().mean_ms(8, AGAIN) == pytest.approx(80.0, rel=0.01)
    assert model().batches == 0


def test_it_comes_to_what_happens() -> None:
    assert taught(30.0).mean_ms(1, AGAIN) == pytest.approx(30.0, rel=0.05)
    assert taught(3.0).mean_ms(1, AGAIN) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("sigma", [0.02, 0.3])
@pytest.mark.parametrize("stalls", [0.0, 0.03, 0.1])
def test_95_of_100_batches_are_within_the_prediction(sigma: float, stalls: float) -> None:
    """Whatever the distribution: also where stalls make it heavy, or have two humps."""
    made = model()
    within = [made.learn(1, AGAIN, ms) for ms in drawn(1, 25.0, sigma, stalls, 2_200)][200:]
    assert 0.93 <= sum(within) / len(within) <= 0.97


def test_it_counts_what_was_within() -> None:
    made = model()
    within = [made.learn(1, AGAIN, ms) for ms in drawn(2, 10.0, 0.2, 0.05, 500)]
    assert (made.covered, made.batches) == (sum(within), 500)


def test_a_prediction_is_no_wider_than_it_has_to_be() -> None:
    """The 95th percentile of this distribution is 10 exp(1.645 x 0.1) = 11.8 ms."""
    made = model()
    for ms in drawn(3, 10.0, 0.1, 0.0, 2_000):
        made.learn(1, AGAIN, ms)
    assert made.p95_ms(1, AGAIN) == pytest.approx(11.8, rel=0.07)
    assert made.spread == pytest.approx(0.1, rel=0.3)


def test_a_stall_is_not_remembered_for_long() -> None:
    made = taught(10.0)
    made.learn(1, AGAIN, 10_000.0)
    assert made.mean_ms(1, AGAIN) < 10.8


def test_another_time_is_believed_within_a_dozen_batches() -> None:
    made = taught(10.0, batches=10 * MEMORY)
    for _ in range(12):
        made.learn(1, AGAIN, 40.0)
    assert made.mean_ms(1, AGAIN) == pytest.approx(40.0, rel=0.2)
    for _ in range(12):
        made.learn(1, AGAIN, 10.0)
    assert made.mean_ms(1, AGAIN) == pytest.approx(10.0, rel=0.2)


def test_a_stall_at_the_end_of_a_change_is_not_believed() -> None:
    """Four in a row are another time. One of them may be a stall besides, which none of the next
    takes: all queries of a deadline below were refused until that was forgotten, in seconds."""
    made = taught(10.0)
    for ms in (15.0, 16.0, 15.0, 70.0):
        made.learn(1, AGAIN, ms)
    assert made.mean_ms(1, AGAIN) == pytest.approx(15.0, rel=0.1)
    quicker = taught(10.0)
    for ms in (6.0, 5.0, 6.0, 0.5):
        quicker.learn(1, AGAIN, ms)
    assert quicker.mean_ms(1, AGAIN) == pytest.approx(6.0, rel=0.1)


def test_contexts_are_told_apart() -> None:
    made = model()
    for _ in range(100):
        made.learn(1, IDLE, 30.0)
        made.learn(1, AGAIN, 10.0)
    assert made.mean_ms(1, IDLE) == pytest.approx(30.0, rel=0.05)
    assert made.mean_ms(1, AGAIN) == pytest.approx(10.0, rel=0.05)
    assert made.first_ms == pytest.approx(20.0, rel=0.1)
    assert made.table().ms[1] == pytest.approx(10.0, rel=0.05)


def test_what_waits_counts_with_how_often_batches_run_beside_others() -> None:
    made = model()
    for number in range(400):
        made.learn(1, BESIDE if number % 2 else AGAIN, 20.0 if number % 2 else 10.0)
    assert made.table().ms[1] == pytest.approx((10.0 * 20.0) ** 0.5, rel=0.1)


def test_a_context_that_was_never_seen_is_as_the_others() -> None:
    assert taught(20.0).mean_ms(1, IDLE) == pytest.approx(20.0, rel=0.1)


def test_what_was_never_seen_is_believed_to_be_the_faster_of_both_explanations() -> None:
    """10 ms more for a row: twice the time, or 10 ms a batch. 8 rows take 90 ms, not 160."""
    made = taught(20.0)
    assert made.mean_ms(8, AGAIN) == pytest.approx(90.0, rel=0.05)
    assert taught(160.0, rows=8).mean_ms(1, AGAIN) == pytest.approx(20.0, rel=0.05)
    assert taught(5.0).mean_ms(8, AGAIN) == pytest.approx(40.0, rel=0.05)


def test_a_table_says_when_another_would_differ() -> None:
    made = taught(20.0)
    made.table()
    assert made.change == 0.0
    made.learn(1, AGAIN, 30.0)
    assert 0.0 < made.change < log(1.5)


def test_noise_makes_no_saving() -> None:
    """A row costs the same in every batch, to within 2 %."""
    made = model()
    for rows in (1, 2, 4, 8):
        for ms in drawn(rows, 10.0 * rows, 0.02, 0.0, 100):
            made.learn(rows, AGAIN, ms)
    assert not made.table().economy.gains


def test_slowness_is_forgotten_while_nothing_runs() -> None:
    made = taught(40.0)
    made.relax(60_000.0)
    assert made.mean_ms(1, AGAIN) == pytest.approx(10.0, rel=0.05)
    faster = taught(5.0)
    faster.relax(60_000.0)
    assert faster.mean_ms(1, AGAIN) == pytest.approx(5.0, rel=0.05)


def test_points_are_of_the_sizes_that_were_seen() -> None:
    made = model()
    for _ in range(50):
        made.learn(1, AGAIN, 10.0)
        made.learn(3, AGAIN, 33.0)
    assert [point.rows for point in made.points()] == [1, 4]
    assert all(point.mean_ms <= point.p95_ms for point in made.points())


def test_a_batch_takes_no_longer_than_its_rows_one_by_one() -> None:
    """Four rows were seen last when the machine did something else, twenty times as long."""
    made = model()
    for _ in range(50):
        made.learn(4, AGAIN, 20 * 40.0)
    assert made.points()[0].mean_ms == pytest.approx(800.0, rel=0.1)
    for _ in range(50):
        made.learn(1, AGAIN, 10.0)
    one, four = made.points()
    assert (one.rows, four.rows) == (1, 4)
    assert four.mean_ms == pytest.approx(4 * one.mean_ms)
    assert four.mean_ms <= four.p95_ms <= 4 * one.p95_ms
    table = made.table()
    assert table.ms[4] <= 4 * table.ms[1] * 1.001


def beside_another(longer: float = 2.0, batches: int = 300) -> LiveModel:
    """Single rows of 10 ms that take so many times as long beside another variant, by turns."""
    made = model()
    for _ in range(batches):
        made.learn(1, AGAIN, 10.0)
        made.learn(1, BESIDE, 10.0 * longer)
    return made


def test_it_says_what_neighbours_do_where_both_were_seen() -> None:
    """Twice as long beside another variant, for single rows; of eight nothing ran back to back."""
    found = model()
    assert found.neighbours() == Neighbours()
    for _ in range(40):
        found.learn(1, AGAIN, 10.0)
        found.learn(8, BESIDE, 60.0)
    for _ in range(30):
        found.learn(1, BESIDE, 20.0)
    told = found.neighbours()
    assert told.times == pytest.approx(2.0, rel=0.01)
    assert (told.batches, told.sizes) == (RECENT, (8,))
    assert told.ms == pytest.approx(10.0, rel=0.01)


def test_forgetting_slowness_leaves_what_is_known_of_neighbours() -> None:
    """Queries are refused for 10 s; then batches begin to run again, as slowly as before."""
    found = beside_another()
    known = found.neighbours()
    assert known.times == pytest.approx(2.0, rel=0.01)
    for _ in range(40):
        found.relax(250.0)
    assert found.neighbours() == known
    slower = model()
    for _ in range(300):
        slower.learn(1, AGAIN, 20.0)
        slower.learn(1, BESIDE, 40.0)
    slower.relax(10_000.0)
    for _ in range(100):
        slower.learn(1, BESIDE, 40.0)
        slower.learn(1, AGAIN, 20.0)
    assert slower.neighbours().times == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("later_ms", [5.0, 15.0, 30.0])
def test_another_time_of_either_sort_says_nothing_of_neighbours(later_ms: float) -> None:
    """Tasks are kept apart and the machine is another one; or the other way about."""
    found = beside_another()
    known = found.neighbours()
    for _ in range(500):
        found.learn(1, AGAIN, later_ms)
    assert found.neighbours() == known
    crowded = beside_another()
    for _ in range(500):
        crowded.learn(1, BESIDE, 2.0 * later_ms)
    assert crowded.neighbours().times == pytest.approx(2.0, rel=0.01)


def test_neighbours_that_disturb_less_are_believed() -> None:
    found = beside_another()
    for _ in range(300):
        found.learn(1, AGAIN, 10.0)
        found.learn(1, BESIDE, 12.0)
    assert found.neighbours().times == pytest.approx(1.2, rel=0.02)
