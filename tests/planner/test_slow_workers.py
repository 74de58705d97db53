"""Slow workers: who is spared, for how long, and when not."""

from collections import UserDict
from collections.abc import Iterable
from statistics import geometric_mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.slow_workers import (
    ANSWERS,
    CALM_S,
    FIRST_S,
    FORGOTTEN_S,
    LEAST_MS,
    MOST_BUSY,
    MOST_S,
    QUICK,
    SLOW,
    Episode,
    Latency,
    SlowWorkers,
    UsualTimes,
    WorkerTimes,
    slowness,
)
from variants.types import DeviceKindName, TaskName, VariantKey, VariantName, WorkerId

KEY: VariantKey = (TaskName("t"), VariantName("v"))
TIMES = 30.5 / 10.5


def latency(means_ms: dict[int, float]) -> dict[VariantKey, Latency]:
    """What batches of the only variant take, by their size."""
    return {KEY: [(size, ms, ms) for size, ms in means_ms.items()]}


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
            self.beyond_ms[name], latency({1: self.means_ms[name]}),
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


def test_the_others_need_time_for_what_they_do_in_its_place() -> None:
    """Of two that are half busy, the other one would be for 73 %: it takes less than half of the
    time that the slow one takes."""
    fleet = Fleet(a=10.0, b=22.0)
    fleet.busy.update(a=0.5, b=0.5)
    assert fleet.look() == set()
    fleet.busy.update(a=0.4, b=0.4)
    assert fleet.look() == {"b"}
    fleet.busy.update(a=0.6, b=0.0)  # it does that by now
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


def test_one_may_be_slow_for_days() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    while fleet.now_s < 2 * 86_400.0:
        fleet.look(after_s=MOST_S)
    assert fleet.workers.slow.keys() == {"b"}


def test_one_that_is_quick_again_is_as_the_others() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    fleet.means_ms["b"] = 10.0
    while fleet.look():
        pass
    fleet.look()
    fleet.look(after_s=CALM_S)
    fleet.means_ms["b"] = 30.0
    assert fleet.look() == {"b"}
    began_s = fleet.now_s
    while fleet.look(ran=0):
        pass
    assert fleet.now_s - began_s == FIRST_S


def slow_off_and_on(fleet: Fleet, until_s: float) -> int:
    """One of the workers is quick whenever it is asked again and slow soon after. Returns how often
    it was spared."""
    pauses, before = 0, False
    while fleet.now_s < until_s:
        fleet.means_ms["b"] = 30.0 if fleet.means_ms["b"] < 20.0 else 10.0
        spared = bool(fleet.look())
        pauses, before = pauses + (spared and not before), spared
    return pauses


def test_one_that_is_slow_off_and_on_is_asked_again_later_and_later() -> None:
    """As where two workers share two cores with others: it came and went every five seconds."""
    fleet = Fleet(a=10.0, b=10.0)
    assert slow_off_and_on(fleet, 300.0) <= 300.0 / MOST_S + 5


def test_however_often_it_comes_and_goes_it_is_told_once_and_once_that_this_is_over() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    told: list[tuple[WorkerId, Episode]] = []
    look = fleet.workers.look

    def listening(now_s: float, reports: Iterable[WorkerTimes]) -> bool:
        changed = look(now_s, reports)
        told.extend(fleet.workers.begun.items())
        told.extend(fleet.workers.ended.items())
        return changed

    fleet.workers.look = listening  # type: ignore[method-assign]
    pauses = slow_off_and_on(fleet, 60.0)
    ((worker, begun),) = told
    assert worker == "b"
    assert begun == pytest.approx((TIMES, 0.0, 0, 0.0))
    began_s = 1.5  # at its second look it is slow for the first time

    fleet.means_ms["b"] = 10.0
    while fleet.look():
        pass
    quick_s = fleet.now_s + 0.5
    while len(told) == 1 and fleet.now_s < 300.0:
        fleet.look()
    assert fleet.now_s == quick_s + CALM_S
    ((worker, over),) = told[1:]
    paused_s = sum(FIRST_S * 2.0**number for number in range(pauses))
    assert worker == "b"
    assert over == pytest.approx((TIMES, quick_s - began_s, pauses, paused_s))
    fleet.means_ms["b"] = 30.0
    fleet.look()
    assert len(told) == 3


def test_one_that_is_not_asked_any_more_is_told_as_over_too() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    fleet.look(after_s=FIRST_S + FORGOTTEN_S, ran=0)
    (over,) = fleet.workers.ended.values()
    lasted_s = FIRST_S + FORGOTTEN_S
    assert over == pytest.approx((TIMES, lasted_s, 1, lasted_s))


def test_one_that_was_spared_before_it_is_told_was_spared_once_at_least() -> None:
    """Of two workers both count as slow for a while, so neither is told: it said of the second
    that queries were kept from it 0 times, for 1 s in all."""
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    fleet.means_ms = {"a": 40.0, "b": 10.0}
    fleet.answers["a"] += ANSWERS
    fleet.look(after_s=FIRST_S, ran=0)  # b is not asked yet, and a is slow
    assert list(fleet.workers.spared) == ["a"]
    assert not fleet.workers.slow
    fleet.answers["b"] += ANSWERS
    fleet.look(ran=0)  # b is quick
    assert fleet.workers.begun.keys() == {"a"}
    fleet.look(after_s=FIRST_S + FORGOTTEN_S, ran=0)
    over = fleet.workers.ended[WorkerId("a")]
    assert over.pauses == 1
    assert over.paused_s > 0


def test_one_near_the_bound_does_not_come_and_go() -> None:
    """Of two workers, one takes 1.9 to 2.1 times as long; each time in turn."""
    fleet = Fleet(a=10.0, b=21.5)
    fleet.look()
    began_s, changes, before = fleet.now_s, 0, True
    while fleet.now_s < began_s + 300.0:
        fleet.means_ms["b"] = 19.5 if fleet.means_ms["b"] > 20.0 else 21.5
        spared = bool(fleet.look())
        changes, before = changes + (spared is not before), spared
    assert changes <= 2 * (300.0 / MOST_S + 5)  # asked again, after longer and longer
    assert fleet.workers.slow.keys() == {"b"}


def test_one_that_was_slow_is_as_good_as_others_only_if_it_is_clearly_quicker() -> None:
    for times, slow in ((0.95 * QUICK, set()), (1.05 * QUICK, {"b"})):
        fleet = Fleet(a=10.0, b=30.0)
        fleet.look()
        fleet.means_ms["b"] = 10.5 * times - 0.5
        while fleet.look(ran=0):
            assert fleet.workers.slow.keys() == {"b"}
        assert fleet.workers.slow.keys() == {"b"}  # it is asked now
        fleet.look(after_s=0.0)
        assert fleet.workers.slow.keys() == slow
    assert Fleet(a=10.0, b=10.5 * 1.05 * QUICK).look() == set()


def test_one_that_is_slow_is_told_while_the_others_are_busy_too() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.busy["a"] = 2 * MOST_BUSY
    assert fleet.look() == set()
    assert fleet.workers.slow == {"b": pytest.approx(30.5 / 10.5)}


def test_of_two_not_both_are_slower_than_the_other() -> None:
    """As where neighbours slow one after the other: each was told as slower than the other."""
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    fleet.means_ms = {"a": 40.0, "b": 10.0}
    assert fleet.look() == set()
    assert not fleet.workers.slow


def test_what_nobody_asks_for_long_is_not_known_to_be_slow() -> None:
    fleet = Fleet(a=10.0, b=30.0)
    fleet.look()
    fleet.look(after_s=FIRST_S + FORGOTTEN_S - 1.0, ran=0)
    assert fleet.workers.slow.keys() == {"b"}
    fleet.look(after_s=1.0, ran=0)
    assert not fleet.workers.slow


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
    alone = one.report("b")._replace(latency=latency({2: 99.0}))
    assert slowness(alone, UsualTimes([one.report("a"), alone])) == 1.0
    both = alone._replace(latency=latency({2: 99.0, 1: 40.0}))
    assert slowness(both, UsualTimes([one.report("a"), both])) == pytest.approx(40.5 / 10.5)


def plain_slowness(report: WorkerTimes, of_kind: list[WorkerTimes]) -> float:
    """What slowness is, by looking at each of the others for each size of batch."""
    others = [each for each in of_kind if each is not report]
    beyond_ms = median([each.beyond_ms for each in others] or [0.0])
    ratios: list[float] = []
    more_ms: list[float] = []
    for variant, own in report.latency.items():
        for size, mean_ms, _ in own:
            theirs = [
                ms for each in others for of, ms, _ in each.latency.get(variant, ()) if of == size
            ]
            if theirs:
                own_ms = mean_ms + max(report.beyond_ms, 0.0)
                usual_ms = median(theirs) + max(beyond_ms, 0.0)
                ratios.append(own_ms / usual_ms)
                more_ms.append(own_ms - usual_ms)
    if not ratios or max(more_ms) < LEAST_MS:
        return 1.0
    return geometric_mean(ratios)


some_ms = st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0, 8.0])
held = st.dictionaries(
    st.sampled_from([KEY, (TaskName("t"), VariantName("u"))]),
    st.dictionaries(st.sampled_from([1, 2, 4]), some_ms),
)


@given(found=st.lists(st.tuples(st.floats(-1.0, 5.0), held), min_size=1, max_size=6))
def test_comparing_with_what_is_in_order_is_comparing_with_each(
    found: list[tuple[float, dict[VariantKey, dict[int, float]]]],
) -> None:
    reports = [
        WorkerTimes(
            WorkerId(f"w{number}"), DeviceKindName("cpu-1"), 0, 0.1, beyond_ms,
            {key: latency(means_ms)[KEY] for key, means_ms in variants.items()},
        )
        for number, (beyond_ms, variants) in enumerate(found)
    ]  # fmt: skip
    usual = UsualTimes(reports)
    for report in reports:
        assert slowness(report, usual) == pytest.approx(plain_slowness(report, reports))


class Counted(UserDict[VariantKey, Latency]):
    """What one worker ran, and how often somebody looked it up."""

    looks = 0

    def __getitem__(self, variant: VariantKey) -> Latency:
        self.looks += 1
        return super().__getitem__(variant)


def test_what_a_worker_ran_is_looked_at_as_often_however_many_others_there_are() -> None:
    for count in (10, 40):
        reports = [
            WorkerTimes(
                WorkerId(f"w{number}"), DeviceKindName("cpu-1"), 0, 0.1, 0.5,
                Counted(latency({1: 5.0})),
            )
            for number in range(count)
        ]  # fmt: skip
        workers = SlowWorkers()
        workers.look(0.0, reports)
        workers.look(1.0, [each._replace(answers=ANSWERS) for each in reports])
        assert {each.latency.looks for each in reports if isinstance(each.latency, Counted)} == {2}


def test_one_step_compares_one_worker_and_what_is_spared_changes_in_the_last() -> None:
    fleet = Fleet(a=10.0, b=30.0, c=10.0)
    reports = [fleet.report(name)._replace(answers=ANSWERS) for name in fleet.means_ms]
    looking = fleet.workers.looking(1.0, reports)
    for _ in reports:
        next(looking)
        assert not fleet.workers.spared
    with pytest.raises(StopIteration):
        next(looking)
    assert fleet.workers.spared.keys() == {"b"}


def test_what_keeps_a_worker_from_running_counts_although_it_does_not_know_of_it() -> None:
    fleet = Fleet(a=2.0, b=2.0, c=2.0)
    assert fleet.look() == set()
    fleet.beyond_ms["b"] = 20.0
    assert fleet.look() == {"b"}
