"""The agenda: cases with round numbers, and what must hold after any changes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.agenda import ROUNDING_MS, Agenda, Entry
from planner.lanes import Item, Lane
from planner.types import LatencyTable

LINEAR = LatencyTable([(1, 10.0), (4, 40.0)])
"""Batching gains nothing: 10 ms a row."""
FLAT = LatencyTable([(1, 10.0), (2, 10.0)])
"""A second row is free."""


def lane(table: LatencyTable) -> Lane:
    return Lane.detached("task", table)


def entry(own: Lane, deadline_ms: float, order: int = 0, rows: int = 1) -> Entry:
    return deadline_ms, order, Item(own, deadline_ms, rows)


def filled(own: Lane, *deadlines_ms: float) -> tuple[Agenda, list[bool]]:
    """An empty agenda that was offered queries one by one at 0 ms."""
    agenda = Agenda(())
    return agenda, [agenda.insert(entry(own, d, n), 0.0) for n, d in enumerate(deadlines_ms)]


def foreseen(agenda: Agenda, *lanes: Lane) -> list[list[float]]:
    """The deadlines in each batch, batches in order, by taking out one after the other."""
    batches: list[list[float]] = []
    left = set(lanes)
    while left:
        heads = {own: agenda.batches(own) for own in left}
        left = {own for own in left if heads[own]}
        if left:
            own = min(left, key=lambda each: heads[each][0][0])
            batches.append([each[0] for each in heads[own][0]])
            agenda.take(own, agenda.first_count(own))
    return batches


def test_without_gain_everybody_has_a_place_of_their_own() -> None:
    own = lane(LINEAR)
    agenda, admitted = filled(own, 30.0, 10.0, 20.0, 30.0)
    assert admitted == [True, True, True, False]
    assert foreseen(agenda, own) == [[10.0], [20.0], [30.0]]


def test_a_query_joins_its_neighbours_where_that_is_cheaper() -> None:
    own = lane(FLAT)
    agenda, admitted = filled(own, 20.0, 20.0, 20.0, 20.0, 20.0)
    assert admitted == [True] * 4 + [False]
    assert foreseen(agenda, own) == [[20.0, 20.0], [20.0, 20.0]]


def test_a_full_batch_passes_its_last_on() -> None:
    own = lane(FLAT)
    agenda, admitted = filled(own, 10.0, 30.0, 30.0, 10.0)
    assert admitted == [True] * 4
    assert foreseen(agenda, own) == [[10.0, 10.0], [30.0, 30.0]]


def test_a_query_that_others_cannot_wait_for_is_left_out() -> None:
    own, other = lane(LINEAR), lane(LINEAR)
    agenda, _ = filled(own, 25.0)
    assert agenda.insert(entry(other, 25.0, 1), 0.0)
    assert not agenda.insert(entry(other, 20.0, 2), 0.0)
    assert foreseen(agenda, own, other) == [[25.0], [25.0]]


def test_a_limit_before_the_deadline_counts() -> None:
    own = lane(LINEAR)
    agenda, _ = filled(own, 50.0)
    assert not agenda.insert(entry(own, 100.0, 1), 0.0, limit_ms=19.0)
    assert agenda.insert(entry(own, 100.0, 2), 0.0, limit_ms=20.0)


def test_a_batch_that_is_opened_keeps_room_to_grow() -> None:
    own = lane(FLAT)
    agenda, _ = filled(own, 10.0, 10.0)
    assert not agenda.insert(entry(own, 25.0, 2), 0.0, room_ms=6.0)
    assert agenda.insert(entry(own, 26.0, 3), 0.0, room_ms=6.0)
    assert agenda.insert(entry(own, 26.0, 4), 0.0, room_ms=100.0), "it joins, and opens nothing"


def test_a_change_can_be_taken_back() -> None:
    own = lane(FLAT)
    agenda, _ = filled(own, 10.0, 20.0, 20.0)
    agenda.undo(agenda.take(own, 2))
    assert foreseen(agenda, own) == [[10.0, 20.0], [20.0]]


def test_a_correction_that_rises_is_followed() -> None:
    own = lane(LINEAR)
    agenda, _ = filled(own, 10.0, 20.0)
    assert agenda.in_time(0.0)
    own.correction = 1.01
    agenda.recost(own)
    assert not agenda.in_time(0.0)


def test_lateness_at_the_front_keeps_nobody_out_behind() -> None:
    own = lane(LatencyTable([(1, 1.0)]))
    agenda, _ = filled(own, *[float(n) for n in range(1, 201)])
    assert not agenda.in_time(0.5)
    assert agenda.insert(entry(own, 1_000.0, 200), 0.5)


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
        st.integers(0, 2),  # lane
        st.integers(1, 300),  # deadline in ms
        st.integers(1, 2),  # rows
        st.sampled_from((0.0, 0.0, 20.0)),  # room
        st.integers(0, 9),  # 0: take from the lane as well
    ),
    max_size=150,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(tables, min_size=3, max_size=3), offers)
def test_after_any_changes_everybody_is_in_time(
    found: list[LatencyTable], queries: list[tuple[int, int, int, float, int]]
) -> None:
    """Computed from the batches alone. Nobody is lost, batches are pieces of their lane's queue."""
    lanes = [lane(table) for table in found]
    agenda = Agenda(())
    held: dict[Lane, list[Entry]] = {own: [] for own in lanes}
    for order, (index, deadline_ms, rows, room_ms, take) in enumerate(queries):
        own = lanes[index]
        offered = entry(own, float(deadline_ms), order, rows)
        if agenda.insert(offered, 0.0, room_ms=room_ms):
            held[own].append(offered)
            held[own].sort()
        if not take and held[own]:
            count = 1 + order % len(held[own])
            change = agenda.take(own, count)
            if order % 2:
                agenda.undo(change)
            else:
                del held[own][:count]
        batches = [(batch, own) for own in lanes for batch in agenda.batches(own)]
        for each in lanes:
            assert [e for batch in agenda.batches(each) for e in batch] == held[each]
        done_ms = 0.0
        in_time = True
        for batch, each in sorted(batches, key=lambda found: found[0][0]):
            size = sum(e[2].rows for e in batch)
            assert size <= each.max_batch
            done_ms += each.ms[size]
            in_time = in_time and done_ms <= batch[0][0] + 2 * ROUNDING_MS
        assert agenda.in_time(0.0) is in_time
