"""Which replicas are told their targets, and when they are told again."""

from controlplane.controller.applying.told_targets import Told, ToldTargets
from planner.reconcile.tick import tick
from planner.types import ReplicaKey, ReplicaTarget
from tests.planner.builders import (
    DIGITS,
    catalog,
    demand,
    observation,
    profile,
    replica,
    report,
    variant,
)
from variants.types import VariantName, WorkerId

A: ReplicaKey = (WorkerId("w1"), DIGITS, VariantName("a"))
B: ReplicaKey = (WorkerId("w1"), DIGITS, VariantName("b"))
TARGET = ReplicaTarget(share=0.75, longest_batch_ms=50.0)
OTHER = ReplicaTarget(share=0.75, longest_batch_ms=100.0)


def decided(target: ReplicaTarget = TARGET) -> ToldTargets:
    targets = ToldTargets()
    targets.decided({A: target, B: target}, of=(1, ""))
    return targets


def test_before_a_decision_nothing_is_placed() -> None:
    targets = ToldTargets()
    assert (targets.placed(A), targets.untold({A})) == (False, [])


def test_only_what_is_ready_and_was_told_nothing_is_told() -> None:
    targets = decided()
    assert targets.untold({A}) == [A]
    targets.told(A, targets.of(A))
    assert targets.untold({A, B}) == [B]


def test_an_equal_target_is_not_told_again() -> None:
    targets = decided()
    targets.told(A, targets.of(A))
    targets.decided({A: TARGET}, of=(1, ""))
    assert targets.untold({A}) == []
    targets.decided({A: OTHER}, of=(1, ""))
    assert targets.untold({A}) == [A]


def test_a_rate_is_told_again_once_it_differs_by_a_tenth_from_what_was_told() -> None:
    targets = decided(TARGET._replace(qps=10.0))
    targets.told(A, targets.of(A))
    for qps, told in ((10.9, []), (9.1, []), (11.2, [A]), (8.9, [A]), (0.0, [A])):
        targets.decided({A: TARGET._replace(qps=qps)}, of=(1, ""))
        assert targets.untold({A}) == told, qps
    targets.decided({A: OTHER._replace(qps=10.0)}, of=(1, ""))
    assert targets.untold({A}) == [A]


def test_a_rate_is_told_where_nothing_was_planned_before() -> None:
    targets = decided()
    targets.told(A, targets.of(A))
    targets.decided({A: TARGET._replace(qps=0.01)}, of=(1, ""))
    assert targets.untold({A}) == [A]


def test_constant_queries_are_told_once() -> None:
    """Queries of ten rows, 100 rows per second, whose rate each of two workers averages."""
    registered = catalog([variant("a")], [profile("a")])
    targets = ToldTargets()
    told: list[ReplicaKey] = []

    def ticked(rows: float, *rates_qps: float) -> None:
        held = [
            replica("a", asked=True, rate_qps=qps)._replace(rows_per_query=rows)
            for qps in rates_qps
        ]
        seen = observation(
            registered, report("w1", held[0]), report("w2", held[1]), demand=[demand(100.0)]
        )
        targets.decided(tick(seen).targets, of=(1, ""))
        for key in targets.untold({A, (WorkerId("w2"), *A[1:])}):
            targets.told(key, targets.of(key))
            told.append(key)

    for number in range(1, 20):
        ticked(10.0, number / 7, 1 / number)
    assert len(told) == 2
    ticked(20.0, 5.0, 5.0)
    assert len(told) == 4


def test_a_target_that_changed_while_it_was_being_told_is_told_again() -> None:
    targets = decided()
    telling = targets.of(A)
    targets.decided({A: OTHER}, of=(1, ""))
    targets.told(A, telling)
    assert targets.untold({A}) == [A]


def test_new_latencies_are_told() -> None:
    targets = decided()
    targets.told(A, targets.of(A))
    targets.decided({A: TARGET}, of=(2, ""))
    assert targets.untold({A}) == [A]
    assert targets.of(A) == Told(TARGET, (2, ""))


def test_what_left_and_came_back_is_told_again() -> None:
    targets = decided()
    targets.told(A, targets.of(A))
    assert targets.untold(set()) == []
    assert targets.untold({A}) == [A]
