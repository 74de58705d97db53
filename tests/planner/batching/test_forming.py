"""Batches that form: what a worker may tell gateways of its queue."""

from hypothesis import given
from hypothesis import strategies as st

from planner.batching.aimd import AdditiveQueue
from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.protocol import Verdict
from planner.batching.variant_queues import Item, VariantQueue
from planner.batching.waiting_queries import MOST_FORMING
from planner.latency_table import LatencyTable

FLAT = LatencyTable([(1, 10.0), (8, 10.0)])
"""Batching is free: any batch takes 10 ms."""
FAR_MS = 10_000.0


def busy(*tables: LatencyTable, until_ms: float = 30.0) -> tuple[DeadlineQueue, list[VariantQueue]]:
    """A slice that runs something, with a variant of each table."""
    slice_queue = DeadlineQueue()
    slice_queue.busy_until_ms = until_ms
    slice_queue.set_longest_batch(10.0)
    return slice_queue, [slice_queue.add_variant(f"t{n}", table) for n, table in enumerate(tables)]


def wait(
    slice_queue: DeadlineQueue, queue: VariantQueue, rows: int, due_ms: float = FAR_MS
) -> Item:
    """Queue a query."""
    item = Item(queue, due_ms, rows)
    assert slice_queue.admit(item, 0.0) is Verdict.ADMITTED
    return item


def test_nothing_forms_where_nothing_waits() -> None:
    slice_queue, _ = busy(FLAT)
    assert slice_queue.forming(0.0) == []


def test_what_waits_is_a_batch_that_begins_when_the_running_one_is_done() -> None:
    slice_queue, [queue] = busy(FLAT)
    first = wait(slice_queue, queue, 1)
    wait(slice_queue, queue, 2)
    assert slice_queue.forming(12.0) == [(first, 3, 8, 18.0)]


def test_batches_are_expected_one_after_the_other_by_deadline() -> None:
    slice_queue, [one, two] = busy(FLAT, FLAT)
    later = wait(slice_queue, one, 1, FAR_MS)
    sooner = wait(slice_queue, two, 2, FAR_MS / 2)
    assert slice_queue.forming(0.0) == [(sooner, 2, 8, 30.0), (later, 1, 8, 40.0)]


def test_of_more_than_a_batch_the_rest_may_grow_and_of_a_full_one_nothing() -> None:
    slice_queue, [queue] = busy(FLAT)
    for _ in range(8):
        first = wait(slice_queue, queue, 1)
    assert slice_queue.forming(0.0) == []
    wait(slice_queue, queue, 1, 2 * FAR_MS)
    [(item, *told)] = slice_queue.forming(0.0)
    assert (item.queue, told) == (first.queue, [1, 8, 40.0])


def test_what_a_free_slice_runs_next_counts_as_running() -> None:
    """As at the end of a batch, when its queries are answered and the next one has not begun."""
    slice_queue, [one, two] = busy(FLAT, FLAT, until_ms=0.0)
    wait(slice_queue, one, 3)
    assert slice_queue.forming(0.0) == []
    other = wait(slice_queue, two, 2, 2 * FAR_MS)
    assert slice_queue.forming(0.0) == [(other, 2, 8, 10.0)]


def test_of_many_batches_those_are_told_that_run_first() -> None:
    slice_queue, queues = busy(*[FLAT] * (MOST_FORMING + 5))
    items = [wait(slice_queue, queue, 1, FAR_MS + n) for n, queue in enumerate(queues)]
    assert [each.item for each in slice_queue.forming(0.0)] == items[:MOST_FORMING]


def test_a_queue_that_plans_no_batches_tells_of_none() -> None:
    slice_queue = AdditiveQueue()
    queue = slice_queue.add_variant("t", FLAT)
    slice_queue.busy_until_ms = 30.0
    slice_queue.admit(Item(queue, FAR_MS, 1), 0.0)
    assert slice_queue.forming(0.0) == []


@given(
    asked=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.floats(50.0, 2_000.0))),
    now_ms=st.floats(0.0, 60.0),
)
def test_a_forming_batch_has_room_and_no_more_rows_than_wait(
    asked: list[tuple[int, int, float]], now_ms: float
) -> None:
    slice_queue, queues = busy(FLAT, LatencyTable([(1, 2.0), (4, 4.0)]), FLAT)
    for which, rows, due_ms in asked:
        slice_queue.admit(Item(queues[which], due_ms, rows), 0.0)
    told = slice_queue.forming(now_ms)
    assert [each.in_ms for each in told] == sorted(each.in_ms for each in told)
    for item, rows, most, in_ms in told:
        assert 0 < rows < most <= item.queue.max_batch
        assert rows <= item.queue.rows
        assert in_ms >= 30.0 - now_ms
