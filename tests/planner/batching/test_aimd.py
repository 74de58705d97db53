"""Adaptive batching: one rule each, with round numbers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching.aimd import AdditiveQueue
from planner.batching.protocol import Batch, Verdict
from planner.batching.variant_queues import Item, VariantQueue
from planner.batching.waiting_deadlines import SPARE
from planner.latency_table import LatencyTable

UNTRUSTED = LatencyTable([(1, 10.0), (16, 10.0)])
"""Up to 16 rows; that a batch takes 10 ms is what the table says, wrongly."""


def queue_of(rows: int, budget_ms: float = 100.0, table: LatencyTable = UNTRUSTED) -> tuple[
    AdditiveQueue, VariantQueue
]:  # fmt: skip
    """A queue with so many queries of one row, admitted at 0 ms."""
    slice_queue = AdditiveQueue()
    queue = slice_queue.add_variant("t", table)
    for _ in range(rows):
        assert slice_queue.admit(Item(queue, budget_ms, 1), 0.0) is Verdict.ADMITTED
    return slice_queue, queue


def run(slice_queue: AdditiveQueue, took_ms: float, now_ms: float = 0.0) -> Batch:
    """Run the next batch, which takes so long."""
    batch = slice_queue.next_batch(now_ms)
    assert batch is not None
    slice_queue.finished(batch.queue, now_ms + took_ms, took_ms)
    return batch


def test_the_limit_grows_by_one_while_the_objective_is_met() -> None:
    slice_queue, _ = queue_of(100)
    assert [run(slice_queue, 100.0).rows for _ in range(5)] == [1, 2, 3, 4, 5]


def test_the_limit_backs_off_by_a_tenth_when_the_objective_is_missed() -> None:
    slice_queue, queue = queue_of(1_000)
    for _ in range(9):
        run(slice_queue, 50.0)
    limits = [slice_queue.limit(queue)]
    for _ in range(4):
        run(slice_queue, 101.0)
        limits.append(slice_queue.limit(queue))
    assert limits == [10, 9, 8, 7, 6]  # 10, 9, 8.1, 7.29, 6.561


def test_the_limit_stays_between_one_row_and_the_largest_batch() -> None:
    slice_queue, queue = queue_of(1_000)
    run(slice_queue, 1_000.0)
    assert slice_queue.limit(queue) == 1
    for _ in range(40):
        run(slice_queue, 1.0)
    assert slice_queue.limit(queue) == 16


def test_a_batch_that_is_not_full_raises_no_limit_but_lowers_it() -> None:
    slice_queue, queue = queue_of(3)
    run(slice_queue, 50.0)  # 1 of 1
    run(slice_queue, 50.0)  # 2 of 2
    assert slice_queue.limit(queue) == 3
    slice_queue.admit(Item(queue, 100.0, 1), 0.0)
    assert run(slice_queue, 50.0).rows == 1
    assert slice_queue.limit(queue) == 3
    slice_queue.admit(Item(queue, 100.0, 1), 0.0)
    run(slice_queue, 101.0)
    assert slice_queue.limit(queue) == 2


def test_a_batch_cut_short_by_a_query_too_large_for_it_is_full() -> None:
    slice_queue, queue = queue_of(2)
    run(slice_queue, 50.0)  # 1 of 1: the limit is 2
    slice_queue.admit(Item(queue, 100.0, 2), 0.0)
    assert run(slice_queue, 50.0).rows == 1
    assert slice_queue.limit(queue) == 3


def test_a_query_above_the_limit_runs_alone() -> None:
    slice_queue, queue = queue_of(0)
    for rows in (8, 1):
        slice_queue.admit(Item(queue, 100.0, rows), 0.0)
    assert [len(run(slice_queue, 50.0).items) for _ in range(2)] == [1, 1]


def test_the_objective_is_the_least_budget_in_the_batch() -> None:
    slice_queue, queue = queue_of(2)
    run(slice_queue, 50.0)  # the limit is 2
    slice_queue.admit(Item(queue, 130.0, 1), 90.0)  # a budget of 40 ms
    assert run(slice_queue, 41.0, now_ms=90.0).rows == 2
    assert slice_queue.limit(queue) == 1


def test_what_a_query_waited_is_no_part_of_the_objective() -> None:
    slice_queue, queue = queue_of(1)
    run(slice_queue, 100.0, now_ms=90.0)
    assert slice_queue.limit(queue) == 2


def test_first_in_first_out_whatever_the_deadline() -> None:
    slice_queue, queue = queue_of(0)
    for deadline_ms in (300.0, 100.0, 200.0):
        slice_queue.admit(Item(queue, deadline_ms, 1), 0.0)
    ran = [i.deadline_ms for _ in range(2) for i in run(slice_queue, 10.0).items]
    assert ran == [300.0, 100.0, 200.0]


def test_the_variant_with_the_oldest_query_runs_next() -> None:
    slice_queue = AdditiveQueue()
    one, other = slice_queue.add_variant("t", UNTRUSTED), slice_queue.add_variant("u", UNTRUSTED)
    for queue in (other, one, one, other):
        slice_queue.admit(Item(queue, 100.0, 1), 0.0)
    assert [run(slice_queue, 10.0).queue for _ in range(3)] == [other, one, one]


def test_variants_learn_apart() -> None:
    slice_queue, queue = queue_of(10)
    other = slice_queue.add_variant("t", UNTRUSTED)
    run(slice_queue, 10.0)
    assert (slice_queue.limit(queue), slice_queue.limit(other)) == (2, 1)


def test_no_query_is_refused_because_of_a_deadline() -> None:
    slice_queue, queue = queue_of(1_000)
    assert slice_queue.admit(Item(queue, 0.001, 1), 0.0) is Verdict.ADMITTED


def test_a_full_queue_refuses() -> None:
    slice_queue = AdditiveQueue(max_queue=1)
    queue = slice_queue.add_variant("t", UNTRUSTED)
    found = [slice_queue.admit(Item(queue, 100.0, 1), 0.0) for _ in range(2)]
    assert found == [Verdict.ADMITTED, Verdict.QUEUE_FULL]


def test_the_expired_come_out_from_the_middle_too() -> None:
    slice_queue, queue = queue_of(0)
    for deadline_ms in (300.0, 20.0, 200.0, 10.0):
        slice_queue.admit(Item(queue, deadline_ms, 1), 0.0)
    assert [i.deadline_ms for i in slice_queue.pop_expired(50.0)] == [10.0, 20.0]
    assert [i.deadline_ms for i in slice_queue.take(queue)] == [200.0, 300.0]


def test_before_anything_was_observed_the_table_predicts() -> None:
    slice_queue, _ = queue_of(3)
    assert slice_queue.backlog_ms(0.0) == 30.0  # three batches of one row


def test_the_prediction_follows_what_was_observed() -> None:
    """5 ms and 5 ms a row, whatever the table says."""
    slice_queue, queue = queue_of(1_000)
    for rows in range(1, 17):
        assert run(slice_queue, 5.0 + 5.0 * rows).rows == rows
    batch = slice_queue.next_batch(0.0)
    assert batch is not None
    assert round(batch.predicted_ms, 6) == 85.0
    slice_queue.finished(queue, 85.0, 85.0)
    slice_queue.take(queue)
    slice_queue.admit(Item(queue, 1_000.0, 3), 85.0)
    assert round(slice_queue.backlog_ms(85.0), 6) == 20.0


def test_what_ran_after_its_variant_was_removed_is_not_learned() -> None:
    slice_queue, queue = queue_of(1)
    assert slice_queue.next_batch(0.0) is not None
    slice_queue.remove_variant(queue)
    slice_queue.finished(queue, 10.0, 10.0)
    assert slice_queue.busy_until_ms == 10.0


def test_a_long_wait_leaves_no_trace_of_what_left() -> None:
    slice_queue, queue = queue_of(0)
    for n in range(1_000):
        slice_queue.admit(Item(queue, 1e9, 1), float(n))
        run(slice_queue, 1.0, now_ms=float(n))
    assert len(slice_queue._deadlines) <= 2 * SPARE


@settings(max_examples=100, deadline=None)
@given(st.floats(0.5, 20.0), st.floats(0.0, 30.0), st.floats(20.0, 100.0))
def test_the_limit_settles_where_batches_meet_the_objective(
    row_ms: float, fixed_ms: float, objective_ms: float
) -> None:
    """Under a standing queue it goes to and fro between 0.9 x - 1 and x + 1, x the largest batch
    in time: additive increase passes it by at most a row, a back-off undoes a tenth."""
    slice_queue, queue = queue_of(0)
    best = max(1.0, min(16.0, (objective_ms - fixed_ms) / row_ms))
    seen = []
    for n in range(80):
        while slice_queue.count < 16:
            slice_queue.admit(Item(queue, objective_ms, 1), 0.0)
        batch = slice_queue.next_batch(0.0)
        assert batch is not None
        slice_queue.finished(queue, 0.0, fixed_ms + row_ms * batch.rows)
        if n >= 40:
            seen.append(batch.rows)
    assert best * 0.9 - 2.0 <= min(seen) <= max(seen) <= best + 1.0


def test_a_new_table_bounds_the_limit_unless_what_waits_would_not_fit() -> None:
    slice_queue, queue = queue_of(0)
    slice_queue.admit(Item(queue, 100.0, 8), 0.0)
    slice_queue.replan(queue, LatencyTable([(1, 10.0), (4, 10.0)]), 0.0)
    assert queue.max_batch == 16
    slice_queue.take(queue)
    slice_queue.replan(queue, LatencyTable([(1, 10.0), (4, 10.0)]), 0.0)
    assert queue.max_batch == 4
    assert slice_queue.admit(Item(queue, 100.0, 8), 0.0) is Verdict.TOO_MANY_ROWS
