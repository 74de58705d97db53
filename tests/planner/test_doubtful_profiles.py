"""Which profiles are checked, and when."""

from dataclasses import replace

from planner.doubtful_profiles import (
    CALM,
    FIRST_S,
    MOST_S,
    SPARED,
    DoubtfulProfiles,
    Held,
    Stake,
    stakes,
)
from planner.types import Demand, ProfileKey, ReplicaKey
from tests.planner.builders import DIGITS, catalog, profile, snapshot, variant
from variants.types import DeviceKindName, Stage, VariantName, WorkerId

KIND = DeviceKindName("cpu-1")
REFUSED = Stake(refused_qps=5.0)
OPEN = Stake(open_qps=5.0)


def replica(name: str, worker: str = "w1") -> ReplicaKey:
    return (WorkerId(worker), DIGITS, VariantName(name))


def held(name: str, batches: int = 0, worker: str = "w1", busy_ratio: float = 0.0) -> Held:
    return Held(replica(name, worker), KIND, "once", batches, busy_ratio)


def of(name: str) -> ProfileKey:
    return (DIGITS, VariantName(name), KIND)


def due(doubts: DoubtfulProfiles, now_s: float, at_stake: dict[ProfileKey, Stake]) -> list[Held]:
    """What is to be checked where live latency contradicts no profile."""
    return [one for one, _ in doubts.due(now_s, at_stake, at_stake)]


def demand(latency_ms: float, qps: float = 5.0, pinned: str | None = None) -> Demand:
    return Demand(
        task=DIGITS, latency_ms=latency_ms, accuracy=None, qps=qps,
        variant=None if pinned is None else VariantName(pinned),
    )  # fmt: skip


def test_what_depends_on_a_profile() -> None:
    """``a`` takes 12 ms with its margin, ``b`` 120; a canary answers only who names it."""
    known = snapshot(
        catalog(
            [variant("a"), variant("b"), variant("c")],
            [profile("a", 10.0), profile("b", 100.0), profile("c", 100.0)],
            stages={"c": Stage.CANARY},
        )
    )
    found = stakes(
        known, [demand(5.0, 1.0), demand(50.0, 2.0), demand(500.0, 4.0), demand(10.0, 8.0, "c")]
    )
    assert found == {
        of("a"): Stake(refused_qps=1.0, open_qps=6.0, tightest_ms=50.0),
        of("b"): Stake(refused_qps=1.0, passed_qps=2.0, open_qps=4.0, tightest_ms=500.0),
        of("c"): Stake(refused_qps=8.0),
    }


def test_the_tightest_deadline_of_a_class_counts() -> None:
    known = snapshot(catalog([variant("a")], [profile("a", 20.0)]))
    asked = replace(demand(20.0), slo_ms=30.0)
    assert stakes(known, [asked]) == {of("a"): Stake(open_qps=5.0, tightest_ms=30.0)}


def test_what_no_correction_could_reach_is_not_at_stake() -> None:
    """It takes 120 ms with its margin: 2.4 ms if it is 50 times as quick."""
    known = snapshot(catalog([variant("a")], [profile("a", 100.0)]))
    for impossible_ms in (0.001, 1.0, 2.0):
        assert stakes(known, [demand(impossible_ms)]) == {}
    assert stakes(known, [demand(5.0)]) == {of("a"): REFUSED}


def test_what_would_hold_up_others_for_long_waits_for_a_calm_worker() -> None:
    """``b`` serves queries of 20 ms on the same worker; a batch of ``a`` takes 3 s, or 9 ms."""
    at_stake = {of("a"): REFUSED, of("b"): Stake(open_qps=5.0, tightest_ms=20.0)}
    for lone_ms, busy_ratio, expected in (
        (3_000.0, CALM, False),
        (3_000.0, 0.0, True),
        (9.0, CALM, True),
    ):
        doubts = DoubtfulProfiles()
        there = held("a", busy_ratio=busy_ratio)._replace(lone_ms=lone_ms)
        doubts.look(0.0, [there, held("b", batches=9, busy_ratio=busy_ratio)])
        assert bool(due(doubts, 0.0, at_stake)) is expected


def test_what_refuses_is_checked_at_once_and_then_less_and_less_often() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a"), held("b")])
    assert [one.replica for one in due(doubts, 0.0, {of("a"): REFUSED})] == [replica("a")]
    now_s, waits = 0.0, []
    for _ in range(8):
        doubts.checked(replica("a"), now_s, total=3, took_s=0.1, agrees=True)
        began_s = now_s
        while not due(doubts, now_s, {of("a"): REFUSED}):
            now_s += 1.0
        waits.append(now_s - began_s)
    assert waits == [120.0, 240.0, 480.0, 960.0, 1_920.0, MOST_S, MOST_S, MOST_S]


def test_a_report_of_the_middle_of_a_check_takes_no_patience_away() -> None:
    """Nor does one from before it that is read after it."""
    doubts = DoubtfulProfiles()
    now_s, waits, ran = 0.0, [], 0
    for _ in range(3):
        doubts.look(now_s, [held("a", batches=ran + 2)])
        ran += 3
        doubts.checked(replica("a"), now_s, total=ran, took_s=1.5, agrees=True)
        doubts.look(now_s, [held("a", batches=ran - 1)])
        began_s = now_s
        while not due(doubts, now_s, {of("a"): REFUSED}):
            now_s += 1.0
            doubts.look(now_s, [held("a", batches=ran)])
        waits.append(now_s - began_s)
    assert waits == [150.0, 300.0, 600.0]


def test_what_is_not_as_was_believed_is_looked_at_again_soon() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a")])
    doubts.checked(replica("a"), 0.0, total=50, took_s=0.1, agrees=True)
    doubts.checked(replica("a"), 120.0, total=50, took_s=0.1, agrees=False)
    assert not due(doubts, 120.0 + FIRST_S - 1.0, {of("a"): REFUSED})
    assert due(doubts, 120.0 + FIRST_S, {of("a"): REFUSED})


def test_a_check_that_takes_long_is_not_made_often() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a")])
    doubts.checked(replica("a"), 0.0, total=3, took_s=30.0, agrees=True)
    assert not due(doubts, SPARED * 30.0 - 1.0, {of("a"): REFUSED})


def test_batches_of_queries_are_as_good_as_a_check() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a")])
    doubts.look(1.0, [held("a", batches=1)])
    assert not due(doubts, 1.0, {of("a"): REFUSED})
    assert due(doubts, 1.0 + FIRST_S, {of("a"): REFUSED})


def test_each_worker_is_checked_because_each_admits_by_what_it_knows() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a", batches=9), held("a", worker="w2")])
    assert [one.replica for one in due(doubts, 0.0, {of("a"): REFUSED})] == [replica("a", "w2")]


def test_what_was_measured_or_loaded_anew_is_doubted_anew() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a", batches=9), held("b", batches=9)])
    doubts.look(1.0, [held("a"), held("b", batches=9)._replace(mark="again")])
    assert doubts.doubted(1.0) == [held("a")]
    doubts.look(2.0, [held("a"), held("b")._replace(mark="again")])
    assert len(doubts.doubted(2.0)) == 2
    doubts.checked(replica("a"), 2.0, total=3, took_s=0.1, agrees=True)
    doubts.look(3.0, [held("a")._replace(load_no=1), held("b")._replace(mark="again")])
    assert len(doubts.doubted(3.0)) == 2


def test_what_may_only_be_dearer_waits_for_a_calm_minute() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a")])
    assert not due(doubts, 0.0, {of("a"): OPEN})
    doubts.look(FIRST_S, [held("a", busy_ratio=CALM)])
    assert not due(doubts, FIRST_S, {of("a"): OPEN})
    doubts.look(FIRST_S, [held("a")])
    assert due(doubts, FIRST_S, {of("a"): OPEN})


def test_what_was_measured_beside_other_work_is_checked_though_nobody_asks() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a"), held("b")._replace(beside_load=True)])
    assert [one.replica for one in due(doubts, FIRST_S, {})] == [replica("b")]


def test_what_most_queries_are_refused_by_comes_first() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a"), held("b"), held("c")])
    at_stake = {of("a"): Stake(passed_qps=9.0), of("b"): Stake(1.0), of("c"): Stake(2.0)}
    found = due(doubts, 0.0, at_stake)
    assert [one.replica[2] for one in found] == ["c", "b", "a"]


def test_a_worker_that_has_run_nothing_admits_by_the_profile_whatever_others_have_learned() -> None:
    doubts = DoubtfulProfiles()
    doubts.look(0.0, [held("a", batches=9), held("a", worker="w2")])
    found = doubts.due(0.0, {of("a"): OPEN}, {of("a"): REFUSED})
    assert found == [(held("a", worker="w2"), REFUSED)]
    later_s = 2 * FIRST_S
    found = doubts.due(later_s, {of("a"): REFUSED}, {})
    assert found == [(held("a", batches=9), REFUSED)]
