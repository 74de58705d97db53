"""Slow workers: who is spared, for how long, and when not."""

import pytest

from planner.slow_workers import (
    ANSWERS,
    FIRST_S,
    LEAST_MS,
    MOST_BUSY,
    MOST_S,
    SLOW,
    SlowWorkers,
    WorkerTimes,
    slowness,
)
from variants.types import DeviceKindName, TaskName, VariantKey, VariantName, WorkerId

KEY: VariantKey = (TaskName("t"), VariantName("v"))


class Fleet:
    """Workers that give answers between two looks, each as long as it is told."""

    def __init__(self, **means_ms: float) -> None:
        self.means_ms = means_ms
        self.answers = dict.fromkeys(means_ms, 0)
        self.busy = dict.fromkeys(means_ms, 0.1)
        self.beyond_ms = dict.fromkeys(means_ms, 0.5)
        self.kinds = dict.fromkeys(means_ms, "cpu-1")
        self.workers = SlowWorkers()
        self.now_s = 0.0
        self.look(ran=0)

    def look(self, after_s: float = 0.5, ran: int = ANSWERS) -> set[str]:
        """What is spared after so long, in which all but those that are spared answered."""
        self.now_s += after_s
        for name in self.means_ms:
            self.answers[name] += 0 if name in self.workers.spared else ran
        self.workers.look(self.now_s, [self.report(name) for name in self.means_ms])
        return set(self.workers.spared)

    def report(self, name: str) -> WorkerTimes:
        return WorkerTimes(
            WorkerId(name), DeviceKindName(self.kinds[name]), self.answers[name], self.busy[name],
            self.beyond_ms[name], {(KEY, 1): self.means_ms[name]},
        )  # fmt: skip


def test_the_one_that_takes_twice_as_long_is_spared() -> None:
    fleet = Fleet(a=10.0, b=11.0 * SLOW - 1.0, c=10.0)
    assert fleet.look() == {"b"}
    assert fleet.workers.spared[WorkerId("b")] == pytest.approx(21.5 / 10.5)


def test_of_two_workers_too() -> None:
    assert Fleet(a=10.0, b=30.0).look() == {"b"}


def test_few_answers_say_nothing() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    assert fleet.look(ran=ANSWERS - 1) == set()
    assert fleet.look(ran=1) == {"b"}


def test_what_is_hardly_longer_is_no_loss() -> None:
    assert Fleet(a=0.01, b=0.01 + LEAST_MS * 0.9).look() == set()


def test_workers_of_another_kind_are_no_measure() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.kinds["b"] = "gpu"
    assert fleet.look() == set()


def test_where_more_are_slow_than_not_it_is_the_kind() -> None:
    assert Fleet(a=10.0, b=30.0, c=30.0, d=10.0).look() == {"b", "c"}
    assert Fleet(a=10.0, b=30.0, c=30.0, d=90.0, e=90.0).look() != {"b", "c", "d", "e"}


def test_where_the_others_are_busy_all_serve() -> None:
    fleet = Fleet(a=10.0, b=30.0, c=10.0)
    assert fleet.look() == {"b"}
    fleet.busy["a"] = 2 * MOST_BUSY
    assert fleet.look() == set()
    fleet.busy["a"] = 0.2
    assert fleet.look() == {"b"}


def test_it_is_asked_again_after_a_while_and_later_each_time_it_is_slow_still() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    waits_s = []
    for _ in range(7):
        assert fleet.look(after_s=0.0) == {"b"}
        began_s = fleet.now_s
        while fleet.look(ran=0):
            pass
        waits_s.append(fleet.now_s - began_s)
    assert waits_s == [FIRST_S, 8.0, 16.0, 32.0, MOST_S, MOST_S, MOST_S]


def test_one_that_is_quick_again_is_as_the_others() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    fleet.means_ms["b"] = 10.0
    while fleet.look():
        pass
    fleet.look()
    fleet.means_ms["b"] = 30.0
    assert fleet.look() == {"b"}
    began_s = fleet.now_s
    while fleet.look(ran=0):
        pass
    assert fleet.now_s - began_s == FIRST_S


def test_one_that_began_anew_is_judged_by_what_it_runs_from_then_on() -> None:
    fleet = Fleet(a=10.0, b=10.0)
    fleet.look(ran=100)
    fleet.answers["b"] = 0
    fleet.means_ms["b"] = 30.0
    assert fleet.look(ran=0) == set()
    assert fleet.look() == {"b"}


def test_who_is_gone_is_forgotten() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    del fleet.means_ms["b"]
    assert fleet.look() == set()


def test_what_others_did_not_run_is_not_compared() -> None:
    one = Fleet(a=10.0, b=30.0)
    alone = one.report("b")._replace(means_ms={(KEY, 2): 99.0})
    assert slowness(alone, [one.report("a"), alone]) == 1.0
    both = alone._replace(means_ms={(KEY, 2): 99.0, (KEY, 1): 40.0})
    assert slowness(both, [one.report("a"), both]) == pytest.approx(40.5 / 10.5)


def test_what_keeps_a_worker_from_running_counts_although_it_does_not_know_of_it() -> None:
    fleet = Fleet(a=2.0, b=2.0, c=2.0)
    assert fleet.look() == set()
    fleet.beyond_ms["b"] = 20.0
    assert fleet.look() == {"b"}
