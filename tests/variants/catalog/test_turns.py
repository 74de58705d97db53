"""Whose turn it is to write, of the threads of one process."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from variants.catalog.database import Turns
from variants.errors import StateUnavailable

PATIENCE_S = 60.0


def waiting(turns: Turns) -> int:
    return len(turns._waiting)


def until(turns: Turns, count: int) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while waiting(turns) < count:
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    turns, order = Turns(), []

    def write(number: int) -> None:
        with turns.turn(PATIENCE_S):
            order.append(number)

    with ThreadPoolExecutor(5) as threads:
        with turns.turn(PATIENCE_S):
            asked = []
            for number in range(5):
                asked.append(threads.submit(write, number))
                until(turns, number + 1)
        for one in asked:
            one.result()
    assert order == list(range(5))


def test_one_at_a_time_has_it() -> None:
    turns, inside, most = Turns(), 0, 0
    counting = threading.Lock()

    def write() -> None:
        nonlocal inside, most
        for _ in range(50):
            with turns.turn(PATIENCE_S):
                with counting:
                    inside += 1
                    most = max(most, inside)
                with counting:
                    inside -= 1

    with ThreadPoolExecutor(4) as threads:
        for one in [threads.submit(write) for _ in range(4)]:
            one.result()
    assert (most, inside, waiting(turns)) == (1, 0, 0)


def test_who_loses_patience_is_told_and_holds_up_nobody() -> None:
    turns = Turns()
    with turns.turn(PATIENCE_S), ThreadPoolExecutor(1) as threads:
        late = threads.submit(turns.turn(0.01).__enter__)
        with pytest.raises(StateUnavailable, match=r"others have written for 0\.01 s"):
            late.result()
    with turns.turn(0.01):
        assert waiting(turns) == 0


def test_a_write_that_fails_gives_its_turn_on() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="no"), turns.turn(PATIENCE_S):
        raise ValueError("no")
    with turns.turn(0.01):
        pass
