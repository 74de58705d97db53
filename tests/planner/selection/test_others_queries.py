"""What a gateway expects of the queries that others send to its workers."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.selection.load_balancing import (
    EXPECTED_AT_ONCE,
    EXPECTED_EVERY_MS,
    OthersQueries,
    expected_first,
    least_busy,
)
from planner.types import WorkerView
from tests.planner.builders import NOW_MS, worker
from variants.types import DeviceKindName, Prefer, WorkerId


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
    assert (view.others_ms, view.expected_until_ms(1_020.0)) == (0.0, 980.0)


def test_the_longer_a_worker_says_nothing_the_more_others_have_sent() -> None:
    """At replies 40 ms apart it has 24 ms of work, though nothing was sent from here."""
    view = replying(*((40.0 * number, 24.0) for number in range(1, 200)))
    last_ms = 40.0 * 199
    assert view.others_ms == pytest.approx(24.0, abs=0.1)
    assert view.silence_ms == pytest.approx(40.0)

    times_ms = [last_ms + since_ms for since_ms in (0.0, 10.0, 30.0, 40.0, 400.0)]
    expected = [view.expected_until_ms(now_ms) - now_ms for now_ms in times_ms]

    assert expected == pytest.approx([24.0, 20.0, 18.0, 24.0, 24.0], abs=0.1)


def test_what_is_expected_only_makes_a_queue_longer() -> None:
    view = replying(*((40.0 * number, 24.0) for number in range(1, 100)))
    view.busy_until_ms = 1e9
    assert view.expected_until_ms(5_000.0) == 1e9
    view.told(1.0, 5_000.0)
    assert view.busy_until_ms == 5_001.0


def test_a_queue_shorter_than_was_thought_is_no_negative_work_of_others() -> None:
    view = replying()
    for number in range(1, 50):
        view.given(30.0, 100.0 * number)
        view.told(0.0, 100.0 * number + 5.0)
    assert view.others_ms < 0.0
    assert view.expected_until_ms(6_000.0) == 4_905.0


def test_replies_of_one_batch_count_as_one() -> None:
    view = replying((100.0, 50.0), (100.2, 49.8), (100.4, 49.6), (200.0, 40.0))
    assert view.replies == 2
    assert view.busy_until_ms == 240.0


def test_of_many_workers_some_are_looked_at_with_each_query() -> None:
    views = [replying(*((40.0 * n, 24.0) for n in range(1, 9))) for _ in range(70)]
    others = OthersQueries()
    others.follow(views, Prefer.ACCURACY)

    for number in range(3):
        assert others.due_ms == -inf
        others.look(1_000.0)
        raised = sum(view.busy_until_ms > 1_000.0 for view in views)
        assert raised == min(70, EXPECTED_AT_ONCE * (number + 1))
    assert others.due_ms == 1_000.0 + EXPECTED_EVERY_MS


def test_where_plans_save_cost_workers_are_not_looked_at_all_the_time() -> None:
    others = OthersQueries()
    assert others.due_ms == inf
    others.follow([worker("w1")], Prefer.ACCURACY)
    assert others.due_ms == -inf
    others.follow([worker("w1")], Prefer.COST)
    assert others.due_ms == inf


BUSY = st.lists(st.tuples(st.floats(-50.0, 50.0), st.floats(-5.0, 0.0)), min_size=1, max_size=80)


@given(BUSY, st.integers(0, 2**62), st.integers(0, 80))
def test_where_nothing_is_expected_of_others_who_is_free_first_is_the_same(
    waits: list[tuple[float, float]], draw: int, avoid: int
) -> None:
    views = tuple(worker(f"w{number}", busy_ms=wait) for number, (wait, _) in enumerate(waits))
    for view, (_, others_ms) in zip(views, waits, strict=True):
        view.others_ms = others_ms
    avoided = WorkerId(f"w{avoid}")
    assert expected_first(views, draw, NOW_MS, avoided) is least_busy(views, draw, NOW_MS, avoided)


def test_a_worker_to_which_others_send_is_not_taken_for_idle() -> None:
    quiet, popular = worker("w1", busy_ms=10.0), worker("w2")
    popular.others_ms = 30.0
    assert least_busy((popular, quiet), 0, NOW_MS, None) is popular
    assert expected_first((popular, quiet), 0, NOW_MS, None) is quiet


def test_who_is_alone_takes_no_longer_batches_for_others_queries() -> None:
    """Each batch takes 10 ms longer than is thought, and the worker says that nobody else asks."""
    alone, among_others = replying(), replying()
    for view, askers in ((alone, 1), (among_others, 2)):
        for at_ms in range(100, 1_000, 50):
            view.given(30.0, float(at_ms))
            view.asked_by(askers, 10_000.0, float(at_ms))
            view.told(30.0, at_ms + 10.0)
    assert (alone.others_ms, alone.shared) == (0.0, False)
    assert among_others.others_ms > 5.0
    assert alone.busy_until_ms == among_others.busy_until_ms


def test_what_was_expected_of_others_is_forgotten_once_they_have_gone() -> None:
    view = replying(*((40.0 * number, 24.0) for number in range(1, 200)))
    assert view.others_ms > 20.0
    view.given(5.0, 8_000.0)
    view.asked_by(1, 10_000.0, 8_010.0)
    assert (view.others_ms, view.silence_ms, view.replies) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("askers", "sent_ago_ms", "shared"),
    [(None, 5.0, True), (0, None, False), (1, 5.0, False), (1, None, True), (1, 20_000.0, True),
     (2, 5.0, True), (2, None, True)],
)  # fmt: skip
def test_others_send_where_more_do_than_this_gateway(
    askers: int | None, sent_ago_ms: float | None, shared: bool
) -> None:
    view = replying()
    if sent_ago_ms is not None:
        view.given(1.0, 50_000.0 - sent_ago_ms)
    view.asked_by(askers, 10_000.0, 50_000.0)
    assert view.shared is shared
