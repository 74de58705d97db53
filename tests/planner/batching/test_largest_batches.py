"""Every batch against all others that could have run: which is the largest with nobody late."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.protocol import Verdict
from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable

MOST = 4
"""Rows of the largest batch."""
Deadlines = tuple[tuple[float, ...], ...]
"""Of the queries that wait, by variant, ascending."""


def in_time(waiting: Deadlines, now_ms: float, tables: tuple[LatencyTable, ...]) -> bool:
    """Whether all may be in time, by trying every order of batches."""

    @cache
    def left(waiting: Deadlines, now_ms: float) -> bool:
        if not any(waiting):
            return True
        for place, deadlines in enumerate(waiting):
            for rows in range(1, min(MOST, len(deadlines)) + 1):
                done_ms = now_ms + tables[place].ms[rows]
                rest = (*waiting[:place], deadlines[rows:], *waiting[place + 1 :])
                if done_ms <= deadlines[0] and left(rest, done_ms):
                    return True
        return False

    return left(waiting, now_ms)


latencies = st.tuples(st.integers(1, 10), st.integers(1, 6)).map(
    lambda fixed_and_each: LatencyTable(
        [(rows, float(fixed_and_each[0] + fixed_and_each[1] * rows)) for rows in range(1, MOST + 1)]
    )
)
asked = st.lists(st.tuples(st.integers(0, 1), st.integers(5, 90).map(float)), max_size=7)


@given(st.tuples(latencies, latencies), asked)
def test_a_batch_that_may_be_as_long_as_it_likes_is_the_largest_that_makes_nobody_late(
    tables: tuple[LatencyTable, LatencyTable], asked: list[tuple[int, float]]
) -> None:
    slice_queue = DeadlineQueue()
    slice_queue.set_longest_batch(1e6)
    queues = [slice_queue.add_variant(str(place), one) for place, one in enumerate(tables)]
    waiting: list[tuple[float, ...]] = [(), ()]
    for place, deadline_ms in asked:
        item = Item(queues[place], deadline_ms, 1)
        if slice_queue.admit(item, 0.0) is Verdict.ADMITTED:
            waiting[place] = tuple(sorted((*waiting[place], deadline_ms)))
    assert in_time(tuple(waiting), 0.0, tables)

    now_ms = 0.0
    while (batch := slice_queue.next_batch(now_ms)) is not None:
        place, rows = queues.index(batch.queue), len(batch.items)
        done_ms = now_ms + batch.predicted_ms
        assert all(done_ms <= item.deadline_ms for item in batch.items)
        for more in range(rows + 1, min(MOST, len(waiting[place])) + 1):
            rest = tuple(
                deadlines[more:] if one == place else deadlines
                for one, deadlines in enumerate(waiting)
            )
            late_ms = now_ms + tables[place].ms[more]
            assert late_ms > waiting[place][0] or not in_time(rest, late_ms, tables)
        waiting[place] = waiting[place][rows:]
        now_ms = done_ms
        slice_queue.finished(batch.queue, now_ms, batch.predicted_ms)


def test_half_of_the_tightest_time_is_all_that_a_batch_takes_where_no_plan_says_more() -> None:
    """So there is room for who comes while it runs: 40 of 64 run, though all would be in time."""
    slice_queue = DeadlineQueue()
    queue: VariantQueue = slice_queue.add_variant("a", LatencyTable([(1, 11.0), (64, 74.0)]))
    for _ in range(64):
        assert slice_queue.admit(Item(queue, 100.0, 1), 0.0) is Verdict.ADMITTED
    batch = slice_queue.next_batch(0.0)
    assert batch is not None
    assert (len(batch.items), batch.predicted_ms) == (40, 50.0)


def test_a_query_that_is_refused_makes_no_batches_of_others_longer() -> None:
    """Batches of up to 4 rows are planned, and one of 32 comes that has no time."""
    slice_queue = DeadlineQueue()
    table = LatencyTable([(1, 10.0), (32, 41.0)])
    queue: VariantQueue = slice_queue.add_variant("a", table)
    slice_queue.set_longest_batch(table.ms[4])
    slice_queue.busy_until_ms = 10.0
    for _ in range(40):
        assert slice_queue.admit(Item(queue, 1_000.0, 1), 0.0) is Verdict.ADMITTED
    for deadline_ms in (45.0, 10_000.0):  # the later one is admitted, and runs as a whole
        refused = slice_queue.admit(Item(queue, deadline_ms, 32), 0.0) is not Verdict.ADMITTED
        assert refused is (deadline_ms == 45.0)
        batch = slice_queue.next_batch(10.0)
        assert batch is not None
        assert (batch.rows > 4) is not refused
