"""What a gateway expects of the queries that others send to its workers."""

from math import inf

import pytest

from planner.selection.load_balancing import EXPECTED_AT_ONCE, EXPECTED_EVERY_MS, OthersQueries
from planner.types import WorkerView
from tests.planner.builders import worker
from variants.types import DeviceKindName, WorkerId


def replying(*replies: tuple[float, float]) -> WorkerView:
    """A worker that has replied at these times with these backlogs, in ms."""
    view = WorkerView(id=WorkerId("w1"), device_kind=DeviceKindName("cpu"))
    for at_ms, backlog_ms in replies:
        view.told(backlog_ms, at_ms)
    return view


def test_what_is_sent_is_work_after_all_that_was_given() -> None:
    view = replying()
    view.given(10.0, 100.0)
    assert view.busy_until_ms == 110.0
    view.given(5.0, 102.0)
    assert view.busy_until_ms == 115.0
    view.given(5.0, 200.0)
    assert view.busy_until_ms == 205.0


def test_a_reply_says_how_long_the_queue_is() -> None:
    view = replying()
    view.given(10.0, 100.0)
    assert view.told(4.0, 103.0)
    assert view.busy_until_ms == 107.0
    assert not view.told(30.0, 105.0)
    assert view.busy_until_ms == 135.0


def test_who_alone_sends_expects_nothing_of_others() -> None:
    """Each reply has the queue that was thought."""
    view = replying()
    for at_ms in range(100, 1_000, 50):
        view.given(30.0, float(at_ms))
        view.told(20.0, at_ms + 10.0)
    view.expect(1_020.0)
    assert (view.others_ms, view.busy_until_ms) == (0.0, 980.0)


def test_the_longer_a_worker_says_nothing_the_more_others_have_sent() -> None:
    """At replies 40 ms apart it has 24 ms of work, though nothing was sent from here."""
    view = replying(*((40.0 * number, 24.0) for number in range(1, 200)))
    last_ms = 40.0 * 199
    assert view.others_ms == pytest.approx(24.0, abs=0.1)
    assert view.silence_ms == pytest.approx(40.0)

    expected = []
    for since_ms in (0.0, 10.0, 30.0, 40.0, 400.0):
        view.expect(last_ms + since_ms)
        expected.append(view.busy_until_ms - last_ms - since_ms)

    assert expected == pytest.approx([24.0, 20.0, 18.0, 24.0, 24.0], abs=0.1)


def test_what_is_expected_only_makes_a_queue_longer() -> None:
    view = replying(*((40.0 * number, 24.0) for number in range(1, 100)))
    view.busy_until_ms = 1e9
    view.expect(5_000.0)
    assert view.busy_until_ms == 1e9
    view.told(1.0, 5_000.0)
    assert view.busy_until_ms == 5_001.0


def test_a_queue_shorter_than_was_thought_is_no_negative_work_of_others() -> None:
    view = replying()
    for number in range(1, 50):
        view.given(30.0, 100.0 * number)
        view.told(0.0, 100.0 * number + 5.0)
    assert view.others_ms < 0.0
    view.expect(6_000.0)
    assert view.busy_until_ms == 4_905.0


def test_replies_of_one_batch_count_as_one() -> None:
    view = replying((100.0, 50.0), (100.2, 49.8), (100.4, 49.6), (200.0, 40.0))
    assert view.replies == 2
    assert view.busy_until_ms == 240.0


def test_of_many_workers_some_are_looked_at_with_each_query() -> None:
    views = [replying(*((40.0 * n, 24.0) for n in range(1, 9))) for _ in range(70)]
    others = OthersQueries()
    others.follow(views)

    for number in range(3):
        assert others.due_ms == -inf
        others.look(1_000.0)
        raised = sum(view.busy_until_ms > 1_000.0 for view in views)
        assert raised == min(70, EXPECTED_AT_ONCE * (number + 1))
    assert others.due_ms == 1_000.0 + EXPECTED_EVERY_MS


def test_without_workers_nothing_is_due_for_a_while() -> None:
    others = OthersQueries()
    others.look(50.0)
    assert others.due_ms == 50.0 + EXPECTED_EVERY_MS
    others.follow([worker("w1")])
    assert others.due_ms == -inf
