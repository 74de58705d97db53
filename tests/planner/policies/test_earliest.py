"""Proteus' batching: what is held back, until when, and who is dropped."""

from math import inf

from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable
from planner.policies.earliest import EarliestQueue

LINEAR = LatencyTable([(1, 10.0), (8, 80.0)])


def slice_queue(
    *deadlines_ms: float, limit: int = 4, waits: bool = True
) -> tuple[EarliestQueue, VariantQueue]:
    """A queue in which queries of one row wait; a batch of b rows takes 10 x b ms."""
    made = EarliestQueue(lambda task, table: limit, waits=waits)
    queue = made.add_variant("t", LINEAR)
    for deadline_ms in deadlines_ms:
        made.admit(Item(queue, deadline_ms, 1), 0.0)
    return made, queue


def rows(made: EarliestQueue, now_ms: float) -> int:
    batch = made.next_batch(now_ms)
    return 0 if batch is None else batch.rows


def test_a_batch_waits_for_one_more_as_long_as_the_first_can() -> None:
    """Two wait: a batch of three takes 30 ms, so it may begin until 70."""
    made, _ = slice_queue(100.0, 120.0)
    assert made.wake_ms(0.0) == 70.0
    assert rows(made, 69.9) == 0
    assert rows(made, 70.0) == 2


def test_every_arrival_brings_the_start_nearer() -> None:
    made, queue = slice_queue(100.0, 120.0)
    made.admit(Item(queue, 130.0, 1), 5.0)
    assert made.wake_ms(5.0) == 60.0


def test_a_full_batch_runs_at_once() -> None:
    made, _ = slice_queue(100.0, 100.0, 100.0, 100.0, 100.0)
    assert rows(made, 0.0) == 4
    assert made.count == 1


def test_nothing_is_held_back_when_told_so() -> None:
    made, _ = slice_queue(100.0, waits=False)
    assert rows(made, 0.0) == 1


def test_a_batch_is_no_larger_than_its_first_query_can_bear() -> None:
    made, _ = slice_queue(25.0, 100.0, 100.0)
    assert made.pop_expired(0.0) == []
    assert rows(made, 0.0) == 2


def test_who_would_be_late_alone_is_dropped() -> None:
    made, _ = slice_queue(9.0, 10.0)
    assert [item.deadline_ms for item in made.pop_expired(0.0)] == [9.0]


def test_once_a_full_batch_waits_who_would_be_late_in_it_is_dropped() -> None:
    """A full batch takes 40 ms. Of six, the first two have 30; with one more gone, no full batch
    waits, and 35 ms are enough for a smaller one."""
    made, _ = slice_queue(30.0, 30.0, 35.0, 100.0, 100.0, 100.0)
    assert [item.deadline_ms for item in made.pop_expired(0.0)] == [30.0, 30.0, 35.0]
    made, _ = slice_queue(30.0, 35.0, 100.0, 100.0)
    assert [item.deadline_ms for item in made.pop_expired(0.0)] == [30.0]


def test_the_limit_may_change_while_somebody_waits() -> None:
    made, queue = slice_queue(100.0, 100.0)
    assert made.backlog_ms(0.0) == 20.0
    made.set_limit(queue, 1)
    assert made.backlog_ms(0.0) == 20.0
    assert rows(made, 0.0) == 1


def test_an_empty_queue_is_never_due() -> None:
    made, queue = slice_queue(100.0)
    made.take(queue)
    assert made.wake_ms(0.0) == inf
