"""What is announced to all who listen, and what gateways ask each other."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from controlplane.live_state.connection import PREFIX, Connection, decode

ENDING = "ending"
"""Announced when everything is about to be stopped. It is kept nowhere, for the next start."""

ANSWERS_TTL_S = 5


class Announcements(Connection):
    """The part of the live state that is heard when it is said, or missed."""

    async def notify(self, what: str) -> None:
        """Announce a change, or ``ENDING``, to all readers of ``changes``."""
        await self._call(self._redis.publish(f"{PREFIX}changed", what))

    async def changes(self) -> AsyncIterator[str]:
        """What changed, as it is announced; ends with ``StateUnavailable`` when the server goes.

        An announcement may be missed, so readers of this poll as well.
        """
        async with aclosing(self._said("changed")) as heard:
            async for said in heard:
                yield said.decode()

    async def ask(self, token: str, question: Mapping[str, Any]) -> int:
        """Ask all gateways that listen (``questions``); how many these are, the asker included."""
        body = orjson.dumps({"token": token, "question": question})
        return int(await self._call(self._redis.publish(f"{PREFIX}asked", body)))

    async def questions(
        self, listening: Callable[[], None] = lambda: None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What gateways are asked, with the token to answer by, as long as the server is there. Who
        does not listen at that moment never hears of it.

        Args:
            listening: called when from now on all is heard.

        Raises:
            StateUnavailable: the server is gone, or another program writes there.
        """
        async with aclosing(self._said("asked", listening)) as heard:
            async for said in heard:
                asked = decode(said)
                yield str(asked.get("token")), dict(asked.get("question") or {})

    async def answer(self, token: str, said: Mapping[str, Any]) -> None:
        """Answer a question, for a few seconds."""
        key = f"{PREFIX}answers:{token}"
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(key, orjson.dumps(said))
        pipeline.expire(key, ANSWERS_TTL_S)
        await self._call(pipeline.execute())

    async def answers(self, token: str, wait_s: float) -> dict[str, Any] | None:
        """One answer to a question, which is then gone; None where none comes in time.

        Args:
            wait_s: less than what this server may take for any reply.
        """
        found = await self._call(self._redis.blpop([f"{PREFIX}answers:{token}"], timeout=wait_s))
        return None if found is None else decode(found[1])
