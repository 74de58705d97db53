"""The clock of a turn: what is read in one turn came at one time."""

import asyncio

from controlplane.gateway.http.turn_clock import TurnClock


async def test_what_is_read_in_one_turn_came_when_it_began() -> None:
    now_ms = 10.0
    turn = TurnClock(lambda: now_ms)
    assert turn.arrived_ms() == 10.0
    now_ms = 25.0
    assert turn.arrived_ms() == 10.0
    await asyncio.sleep(0)
    assert turn.arrived_ms() == 25.0
