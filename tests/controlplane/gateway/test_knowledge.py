"""What a gateway knows of its workers, and what it costs the event loop to keep up with them."""

import asyncio
from collections.abc import Iterator

from controlplane.gateway.background import TURN_MS, in_turns


async def test_long_work_lets_the_loop_turn_whenever_it_has_taken_long_enough() -> None:
    now_ms = [0.0]
    turns: list[float] = []

    def turn() -> None:
        turns.append(now_ms[0])
        asyncio.get_running_loop().call_soon(turn)

    def steps() -> Iterator[None]:
        for _ in range(6):
            now_ms[0] += TURN_MS / 2
            yield

    turn()
    await in_turns(steps(), lambda: now_ms[0])
    assert turns[:4] == [0.0, TURN_MS, 2 * TURN_MS, 3 * TURN_MS]
