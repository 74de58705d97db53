"""What every queue of a slice has to keep: ``planner.queue.Queue``, whichever rule is behind it."""

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching import Batch, Verdict
from planner.lanes import Item
from planner.policies.earliest import EarliestQueue
from planner.policies.fifo import FifoQueue
from planner.queue import BATCHING, Queue
from planner.types import LatencyTable

PATIENT: dict[str, Callable[[], Queue]] = {
    **BATCHING,
    "fifo": lambda: FifoQueue(lambda task, table: 4),
}
"""They give up nobody before its deadline."""
QUEUES: dict[str, Callable[[], Queue]] = {
    **PATIENT,
    "earliest": lambda: EarliestQueue(lambda task, table: 4),
    "earliest, nothing held back": lambda: EarliestQueue(lambda task, table: 4, waits=False),
}
MADE = [pytest.param(make, id=name) for name, make in QUEUES.items()]

FLAT = LatencyTable([(1, 10.0), (4, 10.0)])
LINEAR = LatencyTable([(1, 10.0), (8, 80.0)])

TABLES = (FLAT, LINEAR, LatencyTable([(2, 5.0), (8, 9.0)]))

Step = tuple[str, int, int, int, int]
"""What happens, ms after the step before; the lane; for a query its rows and its budget in ms."""

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

    A batch takes ``slowness`` times what its lane's table says.
    """

    def __init__(self, queue: Queue, slowness: float) -> None:
        self.queue = queue
        self.slowness = slowness
        self.lanes = [queue.add_lane(f"t{i % 2}", table) for i, table in enumerate(TABLES)]
        self.waiting: list[Item] = []
        self.now_ms = 0.0
        self.log: list[tuple[object, ...]] = []

    def step(self, what: str, gap_ms: int, lane: int, rows: int, budget_ms: int) -> None:
        self.now_ms += gap_ms
        if what == "admit":
            item = Item(self.lanes[lane], self.now_ms + budget_ms, rows)
            verdict = self.queue.admit(item, self.now_ms)
            self.log.append((what, verdict))
            if verdict is Verdict.ADMITTED:
                self.waiting.append(item)
        elif what == "expire":
            self._left(what, self.queue.pop_expired(self.now_ms))
        elif what == "take":
            self._left(what, self.queue.take(self.lanes[lane]))
        else:
            self._left(what, self.queue.pop_expired(self.now_ms))
            self.run_one()
        assert self.queue.count == len(self.waiting)
        assert [at.rows for at in self.lanes] == [
            sum(item.rows for item in self.waiting if item.lane is at) for at in self.lanes
        ]

    def run_one(self) -> Batch | None:
        """Run what the queue wants to run now, to its end."""
        batch = self.queue.next_batch(self.now_ms)
        if batch is None:
            self.now_ms = min(max(self.now_ms, self.queue.wake_ms(self.now_ms)), self.now_ms + 1e3)
            return None
        assert batch.items
        assert all(item.lane is batch.lane for item in batch.items)
        assert batch.rows == sum(item.rows for item in batch.items) <= batch.lane.max_batch
        self._left("batch", batch.items)
        took_ms = batch.lane.ms[batch.rows] * self.slowness
        self.now_ms += took_ms
        self.queue.finished(batch.lane, self.now_ms, took_ms)
        assert self.queue.busy_until_ms <= self.now_ms
        return batch

    def _left(self, why: str, items: list[Item]) -> None:
        self.log.append((why, *((item.deadline_ms, item.rows) for item in items)))
        for item in items:
            assert item in self.waiting
            self.waiting.remove(item)

    def drain(self) -> None:
        """Run until nothing waits; a queue that holds back is asked again when it wants to be."""
        for _ in range(1_000):
            if not self.queue.count:
                return
            self.run_one()
            self._left("expire", self.queue.pop_expired(self.now_ms))
        raise AssertionError("it never runs what waits")


def due_ms(queue: Queue) -> float:
    """When what waits may run: at once, or when a queue that holds it back wants to be asked."""
    wake_ms = queue.wake_ms(0.0)
    return 0.0 if wake_ms == inf else wake_ms


slow = st.sampled_from((0.5, 1.0, 1.0, 3.0))


@pytest.mark.parametrize("make", MADE)
@settings(max_examples=150, deadline=None)
@given(found=steps, slowness=slow)
def test_whoever_is_admitted_comes_out_exactly_once(
    make: Callable[[], Queue], found: list[Step], slowness: float
) -> None:
    """In a batch within its table, expired, or taken; and count and rows say what waits."""
    run = Run(make(), slowness)
    for step in found:
        run.step(*step)
    run.drain()
    assert run.waiting == []
    assert run.queue.count == 0
    assert run.queue.backlog_ms(run.now_ms) == 0.0


@pytest.mark.parametrize("make", MADE)
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=60, deadline=None)
@given(found=steps)
def test_the_backlog_is_positive_exactly_while_there_is_work(
    make: Callable[[], Queue], found: list[Step]
) -> None:
    run = Run(make(), 1.0)
    for step in found:
        run.step(*step)
        assert (run.queue.backlog_ms(run.now_ms) > 0.0) == (run.queue.count > 0)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in PATIENT.items()])
def test_only_what_passed_its_deadline_expires(make: Callable[[], Queue]) -> None:
    queue = make()
    lane = queue.add_lane("t", LINEAR)
    near, far = Item(lane, 20.0, 1), Item(lane, 100.0, 1)
    assert [queue.admit(item, 0.0) for item in (far, near)] == [Verdict.ADMITTED] * 2
    assert queue.pop_expired(20.0) == []
    assert queue.pop_expired(20.5) == [near]
    assert queue.pop_expired(20.5) == []


@pytest.mark.parametrize("make", MADE)
def test_taking_a_lane_gives_the_earliest_deadline_first_and_leaves_the_others(
    make: Callable[[], Queue],
) -> None:
    queue = make()
    one, other = queue.add_lane("t", LINEAR), queue.add_lane("t", LINEAR)
    items = [Item(one, 300.0, 1), Item(other, 250.0, 1), Item(one, 200.0, 2)]
    assert [queue.admit(item, 0.0) for item in items] == [Verdict.ADMITTED] * 3
    assert queue.take(one) == [items[2], items[0]]
    assert queue.take(one) == []
    assert (queue.count, one.rows, other.rows) == (1, 0, 1)
    queue.remove_lane(one)
    batch = queue.next_batch(due_ms(queue))
    assert batch is not None
    assert (batch.lane, batch.items, batch.rows) == (other, [items[1]], 1)


@pytest.mark.parametrize("make", MADE)
def test_a_query_that_no_batch_can_hold_is_refused(make: Callable[[], Queue]) -> None:
    queue = make()
    lane = queue.add_lane("t", FLAT)
    assert queue.admit(Item(lane, 1_000.0, 5), 0.0) is Verdict.TOO_MANY_ROWS
    assert queue.count == 0


@pytest.mark.parametrize("make", MADE)
def test_an_empty_queue_runs_nothing_and_wants_nothing(make: Callable[[], Queue]) -> None:
    queue = make()
    queue.add_lane("t", FLAT)
    assert queue.next_batch(0.0) is None
    assert queue.wake_ms(0.0) == inf
    assert queue.backlog_ms(0.0) == 0.0


@pytest.mark.parametrize("make", MADE)
def test_the_running_batch_is_part_of_the_backlog(make: Callable[[], Queue]) -> None:
    queue = make()
    lane = queue.add_lane("t", LINEAR)
    queue.admit(Item(lane, 1_000.0, 1), 0.0)
    due = due_ms(queue)
    batch = queue.next_batch(due)
    assert batch is not None
    assert (queue.busy_until_ms - due, batch.predicted_ms) == (10.0, 10.0)
    assert queue.backlog_ms(due + 4.0) == 6.0
    queue.finished(lane, due + 10.0, 10.0)
    assert queue.backlog_ms(due + 10.0) == 0.0
