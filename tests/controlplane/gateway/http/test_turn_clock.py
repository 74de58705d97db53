"""The clock of a turn: what is read in one turn came at one time, and when that was."""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from controlplane.gateway.http.turn_clock import PACE_MS, TICK_MS, Arrival, TurnClock


async def test_what_is_read_in_one_turn_came_when_it_began() -> None:
    now_ms = 10.0
    turn = TurnClock(lambda: now_ms)
    assert turn.arrived_ms() == 10.0
    now_ms = 25.0
    assert turn.arrived_ms() == 10.0
    await asyncio.sleep(0)
    assert turn.arrived_ms() == 25.0


async def test_what_the_turn_before_did_not_find_came_after_it() -> None:
    now_ms = 10.0
    turn = TurnClock(lambda: now_ms)
    turn.arrived_ms()
    await asyncio.sleep(0)
    now_ms = 30.0
    turn.arrived_ms()
    now_ms = 35.0  # the last that is read in that turn
    assert turn.lain_ms(told_ms=12.0) == 7.0 - TICK_MS  # it may be a tick less
    assert turn.lain_ms(told_ms=4.0) == 0.0  # it came after the turn began
    assert turn.lain_ms(told_ms=400.0) == 20.0
    await asyncio.sleep(0)
    now_ms = 36.0
    turn.arrived_ms()
    assert turn.lain_ms(told_ms=400.0) == 6.0
    now_ms += TICK_MS / 2
    await asyncio.sleep(0)
    turn.arrived_ms()
    assert turn.lain_ms(told_ms=400.0) == TICK_MS / 2


async def lain(
    turns: int, gap_ms: float, aged: Callable[[float], float]
) -> list[tuple[float, float]]:
    """What a clock says after turns that come so often, and what is true of each of them.

    Args:
        aged: how old bytes are, of a number in [0, 1).
    """
    random, now_ms, found = Random(1), 1_000.0, []
    turn = TurnClock(lambda: now_ms)
    for _ in range(turns):
        now_ms += gap_ms * random.uniform(0.8, 1.2)
        turn.arrived_ms()
        true_ms = aged(random.random())
        ticks = now_ms // TICK_MS - (now_ms - true_ms) // TICK_MS
        found.append((turn.lain_ms(ticks * TICK_MS), true_ms))
        await asyncio.sleep(0)
    return found[turns // 2 :]


@pytest.mark.parametrize("gap_ms", [2.0, 3.5, 20.0])
async def test_what_is_read_as_it_comes_is_hardly_thought_older(gap_ms: float) -> None:
    """The kernel tells a tick of those between which and their reading one began."""
    found = await lain(2_000, gap_ms, lambda part: 0.1 * part)
    assert max(thought_ms for thought_ms, _ in found) < 1.5
    assert sum(thought_ms for thought_ms, _ in found) / len(found) < 0.3


@pytest.mark.parametrize("gap_ms", [1.0, 2.0, 3.5, 7.0])
async def test_what_lies_until_a_turn_ends_is_hardly_thought_younger(gap_ms: float) -> None:
    found = await lain(2_000, gap_ms, lambda part: 0.8 * gap_ms * part)
    younger = [true_ms - thought_ms for thought_ms, true_ms in found if thought_ms < true_ms]
    assert len(younger) < 0.25 * len(found)
    assert max(younger, default=0.0) < 0.5 * gap_ms


async def test_a_long_turn_catches_up_at_its_pace() -> None:
    now_ms, caught_up_ms = 10.0, []
    turn = TurnClock(lambda: now_ms, lambda: caught_up_ms.append(now_ms))
    for began_ms in (10.0, 20.0):
        now_ms = began_ms
        turn.arrived_ms()
        for quarter in range(1, 10):
            now_ms = began_ms + quarter * PACE_MS / 4
            turn.pace()
        await asyncio.sleep(0)
    assert caught_up_ms == [10.0 + PACE_MS, 10.0 + 2 * PACE_MS, 20.0 + PACE_MS, 20.0 + 2 * PACE_MS]


class Transport:
    """As much of one as ``Arrival`` asks for."""

    def __init__(self, connection: socket.socket | None) -> None:
        self.connection = connection

    def get_extra_info(self, _name: str) -> Any:
        return self.connection


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's kernel tells")
def test_the_kernel_says_how_long_bytes_have_waited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        served, _ = server.accept()
    with client, served:
        arrival = Arrival(Transport(served))
        before_s = time.monotonic()
        client.sendall(b"x")
        served.recv(1, socket.MSG_PEEK)
        began_s = time.monotonic()
        time.sleep(0.08)
        waited_ms = arrival.waited_ms()
        most_ms = 1_000 * (time.monotonic() - before_s)
        assert 0.0 < waited_ms <= most_ms + TICK_MS
        assert waited_ms >= 1_000 * (time.monotonic() - began_s) - (most_ms - 80.0) - 20.0
        assert served.recv(1) == b"x"  # and nothing was taken or closed


def test_of_what_is_no_tcp_connection_nothing_is_known() -> None:
    assert Arrival(Transport(None)).waited_ms() == 0.0
    one, other = socket.socketpair()
    with one, other:
        assert Arrival(Transport(one)).waited_ms() == 0.0
