"""How long batches are where no plan says it: by the tightest budgets of those that can be met."""

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.protocol import Verdict
from planner.batching.tight_budgets import TightBudgets
from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable

TABLE = LatencyTable([(1, 1.0), (8, 4.5), (32, 16.5)])
"""Half a millisecond, and as much again for each row."""


def asked(slice_queue: DeadlineQueue, queue: VariantQueue, budget_ms: float, count: int) -> Verdict:
    """Ask with that much time left, one after the other, on an idle slice; the last verdict."""
    for _ in range(count):
        verdict = slice_queue.admit(Item(queue, budget_ms, 1), 0.0)
        while slice_queue.next_batch(0.0) is not None:
            slice_queue.finished(queue, 0.0, 0.0)
    return verdict


def test_batches_take_half_of_the_tightest_budget() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", TABLE)
    asked(slice_queue, queue, 20.0, 1)
    assert queue.limit == 19
    asked(slice_queue, queue, 10.0, 1)
    assert queue.limit == 9


def test_a_moment_in_which_all_stood_still_shortens_no_batches() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", TABLE)
    asked(slice_queue, queue, 20.0, 1_000)
    asked(slice_queue, queue, 3.0, 20)
    asked(slice_queue, queue, 20.0, 1)
    assert queue.limit == 19


def test_three_of_a_hundred_that_need_it_quickly_shorten_batches() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", TABLE)
    for _ in range(10):
        asked(slice_queue, queue, 20.0, 97)
        asked(slice_queue, queue, 10.0, 3)
    assert queue.limit == 9


def test_the_budgets_of_seconds_ago_are_forgotten() -> None:
    budgets = TightBudgets()
    budgets.saw(10.0, 0.0)
    for at_ms in (1_000.0, 3_000.0, 4_000.0):
        budgets.saw(20.0, at_ms)
    assert budgets.tight_ms == 10.0
    budgets.saw(20.0, 5_500.0)
    assert budgets.tight_ms == 20.0


def test_few_queries_all_count() -> None:
    budgets = TightBudgets()
    for at_ms in range(40):
        budgets.saw(20.0, float(at_ms))
    budgets.saw(11.0, 41.0)
    assert budgets.tight_ms == 11.0


def test_who_comes_too_late_in_any_case_shortens_no_batches() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", TABLE)
    asked(slice_queue, queue, 20.0, 1)
    assert asked(slice_queue, queue, 0.5, 200) is Verdict.WOULD_BE_LATE
    asked(slice_queue, queue, 20.0, 1)
    assert queue.limit == 19
