"""Feedback that comes to another machine than the one whose gateway gave the answer.

The gateway that was told asks all others through the live state, under a token, and takes the first
answer of one that knows. Nothing is kept there for it but answers, for seconds, and no query has a
part in it: which gateway answered is not written down anywhere.
"""

import asyncio
from collections.abc import Callable, Mapping
from secrets import token_hex
from time import monotonic
from typing import Any

from controlplane.live_state import LiveState
from variants.errors import StateUnavailable

PATIENCE_S = 1.0
"""How long all gateways together may take to say whether the answer was theirs."""
AT_ONCE = 2
"""Words that one gateway asks about at once; others wait. Each goes to all gateways, so that a
client who makes up request ids keeps them no busier than this."""

Told = Mapping[str, Any]
"""Names an error, or has what was ``judged``; with neither, its gateway does not know of it."""


class Elsewhere:
    """Asks the gateways of all machines, and answers them."""

    def __init__(self, live: LiveState, own: Callable[[Told], Told]) -> None:
        """
        Args:
            own: what this gateway says of a word, which is answered to others.
        """
        self._live = live
        self._own = own
        self._places = asyncio.Semaphore(AT_ONCE)

    async def ask(self, word: Told) -> Told | None:
        """What the gateway says that gave the answer; None where none has.

        Raises:
            StateUnavailable: they could not all be asked.
        """
        async with self._places:
            token, until_s = token_hex(16), monotonic() + PATIENCE_S
            for _ in range(await self._live.ask(token, word)):
                left_s = until_s - monotonic()
                said = await self._live.answers(token, left_s) if left_s > 0 else None
                if said is None:
                    raise StateUnavailable(
                        "not all gateways of other machines say whether the answer was theirs"
                    )
                if said:
                    return said
        return None

    async def answer(self, token: str, word: Told) -> None:
        """Answer what another gateway asks under a token.

        Raises:
            StateUnavailable: it cannot be told.
        """
        await self._live.answer(token, self._own(word))
