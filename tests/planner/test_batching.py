"""Admission and batches: cases with round numbers, and what must hold for any queue."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching import EXACT_QUEUE, Schedule, Verdict
from planner.lanes import Item, Lane, learned, relaxed
from planner.types import LatencyTable

FLAT = LatencyTable([(1, 10.0), (8, 10.0)])
"""Batching is free: any batch takes 10 ms."""
LINEAR = LatencyTable([(1, 10.0), (8, 80.0)])
"""Batching gains nothing: 10 ms a row."""


def item(lane: Lane, deadline_ms: float, rows: int = 1) -> Item:
    return Item(lane, deadline_ms, rows)


def admit(schedule: Schedule, lane: Lane, *deadlines_ms: float, now_ms: float = 0.0) -> list[bool]:
    found = [schedule.admit(item(lane, d), now_ms) for d in deadlines_ms]
    return [verdict is Verdict.ADMITTED for verdict in found]


def run_all(schedule: Schedule, now_ms: float = 0.0) -> list[tuple[float, list[float]]]:
    """Run the queue in virtual time: when each batch ended and its queries' deadlines."""
    done: list[tuple[float, list[float]]] = []
    while (batch := schedule.next_batch(now_ms)) is not None:
        now_ms += batch.predicted_ms
        schedule.finished(batch.lane, now_ms, batch.predicted_ms)
        done.append((now_ms, [i.deadline_ms for i in batch.items]))
    return done


def test_a_query_that_fits_is_admitted() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    assert admit(schedule, lane, 10.0) == [True]


def test_a_query_whose_own_latency_is_too_long_is_refused() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    assert schedule.admit(item(lane, 9.0), 0.0) is Verdict.WOULD_BE_LATE


def test_what_is_left_of_the_running_batch_counts() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    schedule.busy_until_ms = 5.0
    assert admit(schedule, lane, 14.0, 15.0) == [False, True]


def test_the_correction_counts() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    schedule.correct(lane, 2.0)
    assert admit(schedule, lane, 19.0, 20.0) == [False, True]


def test_an_earlier_deadline_is_refused_if_it_makes_an_admitted_query_late() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    assert admit(schedule, lane, 15.0, 12.0) == [True, False]


def test_an_earlier_deadline_is_admitted_and_runs_first_if_nobody_is_late() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    assert admit(schedule, lane, 25.0, 12.0) == [True, True]
    assert run_all(schedule) == [(10.0, [12.0]), (20.0, [25.0])]


def test_batching_is_counted_on() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", FLAT)
    assert admit(schedule, lane, *[10.0] * 9) == [True] * 8 + [False]
    assert run_all(schedule) == [(10.0, [10.0] * 8)]


def test_a_batch_grows_no_further_than_its_head_allows() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    assert admit(schedule, lane, 35.0, 100.0, 100.0, 100.0) == [True] * 4
    assert run_all(schedule) == [(30.0, [35.0, 100.0, 100.0]), (40.0, [100.0])]


def test_a_batch_grows_no_further_than_another_variant_allows() -> None:
    schedule = Schedule()
    one, other = schedule.add_lane("a", LINEAR), schedule.add_lane("a", LINEAR)
    assert admit(schedule, one, 30.0, 100.0, 100.0) == [True] * 3
    assert admit(schedule, other, 35.0) == [True]
    assert run_all(schedule) == [(20.0, [30.0, 100.0]), (30.0, [35.0]), (40.0, [100.0])]


def test_rows_of_a_query_stay_together() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", FLAT)
    for _ in range(2):
        assert schedule.admit(item(lane, 1_000.0, 5), 0.0) is Verdict.ADMITTED
    assert run_all(schedule) == [(10.0, [1_000.0]), (20.0, [1_000.0])]


def test_more_rows_than_the_largest_batch_are_refused() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", FLAT)
    assert schedule.admit(item(lane, 1_000.0, 9), 0.0) is Verdict.TOO_MANY_ROWS


def test_a_full_queue_refuses() -> None:
    schedule = Schedule(max_queue=1)
    lane = schedule.add_lane("a", FLAT)
    assert admit(schedule, lane, 1_000.0) == [True]
    assert schedule.admit(item(lane, 1_000.0), 0.0) is Verdict.QUEUE_FULL


def test_expired_queries_are_taken_out_and_do_not_run() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    admit(schedule, lane, 10.0, 100.0)
    assert [i.deadline_ms for i in schedule.pop_expired(11.0)] == [10.0]
    assert run_all(schedule, 11.0) == [(21.0, [100.0])]


def test_a_late_queue_catches_up_in_full_batches() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    admit(schedule, lane, 40.0, 40.0, 40.0, 40.0)
    batch = schedule.next_batch(35.0)
    assert batch is not None
    assert batch.rows == 4


def test_the_backlog_is_what_runs_and_what_waits() -> None:
    schedule = Schedule()
    lane = schedule.add_lane("a", LINEAR)
    admit(schedule, lane, 1_000.0, 1_000.0)
    schedule.busy_until_ms = 7.0
    assert schedule.backlog_ms(5.0) == 22.0


def overloaded(share_a: float, share_b: float) -> tuple[Schedule, Lane, Lane]:
    """Task ``a`` has used the last 100 ms and has 60 ms queued; ``b`` has asked once."""
    schedule = Schedule()
    a, b = schedule.add_lane("a", LINEAR, share_a), schedule.add_lane("b", LINEAR, share_b)
    schedule.finished(a, 0.0, 100.0)
    assert admit(schedule, a, *[100.0] * 6) == [True] * 6
    assert schedule.admit(item(b, 5.0), 0.0) is Verdict.WOULD_BE_LATE
    return schedule, a, b


def test_a_task_above_its_share_is_refused_first() -> None:
    schedule, a, b = overloaded(0.5, 0.5)
    assert schedule.admit(item(a, 100.0), 0.0) is Verdict.OVER_SHARE
    assert schedule.admit(item(b, 100.0), 0.0) is Verdict.ADMITTED


def test_without_a_plan_tasks_share_equally() -> None:
    schedule, a, b = overloaded(0.0, 0.0)
    assert schedule.admit(item(a, 100.0), 0.0) is Verdict.OVER_SHARE
    assert schedule.admit(item(b, 100.0), 0.0) is Verdict.ADMITTED


def test_a_task_that_is_alone_may_use_all_of_its_budget() -> None:
    schedule = Schedule()
    a = schedule.add_lane("a", LINEAR, 0.1)
    schedule.add_lane("b", LINEAR, 0.9)
    schedule.finished(a, 0.0, 100.0)
    assert admit(schedule, a, *[100.0] * 11) == [True] * 10 + [False]


def test_a_task_above_its_share_is_not_held_back_while_nobody_goes_short() -> None:
    schedule = Schedule()
    a, b = schedule.add_lane("a", LINEAR, 0.1), schedule.add_lane("b", LINEAR, 0.9)
    schedule.finished(a, 0.0, 100.0)
    admit(schedule, b, 100.0)
    assert admit(schedule, a, *[100.0] * 10) == [True] * 9 + [False]


def test_a_task_above_its_share_is_held_back_once_another_was_refused() -> None:
    schedule = Schedule()
    a, b = schedule.add_lane("a", LINEAR, 0.1), schedule.add_lane("b", LINEAR, 0.9)
    schedule.finished(a, 0.0, 100.0)
    assert admit(schedule, b, 100.0, 5.0) == [True, False]
    assert admit(schedule, a, *[100.0] * 5) == [True] * 4 + [False]


def test_the_correction_rises_quickly_and_falls_slowly() -> None:
    assert (learned(1.0, 2.0), learned(2.0, 1.0)) == (1.2, 1.98)


def test_one_stall_counts_no_more_than_the_range() -> None:
    assert learned(1.0, 1_000.0) == learned(1.0, 5.0) == 1.8
    assert learned(0.2, 0.0) == 0.2


def test_a_pessimistic_correction_is_forgotten_while_nothing_is_observed() -> None:
    assert relaxed(5.0, 0.0) == 5.0
    assert round(relaxed(5.0, 5_000.0), 3) == 2.472
    assert round(relaxed(5.0, 60_000.0), 3) == 1.0
    assert relaxed(0.5, 5_000.0) == 0.5


def test_a_long_queue_with_far_deadlines_keeps_no_near_one_out() -> None:
    """1,000 far ones take until 1,000 ms of 2,000: near ones enter until 100 ms are full."""
    schedule = Schedule()
    far = schedule.add_lane("a", LatencyTable([(1, 1.0)]))
    near = schedule.add_lane("a", LatencyTable([(1, 1.0)]))
    assert all(admit(schedule, far, *[2_000.0] * 1_000))
    assert admit(schedule, near, *[100.0] * 101) == [True] * 100 + [False]
    assert [done_ms for done_ms, _ in run_all(schedule)] == [float(n) for n in range(1, 1_101)]


def test_a_long_queue_is_filled_to_the_last_place() -> None:
    """As many as fit before their deadline enter, whatever the order in which they come."""
    schedule = Schedule()
    lane = schedule.add_lane("a", LatencyTable([(1, 1.0)]))
    deadlines_ms = [float(n * 7 % 1_000 + 1) for n in range(1_000)]
    assert admit(schedule, lane, *deadlines_ms) == [True] * 1_000
    assert admit(schedule, lane, 1_000.0, 500.0, 1_001.0) == [False, False, True]


def test_overload_does_not_keep_batches_small() -> None:
    """Twice what full batches of 64 serve: batches stay nearly full.

    If a query were admitted whenever there is time for one more batch of one, the queue would fill
    with batches that have no slack to grow.
    """
    schedule = Schedule()
    lane = schedule.add_lane("a", LatencyTable([(1, 4.0), (64, 16.0)]))
    free_ms = 0.0
    rows: list[int] = []
    for n in range(4_000):
        now_ms = n / 8
        while schedule.count and free_ms <= now_ms:
            batch = schedule.next_batch(free_ms)
            assert batch is not None
            free_ms += batch.predicted_ms
            rows.append(batch.rows)
        free_ms = max(free_ms, now_ms)
        schedule.admit(item(lane, now_ms + 80.0), now_ms)
    assert min(rows[4:]) >= 56


linear = st.integers(5, 15).map(lambda ms: LatencyTable([(1, ms), (8, 8.0 * ms)]))
steps = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(
    lambda steps: LatencyTable([(2**i, float(sum(steps[: i + 1]))) for i in range(len(steps))])
)
tables = linear | steps
arrivals = st.lists(
    st.tuples(
        st.integers(0, 30),  # ms after the one before
        st.integers(0, 2),  # lane
        st.integers(1, 4),  # rows
        st.integers(1, 250),  # budget in ms
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(tables, min_size=3, max_size=3), arrivals, st.sampled_from((0, 4, EXACT_QUEUE)))
def test_with_exact_latencies_no_admitted_query_is_late(
    found: list[LatencyTable], queries: list[tuple[int, int, int, int]], exact_queue: int
) -> None:
    """Also: no batch exceeds its table, its queries are the earliest of its lane, none is lost."""
    schedule = Schedule(exact_queue=exact_queue)
    lanes = [schedule.add_lane(f"task-{i % 2}", table, 0.5) for i, table in enumerate(found)]
    waiting: list[Item] = []
    answered: list[Item] = []
    free_ms = now_ms = 0.0

    def dispatch(until_ms: float) -> None:
        """Run what begins before ``until_ms``."""
        nonlocal free_ms
        while waiting and free_ms < until_ms:
            head_ms = min(i.deadline_ms for i in waiting)
            batch = schedule.next_batch(free_ms)
            assert batch is not None
            assert batch.rows == sum(i.rows for i in batch.items) <= batch.lane.max_batch
            assert batch.items[0].deadline_ms == head_ms
            taken = sorted(i.deadline_ms for i in batch.items)
            own = sorted(i.deadline_ms for i in waiting if i.lane is batch.lane)
            assert own[: len(taken)] == taken
            free_ms += batch.predicted_ms
            for done in batch.items:
                waiting.remove(done)
                answered.append(done)
                assert free_ms <= done.deadline_ms + 1e-6
            if free_ms <= until_ms:
                schedule.finished(batch.lane, free_ms, batch.predicted_ms)

    admitted = 0
    for gap_ms, index, rows, budget_ms in queries:
        now_ms += gap_ms
        dispatch(now_ms)
        free_ms = max(free_ms, now_ms)
        query = item(lanes[index], now_ms + budget_ms, rows)
        if schedule.admit(query, now_ms) is Verdict.ADMITTED:
            waiting.append(query)
            admitted += 1
    dispatch(float("inf"))
    assert len(answered) == admitted
    assert schedule.count == 0
    assert schedule.work_ms == 0.0


@settings(max_examples=100, deadline=None)
@given(st.lists(tables, min_size=3, max_size=3), arrivals)
def test_the_backlog_bounds_what_running_everything_takes(
    found: list[LatencyTable], queries: list[tuple[int, int, int, int]]
) -> None:
    schedule = Schedule()
    lanes = [schedule.add_lane("task", table) for table in found]
    for _, index, rows, budget_ms in queries:
        schedule.admit(item(lanes[index], 10_000.0 + budget_ms, rows), 0.0)
    backlog_ms = schedule.backlog_ms(0.0)
    done = run_all(schedule)
    assert (done[-1][0] if done else 0.0) <= backlog_ms + 1e-6
