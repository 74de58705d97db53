"""SlackFit: slack decides variant and batch, and all devices share one queue."""

import pytest

from planner.policies.allocation import Slot
from planner.policies.published.slack_fit import (
    SlackFitQueue,
    Waiting,
    control_tuples,
    slack_fit,
)
from planner.policies.published.superserve import _contents
from planner.simulation.fleet import Worker
from tests.planner.policies.published.builders import DIGITS, GPU, candidate, device, ticket

QUICK, GOOD = candidate("quick", 0.7, 10.0), candidate("good", 0.9, 20.0)
"""Eight rows of the good one take 160 ms: a bucket is (160 - 10) / 32 = 4.6875 ms wide."""


def queues(*workers: Worker) -> list[SlackFitQueue]:
    waiting = Waiting(
        lambda query: [c for c in (QUICK, GOOD) if c.accuracy >= (query.accuracy or 0)]
    )
    made = []
    for worker in workers:
        queue = worker.queue = SlackFitQueue(waiting)
        for replica in worker.replicas.values():
            replica.queue = queue.add_variant(DIGITS, replica.candidate.table)
        queue.belongs_to(worker)
        made.append(queue)
    return made


@pytest.mark.parametrize(
    ("slack_ms", "waiting", "expected"),
    [
        (500.0, 1, ("good", 1)),  # alone: the most accurate
        (500.0, 8, ("good", 8)),  # slack is ample
        (85.0, 8, ("quick", 8)),  # 80 ms and 80 ms are in one bucket: the larger batch
        (79.0, 8, ("quick", 7)),
        (19.0, 8, ("quick", 1)),
        (9.0, 8, None),
        (45.0, 2, ("good", 2)),  # 40 ms is nearer to the slack than 20 ms
    ],
)
def test_the_bucket_below_the_slack_and_its_largest_batch(
    slack_ms: float, waiting: int, expected: tuple[str, int] | None
) -> None:
    tuples = control_tuples(list(device(QUICK, GOOD).replicas.values()))
    found = slack_fit(tuples, slack_ms, waiting)
    assert (found and (found.replica.key[1], found.batch)) == expected


def test_the_most_urgent_query_decides_for_its_batch() -> None:
    worker = device(QUICK, GOOD)
    (queue,) = queues(worker)
    good = worker.replicas[DIGITS, GOOD.variant]
    for deadline_ms in (500.0, 19.0, 400.0):
        queue.admit(ticket(good, deadline_ms), 0.0)
    first = queue.next_batch(0.0)
    assert first is not None
    assert [item.deadline_ms for item in first.items] == [19.0]
    assert first.queue is worker.replicas[DIGITS, QUICK.variant].queue
    assert [r.in_flight for r in worker.replicas.values()] == [1, 2]
    second = queue.next_batch(10.0)
    assert second is not None
    assert [item.deadline_ms for item in second.items] == [400.0, 500.0]
    assert second.predicted_ms == 40.0


def test_any_device_takes_what_was_counted_on_another() -> None:
    busy, idle = device(QUICK, name="gpu-1"), device(QUICK, GOOD, name="gpu-2")
    first, second = queues(busy, idle)
    first.admit(ticket(busy.replicas[DIGITS, QUICK.variant], 100.0), 0.0)
    assert second.count == 1
    batch = second.next_batch(0.0)
    assert batch is not None
    assert batch.queue is idle.replicas[DIGITS, GOOD.variant].queue
    assert busy.replicas[DIGITS, QUICK.variant].in_flight == 0
    assert (first.count, second.count) == (0, 0)


def test_a_slow_device_leaves_urgent_queries_to_a_fast_one() -> None:
    slow, fast = device(GOOD, name="gpu-1"), device(QUICK, name="gpu-2")
    left, right = queues(slow, fast)
    for deadline_ms in (15.0, 100.0):
        left.admit(ticket(slow.replicas[DIGITS, GOOD.variant], deadline_ms), 0.0)
    taken = left.next_batch(0.0)
    assert taken is not None
    assert [item.deadline_ms for item in taken.items] == [100.0]
    taken = right.next_batch(0.0)
    assert taken is not None
    assert [item.deadline_ms for item in taken.items] == [15.0]


def test_what_nobody_can_answer_in_time_is_dropped() -> None:
    worker = device(QUICK, GOOD)
    (queue,) = queues(worker)
    for deadline_ms in (9.0, 30.0):
        queue.admit(ticket(worker.replicas[DIGITS, GOOD.variant], deadline_ms), 0.0)
    assert [item.deadline_ms for item in queue.pop_expired(0.0)] == [9.0]
    assert queue.wake_ms(0.0) == 30.0


def test_what_is_woken_for_is_dropped_however_quick_a_variant_is() -> None:
    """Or it would be woken for again at the same moment, for ever."""
    instant = candidate("instant", 0.7, 1e-9)
    waiting = Waiting(lambda query: [instant, GOOD])
    worker = device(GOOD)
    queue = worker.queue = SlackFitQueue(waiting)
    good = worker.replicas[DIGITS, GOOD.variant]
    good.queue = queue.add_variant(DIGITS, GOOD.table)
    queue.belongs_to(worker)
    queue.admit(ticket(good, 15.0), 0.0)
    assert queue.next_batch(0.0) is None
    wake_ms = queue.wake_ms(0.0)
    assert [item.deadline_ms for item in queue.pop_expired(wake_ms)] == [15.0]


def test_a_floor_is_kept_whatever_the_slack() -> None:
    worker = device(QUICK, GOOD)
    (queue,) = queues(worker)
    good = worker.replicas[DIGITS, GOOD.variant]
    queue.admit(ticket(good, 25.0, floor=0.8), 0.0)
    queue.admit(ticket(good, 26.0), 0.0)
    batch = queue.next_batch(0.0)
    assert batch is not None
    assert (batch.queue, len(batch.items)) == (good.queue, 1)


def test_a_device_s_own_tasks_come_first_and_the_ends_before_the_middle() -> None:
    """Of three variants of 100 MiB each there is room for two, and for all with 300."""
    middle = candidate("middle", 0.8, 15.0)
    offers = {DIGITS: (QUICK, middle, GOOD)}
    found = {
        mib: [name for _, name in _contents(Slot(kind=GPU, left_mib=mib), offers)]
        for mib in (100.0, 250.0, 300.0)
    }
    assert found == {
        100.0: ["quick"],
        250.0: ["quick", "good"],
        300.0: ["quick", "good", "middle"],
    }
