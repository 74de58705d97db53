"""Admission and batches: cases with round numbers, and what must hold for any queue."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching.deadline_queue import EXACT_QUEUE, DeadlineQueue
from planner.batching.protocol import Verdict
from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable

FLAT = LatencyTable([(1, 10.0), (8, 10.0)])
"""Batching is free: any batch takes 10 ms."""
LINEAR = LatencyTable([(1, 10.0), (8, 80.0)])
"""Batching gains nothing: 10 ms a row."""


def item(queue: VariantQueue, deadline_ms: float, rows: int = 1) -> Item:
    return Item(queue, deadline_ms, rows)


def admit(
    slice_queue: DeadlineQueue, queue: VariantQueue, *deadlines_ms: float, now_ms: float = 0.0
) -> list[bool]:
    found = [slice_queue.admit(item(queue, d), now_ms) for d in deadlines_ms]
    return [verdict is Verdict.ADMITTED for verdict in found]


def run_all(slice_queue: DeadlineQueue, now_ms: float = 0.0) -> list[tuple[float, list[float]]]:
    """Run the queue in virtual time: when each batch ended and its queries' deadlines."""
    done: list[tuple[float, list[float]]] = []
    while (batch := slice_queue.next_batch(now_ms)) is not None:
        now_ms += batch.predicted_ms
        slice_queue.finished(batch.queue, now_ms, batch.predicted_ms)
        done.append((now_ms, [i.deadline_ms for i in batch.items]))
    return done


def test_a_query_that_fits_is_admitted() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    assert admit(slice_queue, queue, 10.0) == [True]


def test_a_query_whose_own_latency_is_too_long_is_refused() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    assert slice_queue.admit(item(queue, 9.0), 0.0) is Verdict.WOULD_BE_LATE


def test_what_is_left_of_the_running_batch_counts() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    slice_queue.busy_until_ms = 5.0
    assert admit(slice_queue, queue, 14.0, 15.0) == [False, True]


def test_the_correction_counts() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    slice_queue.correct(queue, 2.0)
    assert admit(slice_queue, queue, 19.0, 20.0) == [False, True]


def test_an_earlier_deadline_is_refused_if_it_makes_an_admitted_query_late() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    assert admit(slice_queue, queue, 15.0, 12.0) == [True, False]


def test_an_earlier_deadline_is_admitted_and_runs_first_if_no_query_is_late() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    assert admit(slice_queue, queue, 25.0, 12.0) == [True, True]
    assert run_all(slice_queue) == [(10.0, [12.0]), (20.0, [25.0])]


def test_batching_is_counted_on() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", FLAT)
    assert admit(slice_queue, queue, *[10.0] * 9) == [True] * 8 + [False]
    assert run_all(slice_queue) == [(10.0, [10.0] * 8)]


def test_a_batch_grows_no_further_than_its_head_allows() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    assert admit(slice_queue, queue, 35.0, 100.0, 100.0, 100.0) == [True] * 4
    assert run_all(slice_queue) == [(30.0, [35.0, 100.0, 100.0]), (40.0, [100.0])]


def test_a_batch_grows_no_further_than_another_variant_allows() -> None:
    slice_queue = DeadlineQueue()
    one, other = slice_queue.add_variant("a", LINEAR), slice_queue.add_variant("a", LINEAR)
    assert admit(slice_queue, one, 30.0, 100.0, 100.0) == [True] * 3
    assert admit(slice_queue, other, 35.0) == [True]
    assert run_all(slice_queue) == [(20.0, [30.0, 100.0]), (30.0, [35.0]), (40.0, [100.0])]


def test_rows_of_a_query_stay_together() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", FLAT)
    for _ in range(2):
        assert slice_queue.admit(item(queue, 1_000.0, 5), 0.0) is Verdict.ADMITTED
    assert run_all(slice_queue) == [(10.0, [1_000.0]), (20.0, [1_000.0])]


def test_more_rows_than_the_largest_batch_are_refused() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", FLAT)
    assert slice_queue.admit(item(queue, 1_000.0, 9), 0.0) is Verdict.TOO_MANY_ROWS


def test_a_full_queue_refuses() -> None:
    slice_queue = DeadlineQueue(max_queue=1)
    queue = slice_queue.add_variant("a", FLAT)
    assert admit(slice_queue, queue, 1_000.0) == [True]
    assert slice_queue.admit(item(queue, 1_000.0), 0.0) is Verdict.QUEUE_FULL


def test_expired_queries_are_taken_out_and_do_not_run() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    admit(slice_queue, queue, 10.0, 100.0)
    assert [i.deadline_ms for i in slice_queue.pop_expired(11.0)] == [10.0]
    assert run_all(slice_queue, 11.0) == [(21.0, [100.0])]


def test_a_late_queue_catches_up_in_full_batches() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    admit(slice_queue, queue, 40.0, 40.0, 40.0, 40.0)
    batch = slice_queue.next_batch(35.0)
    assert batch is not None
    assert batch.rows == 4


def test_the_backlog_is_what_runs_and_what_waits() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LINEAR)
    admit(slice_queue, queue, 1_000.0, 1_000.0)
    slice_queue.busy_until_ms = 7.0
    assert slice_queue.backlog_ms(5.0) == 22.0


def overloaded(share_a: float, share_b: float) -> tuple[DeadlineQueue, VariantQueue, VariantQueue]:
    """Task ``a`` has used the last 100 ms, runs for 10 ms more and has 60 ms queued; ``b`` has
    asked once."""
    slice_queue = DeadlineQueue()
    a, b = (
        slice_queue.add_variant("a", LINEAR, share_a),
        slice_queue.add_variant("b", LINEAR, share_b),
    )
    slice_queue.finished(a, 0.0, 100.0)
    slice_queue.busy_until_ms = 10.0
    assert admit(slice_queue, a, *[100.0] * 6) == [True] * 6
    assert slice_queue.admit(item(b, 15.0), 0.0) is Verdict.WOULD_BE_LATE
    return slice_queue, a, b


def test_a_task_above_its_share_is_refused_first() -> None:
    slice_queue, a, b = overloaded(0.5, 0.5)
    assert slice_queue.admit(item(a, 100.0), 0.0) is Verdict.OVER_SHARE
    assert slice_queue.admit(item(b, 100.0), 0.0) is Verdict.ADMITTED


def test_without_a_plan_tasks_share_equally() -> None:
    slice_queue, a, b = overloaded(0.0, 0.0)
    assert slice_queue.admit(item(a, 100.0), 0.0) is Verdict.OVER_SHARE
    assert slice_queue.admit(item(b, 100.0), 0.0) is Verdict.ADMITTED


def test_an_idle_slice_takes_a_query_whoever_was_refused_before() -> None:
    """Nobody waits and nothing runs: another task's query would not be answered instead."""
    slice_queue, a, _ = overloaded(0.5, 0.5)
    for entry in slice_queue.take(a):
        assert entry.deadline_ms == 100.0
    slice_queue.busy_until_ms = 0.0
    assert slice_queue.admit(item(a, 15.0), 0.0) is Verdict.ADMITTED


def test_a_query_that_is_late_on_an_idle_slice_holds_no_other_task_back() -> None:
    """It would have been late in any case."""
    slice_queue = DeadlineQueue()
    a, b = slice_queue.add_variant("a", LINEAR, 0.5), slice_queue.add_variant("b", LINEAR, 0.5)
    slice_queue.finished(a, 0.0, 100.0)
    assert slice_queue.admit(item(b, 5.0), 0.0) is Verdict.WOULD_BE_LATE
    assert admit(slice_queue, a, *[100.0] * 11) == [True] * 10 + [False]


def test_nor_does_one_that_is_late_in_any_case_while_others_run() -> None:
    slice_queue = DeadlineQueue()
    a, b = slice_queue.add_variant("a", LINEAR, 0.5), slice_queue.add_variant("b", LINEAR, 0.5)
    slice_queue.finished(a, 0.0, 100.0)
    slice_queue.busy_until_ms = 10.0
    assert admit(slice_queue, b, 9.0, 0.0) == [False, False]
    assert admit(slice_queue, a, *[100.0] * 10) == [True] * 9 + [False]


def test_who_runs_for_more_than_half_of_its_budget_may_wait_for_half_of_the_rest() -> None:
    """It has 14 ms and runs for 10: 2 of the 4 that are left."""
    slice_queue, a, _ = overloaded(0.5, 0.5)
    slice_queue.take(a)
    slice_queue.busy_until_ms = 2.5
    assert slice_queue.admit(item(a, 14.0), 0.0) is Verdict.OVER_SHARE
    slice_queue.busy_until_ms = 2.0
    assert slice_queue.admit(item(a, 14.0), 0.0) is Verdict.ADMITTED


def test_a_task_that_is_alone_may_use_all_of_its_budget() -> None:
    slice_queue = DeadlineQueue()
    a = slice_queue.add_variant("a", LINEAR, 0.1)
    slice_queue.add_variant("b", LINEAR, 0.9)
    slice_queue.finished(a, 0.0, 100.0)
    assert admit(slice_queue, a, *[100.0] * 11) == [True] * 10 + [False]


def test_a_task_above_its_share_is_not_held_back_while_no_task_goes_short() -> None:
    slice_queue = DeadlineQueue()
    a, b = slice_queue.add_variant("a", LINEAR, 0.1), slice_queue.add_variant("b", LINEAR, 0.9)
    slice_queue.finished(a, 0.0, 100.0)
    admit(slice_queue, b, 100.0)
    assert admit(slice_queue, a, *[100.0] * 10) == [True] * 9 + [False]


def test_a_task_above_its_share_is_held_back_once_another_was_refused() -> None:
    slice_queue = DeadlineQueue()
    a, b = slice_queue.add_variant("a", LINEAR, 0.1), slice_queue.add_variant("b", LINEAR, 0.9)
    slice_queue.finished(a, 0.0, 100.0)
    slice_queue.busy_until_ms = 10.0
    assert admit(slice_queue, b, 100.0, 15.0) == [True, False]
    assert admit(slice_queue, a, *[100.0] * 4) == [True] * 3 + [False]


def test_a_long_queue_with_far_deadlines_keeps_no_near_one_out() -> None:
    """1,000 far ones take until 1,000 ms of 2,000: near ones enter until 100 ms are full."""
    slice_queue = DeadlineQueue()
    far = slice_queue.add_variant("a", LatencyTable([(1, 1.0)]))
    near = slice_queue.add_variant("a", LatencyTable([(1, 1.0)]))
    assert all(admit(slice_queue, far, *[2_000.0] * 1_000))
    assert admit(slice_queue, near, *[100.0] * 101) == [True] * 100 + [False]
    assert [done_ms for done_ms, _ in run_all(slice_queue)] == [float(n) for n in range(1, 1_101)]


def test_a_long_queue_is_filled_to_the_last_place() -> None:
    """As many as fit before their deadline enter, whatever the order in which they come."""
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LatencyTable([(1, 1.0)]))
    deadlines_ms = [float(n * 7 % 1_000 + 1) for n in range(1_000)]
    assert admit(slice_queue, queue, *deadlines_ms) == [True] * 1_000
    assert admit(slice_queue, queue, 1_000.0, 500.0, 1_001.0) == [False, False, True]


def test_overload_does_not_keep_batches_small() -> None:
    """Twice what full batches of 64 serve: batches stay nearly full.

    If a query were admitted whenever there is time for one more batch of one, the queue would fill
    with batches that have no slack to grow.
    """
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LatencyTable([(1, 4.0), (64, 16.0)]))
    free_ms = 0.0
    rows: list[int] = []
    for n in range(4_000):
        now_ms = n / 8
        while slice_queue.count and free_ms <= now_ms:
            batch = slice_queue.next_batch(free_ms)
            assert batch is not None
            free_ms += batch.predicted_ms
            rows.append(batch.rows)
        free_ms = max(free_ms, now_ms)
        slice_queue.admit(item(queue, now_ms + 80.0), now_ms)
    assert min(rows[4:]) >= 56


linear = st.integers(5, 15).map(lambda ms: LatencyTable([(1, ms), (8, 8.0 * ms)]))
steps = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(
    lambda steps: LatencyTable([(2**i, float(sum(steps[: i + 1]))) for i in range(len(steps))])
)
tables = linear | steps
arrivals = st.lists(
    st.tuples(
        st.integers(0, 30),  # ms after the one before
        st.integers(0, 2),  # queue
        st.integers(1, 4),  # rows
        st.integers(1, 250),  # budget in ms
    ),
    max_size=60,
)


leaves = st.dictionaries(st.integers(0, 59), st.integers(1, 5), max_size=8)
"""After which query every so many-th of those that wait leaves."""


@settings(max_examples=300, deadline=None)
@given(
    st.lists(tables, min_size=3, max_size=3),
    arrivals,
    st.sampled_from((0, 4, EXACT_QUEUE)),
    st.just({}) | leaves,
)
def test_with_exact_latencies_no_admitted_query_is_late(
    found: list[LatencyTable],
    queries: list[tuple[int, int, int, int]],
    exact_queue: int,
    leaving: dict[int, int],
) -> None:
    """Also: no batch exceeds its table, its queries are the earliest of its queue, none is lost;
    and all of that where others leave."""
    slice_queue = DeadlineQueue(exact_queue=exact_queue)
    queues = [slice_queue.add_variant(f"task-{i % 2}", table, 0.5) for i, table in enumerate(found)]
    waiting: list[Item] = []
    answered: list[Item] = []
    free_ms = now_ms = 0.0

    def dispatch(until_ms: float) -> None:
        """Run what begins before ``until_ms``."""
        nonlocal free_ms
        while waiting and free_ms < until_ms:
            head_ms = min(i.deadline_ms for i in waiting)
            batch = slice_queue.next_batch(free_ms)
            assert batch is not None
            assert batch.rows == sum(i.rows for i in batch.items) <= batch.queue.max_batch
            assert batch.items[0].deadline_ms == head_ms
            taken = sorted(i.deadline_ms for i in batch.items)
            own = sorted(i.deadline_ms for i in waiting if i.queue is batch.queue)
            assert own[: len(taken)] == taken
            free_ms += batch.predicted_ms
            for done in batch.items:
                waiting.remove(done)
                answered.append(done)
                assert free_ms <= done.deadline_ms + 1e-6
            if free_ms <= until_ms:
                slice_queue.finished(batch.queue, free_ms, batch.predicted_ms)

    admitted = 0
    for number, (gap_ms, index, rows, budget_ms) in enumerate(queries):
        now_ms += gap_ms
        dispatch(now_ms)
        free_ms = max(free_ms, now_ms)
        query = item(queues[index], now_ms + budget_ms, rows)
        if slice_queue.admit(query, now_ms) is Verdict.ADMITTED:
            waiting.append(query)
            admitted += 1
        if every := leaving.get(number):
            left = set(waiting[::every])
            assert set(slice_queue.withdraw(left.__contains__, now_ms)) == left
            waiting[:] = [each for each in waiting if each not in left]
            admitted -= len(left)
            kept = totals(slice_queue)
            scheduled = slice_queue._schedule
            slice_queue.recount()
            assert totals(slice_queue) == pytest.approx(kept)
            slice_queue._schedule = scheduled
    dispatch(float("inf"))
    assert len(answered) == admitted
    assert slice_queue.count == 0
    assert slice_queue.work_ms == 0.0


def test_a_table_that_ends_before_batches_that_were_planned() -> None:
    """A profile that was measured anew has smaller batches: what waits runs in those."""
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", LatencyTable([(1, 10.0), (8, 20.0)]))
    slice_queue.set_longest_batch(100.0)
    slice_queue.busy_until_ms = 50.0
    deadlines_ms = [72.0 + n / 100 for n in range(8)] + [95.0 + n / 100 for n in range(8)]
    assert all(admit(slice_queue, queue, *deadlines_ms))

    slice_queue.replan(queue, LatencyTable([(1, 10.0), (4, 15.0)]), 0.0)
    ran = run_all(slice_queue, now_ms=50.0)
    assert [len(batch) for _, batch in ran] == [4, 4, 4, 4]
    assert (slice_queue.count, slice_queue.work_ms) == (0, 0.0)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(tables, min_size=3, max_size=3),
    arrivals,
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 2), tables), max_size=8),
    st.sampled_from((0, 4, EXACT_QUEUE)),
)
def test_nothing_is_lost_whatever_tables_come(
    found: list[LatencyTable],
    queries: list[tuple[int, int, int, int]],
    changes: list[tuple[int, int, LatencyTable]],
    exact_queue: int,
) -> None:
    """Totals stay true as well: counted anew, they are the same."""
    slice_queue = DeadlineQueue(exact_queue=exact_queue)
    queues = [slice_queue.add_variant(f"task-{i % 2}", table, 0.5) for i, table in enumerate(found)]
    free_ms = now_ms = 0.0
    admitted = ran = 0
    for number, (gap_ms, index, rows, budget_ms) in enumerate(queries):
        now_ms += gap_ms
        while free_ms <= now_ms and (batch := slice_queue.next_batch(free_ms)) is not None:
            assert batch.rows <= max(batch.queue.max_batch, batch.items[0].rows)
            free_ms += batch.predicted_ms
            ran += len(batch.items)
            slice_queue.finished(batch.queue, free_ms, batch.predicted_ms)
        free_ms = max(free_ms, now_ms)
        query = item(queues[index], now_ms + budget_ms, rows)
        admitted += slice_queue.admit(query, now_ms) is Verdict.ADMITTED
        for at, changed, table in changes:
            if at == number:
                slice_queue.replan(queues[changed], table, 0.0)
        if number % 16 == 15:  # the schedule is made anew as well
            kept = totals(slice_queue)
            slice_queue.recount()
            assert totals(slice_queue) == pytest.approx(kept)
    ran += sum(len(batch) for _, batch in run_all(slice_queue, free_ms))
    assert ran == admitted
    assert slice_queue.count == 0


def totals(slice_queue: DeadlineQueue) -> tuple[float, ...]:
    rows = (queue.rows for share in slice_queue._shares.values() for queue in share.queues)
    return (slice_queue.count, slice_queue.work_ms, slice_queue._floor_ms, *rows)


def test_a_mistake_in_a_schedule_loses_nobody() -> None:
    slice_queue = DeadlineQueue()
    queue = slice_queue.add_variant("a", FLAT)
    slice_queue.busy_until_ms = 10.0
    assert all(admit(slice_queue, queue, *[21.0] * 8, *[31.0] * 8))
    assert slice_queue._schedule is not None
    slice_queue._schedule.take = None  # type: ignore[method-assign, assignment]

    with pytest.raises(TypeError):
        slice_queue.next_batch(10.0)
    assert len(queue.heap) == 16
    slice_queue.recount()
    assert [len(batch) for _, batch in run_all(slice_queue, 10.0)] == [8, 8]


@settings(max_examples=100, deadline=None)
@given(st.lists(tables, min_size=3, max_size=3), arrivals)
def test_the_backlog_bounds_what_running_everything_takes(
    found: list[LatencyTable], queries: list[tuple[int, int, int, int]]
) -> None:
    slice_queue = DeadlineQueue()
    queues = [slice_queue.add_variant("task", table) for table in found]
    for _, index, rows, budget_ms in queries:
        slice_queue.admit(item(queues[index], 10_000.0 + budget_ms, rows), 0.0)
    backlog_ms = slice_queue.backlog_ms(0.0)
    done = run_all(slice_queue)
    assert (done[-1][0] if done else 0.0) <= backlog_ms + 1e-6
