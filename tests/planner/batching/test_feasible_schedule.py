"""The schedule: cases with round numbers, and what must hold after any changes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching.feasible_schedule import BLOCK, FeasibleSchedule
from planner.batching.variant_queues import ROUNDING_MS, Entry, Item, VariantQueue
from planner.latency_table import LatencyTable

LINEAR = LatencyTable([(1, 10.0), (4, 40.0)])
"""Batching gains nothing: 10 ms a row."""
FLAT = LatencyTable([(1, 10.0), (2, 10.0)])
"""A second row is free."""


def queue(table: LatencyTable) -> VariantQueue:
    return VariantQueue.detached("task", table)


def entry(own: VariantQueue, deadline_ms: float, order: int = 0, rows: int = 1) -> Entry:
    return deadline_ms, order, Item(own, deadline_ms, rows)


def filled(own: VariantQueue, *deadlines_ms: float) -> tuple[FeasibleSchedule, list[bool]]:
    """An empty schedule that was offered queries one by one at 0 ms."""
    schedule = FeasibleSchedule(())
    return schedule, [schedule.insert(entry(own, d, n), 0.0) for n, d in enumerate(deadlines_ms)]


def planned(schedule: FeasibleSchedule, *queues: VariantQueue) -> list[list[float]]:
    """The deadlines in each batch, batches in order, by taking out one after the other."""
    batches: list[list[float]] = []
    left = set(queues)
    while left:
        heads = {own: schedule.batches(own) for own in left}
        left = {own for own in left if heads[own]}
        if left:
            own = min(left, key=lambda each: heads[each][0][0])
            batches.append([each[0] for each in heads[own][0]])
            schedule.take(own, schedule.first_count(own))
    return batches


def test_without_gain_every_query_has_a_batch_of_its_own() -> None:
    own = queue(LINEAR)
    schedule, admitted = filled(own, 30.0, 10.0, 20.0, 30.0)
    assert admitted == [True, True, True, False]
    assert planned(schedule, own) == [[10.0], [20.0], [30.0]]


def test_a_query_joins_its_neighbours_where_that_is_cheaper() -> None:
    own = queue(FLAT)
    schedule, admitted = filled(own, 20.0, 20.0, 20.0, 20.0, 20.0)
    assert admitted == [True] * 4 + [False]
    assert planned(schedule, own) == [[20.0, 20.0], [20.0, 20.0]]


def test_a_full_batch_passes_its_last_on() -> None:
    own = queue(FLAT)
    schedule, admitted = filled(own, 10.0, 30.0, 30.0, 10.0)
    assert admitted == [True] * 4
    assert planned(schedule, own) == [[10.0, 10.0], [30.0, 30.0]]


def test_a_query_that_others_cannot_wait_for_is_left_out() -> None:
    own, other = queue(LINEAR), queue(LINEAR)
    schedule, _ = filled(own, 25.0)
    assert schedule.insert(entry(other, 25.0, 1), 0.0)
    assert not schedule.insert(entry(other, 20.0, 2), 0.0)
    assert planned(schedule, own, other) == [[25.0], [25.0]]


def test_a_limit_before_the_deadline_counts() -> None:
    own = queue(LINEAR)
    schedule, _ = filled(own, 50.0)
    assert not schedule.insert(entry(own, 100.0, 1), 0.0, limit_ms=19.0)
    assert schedule.insert(entry(own, 100.0, 2), 0.0, limit_ms=20.0)


def test_a_batch_that_is_opened_keeps_room_to_grow() -> None:
    own = queue(FLAT)
    schedule, _ = filled(own, 10.0, 10.0)
    assert not schedule.insert(entry(own, 25.0, 2), 0.0, room_ms=6.0)
    assert schedule.insert(entry(own, 26.0, 3), 0.0, room_ms=6.0)
    assert schedule.insert(entry(own, 26.0, 4), 0.0, room_ms=100.0), "it joins, and opens nothing"


def test_a_change_can_be_taken_back() -> None:
    own = queue(FLAT)
    schedule, _ = filled(own, 10.0, 20.0, 20.0)
    schedule.undo(schedule.take(own, 2))
    assert planned(schedule, own) == [[10.0, 20.0], [20.0]]


def test_a_correction_that_rises_is_followed() -> None:
    own = queue(LINEAR)
    schedule, _ = filled(own, 10.0, 20.0)
    assert schedule.in_time(0.0)
    own.correction = 1.01
    schedule.recost(own)
    assert not schedule.in_time(0.0)


def test_lateness_at_the_front_keeps_no_query_out_behind() -> None:
    own = queue(LatencyTable([(1, 1.0)]))
    schedule, _ = filled(own, *[float(n) for n in range(1, 201)])
    assert not schedule.in_time(0.5)
    assert schedule.insert(entry(own, 1_000.0, 200), 0.5)


tables = st.sampled_from(
    [
        LINEAR,
        FLAT,
        LatencyTable([(1, 4.0), (8, 11.0)]),
        LatencyTable([(1, 5.0), (3, 5.0), (4, 30.0)]),
    ]
)
offers = st.lists(
    st.tuples(
        st.integers(0, 2),  # queue
        st.integers(1, 300),  # deadline in ms
        st.integers(1, 2),  # rows
        st.sampled_from((0.0, 0.0, 20.0)),  # room
        st.integers(0, 9),  # 0: take from the queue as well
    ),
    max_size=150,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(tables, min_size=3, max_size=3), offers)
def test_after_any_changes_every_query_is_in_time(
    found: list[LatencyTable], queries: list[tuple[int, int, int, float, int]]
) -> None:
    """Computed from the batches alone: no query is lost, batches are pieces of their queue."""
    queues = [queue(table) for table in found]
    schedule = FeasibleSchedule(())
    held: dict[VariantQueue, list[Entry]] = {own: [] for own in queues}
    for order, (index, deadline_ms, rows, room_ms, take) in enumerate(queries):
        own = queues[index]
        offered = entry(own, float(deadline_ms), order, rows)
        if schedule.insert(offered, 0.0, room_ms=room_ms):
            held[own].append(offered)
            held[own].sort()
        if not take and held[own]:
            count = 1 + order % len(held[own])
            change = schedule.take(own, count)
            if order % 2:
                schedule.undo(change)
            else:
                del held[own][:count]
        batches = [(batch, own) for own in queues for batch in schedule.batches(own)]
        for each in queues:
            assert [e for batch in schedule.batches(each) for e in batch] == held[each]
        done_ms = 0.0
        in_time = True
        for batch, each in sorted(batches, key=lambda found: found[0][0]):
            size = sum(e[2].rows for e in batch)
            assert size <= each.max_batch
            done_ms += each.ms[size]
            in_time = in_time and done_ms <= batch[0][0] + 2 * ROUNDING_MS
        assert schedule.in_time(0.0) is in_time


def test_a_query_that_finds_no_place_leaves_all_as_it_was() -> None:
    """Full batches would pass their only query on, and the last two share one: all of them late.

    Taken back, each batch has the first query for a moment that the next one still has.
    """
    own = queue(LatencyTable([(1, 10.0), (2, 12.0)]))
    own.limit, each = 2, BLOCK // 2
    dues_ms = [12.0 * (n + 1) for n in range(2 * each)] + [10_000.0 + n for n in range(each)]
    for first in range(4, 2 * each - 4):  # in one block, and across two
        rows = [1 if n in (first, first + 1) else 2 for n in range(len(dues_ms))]
        entries = [entry(own, due_ms, n, rows[n]) for n, due_ms in enumerate(dues_ms)]
        schedule = FeasibleSchedule((own, [one]) for one in entries)
        late = entry(own, dues_ms[first - 1] + 6.0, 1_000, rows=2)
        assert not schedule.insert(late, 8.0)
        assert schedule.batches(own) == [[one] for one in entries]
        for _ in entries:
            schedule.take(own, 1)
        assert schedule.batches(own) == []
