"""What a busy worker takes, from drawn latencies of one that is busy now and then."""

import random
from collections.abc import Iterable
from math import exp, log
from statistics import median

import pytest

from planner.live_model import Context, LiveModel
from planner.rhythms.busy_time import BusyTime
from tests.planner.rhythms.drawn_worker import PROFILE, PROFILED_MS, Worker

SEEDS = range(9)


def errors(found: Iterable[Worker]) -> list[float]:
    """How many times what is true is believed, ascending."""
    return sorted(each.busy / each.slow for each in found)


@pytest.mark.parametrize("slow", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("pause", [1.0, 1.5, 2.5])
@pytest.mark.parametrize("load", [0.02, 0.1, 0.3, 0.6, 0.95])
def test_what_a_busy_worker_takes_is_known_whatever_the_load(
    load: float, pause: float, slow: float
) -> None:
    """At the smallest load six of 300 batches follow on another."""
    found = errors(Worker(seed, load, slow, pause).runs(300) for seed in SEEDS)
    off = 1.3 if load < 0.1 else 1.15
    assert 1.0 / off < found[0]
    assert found[-1] < off
    assert 0.92 < median(found) < 1.1


@pytest.mark.parametrize("slow", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("load", [0.3, 0.95])
def test_it_is_known_within_some_batches_where_they_follow_on_one_another(
    load: float, slow: float
) -> None:
    found = errors(Worker(seed, load, slow, 2.5).runs(20) for seed in SEEDS)
    assert found[0] > 0.8
    assert found[-1] < 1.3


def lone(slow: float, pause: float, batches: int = 12) -> BusyTime:
    """Of batches that all came after a second's pause."""
    made = BusyTime(PROFILED_MS)
    for _ in range(batches):
        made.learn(log(slow * pause), 1_000.0, 0.25**2)
    return made


@pytest.mark.parametrize("pause", [1.0, 1.5, 2.0])
def test_where_none_follows_on_another_what_pauses_usually_cost_is_no_slowness(
    pause: float,
) -> None:
    assert 1.0 <= exp(lone(1.0, pause).ratio) < 1.35
    assert lone(1.0, pause).error > 0.3


@pytest.mark.parametrize("slow", [2.0, 4.0])
@pytest.mark.parametrize("pause", [1.0, 1.5, 2.5])
def test_and_what_they_do_not_explain_is(slow: float, pause: float) -> None:
    """It may be off by what a pause may cost more or less than usually."""
    assert 0.5 * slow < exp(lone(slow, pause).ratio) < 1.5 * slow


def test_what_takes_less_after_a_pause_than_profiled_takes_no_more_on_a_busy_worker() -> None:
    assert exp(lone(0.5, 1.0).ratio) == pytest.approx(0.5, rel=0.1)


def test_it_is_surer_the_more_has_followed_on_others() -> None:
    made = lone(1.0, 2.5)
    before = made.error
    made.learn(0.0, None, 0.01)
    assert made.error < 0.5 * before
    assert exp(made.ratio) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("times", [2.0, 3.0])
@pytest.mark.parametrize("load", [0.02, 0.1, 0.5, 0.9])
def test_a_worker_that_is_slowed_is_noticed_by_lone_batches_as_soon(
    load: float, times: float
) -> None:
    """Four batches are two seconds at the smallest load. Some luck with the draws allows six."""
    needed = []
    for seed in SEEDS:
        worker = Worker(seed, load, 1.0, 2.5).runs(300)
        worker.slow = times
        batches = 0
        while worker.busy < 0.7 * times:
            worker.batch()
            batches += 1
        needed.append(batches)
        worker.runs(60)
        assert 0.75 * times < worker.busy < 1.3 * times
    assert median(needed) <= 5
    assert max(needed) <= 9


def test_and_one_that_is_as_quick_again() -> None:
    for seed in SEEDS:
        worker = Worker(seed, 0.02, 3.0, 2.0).runs(200)
        worker.slow = 1.0
        worker.runs(12)
        assert worker.busy < 1.4


def test_longer_pauses_that_cost_more_are_no_slowness() -> None:
    """The load falls from a half to a fiftieth, where cores sleep deeper: known from before."""
    made = BusyTime(PROFILED_MS)
    draw = random.Random(1)
    for number in range(600):
        kind = number % 3
        pause_ms = (None, 5.0, 500.0)[kind]
        made.learn(draw.gauss(log((1.0, 1.5, 3.0)[kind]), 0.1), pause_ms, 0.01)
    for _ in range(100):
        made.learn(draw.gauss(log(3.0), 0.1), 500.0, 0.01)
    assert exp(made.ratio) == pytest.approx(1.0, rel=0.05)


def test_stalls_change_nothing_for_long() -> None:
    for seed in SEEDS:
        worker = Worker(seed, 0.02, 1.0, 2.0).runs(200)
        for _ in range(2):
            worker.model.learn(1, Context.AFTER_IDLE, 5_000.0, 500.0)
            worker.runs(10)
        assert worker.busy < 1.3


def test_neighbours_are_not_counted() -> None:
    """Batches of two variants by turns take twice as long as alone."""
    made = LiveModel(PROFILE, PROFILE)
    for _ in range(100):
        made.learn(1, Context.BACK_TO_BACK, PROFILED_MS)
        made.learn(1, Context.BESIDE, 2.0 * PROFILED_MS)
    assert made.busy()[0].mean_ms == pytest.approx(PROFILED_MS, rel=0.1)


def test_slowness_is_forgotten_while_nothing_runs_and_what_pauses_cost_is_not() -> None:
    worker = Worker(1, 0.3, 4.0, 2.5).runs(300)
    worker.model.relax(60_000.0)
    assert worker.busy == pytest.approx(1.0, rel=0.05)
    worker.model.learn(1, Context.AFTER_IDLE, 4.0 * 2.5 * PROFILED_MS, 30.0)
    assert worker.busy == pytest.approx(4.0, rel=0.3)
