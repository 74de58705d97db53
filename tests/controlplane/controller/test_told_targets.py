"""Which replicas are told their targets, and when they are told again."""

from controlplane.controller.told_targets import Told, ToldTargets
from planner.types import ReplicaKey, ReplicaTarget
from tests.planner.builders import DIGITS
from variants.types import VariantName, WorkerId

A: ReplicaKey = (WorkerId("w1"), DIGITS, VariantName("a"))
B: ReplicaKey = (WorkerId("w1"), DIGITS, VariantName("b"))
TARGET = ReplicaTarget(share=0.75, longest_batch_ms=50.0)
OTHER = ReplicaTarget(share=0.75, longest_batch_ms=100.0)


def decided(target: ReplicaTarget = TARGET) -> ToldTargets:
    targets = ToldTargets()
    targets.decided({A: target, B: target}, revision=1)
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
    targets.decided({A: TARGET}, revision=1)
    assert targets.untold({A}) == []
    targets.decided({A: OTHER}, revision=1)
    assert targets.untold({A}) == [A]


def test_a_target_that_changed_while_it_was_being_told_is_told_again() -> None:
    targets = decided()
    telling = targets.of(A)
    targets.decided({A: OTHER}, revision=1)
    targets.told(A, telling)
    assert targets.untold({A}) == [A]


def test_new_latencies_are_told() -> None:
    targets = decided()
    targets.told(A, targets.of(A))
    targets.decided({A: TARGET}, revision=2)
    assert targets.untold({A}) == [A]
    assert targets.of(A) == Told(TARGET, 2)


def test_what_left_and_came_back_is_told_again() -> None:
    targets = decided()
    targets.told(A, targets.of(A))
    assert targets.untold(set()) == []
    assert targets.untold({A}) == [A]
