"""What every queue of a slice has to keep: ``planner.batching.protocol.Queue``, whichever rule is
behind it."""

from collections.abc import Callable
from functools import partial
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching.protocol import MAX_QUEUE, Batch, LiveQueue, Queue, Verdict
from planner.batching.registry import BATCHING, make_queue
from planner.batching.variant_queues import Item, VariantQueue
from planner.latency_table import LatencyTable
from planner.policies.earliest import EarliestQueue
from planner.policies.fifo import FifoQueue
from planner.types import ANYBODY, Client

PATIENT: dict[str, Callable[[], Queue]] = {
    **{name: partial(make_queue, name) for name in BATCHING},
    "fifo": lambda: FifoQueue(lambda task, table: 4),
}
"""They give up no query before its deadline."""
QUEUES: dict[str, Callable[[], Queue]] = {
    **PATIENT,
    "earliest": lambda: EarliestQueue(lambda task, table: 4),
    "earliest, nothing held back": lambda: EarliestQueue(lambda task, table: 4, waits=False),
}
MADE = [pytest.param(make, id=name) for name, make in QUEUES.items()]

ADMITTED = Verdict.ADMITTED
FLAT = LatencyTable([(1, 10.0), (4, 10.0)])
LINEAR = LatencyTable([(1, 10.0), (8, 80.0)])

TABLES = (FLAT, LINEAR, LatencyTable([(2, 5.0), (8, 9.0)]))

Step = tuple[str, int, int, int, int]
"""What happens, ms after the step before; the queue; for a query its rows and its budget in ms."""

steps = st.lists(
    st.tuples(
        st.sampled_from(("admit", "admit", "admit", "admit", "run", "run", "expire", "take")),
        st.integers(0, 20),
        st.integers(0, 2),
        st.integers(1, 9),
        st.integers(1, 200),
    ),
    max_size=80,
)


class Run:
    """A queue driven step by step, with a book of every query that was admitted.

    A batch takes ``slowness`` times what its variant's table says.
    """

    def __init__(self, slice_queue: Queue, slowness: float) -> None:
        self.slice_queue = slice_queue
        self.slowness = slowness
        self.queues = [
            slice_queue.add_variant(f"t{i % 2}", table) for i, table in enumerate(TABLES)
        ]
        self.waiting: list[Item] = []
        self.now_ms = 0.0
        self.log: list[tuple[object, ...]] = []

    def step(self, what: str, gap_ms: int, queue: int, rows: int, budget_ms: int) -> None:
        self.now_ms += gap_ms
        if what == "admit":
            item = Item(self.queues[queue], self.now_ms + budget_ms, rows)
            verdict = self.slice_queue.admit(item, self.now_ms)
            self.log.append((what, verdict))
            if verdict is Verdict.ADMITTED:
                self.waiting.append(item)
        elif what == "expire":
            self._left(what, self.slice_queue.pop_expired(self.now_ms))
        elif what == "take":
            self._left(what, self.slice_queue.take(self.queues[queue]))
        else:
            self._left(what, self.slice_queue.pop_expired(self.now_ms))
            self.run_one()
        assert self.slice_queue.count == len(self.waiting)
        assert [at.rows for at in self.queues] == [
            sum(item.rows for item in self.waiting if item.queue is at) for at in self.queues
        ]

    def run_one(self) -> Batch | None:
        """Run what the queue wants to run now, to its end."""
        batch = self.slice_queue.next_batch(self.now_ms)
        if batch is None:
            self.now_ms = min(
                max(self.now_ms, self.slice_queue.wake_ms(self.now_ms)), self.now_ms + 1e3
            )
            return None
        assert batch.items
        assert all(item.queue is batch.queue for item in batch.items)
        assert batch.rows == sum(item.rows for item in batch.items) <= batch.queue.max_batch
        self._left("batch", batch.items)
        took_ms = batch.queue.ms[batch.rows] * self.slowness
        self.now_ms += took_ms
        self.slice_queue.finished(batch.queue, self.now_ms, took_ms)
        assert self.slice_queue.busy_until_ms <= self.now_ms
        return batch

    def _left(self, why: str, items: list[Item]) -> None:
        self.log.append((why, *((item.deadline_ms, item.rows) for item in items)))
        for item in items:
            assert item in self.waiting
            self.waiting.remove(item)

    def drain(self) -> None:
        """Run until nothing waits; a queue that holds back is asked again when it wants to be."""
        for _ in range(1_000):
            if not self.slice_queue.count:
                return
            self.run_one()
            self._left("expire", self.slice_queue.pop_expired(self.now_ms))
        raise AssertionError("it never runs what waits")


def due_ms(slice_queue: Queue) -> float:
    """When what waits may run: at once, or when a queue that holds it back wants to be asked."""
    wake_ms = slice_queue.wake_ms(0.0)
    return 0.0 if wake_ms == inf else wake_ms


slow = st.sampled_from((0.5, 1.0, 1.0, 3.0))


@pytest.mark.parametrize("make", MADE)
@settings(max_examples=75, deadline=None)
@given(found=steps, slowness=slow)
def test_what_is_admitted_comes_out_exactly_once(
    make: Callable[[], Queue], found: list[Step], slowness: float
) -> None:
    """In a batch within its table, expired, or taken; and count and rows say what waits."""
    run = Run(make(), slowness)
    for step in found:
        run.step(*step)
    run.drain()
    assert run.waiting == []
    assert run.slice_queue.count == 0
    assert run.slice_queue.backlog_ms(run.now_ms) == 0.0


@pytest.mark.parametrize("make", MADE)
@settings(max_examples=30, deadline=None)
@given(found=steps, slowness=slow)
def test_the_same_queries_are_batched_the_same(
    make: Callable[[], Queue], found: list[Step], slowness: float
) -> None:
    logs = []
    for _ in range(2):
        run = Run(make(), slowness)
        for step in found:
            run.step(*step)
        logs.append(run.log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("make", MADE)
@settings(max_examples=30, deadline=None)
@given(found=steps)
def test_the_backlog_is_positive_exactly_while_there_is_work(
    make: Callable[[], Queue], found: list[Step]
) -> None:
    run = Run(make(), 1.0)
    for step in found:
        run.step(*step)
        assert (run.slice_queue.backlog_ms(run.now_ms) > 0.0) == (run.slice_queue.count > 0)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in PATIENT.items()])
def test_only_what_passed_its_deadline_expires(make: Callable[[], Queue]) -> None:
    slice_queue = make()
    queue = slice_queue.add_variant("t", LINEAR)
    near, far = Item(queue, 20.0, 1), Item(queue, 100.0, 1)
    assert [slice_queue.admit(item, 0.0) for item in (far, near)] == [Verdict.ADMITTED] * 2
    assert slice_queue.pop_expired(20.0) == []
    assert slice_queue.pop_expired(20.5) == [near]
    assert slice_queue.pop_expired(20.5) == []


@pytest.mark.parametrize("make", MADE)
def test_taking_a_variants_queries_gives_the_earliest_deadline_first_and_leaves_the_others(
    make: Callable[[], Queue],
) -> None:
    slice_queue = make()
    one, other = slice_queue.add_variant("t", LINEAR), slice_queue.add_variant("t", LINEAR)
    items = [Item(one, 300.0, 1), Item(other, 250.0, 1), Item(one, 200.0, 2)]
    assert [slice_queue.admit(item, 0.0) for item in items] == [Verdict.ADMITTED] * 3
    assert slice_queue.take(one) == [items[2], items[0]]
    assert slice_queue.take(one) == []
    assert (slice_queue.count, one.rows, other.rows) == (1, 0, 1)
    slice_queue.remove_variant(one)
    batch = slice_queue.next_batch(due_ms(slice_queue))
    assert batch is not None
    assert (batch.queue, batch.items, batch.rows) == (other, [items[1]], 1)


@pytest.mark.parametrize("make", MADE)
def test_a_query_that_no_batch_can_hold_is_refused(make: Callable[[], Queue]) -> None:
    slice_queue = make()
    queue = slice_queue.add_variant("t", FLAT)
    assert slice_queue.admit(Item(queue, 1_000.0, 5), 0.0) is Verdict.TOO_MANY_ROWS
    assert slice_queue.count == 0


@pytest.mark.parametrize("make", MADE)
def test_an_empty_queue_runs_nothing_and_wants_nothing(make: Callable[[], Queue]) -> None:
    slice_queue = make()
    slice_queue.add_variant("t", FLAT)
    assert slice_queue.next_batch(0.0) is None
    assert slice_queue.wake_ms(0.0) == inf
    assert slice_queue.backlog_ms(0.0) == 0.0


@pytest.mark.parametrize("make", MADE)
def test_the_running_batch_is_part_of_the_backlog(make: Callable[[], Queue]) -> None:
    slice_queue = make()
    queue = slice_queue.add_variant("t", LINEAR)
    slice_queue.admit(Item(queue, 1_000.0, 1), 0.0)
    due = due_ms(slice_queue)
    batch = slice_queue.next_batch(due)
    assert batch is not None
    assert (slice_queue.busy_until_ms - due, batch.predicted_ms) == (10.0, 10.0)
    assert slice_queue.backlog_ms(due + 4.0) == 6.0
    slice_queue.finished(queue, due + 10.0, 10.0)
    assert slice_queue.backlog_ms(due + 10.0) == 0.0


# -- a full queue ---------------------------------------------------------------------------------

HOUR_MS = 3_600_000.0
SPARE = 64
"""Of a queue of 8,192."""
LIVE = [pytest.param(partial(make_queue, name), id=name) for name in BATCHING]
Full = tuple[LiveQueue, VariantQueue, VariantQueue]


def filled(make: Callable[[], LiveQueue], *, share: float = 0.0, priority: int = 100) -> Full:
    """A queue that one task has filled with queries that have an hour, and another task's own."""
    slice_queue = make()
    greedy = slice_queue.add_variant("greedy", FLAT, 1.0 - share if share else 0.0)
    modest = slice_queue.add_variant("modest", FLAT, share)
    for number in range(MAX_QUEUE):
        item = Item(greedy, HOUR_MS + number, 1, priority)
        assert slice_queue.admit(item, 0.0) is Verdict.ADMITTED
    return slice_queue, greedy, modest


@pytest.mark.parametrize("make", LIVE)
def test_a_task_within_its_share_finds_room_in_a_full_queue(make: Callable[[], LiveQueue]) -> None:
    slice_queue, greedy, modest = filled(make)
    mine = Item(modest, 2 * HOUR_MS, 1, priority=200)  # worse in all but its task's share
    assert slice_queue.admit(mine, 0.0) is Verdict.QUEUE_FULL
    left = slice_queue.make_room(mine, 0.0)
    assert left
    assert all(item.queue is greedy for item in left)
    latest = HOUR_MS + MAX_QUEUE - len(left)
    assert min(item.deadline_ms for item in left) == latest, "others have later deadlines"
    assert slice_queue.count == greedy.rows == MAX_QUEUE - len(left)
    assert slice_queue.admit(mine, 0.0) is Verdict.ADMITTED


@pytest.mark.parametrize("make", LIVE)
def test_a_task_over_its_share_makes_room_only_among_its_own(make: Callable[[], LiveQueue]) -> None:
    slice_queue, greedy, modest = filled(make)
    mine = Item(modest, HOUR_MS, 1)
    slice_queue.make_room(mine, 0.0)
    slice_queue.admit(mine, 0.0)
    while slice_queue.admit(Item(greedy, HOUR_MS, 1), 0.0) is Verdict.ADMITTED:
        pass
    assert slice_queue.make_room(Item(greedy, 2 * HOUR_MS, 1), 0.0) == []
    left = slice_queue.make_room(Item(greedy, 100.0, 1), 100.0)
    assert left
    assert mine not in left
    assert slice_queue.take(modest) == [mine]


@pytest.mark.parametrize("make", LIVE)
def test_what_nobody_waits_for_is_taken_out_and_the_others_run_as_before(
    make: Callable[[], LiveQueue],
) -> None:
    slice_queue = make()
    one, two = (slice_queue.add_variant(name, LINEAR) for name in ("one", "two"))
    items = [Item(queue, HOUR_MS + n, 1 + n % 2) for n in range(10) for queue in (one, two)]
    for item in items:
        assert slice_queue.admit(item, 0.0) is Verdict.ADMITTED
    gone = {id(item) for item in items[::3]}

    assert {id(item) for item in slice_queue.withdraw(lambda item: id(item) in gone, 0.0)} == gone
    left = [item for item in items if id(item) not in gone]
    assert slice_queue.count == len(left)
    assert one.rows + two.rows == sum(item.rows for item in left)
    ran: list[Item] = []
    now_ms = 0.0
    while (batch := slice_queue.next_batch(now_ms)) is not None:
        ran += batch.items
        now_ms += batch.predicted_ms
        slice_queue.finished(batch.queue, now_ms, batch.predicted_ms)
    assert {id(item) for item in ran} == {id(item) for item in left}
    assert len(ran) == len(left)
    assert (slice_queue.count, slice_queue.backlog_ms(now_ms)) == (0, 0.0)
    assert slice_queue.withdraw(lambda _: True, now_ms) == []


@pytest.mark.parametrize("make", LIVE)
def test_withdrawing_makes_room_in_time(make: Callable[[], LiveQueue]) -> None:
    """Who comes next is admitted as if they had never been there."""
    slice_queue = make()
    queue = slice_queue.add_variant("one", LINEAR)
    while slice_queue.count < 9 and slice_queue.admit(Item(queue, 95.0, 1), 0.0) is ADMITTED:
        pass
    slice_queue.withdraw(lambda _: True, 0.0)
    for _ in range(9):
        assert slice_queue.admit(Item(queue, 95.0, 1), 0.0) is ADMITTED


@pytest.mark.parametrize("make", LIVE)
def test_a_client_within_its_share_finds_room_in_a_full_queue(
    make: Callable[[], LiveQueue],
) -> None:
    slice_queue, greedy, modest = filled(make)
    mine = Item(greedy, 2 * HOUR_MS, 1, priority=200, client=Client("mine"))
    left = slice_queue.make_room(mine, 0.0)
    assert left
    assert {item.client for item in left} == {ANYBODY}
    assert slice_queue.admit(mine, 0.0) is Verdict.ADMITTED
    while slice_queue.admit(Item(modest, HOUR_MS, 1), 0.0) is Verdict.ADMITTED:
        pass
    left = slice_queue.make_room(Item(modest, HOUR_MS, 1), 0.0)
    assert left, "its client is over its share as well, and its task is not"
    assert {item.queue for item in left} == {greedy}
    assert mine not in left


@pytest.mark.parametrize("make", LIVE)
def test_lower_priorities_go_before_later_deadlines(make: Callable[[], LiveQueue]) -> None:
    slice_queue, greedy, _ = filled(make)
    first = slice_queue.make_room(Item(greedy, 2 * HOUR_MS, 1, priority=99), 0.0)
    assert first, "a higher priority comes before an earlier deadline"
    for number in range(len(first)):
        slice_queue.admit(Item(greedy, 1_000.0 + number, 1, priority=101), 0.0)
    left = slice_queue.make_room(Item(greedy, HOUR_MS, 1), 0.0)
    assert {item.priority for item in left[: len(first)]} == {101}
    assert slice_queue.make_room(Item(greedy, 1.0, 1, priority=102), 100.0) == []


@pytest.mark.parametrize("make", LIVE)
def test_a_task_comes_down_to_its_share_and_no_further(make: Callable[[], LiveQueue]) -> None:
    slice_queue, greedy, modest = filled(make, share=0.25)
    admitted = 0
    for number in range(MAX_QUEUE):
        item = Item(modest, 2 * HOUR_MS + number, 1, priority=101)
        if slice_queue.admit(item, 0.0) is not Verdict.ADMITTED:
            if not slice_queue.make_room(item, 0.0):
                break
            assert slice_queue.admit(item, 0.0) is Verdict.ADMITTED
        admitted += 1
    if "AdditiveQueue" in type(slice_queue).__name__:  # where shares play no part
        assert abs(admitted - MAX_QUEUE // 2) <= SPARE
    else:
        assert abs(admitted - MAX_QUEUE // 4) <= SPARE
    assert greedy.rows + modest.rows == slice_queue.count


@pytest.mark.parametrize("make", LIVE)
def test_room_is_counted_in_what_the_caller_counts(make: Callable[[], LiveQueue]) -> None:
    slice_queue = make()
    queue = slice_queue.add_variant("t", FLAT)
    for number in range(10):
        slice_queue.admit(Item(queue, HOUR_MS + number, 1), 0.0)
    newcomer = Item(queue, 1_000.0, 1)
    assert slice_queue.make_room(newcomer, 0.0, 2_000, lambda _: 100) == []
    assert slice_queue.count == 10
    left = slice_queue.make_room(newcomer, 100.0, 300, lambda _: 100)
    assert len(left) >= 3
    assert slice_queue.count == 10 - len(left)


@pytest.mark.parametrize("make", LIVE)
def test_nobody_waits_for_a_variant_that_is_not_of_the_slice(
    make: Callable[[], LiveQueue],
) -> None:
    slice_queue = make()
    left = slice_queue.add_variant("t", FLAT)
    slice_queue.remove_variant(left)
    assert slice_queue.take(left) == []
    assert slice_queue.take(VariantQueue.detached("t", FLAT)) == []


@pytest.mark.parametrize("make", LIVE)
def test_counting_anew_loses_nobody(make: Callable[[], LiveQueue]) -> None:
    slice_queue = make()
    queue = slice_queue.add_variant("t", FLAT)
    asked = [Item(queue, HOUR_MS + number, 1) for number in range(9)]
    assert all(slice_queue.admit(item, 0.0) is Verdict.ADMITTED for item in asked)
    slice_queue.recount()
    assert (slice_queue.count, queue.rows) == (9, 9)
    ran: list[Item] = []
    while (batch := slice_queue.next_batch(0.0)) is not None:
        ran += batch.items
        slice_queue.finished(queue, 0.0, 10.0)
    assert ran == asked
