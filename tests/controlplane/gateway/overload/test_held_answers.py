"""Held answers: in the order of their times, and one that fails does not take others along."""

import asyncio
import time
from functools import partial

import pytest

from controlplane.gateway.overload.held_answers import MOST_PER_S, PAUSE_MS, STEP_MS, HeldAnswers
from tests.controlplane.serving import until


def clock_ms() -> float:
    return time.monotonic() * 1_000


async def test_every_answer_is_given_once() -> None:
    """By a clock that stands, so that a machine that stands still makes none late."""
    now_ms = 10 * STEP_MS
    held = HeldAnswers(lambda: now_ms)
    given: list[int] = []
    for number in range(200):
        held.hold(now_ms + number / 10, partial(given.append, number))
    assert len(held) == 200
    assert not given
    await until(lambda: len(given) == 200)
    assert len(held) == 0
    # Within a step in the order in which they came; steps in theirs.
    steps = [int((now_ms + number / 10) / STEP_MS) for number in given]
    assert steps == sorted(steps)


async def test_a_time_that_has_passed_is_the_next_turn() -> None:
    held, given = HeldAnswers(clock_ms), []
    held.hold(clock_ms() - 1_000.0, lambda: given.append(1))
    assert not given
    await until(lambda: given == [1])


async def test_one_that_fails_is_logged_and_the_others_are_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held, given = HeldAnswers(lambda: 0.0), []

    def fail() -> None:
        raise ValueError

    held.hold(0.0, fail)
    held.hold(0.0, lambda: given.append(1))
    await asyncio.sleep(0.01)
    await until(lambda: given == [1])
    assert "could not be given" in caplog.text


async def test_more_than_would_come_seldom_are_not_held_for_a_while() -> None:
    """So many that holding does not slow them down are all given at once, not some of them."""
    now_ms = 10 * STEP_MS
    held = HeldAnswers(lambda: now_ms)
    given: list[int] = []
    most = int(MOST_PER_S * 0.03)
    for number in range(most):
        assert held.slows_down(now_ms + 30.0, now_ms)
        held.hold(now_ms + 30.0, partial(given.append, number))
    assert not held.slows_down(now_ms + 31.0, now_ms + 1.0)
    await until(lambda: len(given) == most)
    assert not held.slows_down(now_ms + 30.0, now_ms + 0.9 * PAUSE_MS)
    assert held.slows_down(now_ms + 30.0, now_ms + 1.1 * PAUSE_MS)


async def test_those_who_are_held_for_longer_may_be_more() -> None:
    now_ms = 10 * STEP_MS
    held = HeldAnswers(lambda: now_ms)
    for _ in range(int(MOST_PER_S)):
        assert held.slows_down(now_ms + 1_000.0, now_ms)
        held.hold(now_ms + 1_000.0, lambda: None)
    assert not held.slows_down(now_ms + STEP_MS, now_ms)
